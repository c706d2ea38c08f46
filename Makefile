# Every verb that a developer or CI uses. `make` prints them.
# PYTEST_ARGS goes to pytest, e.g. make test PYTEST_ARGS="-k watermark -x"

SHELL := bash
PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest $(PYTEST_ARGS)
READY := .venv/requirements.lock
NO_JVM := not (spark or kafka or registry or s3 or tidb or browser or recovery or slow or soak)

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-live test test-unit test-integration test-recovery test-recorded soak soak-storage fuzz services check lint types imports structure generated fmt \
        bench bench-cluster bench-quick schemas readers picture lock audit sbom clean

##@ Start

help: ## Print this list
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install Python packages, Java and jars, all pinned; quick when done before
	@deploy/setup.sh

$(READY): requirements.lock
	@deploy/setup.sh

demo: $(READY) ## Apply a recorded changefeed to Iceberg tables on this machine and show them; SHAPE=a folder of examples/shapes
	@examples/quickstart/run.sh $(SHAPE)

demo-live: $(READY) ## A Kafka broker, a feed that goes on and applier with its page, until Ctrl-C; SECONDS=n ends it
	@$(PYTHON) -m applier.runtime.jvm.jars --lock tests/services kafka >/dev/null
	@exec $(PYTHON) -m examples.kafka.run $(if $(SECONDS),--seconds $(SECONDS))

##@ Tests

test: $(READY) services ## All tests, in three processes with a Spark session each, those without a JVM first
	@$(PYTEST) --numprocesses 3 --dist worksteal

test-unit: $(READY) ## Tests that need no JVM and no second of their own
	@$(PYTEST) --numprocesses 2 -m "$(NO_JVM)"

test-integration: $(READY) services ## Against Kafka, a schema registry, S3, a REST catalog and, where there are any, PostgreSQL and TiDB; also the wheel, installed from the registry
	@$(PYTEST) -m "(kafka or registry or s3 or catalog or tidb) and not soak"

test-recovery: $(READY) services ## Every kind of past killed at every point, in processes and in this one; more than an hour
	@RECOVERY=all $(PYTEST) -m recovery --numprocesses 2 --dist worksteal tests/recovery

test-recorded: $(READY) services ## Every variant of every recorded feed, every case of tests/spark and tests/integration, messages of 250 MB; `make test` draws some
	@$(PYTEST) -m "not network" --numprocesses 2 --dist worksteal tests/recorded tests/spark tests/integration \
	  tests/properties/test_left_out_avro.py tests/unit/decode tests/unit/pipeline/scan tests/unit/test_cli.py

soak: $(READY) services ## 1,000 schedules never drawn before; SCHEDULES=n for others, SEED_FROM=n for a first seed, SEED=n for one
	@from=$(or $(SEED_FROM),$$(( $$(date +%s) / 60 * 1000 ))); \
	$(if $(SEED),,echo "seeds from $$from on: make soak SEED_FROM=$$from runs them again";) \
	SCHEDULES=$(or $(SCHEDULES),1000) SEED_FROM=$$from SEED=$(SEED) \
	  $(PYTEST) --numprocesses $(if $(SEED),0,2) --dist worksteal -k is_the_database \
	  tests/properties/test_schedules.py tests/properties/test_table_life.py tests/properties/test_fault_rounds.py \
	  tests/properties/test_identities.py tests/properties/test_lost_state.py tests/properties/test_begun_at_swap.py

soak-storage: $(READY) services ## A run on S3 with bad days and kills for two minutes; SECONDS=n for others, SEED=n for the same days
	@$(if $(SECONDS),FAULT_SECONDS=$(SECONDS)) $(if $(SEED),SEED=$(SEED)) $(PYTEST) --capture=no -m soak -k bad_days_every tests/recovery/test_bad_days.py

fuzz: $(READY) ## A million damaged messages through all decoders; FUZZ_ARGS="--seed 2 --messages 50000"
	@$(PYTHON) -m tests.fuzz.run $(FUZZ_ARGS)

