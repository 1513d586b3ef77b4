# Every command makes what it needs, from nothing: an environment in .venv, and in it the
# extras of pyproject.toml that the command asks for.

PYTHON ?= python3
BIN := .venv/bin
TESTS := $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=8

export MPLCONFIGDIR := $(CURDIR)/.venv/matplotlib
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help demo test examples bench check wheel docs figures clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:  ## List the commands.
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 8

demo: .venv/with-examples  ## Train an agent on bsuite's Catch, before your eyes.
	$(BIN)/python examples/online_q_learning.py

test: .venv/with-test,reference  ## Run the tests, and measure what they cover.
	$(TESTS) -m "optimized and not slow" --cov --cov-report= --cov-fail-under=0
	XLA_FLAGS="$$($(BIN)/python tests/compiler.py)" \
		$(TESTS) -m "not optimized and not slow" --cov --cov-append

examples: .venv/with-test  ## Train the agents of all examples, and hold them to their claims.
	$(BIN)/python -m pytest -m slow tests/examples

bench: .venv/with-examples,reference  ## Time learner steps beside rlax; about five minutes.
	$(BIN)/python -m benchmarks --output benchmarks/results.md

check: .venv/with-dev  ## Check style, format and types.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

wheel: .venv/with-dev  ## Build the sdist and the wheel, and look into both.
	$(BIN)/python .ci/build_wheel.py

docs: .venv/with-docs  ## Build the documentation into docs/_build.
	$(BIN)/python -m sphinx -EWq --keep-going docs docs/_build
	$(BIN)/python docs/_ext/search.py docs/_build

figures: .venv/with-examples  ## Draw the figures of the documentation.
	$(BIN)/python docs/figures/make.py

clean:  ## Remove all that the other commands made.
	rm -rf .venv build dist docs/_build docs/api *.egg-info

# The extra `dev` holds these, so that no command installs anything after it.
IN_DEV := docs examples examples,reference reference test test,reference
.venv/with-%: pyproject.toml requirements.txt | .venv/pyvenv.cfg
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@ $(and $(filter dev,$*),$(addprefix .venv/with-,$(IN_DEV)))

.venv/pyvenv.cfg:
	$(PYTHON) -m venv .venv
