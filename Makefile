# Two commands to begin with: `make run` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.ready
WARM := $(VENV)/.warm
WORKERS ?= 2
# Neighbours in a file share what they set up: each worker begins with a part of its own, and helps when it is done.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Byte code is kept, whatever the shell says: else every process that a test starts compiles the library again.
unexport PYTHONDONTWRITEBYTECODE
# The order of sets is the same in every run.
export PYTHONHASHSEED := 0

.PHONY: run test test-statistics test-chance test-engines test-oracles test-agents test-service serve-demo test-docs docs linkcheck goldens mutate coverage bytecode lint format types imports wheel-check bench warmup setup clean help
.DEFAULT_GOAL := help

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "discreet needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	@# --no-compile: Python makes the byte code of what is imported, a small part of what is installed.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable .
	@touch $@

$(STAMP): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/discreet warmup
	@touch $@

setup: $(STAMP) ## Create .venv, install everything, compile the kernels

# Needs neither the developers' tools nor all kernels: those that it uses are compiled as it goes.
run: $(INSTALLED) ## Private and non-private exploration side by side: a table and a figure in results/showcase
	$(BIN)/discreet sweep docs/examples/showcase.toml --out results/showcase
	$(BIN)/discreet compare results/showcase

warmup: $(STAMP) ## Compile whatever changed since the last time
	@# The stamp names the folder of the kernels. If it is there and no source is newer, nothing is to be done.
	@test -d "$$(cat $(WARM) 2> /dev/null)" && test -z "$$(find src -name '*.py' -newer $(WARM) | head -n 1)" || \
		{ $(BIN)/discreet warmup && $(BIN)/python -c 'from discreet.core.compile import cache_folder as c; print(c())' > $(WARM); }

FAST := not statistics and not engines and not docs and not service

ifdef PACKAGE
test: $(INSTALLED) ## Lint, types, import contracts, tests; PACKAGE=core [K=expression]: style and tests of one package
	@test -f $(STAMP) || $(MAKE) --no-print-directory setup
	$(BIN)/ruff check src/discreet/$(PACKAGE)* tests/$(PACKAGE)*
	$(PYTEST) -x -m "$(FAST)" $(if $(K),-k "$(K)") $(wildcard tests/$(PACKAGE) tests/test_$(PACKAGE).py)
else
test: $(STAMP)
	@# Types take one core for a while. Beside them the kernels are compiled, also those that only tests call, and
	@# the byte code of the tests. Both workers would otherwise do the same at once.
	@$(MAKE) --no-print-directory --jobs=2 types lint imports bytecode
	$(PYTEST) -m "$(FAST)"
endif

bytecode: warmup
	@test -z "$$(find src tests papers benchmarks -name '*.py' -newer $(VENV)/collected 2>&1 | head -n 1)" || \
		$(BIN)/python -m pytest -n 0 -qq -m "compiles and $(FAST)" > $(VENV)/collected || { cat $(VENV)/collected; rm $(VENV)/collected; exit 1; }

test-statistics: warmup ## The slow statistical suite (at most 45 minutes on two cores)
	$(PYTEST) -m statistics

test-engines: warmup ## Dask, Ray, submitit and Flower with real workers, some of them killed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,dask,ray,slurm]' pyspark
	$(BIN)/python -m pytest -n 0 -m engines tests/engines
	@# Flower holds back typer, rich, protobuf and ray, so that it has an environment of its own
	$(PYTHON) -m venv $(VENV)-flower
	$(VENV)-flower/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,flower]' 'flwr[simulation]'
	$(VENV)-flower/bin/python -m pytest -n 0 -m engines tests/engines/test_flower.py

test-oracles: warmup ## Numbers that OpenDP, dp-accounting and dpcrpy compute too
	$(BIN)/python -m pip install --quiet --disable-pip-version-check opendp dpcrpy
	$(BIN)/python -m pytest -n 0 tests/accounting/budget/test_oracles.py

