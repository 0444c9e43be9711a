# `make demo` and `make test` need Python 3.11 or later (with venv), make, and nothing else: each sets up what it
# needs in .venv, once, and again when pyproject.toml changes.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
# Two workers, each with a run of neighbours, so that what tests of one file share is made once; who is done first takes
# over half of what the other has left.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# Python compiles a module to bytecode when it is first imported; to do so for all of them takes a quarter of the time.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Where there is a GPU, the demo runs on it too.
DEMO_EXTRAS := $(if $(shell command -v nvidia-smi 2>/dev/null),[cuda])

.PHONY: demo test test-torch test-onnx explorer test-explorer lint types imports docs links notebooks golden nightly fuzz bench bench-polybench bench-peers format clean

demo: $(VENV)/.installed-demo
	$(BIN)/polyfuse demo

# All but the cases that tests/nightly.txt lists. pytest's summary is the last line printed.
test: $(VENV)/.installed-test
	@$(PYTEST) -m "not nightly"

# What needs torch (extra `torch`); without it these tests are skipped.
test-torch: $(VENV)/.installed-torch
	@$(PYTEST) tests/torch tests/frontend/torch

# ONNX's own tests of its operators, each compiled, but for those that tests/onnx/left_out.txt lists with the reason.
test-onnx: $(VENV)/.installed-test
	@$(PYTEST) tests/onnx/node_tests.py

# The explorer's page in headless Chromium (Debian's package `chromium`), and axe-core's check of its accessibility. Without
# chromium these tests are skipped.
test-explorer: explorer $(VENV)/.installed-browser
	@$(BIN)/python -m pytest tests/show/explorer

# The bundle that is committed: polyfuse/show/explorer/app.js, from the sources in explorer/. It needs Node.js 20 and npm 11.
explorer:
	cd explorer && npm ci --no-audit --no-fund && npm run build

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-test
	$(BIN)/mypy

imports: $(VENV)/.installed-test
	$(BIN)/lint-imports

docs: $(VENV)/.installed-test
	rm -rf docs/api docs/internals
	$(BIN)/sphinx-build --quiet --jobs auto --fail-on-warning --keep-going --fresh-env -b html docs docs/_build/html

# External links of the pages; without a network they are skipped with a sentence.
links: $(VENV)/.installed-test
	$(BIN)/python docs/links.py

# Run the tutorials anew, with their outputs. One of them needs torch.
notebooks: $(VENV)/.installed-torch
	PYTHONPATH=. $(BIN)/jupyter execute --inplace docs/notebooks/*.ipynb

# Rewrite the golden files; read their diff before committing it.
golden: $(VENV)/.installed-test
	$(PYTEST) --update-golden

# Every test, the property tests at length; the statistics say how many cases each ran.
nightly: links $(VENV)/.installed-test
	$(PYTEST) --hypothesis-profile=nightly --hypothesis-show-statistics

# Random loops, networks, schedules and conversions with new seeds; `make fuzz OPTIONS="--minutes 60 --jobs 4 --seed 7"`
fuzz: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.fuzz $(OPTIONS)

bench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks

# PolyBench LARGE against numba, gcc, Polly and NumPy: a quarter of an hour. `make bench-polybench OPTIONS="--kernels gemm,lu"`
bench-polybench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.polybench $(OPTIONS)

# What a user would pick instead, each installed under build/ (3 GB): an hour. `make bench-peers OPTIONS="--peers torch"`
bench-peers: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.peers $(OPTIONS)

clean:
	rm -rf build dist docs/_build docs/api docs/internals .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "polyfuse needs Python 3.11 or later; name one with: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	@echo "Installing polyfuse into $(VENV) (once; about a minute)"
	@$(PIP) --editable '.$(DEMO_EXTRAS)'
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	@echo "Installing polyfuse[cuda,dev] into $(VENV) (once; CUDA's compiler is about 220 MB)"
	@$(PIP) --editable '.[cuda,dev]'
	@touch $@ $(VENV)/.installed-demo

$(VENV)/.installed-browser: pyproject.toml $(VENV)/.installed-test
	@echo "Installing polyfuse[browser] into $(VENV) (once; 45 MB)"
	@$(PIP) --editable '.[browser]'
	@touch $@

$(VENV)/.installed-torch: pyproject.toml $(VENV)/.installed-test
	@echo "Installing polyfuse[torch] into $(VENV) (once; 0.7 GB, and more where only builds with CUDA are offered)"
	@$(PIP) --editable '.[torch]'
	@touch $@
