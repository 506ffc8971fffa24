# fsspeckit: `make help` lists everything.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
JAVA = export JAVA_HOME="$$(scripts/java-home)"

.PHONY: help demo test test-old-duckdb test-old-spark test-s3 torture soak fuzz check format bench bench-s3 big clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## */\1\t/' | expand -t 18

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fsspeckit needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[duckdb,spark,s3]' --group dev
	@touch $@

demo: $(READY) ## build a small sample lake, plan a merge, merge, show what happened
	@$(JAVA) && $(BIN)/fsspeckit demo

test: check ## all tests (and check); EXAMPLES=3000 draws more property examples
	@$(JAVA) && $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(if $(EXAMPLES),--examples=$(EXAMPLES)) $(ARGS)

test-old-duckdb: $(READY) ## the DuckDB tests with the oldest DuckDB supported, in an environment of its own
	@$(JAVA) && scripts/test-old-duckdb $(ARGS)

test-old-spark: $(READY) ## the Spark tests with the oldest Spark supported, in an environment of its own
	@$(JAVA) && scripts/test-old-spark $(ARGS)

test-s3: $(READY) ## all tests on object stores, whole: SeaweedFS and moto, or any endpoint by SERVER=http://host:port
	FSSPECKIT_S3_WHOLE=1 FSSPECKIT_S3_SERVER=$(SERVER) $(BIN)/python -m pytest tests/s3 -n $(WORKERS) $(ARGS)
	FSSPECKIT_S3_SERVER=$(SERVER) PYTHONPATH=tests $(BIN)/python -m pytest tests/conformance tests/property \
		-p s3.conftest --place=s3 --engines=pyarrow,duckdb --examples=$(or $(EXAMPLES),30) -n $(WORKERS) $(ARGS)

torture: $(READY) ## a stream killed ten times, a source larger than the driver, 3,000 examples of the property test
	@$(JAVA) && $(BIN)/python -m pytest tests/spark/test_stream.py tests/spark/test_shapes.py --kills=10 --wide $(ARGS)
	$(BIN)/python -m pytest tests/property --engines=pyarrow --examples=3000 $(ARGS)

soak: $(READY) ## random merges of all engines, killed and recovered, against a model; MINUTES=10
	@$(JAVA) && cd tests && ../$(BIN)/python -m soak.run --minutes $(or $(MINUTES),10) $(ARGS)

fuzz: $(READY) ## N=10000 damaged files as source and target; MUTANT=4711 runs one of them again
	PYTHONPATH=tests $(BIN)/python -m fuzz.run --workers $(WORKERS) \
		$(if $(MUTANT),--mutant $(MUTANT),--n $(or $(N),10000)) $(if $(SEED),--seed $(SEED)) $(ARGS)

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
	@$(JAVA) && $(BIN)/python benchmarks/spark_ratio.py

bench-s3: $(READY) ## a merge on an object store beside the same by deltalake on the same server
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	$(BIN)/python benchmarks/s3_ratio.py $(ARGS)

big: $(READY) ## merges far larger than the memory they are given: DuckDB and Spark
	$(BIN)/python benchmarks/big_duckdb.py
	@$(JAVA) && $(BIN)/python benchmarks/big_spark.py

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
