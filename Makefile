# volley: `make train`, `make test`, `make ui`, `make bench`. Needs Python 3.11+, pip and make.
PYTHON ?= python3
RESULTS ?= results
ARGS ?=
BIN := .venv/bin
UV := $(BIN)/uv pip install --quiet --compile-bytecode --require-hashes --python $(BIN)/python
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

.PHONY: help train test ui bench lock clean

help:   ## Show this help
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

train: .venv/payload  ## Train IMPALA on Pong until the mean return is 18 or an hour has passed
	$(BIN)/python -m payload train experiments/pong.yaml --results $(RESULTS) $(ARGS)

test: .venv/dev  ## Lint, types and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest $(ARGS)

ui: .venv/payload  ## Open the MLflow UI on loopback (port 5000)
	$(BIN)/mlflow ui --host 127.0.0.1 --backend-store-uri sqlite:///$(abspath $(RESULTS))/mlflow.db $(ARGS)

bench: .venv/payload  ## Measure this trainer, stock RLlib and the emulator's limit side by side
	$(BIN)/python -m payload bench --results $(RESULTS) $(ARGS)

lock: .venv/uv  ## Resolve requirements/*.txt anew
	$(COMPILE) pyproject.toml -o requirements/payload.txt
	cp requirements/payload.txt requirements/dev.txt  # uv keeps the versions that it finds there
	$(COMPILE) pyproject.toml --extra dev -o requirements/dev.txt

clean:  ## Remove the virtual environment
	rm -rf .venv

.venv/uv: requirements/uv.txt
	$(PYTHON) -c 'import sys; sys.exit("volley needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	touch $@

.venv/payload: .venv/uv requirements/payload.txt pyproject.toml
	@echo "Installing packages into .venv (about 6 GB; some minutes, once) ..."
	$(UV) -r requirements/payload.txt
	$(BIN)/uv pip install --quiet --no-deps --python $(BIN)/python --editable .
	touch $@

.venv/dev: .venv/payload requirements/dev.txt
	$(UV) -r requirements/dev.txt
	touch $@
