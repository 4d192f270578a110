# Antiphon: set up, run, check. `make help` lists what there is.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
HOST ?= 127.0.0.1
PORT ?= 8080
BACKEND_PORT ?= 30000
UPSTREAM ?=

VENV := .venv/bin
NEW_ENOUGH := import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=/path/to/it")
SETUP := "$(PYTHON)" -c '$(NEW_ENOUGH)' && "$(PYTHON)" deploy/environment.py
PYTEST := $(VENV)/python -m pytest
# The libraries' own threads only get in each other's way in tests.
check test bench: export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run venv venv-dev backend check test bench format lock clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1  /p' Makefile | awk -F'  ' '{ printf "  make %-13s %s\n", $$1, $$2 }'

run: venv $(if $(UPSTREAM),,backend)  ## SGLang with a small model and Antiphon in front; PORT=8080 BACKEND_PORT=30000 UPSTREAM=http://host:30000
	@exec $(VENV)/python deploy/run.py --host "$(HOST)" --port "$(PORT)" --backend-port "$(BACKEND_PORT)" $(if $(UPSTREAM),--upstream "$(UPSTREAM)")

venv:  ## the proxy's environment, .venv
	@$(SETUP) proxy

venv-dev:  ## the same, with what the tests and checks need
	@$(SETUP) proxy --dev

backend:  ## SGLang's environment and the model, .backend (2.9 GB)
	@$(SETUP) backend

check: venv-dev  ## lint, types, import rules, advisories and the fast tests (3 to 4 minutes)
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy
	$(VENV)/lint-imports
	$(VENV)/python deploy/audit.py
	$(PYTEST) -n 2 --dist loadfile -m "not slow and not backend"

test: venv-dev backend check  ## everything: check, slow tests, the HTTP cases, real SGLang (15 minutes)
	$(PYTEST) -m "slow or backend"

BENCHES := proxy scale embedders
bench: venv-dev  ## the speed figures, as ratios taken in one run
	@set -e; for name in $(BENCHES); do echo "== eval.bench.$$name"; $(VENV)/python -m "eval.bench.$$name"; done

format: venv-dev  ## let ruff rewrite the files
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

COMPILE := $(VENV)/pip-compile --quiet --strip-extras --allow-unsafe --annotation-style=line --no-header \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options
lock: venv-dev  ## renew the lock files after a change of pyproject.toml or requirements/backend.in (LOCK_FLAGS=--upgrade)
	$(COMPILE) $(LOCK_FLAGS) --generate-hashes --extra postgres --output-file requirements/proxy.lock pyproject.toml
	$(COMPILE) $(LOCK_FLAGS) --generate-hashes --extra otlp --extra postgres --constraint requirements/proxy.lock --output-file requirements/container.lock pyproject.toml
	$(COMPILE) $(LOCK_FLAGS) --generate-hashes --extra dev --extra eval --extra otlp --extra deploy --extra postgres --constraint requirements/proxy.lock --output-file requirements/dev.lock pyproject.toml
	$(COMPILE) $(LOCK_FLAGS) --output-file requirements/backend.lock requirements/backend.in
	sed -i 's/^\(torch==[0-9.]*\)+cpu/\1/' requirements/backend.lock  # a CPU build's local version is not on PyPI

clean:  ## remove both environments, caches and what trial runs remember
	rm -rf .venv .backend .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
