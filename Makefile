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
GATEWAY = $(if $(filter versitygw,$(SERVER)),export VERSITYGW="$$(scripts/versitygw)",$(if $(filter minio,$(SERVER)),export MINIO="$$(scripts/minio)",true))

.PHONY: help demo quick test coverage test-lowest test-old-duckdb test-old-spark test-spark-versions test-dbt test-readers test-s3 torture soak fuzz check format hooks \
	bench bench-files bench-s3 bench-spark bench-pipelines big trace picture wheel docs clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## */\1\t/' | expand -t 18

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fsspeckit needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[duckdb,spark,s3,sql]' --group dev
	@touch $@

demo: $(READY) ## build a small sample lake, plan a merge, run it, show the result
	@$(JAVA) && $(BIN)/fsspeckit demo

quick: check ## check, and all tests that need no Java (two minutes); PYTHON=python3.14 VENV=.venv-3.14 for another Python
	$(BIN)/python -m pytest $$(scripts/quick-tests) --engines=pyarrow,duckdb -m "not slow" -n $(WORKERS) \
		--dist worksteal $(ARGS)

test: check ## check, and all tests; EXAMPLES=3000 runs more property examples
	@$(JAVA) && $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --readers=all $(if $(EXAMPLES),--examples=$(EXAMPLES)) \
		$(ARGS)

coverage: $(READY) ## line coverage of the PyArrow and DuckDB tests, including subprocesses and threads
	$(BIN)/python -m pytest $$(scripts/quick-tests) tests/crash tests/duckdb --engines=pyarrow,duckdb,duckdb-union \
		-n $(WORKERS) --dist worksteal --cov --cov-report=term $(ARGS)

test-lowest: ## the quick tests with the lowest supported versions of all dependencies, in a separate environment
	scripts/test-lowest $(ARGS)

test-old-duckdb: $(READY) ## the DuckDB tests with the oldest supported DuckDB, in a separate environment
	@$(JAVA) && scripts/test-old-duckdb $(ARGS)

test-old-spark: $(READY) ## the Spark tests with the oldest supported Spark, in a separate environment
	@$(JAVA) && scripts/test-spark 3.5 $(ARGS)

test-spark-versions: $(READY) ## the Spark tests with Spark 3.5, 4.0, 4.1 and the newest, each in its own environment; VERSIONS="4.0 4.1"
	@$(JAVA) && failed="" && for version in $(or $(VERSIONS),3.5 4.0 4.1 newest); do \
		echo "Spark $$version" && scripts/test-spark $$version $(ARGS) || failed="$$failed $$version"; done; \
		test -z "$$failed" || { echo "Failed with Spark:$$failed"; exit 1; }

test-dbt: ## the dbt project in examples/dbt, with dbt-core and dbt-duckdb in an environment of its own
	scripts/test-dbt $(ARGS)

test-readers: $(READY) ## the files and lakes of the conformance suite, read by DuckDB, Polars, DataFusion and Spark; KEEP=folder, ARGS="--minutes 15"
	folder=$${KEEP:-$$(mktemp -d)} && $(BIN)/python -m pytest tests/conformance --engines=pyarrow,duckdb --readers=all \
		--keep-rewritten="$$folder" -n $(WORKERS) --dist worksteal && \
		$(JAVA) && PYTHONPATH=tests $(BIN)/python -m readers.spark "$$folder" $(ARGS)

test-s3: $(READY) ## all object store tests, on SeaweedFS and moto; SERVER=http://host:port, versitygw or minio (built with Go)
	@$(JAVA) && $(GATEWAY) && FSSPECKIT_S3_WHOLE=1 FSSPECKIT_S3_SERVER=$(SERVER) $(BIN)/python -m pytest tests/s3 \
		-n $(WORKERS) $(ARGS)
	@$(JAVA) && $(GATEWAY) && FSSPECKIT_S3_SERVER=$(SERVER) PYTHONPATH=tests $(BIN)/python -m pytest tests/conformance tests/property \
		-p s3.conftest --place=s3 --engines=pyarrow,duckdb,spark --examples=$(or $(EXAMPLES),30) -n $(WORKERS) $(ARGS)

