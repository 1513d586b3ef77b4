# Every command creates the environment it needs in .venv, with extras of pyproject.toml.

PYTHON ?= python3
BIN := .venv/bin
TESTS := $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=8 --dist=worksteal
FAST = XLA_FLAGS="$$($(BIN)/python tests/compiler.py)"
TRAINING = XLA_FLAGS="$$($(BIN)/python tests/compiler.py training)"
CONTRACT := $(wildcard tests/test_contract*.py)
TYPING := tests/test_typing.py

export MPLCONFIGDIR := $(CURDIR)/.venv/matplotlib
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help demo test cover trust compat compat-oldest compat-newest examples zoo minatar \
	bsuite bench gpu check wheel docs pdf tex figures release-check clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:  ## List the commands.
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 8

demo: .venv/with-examples  ## Train an agent on bsuite's Catch.
	$(BIN)/python examples/online_q_learning.py

# Programs that take long to compile are kept for the next run.
test trust-trainings trust-seeds: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.venv/programs
test trust-trainings trust-seeds: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0.1
ifdef TOPIC
test: .venv/with-test,reference
	RLAXLIB_TOPIC=$(TOPIC) $(FAST) $(TESTS) -m "not slow and not trust" $(CONTRACT) \
		tests/docs/test_docstrings.py $(wildcard tests/$(TOPIC) tests/test_$(TOPIC).py)
else
test: .venv/with-test,reference  ## Run the tests; of one topic by TOPIC=returns.
	$(FAST) $(TESTS) -m "not slow and not trust" $(addprefix --ignore=,tests/docs $(TYPING))
endif

# Lines of the library that only these tests run do not count as covered.
MATRIX := tests/test_matrix.py
BESIDE := $(CONTRACT) $(MATRIX) $(addprefix tests/,benchmarks docs examples truth)
cover: .venv/with-test,reference  ## Check that tests of the topics cover all lines.
cover trust-cover:
	$(FAST) $(TESTS) -m "not slow" --cov $(addprefix --ignore=,$(BESIDE)) $(END)

# Reports of one commit: that of the last change of code.
CODE := '*.py' '*.toml' Makefile tests
EVIDENCE = .venv/evidence/$(shell git log -1 --format=%h -- $(CODE))$(shell \
	git diff --quiet HEAD -- $(CODE) || echo -changed)
report = --junitxml=$(EVIDENCE)/$(1).xml \
	-o junit_suite_name="$$($(BIN)/python tests/evidence.py versions)"
# After tests: their line in docs/trust.md, whether they passed or not.
RECORD = ; status=$$?; $(BIN)/python tests/evidence.py write $(EVIDENCE); exit $$status

# Tests compile as users do, but for those of transformations and of trainings.
PARTS := $(addprefix trust-,cover rows matrix trainings mutants)
.PHONY: $(PARTS) trust-seeds
trust: .venv/with-test,reference  ## Run every test on every row, and mutants, for hours.
	RLAXLIB_TRUST=1 $(MAKE) --keep-going $(PARTS)
trust-cover: FAST =
trust-cover: END = $(call report,cover) $(RECORD)
trust-rows:
	$(TESTS) -m "not slow" $(filter-out $(MATRIX) tests/examples,$(BESIDE)) \
		$(call report,rows) $(RECORD)
trust-matrix:
	$(FAST) $(TESTS) $(MATRIX) $(call report,matrix) $(RECORD)
trust-trainings:
	$(TRAINING) $(TESTS) -m "not slow" tests/examples $(call report,trainings) $(RECORD)
trust-seeds: .venv/with-test,reference  # Those of the zoo's page are drawn by 0, of `trust` by 1.
	RLAXLIB_TRUST=1 RLAXLIB_SEED=2 $(TRAINING) $(TESTS) tests/examples/test_zoo.py \
		-k five_seeds $(call report,seeds) $(RECORD)
trust-mutants:
	$(BIN)/python tests/mutants.py --output $(EVIDENCE)/mutants.md $(RECORD)

compat: compat-oldest compat-newest  ## Run the contract on the oldest and newest versions.

# Versions of an environment of its own, in which the contract runs.
compat-oldest: VERSIONS := jax==0.7.0 jaxlib==0.7.0 numpy==1.26.4
compat-newest: VERSIONS := --upgrade jax jaxlib numpy
compat-oldest compat-newest: BIN = .venv/$@/bin
compat-oldest compat-newest:
	$(PYTHON) -m venv .venv/$@
	$(BIN)/python -m pip install --quiet $(VERSIONS) --editable . \
		absl-py chex hypothesis pytest pytest-cov pytest-xdist
	$(FAST) $(BIN)/python -m pytest --numprocesses=logical -m "not slow" $(CONTRACT) \
		$(call report,$@) $(RECORD)

