# Every target sets up what it needs: .venv in this folder, pinned dependencies, the compiled extension, the demo model.
# Stamps in .venv make a second call quick. Works with GNU make 3.81 (macOS) and newer.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := $(shell find CMakeLists.txt csrc -type f 2>/dev/null)

export PROMPT ?= Why is the sky blue? Answer in two sentences.
MODELS ?= smollm2 gemma3 qwen-coder-0.5b
ARGS ?=

.PHONY: help run test soak neon lint format models bench build hooks clean

help:
	@echo 'make run                     build everything and answer PROMPT with the demo model (98 MB, fetched once)'
	@echo 'make test                    build everything and run the tests (ARGS="-k name" chooses)'
	@echo 'make soak                    the long lane: ten minutes of mixed traffic, and conversations of 8000 tokens'
	@echo 'make neon                    compile for aarch64 and run the tests of the kernels under qemu-user, as make test does from then on'
	@echo 'make lint | make format      ruff, mypy, import rules | rewrite what ruff can'
	@echo 'make models                  fetch what some tests need: vocabularies and $(MODELS)'
	@echo 'make bench                   compare with llama.cpp, which is built first (minutes)'
	@echo 'make build | make hooks      only build | check every commit before it is made'
	@echo 'make clean                   remove all that was built here, .venv too; models stay'

run: $(VENV)/built
	@model=$$($(BIN)/python tests/get_models.py smollm2) && $(BIN)/tensormill run "$$model" "$$PROMPT" $(ARGS)

test: $(VENV)/built
	@$(BIN)/python tests/get_models.py smollm2
	$(BIN)/python -m pytest $(ARGS)

soak: $(VENV)/built
	TENSORMILL_SOAK_MINUTES=10 TENSORMILL_LONG_TURN=8000 $(BIN)/python -m pytest tests/server/test_soak.py tests/server/test_prefix.py $(ARGS)

neon: $(VENV)/built
	@sh scripts/neon $(BIN)/python
	$(BIN)/python -m pytest tests/ops/test_neon.py $(ARGS)

lint: $(VENV)/built
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	MYPYPATH=src:benchmarks $(BIN)/mypy benchmarks/vs_llama_cpp.py benchmarks/serve_vs_llama_server.py tests/get_models.py
	$(BIN)/lint-imports

format: $(VENV)/built
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

models: $(VENV)/python
	@$(BIN)/python tests/get_models.py $(MODELS)
	@if [ -e tests/fetch_vocabs.py ]; then $(BIN)/python tests/fetch_vocabs.py; fi

bench: $(VENV)/built
	$(BIN)/python benchmarks/vs_llama_cpp.py $(ARGS)

build: $(VENV)/built

hooks: $(VENV)/built
	$(BIN)/pre-commit install

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A half-made environment leaves no stamp, so the next call makes it anew.
$(VENV)/python: scripts/prerequisites
	@echo 'setting up $(VENV)'
	@python=$$(sh scripts/prerequisites) && "$$python" -m venv --clear $(VENV)
	@$(PIP) install -q pip==26.3
	@touch $@

$(VENV)/dependencies: $(VENV)/python pyproject.toml
	@echo 'installing the pinned tools'
	@$(PIP) install -q --group dev
	@touch $@

# Without isolation, the pinned build tools of the dev group are used and build/ keeps the objects between calls.
$(VENV)/built: $(VENV)/dependencies $(SOURCES)
	@echo 'building the extension (minutes the first time)'
	@$(PIP) install -q --no-build-isolation --editable .
	@touch $@
