# One target a verb, the same by hand and in .ci/run. Nothing needs an activated shell: every command is called by its
# path inside the virtual environment, which is made on first use. Each target installs only what it needs, once; a
# stamp in the environment says that it is there, and a change of pyproject.toml makes it stale.
#
#   make test ARGS="-k lease -x"       further arguments of the tool
#   make demo TARGET=path              audit another folder
#   make chaos SEED=7 SECONDS=1200     play a seed again, for longer; REPORT=docs/guarantees.md writes the report there
#   make install PYTHON=python3.13     another interpreter
#   make test VENV=/elsewhere/venv     another environment

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help install demo test proof imports lint fmt types check bench chaos docs up down clean distclean

VENV ?= .venv
PYTHON ?=
ARGS ?=
# Most tests wait for other processes most of the time, so more than one a core pays.
JOBS ?= 5
# Each of the proofs keeps several processes busy.
PROOF_JOBS ?= 2
TARGET ?=
export TARGET
# Every process that a target starts would compile all modules for itself.
unexport PYTHONDONTWRITEBYTECODE

PY := $(VENV)/bin/python
EXTRAS := bench demo docs lint test
STAMP := $(VENV)/.ready-
ROOMS := topics store actors gateway runtime
SHADOW := .build/types

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# --- environment ---------------------------------------------------------------------------------------------------

$(PY):
	@found=; \
	for candidate in $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11 python); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    found=$$candidate; break; \
	  fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "make: no Python 3.11 or newer found$(if $(PYTHON), as PYTHON=$(PYTHON));" \
	    "install one, or name it: make install PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	if ! "$$found" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	  echo "make: $$found cannot make virtual environments;" \
	    "install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; \
	fi; \
	echo "make: virtual environment $(VENV) with $$("$$found" --version)"; \
	"$$found" -m venv "$(VENV)"

$(STAMP)%: pyproject.toml setup.py | $(PY)
	@echo "make: installing callboard[$*] into $(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

comma := ,
space := $(subst ,, )

$(STAMP)all: pyproject.toml setup.py | $(PY)
	@echo "make: installing callboard[$(subst $(space),$(comma),$(EXTRAS))] into $(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$(subst $(space),$(comma),$(EXTRAS))]'
	@touch $(addprefix $(STAMP),$(EXTRAS)) $@

install: $(STAMP)all ## make the virtual environment and install everything into it

# --- the main job --------------------------------------------------------------------------------------------------

demo: $(STAMP)demo ## audit a Python code base with two workers, one of which is killed (TARGET=path)
	@$(PY) -m examples.audit $${TARGET:+"$$TARGET"} $(ARGS)

up: $(STAMP)demo ## start the cluster of compose/ as plain processes
	@$(PY) compose/up.py $(ARGS)

down: $(STAMP)demo ## stop what `make up` started
	@$(PY) compose/down.py $(ARGS)

# --- checks --------------------------------------------------------------------------------------------------------

test: $(STAMP)test ## run the test suite
	@$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not chaos and not proof" $(ARGS)

proof: $(STAMP)test ## every crash point, long runs under kills and load, a minute of chaos
	@$(PY) -m pytest -n $(PROOF_JOBS) --dist loadfile --no-loadscope-reorder -m "chaos or proof" $(ARGS)

imports: $(STAMP)test ## check who imports whom, and the public names
	@$(PY) -m pytest -q tests/test_architecture.py tests/test_exports.py $(ARGS)

lint: $(STAMP)lint ## check style and formatting
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

fmt: $(STAMP)lint ## format, and mend what can be mended
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

# A type checker cannot follow the finder of an editable install, so it gets a folder of links that is laid out as the
# installed package is.
types: $(STAMP)lint $(STAMP)test ## check the types, strictly
	@rm -rf $(SHADOW) && mkdir -p $(SHADOW)/callboard
	@for room in $(ROOMS); do ln -s ../../../$$room $(SHADOW)/callboard/$$room; done
	@for file in callboard/*; do \
	  case $$file in */__pycache__) ;; *) ln -s ../../../$$file $(SHADOW)/callboard/ ;; esac; \
	done
	@for folder in tests examples compose; do \
	  if [ -n "$$(find $$folder -name '*.py' 2>/dev/null | head -n 1)" ]; then \
	    ln -s ../../$$folder $(SHADOW)/$$folder; \
	  fi; \
	done
	@cd $(SHADOW) && MYPYPATH=. $(abspath $(PY)) -m mypy --config-file $(CURDIR)/pyproject.toml \
	  --cache-dir $(CURDIR)/.mypy_cache $$(for package in *; do echo "-p $$package"; done) $(ARGS)

check: lint types imports docs ## all the fast checks

bench: $(STAMP)bench $(STAMP)test ## measure, and write the figures
	@$(PY) -m tests.bench $(ARGS)

chaos: $(STAMP)test ## kill, stall and cut off everything at random, and check that all held (SEED=n SECONDS=n)
	@$(PY) -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(REPORT),--report $(REPORT)) $(ARGS)

docs: $(STAMP)docs ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet $(ARGS)
	@echo "make: site/index.html is built"

# --- tidying -------------------------------------------------------------------------------------------------------

clean: ## remove what was built, and the caches
	@rm -rf .build build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	@find $(ROOMS) callboard tests examples compose -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## remove the virtual environment too
	@rm -rf "$(VENV)"
