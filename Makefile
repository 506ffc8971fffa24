# fsspeckit: `make help` lists everything.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
JAVA = export JAVA_HOME="$$(scripts/java-home)"
# Tests and benchmarks start hundreds of processes: where this is set, every one would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
GATEWAY = $(if $(filter versitygw,$(SERVER)),export VERSITYGW="$$(scripts/versitygw)",true)

.PHONY: help demo quick test coverage test-lowest test-old-duckdb test-old-spark test-s3 torture soak fuzz check format hooks \
	bench bench-s3 bench-spark big trace wheel clean
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

quick: check ## check, and the tests that need no Java, in two minutes; PYTHON=python3.14 VENV=.venv-3.14 for another Python
	$(BIN)/python -m pytest $$(scripts/quick-tests) --engines=pyarrow,duckdb -m "not slow" -n $(WORKERS) \
		--dist worksteal $(ARGS)

test: check ## all tests (and check); EXAMPLES=3000 draws more property examples
	@$(JAVA) && $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(if $(EXAMPLES),--examples=$(EXAMPLES)) $(ARGS)

coverage: $(READY) ## what the tests of the PyArrow and DuckDB engines run, sub-processes and threads too, line by line
	$(BIN)/python -m pytest $$(scripts/quick-tests) tests/crash tests/duckdb --engines=pyarrow,duckdb,duckdb-union \
		-n $(WORKERS) --dist worksteal --cov --cov-report=term $(ARGS)

test-lowest: ## the quick tests with the lowest versions that pyproject.toml promises, in an environment of its own
	scripts/test-lowest $(ARGS)

test-old-duckdb: $(READY) ## the DuckDB tests with the oldest DuckDB supported, in an environment of its own
	@$(JAVA) && scripts/test-old-duckdb $(ARGS)

test-old-spark: $(READY) ## the Spark tests with the oldest Spark supported, in an environment of its own
	@$(JAVA) && scripts/test-old-spark $(ARGS)

test-s3: $(READY) ## all tests on object stores, whole: SeaweedFS and moto; SERVER=http://host:port, or versitygw (with Go)
	@$(JAVA) && $(GATEWAY) && FSSPECKIT_S3_WHOLE=1 FSSPECKIT_S3_SERVER=$(SERVER) $(BIN)/python -m pytest tests/s3 \
		-n $(WORKERS) $(ARGS)
	@$(JAVA) && $(GATEWAY) && FSSPECKIT_S3_SERVER=$(SERVER) PYTHONPATH=tests $(BIN)/python -m pytest tests/conformance tests/property \
		-p s3.conftest --place=s3 --engines=pyarrow,duckdb,spark --examples=$(or $(EXAMPLES),30) -n $(WORKERS) $(ARGS)

torture: $(READY) ## a stream killed ten times, a source larger than the driver, 3,000 examples of the property test
	@$(JAVA) && $(BIN)/python -m pytest tests/spark/test_stream.py tests/spark/test_shapes.py --kills=10 --wide $(ARGS)
	$(BIN)/python -m pytest tests/property --engines=pyarrow --examples=3000 $(ARGS)

soak: $(READY) ## random merges of all engines, killed and recovered, against a model; MINUTES=10
	@$(JAVA) && cd tests && ../$(BIN)/python -m soak.run --minutes $(or $(MINUTES),10) $(ARGS)

fuzz: $(READY) ## N=10000 damaged files as source and target, then 3000 to splice; MUTANT=4711 runs one again (ARGS=--splice)
	PYTHONPATH=tests $(BIN)/python -m fuzz.run --workers $(WORKERS) \
		$(if $(MUTANT),--mutant $(MUTANT),--n $(or $(N),10000)) $(if $(SEED),--seed $(SEED)) $(ARGS)
	$(if $(MUTANT),,PYTHONPATH=tests $(BIN)/python -m fuzz.run --splice --workers $(WORKERS) \
		--n $(or $(SPLICED),3000) $(if $(SEED),--seed $(SEED)))

check: $(READY) ## ruff and mypy --strict, over tests, benchmarks and scripts as well
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

format: $(READY) ## let ruff format and fix
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

hooks: $(READY) ## check before every commit
	$(BIN)/python -m pre_commit install

bench: $(READY) ## everyone at every work, to benchmarks/RESULTS.md and README; ARGS="--works tiny --rounds 2 --scale 0.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	scripts/peer-venv
	$(BIN)/python benchmarks/local.py $(ARGS)
	$(BIN)/python benchmarks/report.py

bench-spark: $(READY) ## our merge beside Delta's, Iceberg's and read-join-overwrite; ARGS="--works tiny --rounds 2 --scale 0.1"
	@$(JAVA) && scripts/bench-spark $(ARGS)
	$(BIN)/python benchmarks/report.py

bench-s3: $(READY) ## a merge on an object store beside the same by deltalake on the same server
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	$(BIN)/python benchmarks/s3_ratio.py $(ARGS)

big: $(READY) ## merges far larger than the memory they are given: DuckDB and Spark
	$(BIN)/python benchmarks/big_duckdb.py
	@$(JAVA) && $(BIN)/python benchmarks/big_spark.py

trace: $(READY) ## how many files and functions a two-row upsert runs through, and the lines of every room
	@$(JAVA) && $(BIN)/python scripts/trace_merge.py $(ARGS)

wheel: $(READY) ## build the wheel, and see that it installs and merges on its own
	scripts/build-wheel

clean: ## remove the environment and caches
	rm -rf .venv .venv-* .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