torture: $(READY) ## streams killed ten times and of 100 batches, sources larger than the driver, 20,000 files, four threads that merge fifty times, 3,000 examples of the property test
	@$(JAVA) && $(BIN)/python -m pytest tests/spark/test_stream.py tests/spark/test_shapes.py tests/spark/test_threads.py \
		tests/spark/test_table_stream.py tests/spark/test_settings.py --kills=10 --batches=100 --wide --rounds=50 $(ARGS)
	$(BIN)/python -m pytest tests/property --engines=pyarrow --examples=3000 $(ARGS)

soak: $(READY) ## random merges with all engines, killed and recovered, compared with a model; MINUTES=10
	@$(JAVA) && cd tests && ../$(BIN)/python -m soak.run --minutes $(or $(MINUTES),10) $(ARGS)

fuzz: $(READY) ## N=10000 damaged files as source and target, 3000 to splice, 2000 to compact or change otherwise; MUTANT=4711 repeats one (ARGS="--mode splice")
	PYTHONPATH=tests $(BIN)/python -m fuzz.run --workers $(WORKERS) \
		$(if $(MUTANT),--mutant $(MUTANT),--n $(or $(N),10000)) $(if $(SEED),--seed $(SEED)) $(ARGS)
	$(if $(MUTANT),,PYTHONPATH=tests $(BIN)/python -m fuzz.run --mode splice --workers $(WORKERS) \
		--n $(or $(SPLICED),3000) $(if $(SEED),--seed $(SEED)))
	$(if $(MUTANT),,PYTHONPATH=tests $(BIN)/python -m fuzz.run --mode maintain --workers $(WORKERS) \
		--n $(or $(MAINTAINED),2000) $(if $(SEED),--seed $(SEED)))

check: $(READY) ## ruff and mypy --strict for sources, tests, benchmarks and scripts
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

format: $(READY) ## format and fix with ruff
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

hooks: $(READY) ## install a Git hook that runs check before every commit
	$(BIN)/python -m pre_commit install

bench: $(READY) ## compare with other programs, and update benchmarks/RESULTS.md and docs/performance.md; ARGS="--works tiny --rounds 2 --scale 0.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	scripts/peer-venv
	$(BIN)/python benchmarks/local.py $(ARGS)
	$(BIN)/python benchmarks/report.py

bench-spark: $(READY) ## compare with Delta, Iceberg and read-join-overwrite on Spark; ARGS="--works tiny --rounds 2 --scale 0.1"
	@$(JAVA) && scripts/bench-spark $(ARGS)
	$(BIN)/python benchmarks/report.py

bench-files: $(READY) ## compare compactions, schema changes, undo and readers with others, and update benchmarks/RESULTS.md; about an hour
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	$(BIN)/python benchmarks/compaction.py
	$(BIN)/python benchmarks/schema_changes.py
	$(BIN)/python benchmarks/undo_cost.py
	$(BIN)/python benchmarks/readers_during_merges.py
	@$(JAVA) && scripts/bench-spark --compaction
	$(BIN)/python benchmarks/report.py --files-only

bench-s3: $(READY) ## compare a merge on an object store with deltalake
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	$(BIN)/python benchmarks/s3_ratio.py $(ARGS)

bench-pipelines: $(READY) ## a daily batch, a stream with kills, a cluster that loses executors, 20,000 files; ARGS="--scale 0.1 --only daily"
	@$(JAVA) && PYTHONPATH=benchmarks:tests $(BIN)/python -m pipelines.run $(ARGS)
	$(BIN)/python benchmarks/report.py

big: $(READY) ## merges far larger than the memory limit, with DuckDB and Spark
	$(BIN)/python benchmarks/big_duckdb.py
	@$(JAVA) && $(BIN)/python benchmarks/big_spark.py

trace: $(READY) ## count the files and functions of a two-row upsert, and the lines of each package
	@$(JAVA) && $(BIN)/python scripts/trace_merge.py $(ARGS)

picture: $(READY) ## draw docs/images/page.png: the page of the demo's plan, in Debian's Chromium
	PYTHONPATH=tests $(BIN)/python scripts/page_picture.py $(ARGS)

wheel: $(READY) ## build the wheel, install it into an empty environment and run a merge
	scripts/build-wheel

docs: $(READY) ## build the documentation as a web site in build/site; every warning is an error
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	$(BIN)/python scripts/docs_pages.py build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open build/site/index.html"

clean: ## remove the environment and caches
	rm -rf .venv .venv-* .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
