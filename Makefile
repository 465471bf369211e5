# setup   the environment in .venv, from requirements.lock        demo    the main job on an embedded stream
# test    linters and every test: what .ci/run calls              check   linters and the fast tests
# docs    the documentation, in site/, warnings as errors
# clean   removes caches and .venv; never touches runs/
.PHONY: setup demo test check lint docs clean

PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.setup-done
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
TORCH  := $(shell grep '^torch==' requirements.lock)

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed; make PYTHON=... setup" if sys.version_info < (3, 11) else 0)'
	@echo "setup: creating .venv"
	@$(PYTHON) -m venv .venv
	@echo "setup: installing $(TORCH)"
	@# torch alone and exactly first: a resolver given any freedom takes a newer build with gigabytes of extras
	@$(PIP) install $(TORCH) --constraint requirements.lock
	@echo "setup: installing the other pinned dependencies"
	@$(PIP) install --requirement requirements.lock
	@echo "setup: installing tsnn, editable, with its dev tools"
	@$(PIP) install --no-build-isolation --constraint requirements.lock --editable '.[dev]'
	@touch $@
	@echo "setup: done"

demo: setup
	@$(BIN)/tsnn demo --out runs/demo

lint: setup
	@echo "lint: ruff";         $(BIN)/ruff check .
	@echo "lint: mypy";         $(BIN)/mypy
	@echo "lint: import order"; $(BIN)/lint-imports --no-logo

test: lint
	@echo "test: all tests on two workers"
	@$(PYTEST) -n 2 --durations=10

check: lint
	@echo "check: the tests not marked slow"
	@$(PYTEST) -n 2 -m "not slow"

docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
	@find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