# d3rlpy holds back Gymnasium. TORCH is where and which PyTorch to take: on Linux the newest one brings CUDA.
TORCH ?= torch<2.14
test-agents: warmup ## The tutorial, gallery and tests of agents with Stable-Baselines3, d3rlpy and Minari
	$(PYTHON) -m venv $(VENV)-agents
	$(VENV)-agents/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,agents]' '$(TORCH)'
	$(VENV)-agents/bin/python -m pytest -n 0 tests/envs/test_world_env.py tests/envs/test_world_env_sb3.py tests/docs -k "world_env or agents"

test-chance: warmup ## Repeat RUNS times what is not fixed: tests that draw fresh bytes or wait, every second run under load
	$(BIN)/python tests/helpers/chance_runs.py --runs $(or $(RUNS),30) --workers $(WORKERS)

test-docs: warmup ## Every block of Python and every command that a page shows
	$(BIN)/python tests/helpers/pages.py
	$(BIN)/python -m pytest -n $(WORKERS) -m docs tests/docs

docs: warmup ## The site, site/index.html: pages, gallery, reference, search; a warning is an error
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	$(BIN)/python -m sphinx -b html -W --keep-going --quiet -j $(WORKERS) docs site

linkcheck: docs ## Links that leave the site (needs the Internet)
	$(BIN)/python -m sphinx -b linkcheck docs site/linkcheck

test-service: warmup ## The policy service under load, killed and fuzzed (at most 20 minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,serve]' schemathesis 'psycopg[binary]' playwright
	@# the JavaScript client and the pages in a browser are tested where Node and Chromium are
	@if command -v npm > /dev/null; then cd clients/js && npm ci --ignore-scripts --silent --no-fund --no-audit; fi
	$(BIN)/python -m pytest -n 0 -m service tests/service

serve-demo: warmup ## A policy service with 1 000 simulated users, then one with a shuffler; each page stays 30 seconds
	$(BIN)/discreet serve docs/examples/service/study.toml --dry-run 1000 --stay 30
	$(BIN)/discreet serve docs/examples/service/shuffle.toml --dry-run 1000 --stay 30

goldens: warmup ## Rewrite what tests/goldens compares with: only where a fault was mended
	$(BIN)/python -m tests.goldens

mutate: warmup ## Put small faults into the trusted core: do the tests notice? (benchmarks/mutants.md; an hour or two)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,mutate]'
	$(BIN)/python -m benchmarks.studies.mutants --out results/mutants

CORE_KERNELS := tests/core/test_*kernels.py tests/core/*/test_*kernels.py tests/core/noise/test_discrete_samplers.py
TOO_SLOW := test_discrete_samplers.py and (law or independent or large or tiny or tail or unbiased)
COVER := $(BIN)/python -m coverage run --branch --source=src/discreet/core --data-file=$(VENV)/coverage
coverage: warmup ## Branches of the core that its own tests do not run (kernels: as Python code, in minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,mutate]'
	$(COVER) -m pytest -q -n 0 -m "$(FAST)" tests/core
	NUMBA_DISABLE_JIT=1 $(COVER) --append -m pytest -q -n 0 -p tests.helpers.interpreted_kernels $(CORE_KERNELS) -k "not ($(TOO_SLOW))"
	$(BIN)/python -m coverage report --data-file=$(VENV)/coverage --show-missing --skip-covered

lint: $(STAMP) ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/plain_english.py src docs README.md --baseline tools/english.json

format: $(STAMP) ## Repair style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP) ## Types
	$(BIN)/mypy

imports: $(STAMP) ## Check which package may import which, and print the imports between packages
	$(BIN)/lint-imports
	$(BIN)/python tools/package_imports.py

wheel-check: ## The wheel in an empty environment, on every Python from 3.11 to 3.13 that is here
	.ci/wheel_check

bench: warmup ## Microseconds per episode, side by side
	$(BIN)/python benchmarks/run.py

clean: ## Forget the environment and every cache in this folder
	rm -rf $(VENV) $(VENV)-flower $(VENV)-agents site docs/made docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
