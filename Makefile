# Needs make and a Python >= 3.11 with its venv module, and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Passed on: `make demo ARGS="--seed 1"`, `make test ARGS="-k layout"`.
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-quick test-slow test-lowest test-wheel pytest checks lint docs shape dist clean

help: ## List these commands
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

demo: $(VENV)/.installed ## Cluster the digits that scikit-learn bundles, and write a report
	@$(BIN)/diffclust demo $(ARGS)

# The shape of the repository, hundreds of cases that are counted apart from tests of behaviour.
SHAPE := tests/test_layout.py tests/test_docstrings.py tests/test_renamed.py

# Quick tests compile far more than they compute; `make test-slow` has programs as users have them.
# Each worker begins with one half of the files, as what one test compiled the next need not.
# The checks run beside the tests, so that no core waits; they print when they are done, and once
# more at the end if one of them failed.
test: $(VENV)/.installed-test ## Check format, lint and types, and run all tests but the slow ones
	@mkdir -p build
	@( $(MAKE) --no-print-directory checks > build/checks.txt 2>&1; status=$$?; \
	    cat build/checks.txt; exit $$status ) & \
	  $(MAKE) --no-print-directory pytest; tests=$$?; \
	  wait $$! || { cat build/checks.txt; echo "make test: a check failed, see above"; exit 1; }; \
	  exit $$tests

pytest: export JAX_DISABLE_MOST_OPTIMIZATIONS ?= 1
# Each worker has one core; threads of BLAS would wait for each other in busy loops.
pytest test-quick test-slow: export OPENBLAS_NUM_THREADS ?= 1
pytest: $(VENV)/.installed-test
	@$(BIN)/python -m pytest -n 2 --dist worksteal -rs -m "not slow" $(SHAPE:%=--ignore=%) $(ARGS)

# While one writes code; programs that are compiled once are kept in .pytest_cache.
test-quick: export JAX_DISABLE_MOST_OPTIMIZATIONS ?= 1
test-quick: $(VENV)/.installed-test ## Check format and lint, and test what changed since the last commit
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow" tests/test_layout.py \
	  $$($(BIN)/python tests/changed.py) $(ARGS)

test-slow: checks ## The same with the slow tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal -rs $(SHAPE:%=--ignore=%) $(ARGS)

# pip takes the versions from the file that PIP_CONSTRAINT names.
test-lowest: $(VENV)/.created ## Run the tests with the lowest versions that pyproject.toml allows
	@mkdir -p build && $(BIN)/python tests/lowest.py > build/lowest.txt
	@PIP_CONSTRAINT=$(CURDIR)/build/lowest.txt $(MAKE) VENV=.venv-lowest pytest

test-wheel: $(VENV)/.installed-test ## Install the wheel and the source distribution elsewhere, and run them
	@$(BIN)/python -m pytest -q tests/test_wheel.py $(ARGS)

dist: $(VENV)/.created ## Build the wheel and the source distribution, in dist/
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	@$(BIN)/python -m build --outdir dist .

# Beside each other, each on one core. Make 3 cannot keep the lines of each together.
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync)
checks: $(VENV)/.installed-test
	@$(MAKE) --no-print-directory -j 2 $(SYNC) lint docs shape

lint: $(VENV)/.installed-test ## Check the format, lint, and check the types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/ruff check --select F821 experiments tests docs
	@$(BIN)/basedpyright --pythonpath $(BIN)/python

shape: $(VENV)/.installed-test ## Test the shape of the repository: imports, sizes, docstrings, old names
	@$(BIN)/python -m pytest -q --jaxtyping-packages= $(SHAPE)

docs: $(VENV)/.installed-test ## Make the documentation's site, in site/; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 JAX_PLATFORMS=cpu $(BIN)/mkdocs build --strict --quiet

clean: ## Remove the virtual environment, the caches, the site and the demo's output
	rm -rf $(VENV) .venv-lowest .hypothesis .pytest_cache .ruff_cache build dist site diffclust-demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are empty files. The installation is editable, so that it is only stale when the
# dependencies in pyproject.toml may have changed.
$(VENV)/.installed: pyproject.toml $(VENV)/.created
	@echo "Installing diffclust and its dependencies into $(VENV) (this takes a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.created
	@echo "Installing diffclust and its test tools into $(VENV) (this takes a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	  --editable '.[test,docs]'
	-@$(BIN)/python -m compileall -qq -j 2 -x /tests/ $(VENV)/lib # pip takes one core, and longer
	@touch $@ $(VENV)/.installed

$(VENV)/.created:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "error: $(PYTHON) not found; diffclust needs Python >= 3.11," \
	    "try 'make PYTHON=/path/to/python3.11 ...'" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: diffclust needs Python >= 3.11 and $(PYTHON) is $$("$(PYTHON)" --version 2>&1);" \
	    "try 'make PYTHON=/path/to/python3.11 ...'" >&2; exit 1; }
	@echo "Making a virtual environment in $(VENV) ..."
	@"$(PYTHON)" -m venv $(VENV)
	@touch $@
