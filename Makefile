# Everything runs inside .venv, which `make setup` builds from pyproject.toml alone.
# Another interpreter has an environment of its own: make check PYTHON=python3.13 VENV=.venv-3.13
ifeq ($(OS),Windows_NT)
  PYTHON ?= python
  PROGRAMS := Scripts
else
  PYTHON ?= python3
  PROGRAMS := bin
endif
VENV := .venv
VERSIONS := constraints.txt
BIN := $(VENV)/$(PROGRAMS)
STAMP := $(VENV)/.installed
# Two test processes share two cores: linear algebra with threads of its own would only get in their way.
export OPENBLAS_NUM_THREADS ?= 1
# Compiled test modules are kept: without them each process takes ten seconds more to get to its first test.
export PYTHONDONTWRITEBYTECODE :=
export CONSILIENCE_DATA ?= $(abspath ../shared/data)

.PHONY: setup demo demo-country test test-slow test-portable test-lowest check lint types architecture bench reproduce reproduce-full docs docs-site wheel clean

setup: $(STAMP)

$(STAMP): pyproject.toml $(VERSIONS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint $(VERSIONS) --editable . --group dev
	touch $(STAMP)

# Benchmarks compare with other solvers, which nothing else needs.
$(VENV)/.peers: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint $(VERSIONS) --editable . --group bench
	touch $(VENV)/.peers

demo: setup
	$(BIN)/consilience demo

# A country of a million people, from CSV to maps and a report: about two minutes of one processor.
demo-country: setup
	$(BIN)/consilience demo --country

test: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# Spark is half a gigabyte, and its tests need Java: they are skipped where there is none.
$(VENV)/.spark: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(VERSIONS) --editable ".[spark]" "pyspark[connect]"
	touch $(VENV)/.spark

test-slow: $(VENV)/.spark
	$(BIN)/python -m pytest -n 2 -m slow
	for seed in 11 12 13 14 15 16; do $(BIN)/python -m pytest -n 2 -m "hypothesis and not slow" --hypothesis-seed=$$seed || exit 1; done

# The quick tests once under each arithmetic of other processors: an hour, for the night.
test-portable: setup
	$(BIN)/python tests/portable.py

# The quick tests with the lowest version of everything that pyproject.toml declares, but for the linters. Their compiled
# kernels stay apart: numba would throw away those of another version.
test-lowest: .venv-lowest.txt
	NUMBA_CACHE_DIR=$(abspath .venv-lowest/kernels) $(MAKE) --no-print-directory test VENV=.venv-lowest VERSIONS=.venv-lowest.txt

.venv-lowest.txt: pyproject.toml
	$(PYTHON) -c "import tomllib; \
	read = tomllib.load(open('pyproject.toml', 'rb')); \
	print(*(each.replace('>=', '==') for each in read['project']['dependencies'] + read['dependency-groups']['test']), sep='\n')" > $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/pyright
	$(BIN)/pyright -p pyrightconfig.audit.json

architecture: setup
	$(BIN)/lint-imports

check: setup
	$(MAKE) --no-print-directory lint architecture
	$(MAKE) --no-print-directory -j 2 types test

bench: $(VENV)/.peers
	$(BIN)/python -m benchmarks

# All figures of the papers, meant to take at most an hour and a half on two idle cores; then the page about them.
reproduce: $(VENV)/.peers
	$(BIN)/python -m benchmarks.reproduce --jobs 2
	$(BIN)/python docs/generate.py

# Nothing is left out of `make reproduce` any more: chains and PrivGene take all records there.
reproduce-full: reproduce

# The documentation as a site: build/site. Links that lead nowhere and words misspelt fail it.
docs-site: $(VENV)/.site
	$(BIN)/codespell --ignore-words-list priview,sav,alues docs/*.md docs/*/*.md *.md
	$(BIN)/python docs/make_site.py

$(VENV)/.site: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint $(VERSIONS) --editable . --group site
	touch $(VENV)/.site

docs: setup
	$(BIN)/python docs/generate.py

# A wheel with the kernels of this Python and this architecture, compiled for nearly every machine: dist/*.whl
wheel: setup
	$(BIN)/python packaging/kernels.py build/kernels
	CONSILIENCE_KERNELS=$(abspath build/kernels) $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) .venv-lowest .venv-lowest.txt .pytest_cache .ruff_cache .hypothesis .portable build dist demo demo-country
