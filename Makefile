# fsspeckit: `make help` lists everything.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
JAVA = export JAVA_HOME="$$(scripts/java-home)"

.PHONY: help demo test check format bench clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 12

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fsspeckit needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[duckdb,spark]' --group dev
	@touch $@

demo: $(READY) ## build a small sample lake, plan a merge, merge, show what happened
	@$(JAVA) && $(BIN)/fsspeckit demo

test: check ## all tests (and check); EXAMPLES=3000 draws more property examples
	@$(JAVA) && $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(if $(EXAMPLES),--examples=$(EXAMPLES)) $(ARGS)

check: $(READY) ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## benchmarks, as ratios
	$(BIN)/python benchmarks/merge_ratio.py
	$(BIN)/python benchmarks/peak_memory.py

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
