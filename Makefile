# `make help` lists what there is. Each target needs Python >= 3.11 and make, and installs the rest into .venv.

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)
PYTHON ?= $(shell for v in 3.13 3.12 3.11; do for e in "" "env PYENV_VERSION=$$v"; do \
  $$e python$$v -c "import venv, ensurepip" 2>/dev/null && echo $$e python$$v && exit; done; done; echo python3)

.DEFAULT_GOAL := help
.PHONY: help venv dev demo test unit matrix red mutation check lint sanity bench bench-large bench-peers sandbox plane hooks docs release-check release clean

help:  ## this list
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(VENV)/.base  ## .venv with the requirements of a controller and this checkout as collection tgp.gpu; runs nothing
	@echo "$(VENV) is ready; use it with: export PATH=\"$(BIN):\$$PATH\""

dev: $(VENV)/.test  ## .venv with all that tests and checks need; runs nothing
	@echo "$(VENV) is ready for tests and checks"

demo: $(VENV)/.demo  ## rent, join, list, reap on the sandbox, and the bill
	@$(BIN)/python -m sandbox.demo

test: $(VENV)/.test  ## the fast tests and a sample of the slow ones; ALL=1: every check and test that this machine can run
	@$(BIN)/python tests/run.py $(if $(ALL),--all)

unit: $(VENV)/.test  ## the tests that need nothing and wait for nothing; stress=1: on a busy machine and on a quick one
	@$(if $(stress),$(BIN)/python -m tests.stress,$(BIN)/python tests/run.py --unit)

matrix: $(VENV)/.base  ## tests with each valid ansible-core and Python that is installed; ONLY=2.22,2.19/3.11 TESTS=tests/unit/floor JOBS=2
	@$(BIN)/python -m tests.matrix --only "$(ONLY)" --jobs $(or $(JOBS),1) $(TESTS)

red: $(VENV)/.test  ## the tests of a defect against the plugins that have it: make red ITEM=11
	@$(BIN)/python tests/red.py $(ITEM)

mutation: $(VENV)/.test  ## mutation testing: a score per package, and the faults that no test notices
	@$(BIN)/python -m tests.mutation

check: $(VENV)/.test  ## style and types
	@$(BIN)/python tests/run.py --only style,types

lint: $(VENV)/.test  ## ansible-lint and the fragments of the changelog
	@$(BIN)/python tests/run.py --only lint,changelog

sanity: $(VENV)/.test  ## ansible-test sanity
	@$(BIN)/python tests/run.py --only sanity

bench: $(VENV)/.test  ## how fast it is, as tables and as a file; ARGS="--parts P1 --counts 10 --runs 1": a part of it
	@$(BIN)/python -m tests.bench run $(ARGS)

bench-large: $(VENV)/.test  ## the same, also with 1,000 machines
	@$(BIN)/python -m tests.bench run --large --to .cache/bench/large.json $(ARGS)

bench-peers: $(VENV)/.test  ## how fast other tools are, in an environment of their own in .cache/peers
	@$(PYTHON) -m venv .cache/peers && $(BIN)/uv pip install -q --python .cache/peers/bin/python -r tests/bench/peers.txt || \
	  echo "the other tools cannot be installed; their rows are skipped"
	@$(BIN)/python -m tests.bench peers --python .cache/peers/bin/python

sandbox: $(VENV)/.demo  ## a sandbox to play with; Ctrl-C stops it
	@$(BIN)/python -m sandbox up --env-file .sandbox/env --speed 10

plane: $(VENV)/.test  ## build the real control plane (needs Go) for the cluster tests
	@$(BIN)/python -m tests.build plane

hooks: $(VENV)/.test  ## check what you commit, before each commit (pre-commit with the tools of .venv)
	@$(BIN)/uv pip install -q --python $(BIN)/python pre-commit
	@$(BIN)/pre-commit install

release-check: $(VENV)/.test  ## the next release as a dry run: changelog, tarball, a fresh install, playbooks; VERSION=0.2.0
	@$(BIN)/python -m tests.release $(VERSION)

release: $(VENV)/.test  ## write version and changelog of the next release into the checkout; VERSION=0.2.0
	@$(BIN)/python -m tests.release --write $(VERSION)

docs: $(VENV)/.docs  ## build the documentation as a searchable site in .cache/docs/html
	@$(BIN)/python docs/build.py

clean:  ## remove .venv and every cache
	rm -rf $(VENV) .cache .sandbox .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.base: requirements-controller.txt requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed."; exit 1; }
	@echo "setting up $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	@$(BIN)/uv pip install -q --python $(BIN)/python -r requirements-controller.txt
	@site=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	mkdir -p $$site/ansible_collections/tgp && ln -sfn $(CURDIR) $$site/ansible_collections/tgp/gpu
	@touch $@

$(VENV)/.demo: $(VENV)/.base sandbox/requirements.txt
	@$(BIN)/uv pip install -q --python $(BIN)/python -r sandbox/requirements.txt
	@touch $@

$(VENV)/.test: $(VENV)/.demo tests/requirements.txt
	@$(BIN)/uv pip install -q --python $(BIN)/python -r tests/requirements.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.base docs/requirements.txt
	@$(BIN)/uv pip install -q --python $(BIN)/python -r docs/requirements.txt
	@touch $@
