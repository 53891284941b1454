# The first command on a fresh machine is `make demo`, `make test` or `make setup`: each sets up what it needs.
PYTHON := .venv/bin/python
ROUNDS ?= 10

.PHONY: help setup demo test check bench soak docs lock

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 14

setup: ## .venv from requirements.lock; Docker Engine and PostgreSQL when missing (Debian, Ubuntu, as root)
	@bash ops/setup.sh

demo: setup ## the main job on this machine, with a stand-in for GitHub
	@$(PYTHON) -m ops.demo

test: setup ## unit, contract, Docker and end-to-end tests; make test TESTS=tests/unit
	@$(PYTHON) -m pytest -p ops.tiers -n auto --maxprocesses 4 --dist loadfile $(TESTS)

check: setup ## format, lint, types, import contracts, lock, generated docs
	@$(PYTHON) -m ops.check

bench: setup ## each figure beside its anchor, into bench/results
	@$(PYTHON) -m bench

soak: setup ## the tests on real services, ROUNDS times (10); stops at the first failure
	@for round in $$(seq 1 $(ROUNDS)); do \
	  echo "round $$round of $(ROUNDS)"; \
	  $(PYTHON) -m pytest -q -x tests/contract tests/docker tests/e2e tests/soak/*.py || exit 1; \
	  GPURUN_TEST_RUNS=1000 $(PYTHON) -m pytest -q -x tests/unit/flow/test_many_runs.py || exit 1; \
	done

docs: setup ## writes the generated pages of docs/reference
	@$(PYTHON) docs/reference/generate.py

lock: setup ## requirements.lock anew from pyproject.toml, with as few changes as possible; needs the package index
	@.venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
	  --no-emit-find-links --python-version 3.11 --extra dev -o requirements.lock pyproject.toml
