# make demo   the whole loop on a folder it makes: no key, no network
# make test   all tests
# make check  ruff, mypy --strict, the architecture
# make ecosystem  modules of others on our kernel, ours on the published one, and what differs
# make bench  speed, beside limits measured in the same run
# make chaos  kill the program at random moments (KILLS=20), and compare what was accepted with what was done

PYTHON ?= python3
KILLS ?= 20
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PROJECTS := pyproject.toml $(wildcard plugins/*/pyproject.toml)
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
PACKAGES := amplifier_core amplifier_foundation $(foreach plugin,$(PLUGINS),$(wildcard $(plugin)/amplifier_*))

.PHONY: demo test check bench chaos ecosystem
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

$(READY): $(PROJECTS) constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "amplifier needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	@echo "Installing into $(VENV) (once) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt \
		-e '.[dev]' $(foreach plugin,$(PLUGINS),-e $(plugin))
	@touch $@
