# Two commands to begin with: `make run` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
WORKERS ?= 2

.PHONY: run test test-statistics test-engines test-service serve-demo goldens mutate lint format types imports bench warmup setup clean help
.DEFAULT_GOAL := help

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "discreet needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/discreet warmup
	@touch $@

setup: $(STAMP) ## Create .venv, install everything, compile the kernels

run: $(STAMP) ## Private and non-private exploration side by side: a table and a figure in results/showcase
	$(BIN)/discreet sweep docs/examples/showcase.toml --out results/showcase
	$(BIN)/discreet compare results/showcase

warmup: $(STAMP) ## Compile whatever changed since the last time
	@$(BIN)/discreet warmup

test: lint types imports warmup ## Lint, types, import contracts, tests
	$(BIN)/python -m pytest -n $(WORKERS) -m "not statistics and not engines and not service"

test-statistics: warmup ## The slow statistical suite (at most 45 minutes on two cores)
	$(BIN)/python -m pytest -n $(WORKERS) -m statistics

test-engines: warmup ## Dask, Ray and submitit with real workers, some of them killed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,dask,ray,slurm]' pyspark
	$(BIN)/python -m pytest -n 0 -m engines tests/engines

test-service: warmup ## The policy service under load, killed and fuzzed (at most 20 minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,serve]' schemathesis 'psycopg[binary]'
	$(BIN)/python -m pytest -n 0 -m service tests/serve

serve-demo: warmup ## A policy service and 1 000 simulated people who use it; prints the address of its page
	$(BIN)/discreet serve docs/examples/service/study.toml --rehearse 1000

goldens: warmup ## Rewrite what tests/goldens compares with: only where a fault was mended
	$(BIN)/python -m tests.goldens

mutate: warmup ## Put small faults into the trusted core: do the tests notice? (docs/mutants.md; an hour or two)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,mutate]'
	$(BIN)/python -m studies.mutants --out results/mutants

lint: $(STAMP) ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## Repair style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP) ## Types
	$(BIN)/mypy

imports: $(STAMP) ## Which room may import which
	$(BIN)/lint-imports

bench: warmup ## Microseconds per episode, side by side
	$(BIN)/python benchmarks/run.py

clean: ## Forget the environment and every cache in this folder
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
