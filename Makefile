# One door for people and for CI. All that is needed beforehand is make and Python 3.11 or newer.

# `make test TORCH=2.15.0` uses that version of torch, in a folder of its own.
VENV  := .venv$(if $(TORCH),-$(TORCH))
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
PINS  := $(if $(TORCH),$(VENV)/constraints.txt,constraints.txt)

# The first interpreter that is new enough; override with `make PYTHON=/path/to/python install`.
PYTHON ?= $(shell for each in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)

.DEFAULT_GOAL := help
.PHONY: help install fuzz test test-all nightly lint docs faults mutants survival hostile bench sweep clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "ARGS is handed on: make fuzz ARGS='--target aot --seconds 30', make test ARGS='-k overlap'"
	@echo "TORCH takes another version of torch: make test TORCH=2.15.0, make fuzz TORCH=2.15.0"
	@echo "EXTRAS adds packages: make install EXTRAS=models,relax (docs/targets.md)"

install: $(STAMP) ## create .venv with the pinned versions; does nothing when it is up to date
	@test -z '$(EXTRAS)' || $(BIN)/python -m pip install -q --disable-pip-version-check -c $(PINS) -e '.[dev,$(EXTRAS)]'

fuzz: ARGS = --seconds 90
fuzz: install ## look for miscompiles, with progress; findings go to runs/
	$(BIN)/aliasproof fuzz $(ARGS)

test: install ## run the tests that tell most, on all cores (eight minutes on two)
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'not thorough' $(ARGS)

test-all: install ## run all tests (three quarters of an hour on two cores)
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

nightly: install ## run all tests with many more examples, then an hour of fuzzing
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n auto --dist worksteal --timeout 3600 $(ARGS)
	$(BIN)/aliasproof fuzz --seconds 3600

lint: install ## check style, format, words, sizes, types and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/quality/style.py
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: install ## build the site of the documentation into site/
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(PINS) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

faults: install ## plant wrong passes and show which oracle kills each (takes a while)
	$(BIN)/aliasproof faults $(ARGS)

mutants: ARGS = 'aliasproof.ir.regions.*' 'aliasproof.reference_pass.calls.regions.*' 'aliasproof.reference_pass.alias_analysis.*' 'aliasproof.reference_pass.calls.storages.*' 'aliasproof.reference_pass.eager.fake_execution.*' 'aliasproof.reference_pass.eager.fake_corrections.*' 'aliasproof.oracles.smt.*'
mutants: install ## change the overlap models and the alias analysis bit by bit: what does no test see? (an hour)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c $(PINS) -e '.[dev,mutation]'
	CI=true OMP_NUM_THREADS=1 $(BIN)/mutmut run $(ARGS)

survival: ARGS = tests/survival
survival: install ## kill campaigns at random moments, fill their disk: are all findings there? (half an hour)
	KILLS=20 PROGRAMS=200 LIMIT=7200 FAULTS=segfault,hang,memory,garbage,files $(BIN)/python -m pytest -n 0 $(ARGS)

hostile: ARGS = tests/security
hostile: install ## read 1,000 hostile programs, findings and stores: is each refused in one line? (some minutes)
	HOSTILE_FILES=1000 $(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

bench: install ## print performance tables: ARGS names them, without it they are listed
	$(BIN)/python -m benchmarks $(ARGS)

sweep: ARGS = --resume runs/sweep.jsonl
sweep: install ## compare the reference pass with eager on every operator and module of PyTorch's tests (hours; goes on)
	$(BIN)/python -m benchmarks sweep $(ARGS)

clean: ## remove .venv (of every torch) and caches; runs/ stays, it holds findings
	rm -rf .venv .venv-*/ build dist site *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp holds this folder's path: the .venv of a copied or moved checkout still points to the old place.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

$(STAMP): pyproject.toml constraints.txt
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "aliasproof needs Python 3.11 or newer, found: $$($(or $(PYTHON),python3) --version 2>&1)." \
			"Name one: make PYTHON=/path/to/python install" >&2; exit 1; }
	@echo "Installing into $(VENV) (PyTorch is large: this takes some minutes, once)"
	@test "$$(cat $@ 2>/dev/null)" = "$(CURDIR)" || $(PYTHON) -m venv --clear $(VENV)
	@$(if $(TORCH),sed 's/^torch==.*/torch==$(TORCH)/' constraints.txt > $(PINS))
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c $(PINS) -e '.[dev]'
	@printf '%s' "$(CURDIR)" > $@
