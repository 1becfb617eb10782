# make demo   the whole loop on a folder it makes: no key, no network
# make test   all tests
# make check  ruff, mypy --strict, the architecture
# make ecosystem  modules of others on our kernel, ours on the published one, and what differs
# make bench  speed, beside limits measured in the same run
# make chaos  kill the program at each step and at random moments (KILLS=200), and compare what was accepted with what was done
# make faults  kill stores at each STRIDE=1 system call, cut them at CUTS=4096 places, flip FLIPS=2000 bits: said, or harmless
# make mutations  damage real bundles in COUNT=100000 ways; each loads, or is told what is wrong and where

PYTHON ?= python3
KILLS ?= 200
COUNT ?= 100000
STRIDE ?= 1
FLIPS ?= 2000
CUTS ?= 4096
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PROJECTS := pyproject.toml $(wildcard plugins/*/pyproject.toml)
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
PACKAGES := amplifier_core amplifier_foundation $(foreach plugin,$(PLUGINS),$(wildcard $(plugin)/amplifier_*))

.PHONY: demo test check bench chaos faults mutations ecosystem
.DEFAULT_GOAL := demo

demo: $(READY)
	@$(BIN)/amplifier demo

test: $(READY)
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy $(PACKAGES)
	@$(BIN)/python -m pytest -q tests/test_architecture.py

ecosystem: $(READY)
	@$(BIN)/python -m tests.ecosystem || test $$? -eq 75

bench: $(READY)
	@$(BIN)/python -m tests.benchmarks

chaos: $(READY)
	@KILLS=$(KILLS) $(BIN)/python -m pytest -q -s tests/system/test_kills.py

faults: $(READY)
	@STRIDE=$(STRIDE) FLIPS=$(FLIPS) CUTS=$(CUTS) $(BIN)/python -m pytest -q -n 2 --durations=10 \
		tests/system/test_store_faults.py tests/system/test_jsonl_faults.py

mutations: $(READY)
	@COUNT=$(COUNT) $(BIN)/python -m pytest -q -n 2 -rP tests/foundation/bundles/test_mutations.py

$(READY): $(PROJECTS) constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "amplifier needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	@echo "Installing into $(VENV) (once) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt \
		-e '.[dev]' $(foreach plugin,$(PLUGINS),-e $(plugin))
	@touch $@
