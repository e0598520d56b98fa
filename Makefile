# Session Hub. Needs only Python 3.11 or newer, make and a package index. `make help` lists what there is.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip install -qq --disable-pip-version-check --no-input

# Variables of `make run`, `make demo`, `make test` and `make bench`.
DIR    ?=
DEMO   ?=
ARGS   ?=
# LANG is set in most shells: only `make demo LANG=en` counts, and it is an option of the demo, not this process's locale.
DEMO_LANG := $(if $(findstring command line,$(origin LANG)),$(LANG))
unexport LANG
export PYTHONUTF8 := 1

.DEFAULT_GOAL := help
.PHONY: help setup dev run test demo lint format bench clean

help: ## this list
	@echo "Session Hub: make TARGET"
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter of a new $(VENV); ARGS='…' goes to the command of run, demo, test and bench."

setup: $(VENV)/.installed ## make .venv with everything that the hub needs
dev: $(VENV)/.installed-dev

run: setup ## start the embedded hub on 127.0.0.1:8000 (ARGS='--port 9000'; DIR=… is where its tools may read)
	@exec $(PY) manage.py serve --root "$(or $(DIR),.)" $(ARGS)

demo: setup ## the conversation of two agents about a real directory (DIR=…, LANG=en|zh, DEMO=…)
	@$(PY) manage.py demo $(if $(DIR),--dir "$(DIR)") $(if $(DEMO_LANG),--lang "$(DEMO_LANG)") $(if $(DEMO),--demo "$(DEMO)") $(ARGS)

test: dev ## all tests, on SQLite and on PostgreSQL with Redis (ARGS='tests/unit -k name' for some)
	@$(PY) -m tests.run $(ARGS)

lint: dev ## ruff, mypy --strict, import arrows, missing migrations
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy --strict
	@$(PY) -m pytest -q -p no:cacheprovider tests/unit/test_imports.py
	@$(PY) manage.py makemigrations --check --dry-run

format: dev ## let ruff format and mend what it can
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: dev ## measure the hub beside its baselines (ARGS='w1 w2' for some)
	@$(PY) manage.py bench $(ARGS)

clean: ## remove .venv and the caches; the hub's data stays
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written only when everything went in, so an interrupted install is done again and a finished one is instant.
$(VENV)/.installed: pyproject.toml constraints.txt | $(PY)
	@echo "Installing the hub into $(VENV) …"
	@$(PIP) -e '.[server]' -c constraints.txt
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(PY)
	@echo "Installing the hub and what its tests need into $(VENV) …"
	@$(PIP) -e '.[server,dev]' -c constraints.txt
	@touch $(VENV)/.installed $@

$(PY):
	@for python in "$(PYTHON)" python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Making $(VENV) with $$("$$python" --version) …"; \
	    "$$python" -m venv $(VENV) && exit 0; \
	    rm -rf $(VENV); \
	    echo "It has no working venv module (Debian, Ubuntu: apt-get install python3-venv)." >&2; exit 1; \
	  fi; \
	done; \
	echo "Python 3.11 or newer is needed, and $(PYTHON) is not. Name one: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3.11" >&2; exit 1
