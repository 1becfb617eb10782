# make demo       try everything in a new folder: no key, no network
# make test       run each test with its first SHARE=1 cases, and so many of each slow file; ALL=yes runs all, in PROCESSES=4 processes
# make check      run ruff, mypy --strict and the tests of the architecture
# make ecosystem  run modules of others on this kernel and these on the published one, and list the differences
# make bench      measure speed beside peers and references of the same run, and the last release; ONLY="hooks files" JSON=figures.json
# make chaos      kill the program at each step and at KILLS=200 random moments; compare accepted and handled events
# make streams    let model services fail by SCHEDULES=10000 random schedules, and kill the program after each event of a stream
# make soak       run for MINUTES=60 while disks fill, folders go, ports are taken and bundles change
# make year       let DAYS=365 pass on a simulated clock; the store stays within its bound
# make faults     fail stores at each STRIDE=1 system call, cut them at CUTS=4096 places, flip FLIPS=2000 bits; expect an error, or no harm
# make flows      kill the runs of a workflow of TASKS=200 tasks at KILLS=200 random moments; no turn is lost or taken twice
# make foreman    kill a foreman's workers at KILLS=100 random moments of ISSUES=50 issues; each is done once, with its branch
# make hosts      kill hosts on one PostgreSQL KILLS=500 times, freeze them ZOMBIES=100 times, cut them off PARTITIONS=50 times, kill the server OUTAGES=20 times
# make mutations  damage real bundles in COUNT=100000 ways; each loads, or gets an error with its place
# make screenshots take the pictures of the page in its README from the demo
# make editors    change the messages of an editor in MUTATIONS=20000 ways; each request gets one answer, and the agent goes on

PYTHON ?= python3
KILLS ?= 200
TASKS ?= 200
ISSUES ?= 50
SCHEDULES ?= 10000
ZOMBIES ?= 100
PARTITIONS ?= 50
OUTAGES ?= 20
COUNT ?= 100000
MUTATIONS ?= 20000
STRIDE ?= 1
FLIPS ?= 2000
CUTS ?= 4096
MINUTES ?= 60
DAYS ?= 365
PROCESSES ?= 4
SHARE ?= 1
# The files of tests lie in memory where there is room: a killed process loses nothing there, and no commit waits for a disk.
MEMORY = $(shell test "$$(df -kP /dev/shm 2>/dev/null | awk 'END { print $$4 }')" -ge 6000000 2>/dev/null \
	&& ! grep -q '^[^ ]* /dev/shm [^ ]* [^ ]*noexec' /proc/mounts && echo /dev/shm)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PROJECTS := pyproject.toml $(wildcard plugins/*/pyproject.toml)
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
PACKAGES := amplifier_core amplifier_foundation $(foreach plugin,$(PLUGINS),$(wildcard $(plugin)/amplifier_*))

unexport PYTHONDONTWRITEBYTECODE # Python keeps what it has compiled: tests begin sooner, and so does each process of theirs

.PHONY: demo test check bench chaos streams soak year flows foreman hosts faults mutations editors ecosystem screenshots
.DEFAULT_GOAL := demo

demo: $(READY)
	@$(BIN)/amplifier demo

test: $(READY)
	@folder=$$(mktemp -d -p "$(or $(MEMORY),$${TMPDIR:-/tmp})"); \
	$(BIN)/python -m pytest -q -n $(PROCESSES) $(if $(ALL),,--share=$(SHARE)) --dist loadfile --no-loadscope-reorder \
		--max-worker-restart=0 --basetemp=$$folder/tests; \
	code=$$?; rm -rf $$folder; exit $$code

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy $(PACKAGES)
	@$(BIN)/python -m pytest -q tests/test_architecture.py

ecosystem: $(READY)
	@$(BIN)/python -m tests.ecosystem || test $$? -eq 75

bench: $(READY)
	@$(BIN)/python -m tests.benchmarks $(ONLY) $(if $(JSON),--json $(JSON)) $(if $(AGAINST),--against $(AGAINST))

chaos: $(READY)
	@KILLS=$(KILLS) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 \
		tests/system/test_kills.py tests/system/test_approvals.py $(wildcard plugins/*/tests/test_transfer.py)

streams: $(READY)
	@SCHEDULES=$(SCHEDULES) PLACES=1000 STREAMS=200 $(BIN)/python -m pytest -q -n 2 -rP -o faulthandler_timeout=0 \
		tests/system/test_streams.py tests/system/test_stream_kills.py tests/system/test_many_streams.py

soak: $(READY)
	@MINUTES=$(MINUTES) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 tests/system/test_soak.py

year: $(READY)
	@DAYS=$(DAYS) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 tests/system/test_year.py

flows: $(READY)
	@KILLS=$(KILLS) TASKS=$(TASKS) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 tests/system/test_flow_kills.py

hosts: KILLS = 500
hosts: $(READY)
	@KILLS=$(KILLS) ZOMBIES=$(ZOMBIES) PARTITIONS=$(PARTITIONS) OUTAGES=$(OUTAGES) $(BIN)/python -m pytest -q -s \
		-o faulthandler_timeout=0 tests/system/test_hosts.py

foreman: KILLS = 100
foreman: $(READY)
	@KILLS=$(KILLS) ISSUES=$(ISSUES) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 tests/system/test_foreman_kills.py

faults: $(READY)
	@STRIDE=$(STRIDE) FLIPS=$(FLIPS) CUTS=$(CUTS) $(BIN)/python -m pytest -q -n 2 --durations=10 -o faulthandler_timeout=0 \
		tests/system/test_store_faults.py tests/system/test_jsonl_faults.py

mutations: $(READY)
	@COUNT=$(COUNT) $(BIN)/python -m pytest -q -n 2 -rP tests/foundation/bundle/test_mutations.py

editors: $(READY)
	@MUTATIONS=$(MUTATIONS) $(BIN)/python -m pytest -q -rP -o faulthandler_timeout=0 \
		plugins/amplifier-acp/tests/test_bad_input.py -k mutation

screenshots: $(READY)
	@$(BIN)/python plugins/amplifier-dashboard/screenshots/make.py

$(READY): $(PROJECTS) constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "amplifier needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	@echo "Installing into $(VENV) (once) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables setuptools wheel
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt \
		-e '.[dev]' $(foreach plugin,$(PLUGINS),-e $(plugin))
	@touch $@
