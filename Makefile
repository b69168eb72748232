# Everything runs inside .venv, which `make setup` builds from pyproject.toml alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two test processes share two cores: linear algebra with threads of its own would only get in their way.
export OPENBLAS_NUM_THREADS ?= 1
# Compiled test modules are kept: without them each process takes ten seconds more to get to its first test.
export PYTHONDONTWRITEBYTECODE :=
export CONSILIENCE_DATA ?= $(abspath ../shared/data)

.PHONY: setup demo test test-slow test-portable check lint types architecture bench reproduce docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

# Benchmarks compare with other solvers, which nothing else needs.
$(VENV)/.peers: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[bench]"
	touch $(VENV)/.peers

demo: setup
	$(BIN)/python examples/demo.py

test: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: setup
	$(BIN)/python -m pytest -n 2 -m slow

# The quick tests once under each arithmetic of other processors: an hour, for the night.
test-portable: setup
	$(BIN)/python tests/portable.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/pyright

architecture: setup
	$(BIN)/lint-imports

check: setup
	$(MAKE) --no-print-directory lint architecture
	$(MAKE) --no-print-directory -j 2 types test

bench: $(VENV)/.peers
	$(BIN)/python -m benchmarks

reproduce: $(VENV)/.peers
	$(BIN)/python -m benchmarks.reproduce

docs: setup
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .portable demo