examples: .venv/with-test  ## Train the agents of all examples, and test their returns.
	$(TESTS) -m slow tests/examples $(call report,examples) $(RECORD)

zoo: .venv/with-examples  ## Train each recipe on a small task; within an hour.
	$(TRAINING) PYTHONPATH=examples $(BIN)/python -m zoo

minatar: .venv/with-examples  ## Train agents on MinAtar, where results are missing; about an hour.
	PYTHONPATH=examples $(BIN)/python -m minatar

bsuite: .venv/with-examples  ## Run bsuite, where scores are missing; an hour of two cores at most.
	PYTHONPATH=examples $(BIN)/python -m bsuite_sweep

bench: .venv/with-examples,reference  ## Time learner steps beside rlax; about five minutes.
	$(BIN)/python -m benchmarks --output benchmarks/results.md
	$(BIN)/python tests/programs.py | tee -a benchmarks/results.md

# JAX for the device is that of the system.
gpu:  ## Measure on a GPU, for nine minutes; go on where it stopped. Small sizes: REHEARSE=1.
	$(PYTHON) -m venv --system-site-packages .venv/gpu
	.venv/gpu/bin/python -m pip install --quiet --editable '.[examples,reference,test]'
	.venv/gpu/bin/python -m benchmarks.gpu $(and $(REHEARSE),--rehearse)

check: .venv/with-dev  ## Check style, format and types.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest --quiet -m "not trust" $(TYPING)

wheel: .venv/with-dev  ## Build the sdist and the wheel, and import the wheel alone.
	$(BIN)/python .ci/build_wheel.py

PDF := docs/_build/rlaxlib.pdf
# The front page links to the PDF if there is one.
docs: .venv/with-docs .venv/with-test,reference  ## Build the manual, and test its code.
	@echo "1 of 2: Sphinx reads and writes some 900 pages, in about five minutes."
	$(BIN)/python -m sphinx -EW -j auto --keep-going $(and $(wildcard $(PDF)),-t pdf) \
		docs docs/_build
	@echo "The manual: file://$(CURDIR)/docs/_build/index.html"
	@echo "2 of 2: the code of its pages runs, in about three minutes."
	$(FAST) $(TESTS) tests/docs

TEX := latexmk texlive-xetex texlive-latex-extra texlive-fonts-recommended \
	fonts-dejavu-core fonts-freefont-otf fonts-lmodern librsvg2-bin
pdf: .venv/with-docs .venv/with-test,reference  ## Build the manual as a PDF, by TeX.
	@command -v latexmk >/dev/null && command -v xelatex >/dev/null \
		&& command -v rsvg-convert >/dev/null && kpsewhich unicode-math.sty >/dev/null \
		|| { echo "make pdf needs these Debian packages: $(TEX)" >&2; exit 1; }
	$(BIN)/python -m sphinx -EWq --keep-going -b latex docs build/manual
	cd build/manual && latexmk -xelatex -interaction=nonstopmode -halt-on-error \
		rlaxlib.tex >latexmk.log || { tail -n 40 latexmk.log; exit 1; }
	$(BIN)/python -m pytest tests/docs/test_pdf.py
	mkdir -p docs/_build && cp build/manual/rlaxlib.pdf $(PDF)
tex:
	@echo $(TEX)

figures: .venv/with-examples  ## Draw the figures of the documentation.
	$(BIN)/python docs/figures/make.py

release-check: check wheel  ## Check that TAG is the version, and build what is released.
	@test "$(TAG)" = "v$$($(BIN)/python -c 'import rlaxlib; print(rlaxlib.__version__)')" \
		|| { echo "TAG=$(TAG) is not the version of rlaxlib." >&2; exit 1; }

clean:  ## Remove all that the other commands made.
	rm -rf .venv build dist docs/_build docs/algorithms docs/api docs/gallery docs/notebooks *.egg-info

# The extra `dev` holds these, so that no command installs anything after it.
IN_DEV := docs examples examples,reference reference test test,reference
.venv/with-%: pyproject.toml requirements.txt | .venv/pyvenv.cfg
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@ $(and $(filter dev,$*),$(addprefix .venv/with-,$(IN_DEV)))

.venv/pyvenv.cfg:
	$(PYTHON) -m venv .venv
