# Two commands: `make lab` opens the notebooks, `make test` runs every test. Each sets up .venv first, where needed.
# Nothing else is needed but git, make and Python 3.11 to 3.13:  make lab PYTHON=python3.12  takes another than python3.

PYTHON ?= python3
ARGS ?=
NB ?=
NOTEBOOKS = $(wildcard notebooks/*.ipynb)

ifeq ($(OS),Windows_NT)
BIN = .venv/Scripts
else
BIN = .venv/bin
endif
RUN = $(BIN)/python
# The tests that need PyTorch: an environment of their own, for one CPU build of it is a gigabyte.
TORCH_PYTHON ?= python3.11
TORCH_RUN = $(subst .venv/,.venv-torch/,$(RUN))
TORCH_NEEDS = tests/with_torch/requirements.txt
# A real engine, llama.cpp as a wheel: an environment of its own too, with the files of weights that it serves.
ENGINE_RUN = $(subst .venv/,.venv-engine/,$(RUN))
ENGINE_NEEDS = tests/with_engine/requirements.txt
# The notebooks as a site that runs in the browser, and a folder that has Pyodide's files, where there is one.
LITE_RUN = $(subst .venv/,.venv-lite/,$(RUN))
LITE_NEEDS = deploy/lite/requirements.txt
PYODIDE ?=
# A hub for a room, and how many simulated learners come at once when it is tested.
HUB_RUN = .venv-hub/bin/python
N ?= 5
comma := ,

# Compiled modules are kept: without them everything starts a second or two later.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL = help
.PHONY: help lab fresh test test-slow test-torch test-engine test-hub test-wheel test-browser engine engine-clean hub oracle counts sources size env check nbval notebooks bench bench-browser bench-hub stills book test-book lite test-lite clean

help: ## list the targets
	@echo "make lab   opens the notebooks;   make test   runs every test.   All targets:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' Makefile | while IFS='|' read -r name what; do \
	  printf '  %-14s%s\n' $$name "$$what"; done

lab: env ## set up, and open JupyterLab at your copy of the first notebook (make lab ARGS=--no-browser)
	@$(RUN) tools/working_copy.py
	$(RUN) -m jupyterlab --ServerApp.port_retries=100 --LabApp.default_url=/lab/tree/my_notebooks/00_start_here.ipynb \
	  $(if $(filter 0,$(shell id -u 2>/dev/null)),--allow-root) $(ARGS)

fresh: env ## take anew your copies of the notebooks in which you changed nothing (NB=03: that one, yours kept beside it)
	@$(RUN) tools/working_copy.py fresh $(NB)

test: check ## set up, and run all: the checks, the tests, every notebook against its stored outputs
	$(RUN) -m pytest -p no:nbval -n 2 --dist worksteal
	@$(MAKE) --no-print-directory nbval

test-slow: env ## run the longer tests: a changed number turns each notebook red, a set-up from nothing, laws and sweeps whole
	$(RUN) -m pytest -p no:nbval -n 2 --dist worksteal -m "slow or hypothesis" --hypothesis-profile=whole

test-torch: .venv-torch/made ## run the tests that need PyTorch, on its CPU, in .venv-torch (Python 3.11, 1 GB)
	$(TORCH_RUN) -m pytest --confcutdir=tests/with_torch tests/with_torch

# Three rows hold the order of a set of words, which a class copies into its config; this seed of hashes gives it.
oracle: export PYTHONHASHSEED = 6
oracle: .venv-torch/made ## make the rows of tests/data again and compare (ARGS="--class LlamaForCausalLM" for a new one)
	$(TORCH_RUN) tools/config_oracle.py $(ARGS)

engine: .venv-engine/made ## make a real engine (llama.cpp) with files of random weights, 2.3 GB, for notebook 07 (ARGS=record)
	$(ENGINE_RUN) tools/engine.py $(ARGS)

engine-clean: ## remove that engine and its files
	rm -rf .venv-engine

test-engine: ## test the timing of a real engine with a toy model, in .venv-engine (200 MB)
	@exec 3>&1; said=$$($(MAKE) --no-print-directory --quiet .venv-engine/made 2>&1 >&3) || { echo "$$said" >&2; case "$$said" in \
	  *"No matching distribution"*) echo "make test-engine: skipped: no wheel of the engine is to be had for this Python" \
	  "and system (above)."; exit;; esac; exit 1; }
	@test ! -e .venv-engine/made || $(ENGINE_RUN) -m pytest --confcutdir=tests/with_engine tests/with_engine

hub: ## start a hub for a room of learners on this machine, as root, in .venv-hub (500 MB; docs/hub.md)
	@"$(PYTHON)" tools/hub_env.py
	@$(HUB_RUN) -m jupyterhub -f deploy/hub/jupyterhub_config.py $(ARGS)

test-hub: ## test a real hub with simulated learners who come at once (N=5; N=30 for a whole room), as root, with Node
	@why=$$("$(PYTHON)" tools/hub_env.py --reasons) || exit 1; if [ -n "$$why" ]; then \
	  echo "make test-hub: skipped: $$why."; else "$(PYTHON)" tools/hub_env.py --tests && \
	  HUB_TEST_LEARNERS=$(N) $(HUB_RUN) -m pytest --confcutdir=tests/with_hub tests/with_hub $(ARGS); fi

test-wheel: env ## build the wheel, install it into an environment of its own, and read its data there
	$(RUN) -m pytest --confcutdir=tests/with_wheel tests/with_wheel

test-browser: env .venv/browser.txt ## open, run and use every notebook in JupyterLab in a real browser (Chromium, Chrome)
	$(RUN) -m pytest --confcutdir=tests/browser tests/browser $(ARGS)

bench-browser: env .venv/browser.txt ## measure in a browser the time from an explorer's key to the picture; last line JSON
	$(RUN) tests/browser/bench.py

stills: env .venv/browser.txt ## draw what the explorers show where nothing runs, in Chromium (ARGS=--check to compare)
	$(RUN) tools/stills.py $(ARGS)

book: env .venv/book.txt ## make the book, build/book, from the stored notebooks (ARGS=serve: on localhost; ARGS=archive)
	$(RUN) tools/book.py $(ARGS)

test-book: env .venv/book.txt .venv/browser.txt ## make the book, compare it with the notebooks, read and use it in a browser
	$(RUN) -m pytest --confcutdir=tests/with_book tests/with_book $(ARGS)

lite: .venv-lite/made ## build the notebooks as a site that runs in the browser, build/lite (PYODIDE=folder; ARGS=serve)
	@PYODIDE="$(PYODIDE)" $(LITE_RUN) tools/lite.py $(ARGS)

test-lite: env .venv/browser.txt .venv-lite/made ## build that site, run its notebooks in a browser and compare them (NB=02,07: these)
	@PYODIDE="$(or $(PYODIDE),$(wildcard ../shared/pyodide))" $(LITE_RUN) tools/lite.py; code=$$?; \
	if [ $$code = 3 ]; then echo "make test-lite: skipped: files of the site are not to be had (above)."; \
	elif [ $$code != 0 ]; then exit $$code; \
	else NB="$(NB)" $(RUN) -m pytest --confcutdir=tests/with_lite tests/with_lite $(ARGS); fi

# Environments of their own. One that was not made here stays; Pyodide's files, once fetched, stay too.
.venv-torch/made: $(TORCH_NEEDS)
.venv-torch/made: FROM = $(TORCH_PYTHON)
.venv-torch/made: OTHERS = Python 3.11, or name another that PyTorch has a build for (TORCH_PYTHON=python3.12)
.venv-torch/made: HOLDS = PyTorch
.venv-engine/made: $(ENGINE_NEEDS)
.venv-engine/made: HOLDS = llama.cpp as a wheel, 200 MB
.venv-engine/made: ONLY = --only-binary :all:
.venv-lite/made: $(LITE_NEEDS)
.venv-lite/made: HOLDS = JupyterLite, 200 MB
.venv-%/made: FROM = $(PYTHON)
.venv-%/made: OTHERS = Python 3.11 to 3.13, or name another (PYTHON=python3.12)
.venv-torch/made .venv-engine/made .venv-lite/made:
	@"$(FROM)" -c "import ensurepip, venv" 2>/dev/null || { echo "make $(MAKECMDGOALS): $(FROM) with its venv module" \
	  "is not there: install $(OTHERS)." >&2; exit 1; }
	@[ ! -e $(@D) ] || [ -e $(@D)/begun ] || [ -e $@ ] || { echo "make $(MAKECMDGOALS): $(@D) was not made here, so it" \
	  "stays as it is: move it away or delete it, and run this again." >&2; exit 1; }
	@echo "Making $(@D) with $(FROM): $(HOLDS)"
	@mkdir -p $(@D) && touch $(@D)/begun && find $(@D) -mindepth 1 -maxdepth 1 ! -name begun ! -name pyodide -exec rm -rf {} +
	@"$(FROM)" -m venv $(@D)
	@$(@D)/$(notdir $(BIN))/python -m pip install --quiet --disable-pip-version-check $(ONLY) -r $< || { \
	  echo "make $(MAKECMDGOALS): $(@D) could not be made: pip's message above says why. Nothing else needs it: make test" \
	  "runs without." >&2; exit 1; }
	@touch $@

# What makes the book, into the same environment. Gone with .venv, then made again.
.venv/book.txt: pyproject.toml constraints.txt | env
	@$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[book]' || { echo "make: Sphinx" \
	  "could not be installed: pip's message above says why. Nothing else needs it: make test runs without." >&2; exit 1; }
	@touch $@

# What drives a browser, into the same environment; the browser itself is the machine's. Gone with .venv, then made again.
.venv/browser.txt: pyproject.toml constraints.txt | env
	@$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]' || { echo "make: Playwright" \
	  "could not be installed: pip's message above says why. Nothing else needs it: make test runs without." >&2; exit 1; }
	@touch $@

env: ## set up .venv, or refresh it after a change of pyproject.toml or constraints.txt
	@"$(PYTHON)" -c "import sys; sys.exit(sys.version_info < (3, 6))" >/dev/null 2>&1 || { echo "$(PYTHON) is not there," \
	  "or does not run, or is too old: install Python 3.11 to 3.13 (Debian and Ubuntu: apt install python3 python3-venv)," \
	  "name another (make lab PYTHON=python3.12), or with pyenv choose one (pyenv local 3.12); then run this again." >&2; \
	  exit 1; }
	@"$(PYTHON)" tools/setup_env.py

check: env ## lint, format and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

nbval: env ## run every notebook and compare all that it prints with what is stored in it
ifeq ($(NOTEBOOKS),)
	@echo "There are no notebooks yet: nothing to compare."
else
	$(RUN) -m pytest -p tools.quick_schemas -p no:randomly -p no:hypothesispytest -n 2 --dist loadfile \
	  --nbval --nbval-cell-timeout=120 --nbval-sanitize-with tests/nbval_sanitize.cfg notebooks
endif

notebooks: env ## execute all notebooks in fresh kernels and store their outputs (ARGS=02 for one, ARGS=--check to compare)
	$(RUN) tools/notebooks.py $(ARGS)

counts: env ## write the numbers of README, CHANGELOG and other pages that count what is there (ARGS=--check to compare)
	$(RUN) tools/counts.py $(ARGS)

sources: env ## write docs/sources.md, where every number was read (ARGS=--check to compare)
	$(RUN) tools/sources.py $(ARGS)

size: env ## print the lines of the library by room, its largest file and what is over a cap
	$(RUN) tools/size.py

bench-hub: ## measure rooms of 1, 5, 10, 20 and 30 learners on a quiet machine, for the table of docs/hub.md (ARGS=5: one)
	@"$(PYTHON)" tools/hub_env.py
	@$(HUB_RUN) tools/hub_room.py $(or $(ARGS),--series 1$(comma)5$(comma)10$(comma)20$(comma)30)

bench: env ## measure the speed; the last line is one JSON object
	$(RUN) tools/bench.py $(ARGS)

clean: ## remove all that running made, with the environments, unless another made these
	@if grep -qs . .venv/lessonlib-setup.txt && ! grep -q "filled, not made" .venv/lessonlib-setup.txt; then rm -rf .venv; fi
	@for it in .venv-torch .venv-engine .venv-lite .venv-hub; do if [ -e $$it/begun ] || [ -e $$it/made ]; then rm -rf $$it; fi; done
	@for it in .venv .venv-torch .venv-engine .venv-lite .venv-hub; do [ ! -e $$it ] || echo "$$it was not made here, so it stays as it is."; done
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -prune -exec rm -rf {} + -o -name .ipynb_checkpoints -prune -exec rm -rf {} +