services: $(READY)
	@deploy/test_tools.sh
	@$(PYTHON) -m applier.runtime.jvm.jars s3 postgresql >/dev/null
	@$(PYTHON) -m applier.runtime.jvm.jars --lock tests/services kafka registry >/dev/null

##@ Quality

check: lint types imports structure generated ## What CI runs before the tests; changes nothing

lint: $(READY) ## Style, names, docstrings, likely bugs
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check --quiet

types: $(READY) ## Types, strictly
	@$(PYTHON) -m mypy

imports: $(READY) ## Imports run one way, stages never import each other
	@.venv/bin/lint-imports --no-logo

structure: $(READY) ## Folders, files and classes stay small, and no two classes have one name
	@$(PYTHON) -m tests.structure

generated: $(READY) ## Generated files are up to date
	@$(PYTHON) -m tests.schemas --check

fmt: $(READY) ## Format, and mend what can be mended mechanically
	@$(PYTHON) -m ruff check --fix-only --quiet
	@$(PYTHON) -m ruff format

##@ Measure

bench: $(READY) services ## Every scenario of the benchmark
	@$(PYTHON) -m bench.run

bench-cluster: $(READY) services ## What the driver and the executors of a Spark cluster use, beside one process
	@$(PYTHON) -m bench.run cluster

bench-quick: $(READY) services ## The same on little data, in minutes
	@$(PYTHON) -m bench.run --quick

##@ Maintain

schemas: $(READY) ## Write schemas/ and the generated parts of the documentation anew
	@$(PYTHON) -m tests.schemas

# Trino alone needs Java 25, and Maven.
JAVA_25 ?= /usr/lib/jvm/temurin-25-jdk-amd64

readers: $(READY) ## Find out anew what engines read, also large ones, which go into .venv-readers; then `make schemas`
	@test -x .venv-readers/bin/python || $(PYTHON) -m venv .venv-readers
	@.venv-readers/bin/python -m pip install --quiet --upgrade pip
	@.venv-readers/bin/python -m pip install --quiet --group readers --group readers-large 'pyiceberg[sql-sqlite]' pyarrow
	@JAVA_HOME=$(JAVA_25) mvn --quiet --batch-mode --file tests/spark/trino/pom.xml dependency:build-classpath \
		-Dmdep.outputFile=$(CURDIR)/.venv-readers/trino
	@READERS=write READERS_PYTHON=$(CURDIR)/.venv-readers/bin/python READERS_TRINO=$(CURDIR)/.venv-readers/trino \
		READERS_JAVA=$(JAVA_25)/bin/java $(PYTEST) --quiet tests/spark/test_readers.py

picture: $(READY) services ## Take the picture of the page anew that the README shows
	@PICTURE=docs/images/page.png $(PYTEST) --quiet -k picture tests/browser

lock: ## Pin all packages anew after a change of the dependencies in pyproject.toml (needs uv)
	@deploy/lock.sh

AUDIT := .venv-audit/bin

$(AUDIT)/cyclonedx-py:
	@test -x $(AUDIT)/python || $(PYTHON) -m venv .venv-audit
	@$(AUDIT)/python -m pip install --quiet --upgrade pip
	@$(AUDIT)/python -m pip install --quiet --group audit

audit: $(READY) $(AUDIT)/cyclonedx-py ## Look for known weaknesses of the packages of the image (needs the JSON API of pypi.org; a mirror of its index alone answers "not found")
	@$(AUDIT)/pip-audit --requirement deploy/requirements.lock --require-hashes --disable-pip --strict

sbom: $(READY) $(AUDIT)/cyclonedx-py ## Write build/sbom-python.json and build/sbom-jars.json (CycloneDX), of the packages and jars of the image
	@mkdir -p build
	@$(AUDIT)/cyclonedx-py requirements deploy/requirements.lock --output-reproducible --of JSON -o build/sbom-python.json
	@$(AUDIT)/python deploy/sbom_jars.py applier/runtime/jvm/jars.xml applier/runtime/jvm/jars.sha256 > build/sbom-jars.json

clean: ## Remove what tests and tools leave behind; .venv and the jar cache stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist spark-warehouse
	find applier tests -name __pycache__ -type d -prune -exec rm -rf {} +
