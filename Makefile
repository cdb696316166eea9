# volley: `make train`, `make test`, `make ui`, `make bench`; `make up`, `make down` on Azure.
# Needs Python, pip and make; for Azure the Pulumi CLI as well. A Mac has GNU make 3.81 and BSD tools.
PYTHON ?= python3
PYTHONS := 3.11 3.12 3.13
RESULTS ?= results
ARGS ?=
BIN := .venv/bin
UV := $(BIN)/uv pip install --quiet --compile-bytecode --require-hashes --python $(BIN)/python
COMPILE := $(BIN)/uv pip compile --quiet --no-emit-index-url --no-header
UNIVERSAL := --universal --generate-hashes --python-version 3.11
MACHINE_PYTHON = $(shell sed -n 's/^PYTHON_VERSION = "\(.*\)"$$/\1/p' infra/boot/cloud_config.py)
# A machine completes no shell, and what comes to it was chosen before: payload/experiment/travelling.py.
MACHINE = --python-version $(MACHINE_PYTHON) --python-platform x86_64-manylinux_2_35 --format pylock.toml --no-emit-package argcomplete --no-emit-package pathspec
# What people type `make` on; av's wheels are for macOS 14 and newer.
LAPTOPS := x86_64-manylinux_2_28 aarch64-manylinux_2_28 aarch64-apple-darwin
WHEELS := MACOSX_DEPLOYMENT_TARGET=14.0 $(BIN)/uv pip install --quiet --require-hashes --only-binary :all:
# With --dist loadfile, pytest-xdist 3.8 never finishes after it has replaced a worker.
PYTEST := $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# Where it is set, each process of the tests would compile all code again.
unexport PYTHONDONTWRITEBYTECODE

CODE := bench examples head infra payload rehearsal tests volley

.PHONY: help train test quick chaos lint docs ui bench bench-scale gpu-check up preview prices sizes down
.PHONY: rehearse soak rehearse-set-up rehearse-clean lock lock-check audit linux clean

help:   ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

train: .venv/payload  ## Train APPO on Pong until the mean return is 18 or an hour has passed
	$(BIN)/volley train experiments/pong-appo.yaml --results $(RESULTS) $(ARGS)

test: lint  ## Lint, types and all tests
	$(PYTEST) $(ARGS)

# The imports of a third process would take longer than it saves.
quick: lint  ## Lint, types and the tests that need no process
	OMP_NUM_THREADS=1 $(PYTEST) --numprocesses 2 -m "not slow and not chaos" --timeout 60 $(ARGS)

chaos: .venv/dev  ## Kill, cut off and fill up whatever a run needs while it trains (Linux, root)
	$(BIN)/pytest tests/chaos -m chaos --timeout 600 $(ARGS)

lint: .venv/dev  ## Lint and types
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin bench head infra payload volley & \
	  darwin=$$!; $(BIN)/mypy; code=$$?; wait $$darwin && exit $$code

docs: .venv/dev  ## Write the tables of settings in docs/, and the schemas for editors
	$(BIN)/python -m payload.experiment.document
	$(BIN)/python -m infra.config.document

ui: .venv/payload  ## Open MLflow's charts of the newest run (ARGS="--port 5001")
	$(BIN)/volley ui --results $(RESULTS) $(ARGS)

bench: .venv/dev  ## Measure this trainer, RLlib's example and the emulator's limit side by side (Linux)
	$(BIN)/volley bench --results $(RESULTS) $(ARGS)

bench-scale: .venv/dev  ## Measure what limits a training on many machines, part by part (Linux)
	$(BIN)/volley bench --scale --results $(RESULTS) $(ARGS)

gpu-check: .venv/payload  ## Check and measure a learner on this machine's GPU (ARGS="--device cpu")
	$(BIN)/volley bench --gpu --results $(RESULTS) $(ARGS)

up: .venv/infra  ## Create or update the cluster on Azure and train (pulumi up)
	$(BIN)/volley up $(ARGS)

prices: .venv/infra  ## Update the prices of the estimates from Azure (ARGS="--location westeurope")
	$(BIN)/python -m infra.config.update_prices $(ARGS)

sizes: .venv/infra  ## Update the VM sizes for previews without a login, with the Azure CLI
	$(BIN)/python -m infra.config.update_sizes $(ARGS)

preview: .venv/infra  ## Show what `make up` would change
	pulumi preview $(ARGS)

down: .venv/infra  ## Delete the cluster; the results stay (pulumi destroy)
	$(BIN)/volley down $(ARGS)

rehearse: rehearse-set-up  ## Run the declared cluster for real on this machine (Linux, root)
	$(BIN)/python -m rehearsal run $(ARGS)

soak: rehearse-set-up  ## Train for an hour while a fault happens every minute (ARGS="--seed 7"; Linux, root)
	$(BIN)/python -m rehearsal soak $(ARGS)

rehearse-set-up: linux .venv/dev  ## Install the rehearsal's tools, make its base image (Linux, root)
	$(BIN)/python -m rehearsal set-up

rehearse-clean: linux .venv/dev  ## Remove all that a rehearsal has left (Linux, root)
	$(BIN)/python -m rehearsal clean

lock: .venv/dev  ## Resolve requirements/*.txt again
	$(COMPILE) $(UNIVERSAL) pyproject.toml --extra dev -o requirements/dev.txt
	set -e; for extra in payload infra onnx; do \
	  cp requirements/dev.txt requirements/$$extra.txt; : uv keeps the versions that it finds there; \
	  $(COMPILE) $(UNIVERSAL) pyproject.toml --extra $$extra -o requirements/$$extra.txt; \
	done
	mkdir -p build
	$(COMPILE) $(MACHINE) -c requirements/dev.txt pyproject.toml \
	  --extra payload --extra cluster -o build/pylock.toml
	$(BIN)/python -m infra.boot.machine_lock build/pylock.toml requirements/machine.txt
	$(COMPILE) $(MACHINE) -c requirements/machine.txt pyproject.toml \
	  --extra jupyter -o build/pylock.jupyter.toml
	$(BIN)/python -m infra.boot.machine_lock build/pylock.jupyter.toml requirements/jupyter.txt requirements/machine.txt

audit: .venv/uv  ## Look up the packages of requirements/*.txt in the OSV database of vulnerabilities
	.ci/audit $(ARGS)

lock-check: .venv/uv  ## Download infra's wheels for each laptop, verify them; look for training's
	rm -rf build/wheels
	@set -e; for platform in $(LAPTOPS); do for python in $(PYTHONS); do \
	  echo "$$platform, Python $$python"; \
	  laptop="--python-platform $$platform --python-version $$python --target build/wheels/$$platform-$$python"; \
	  $(WHEELS) $$laptop --cache-dir build/wheels/cache -r requirements/uv.txt -r requirements/infra.txt; \
	  $(WHEELS) $$laptop --dry-run -r requirements/payload.txt; \
	done; done
	rm -rf build/wheels

linux:
	@test "$$(uname -sm)" = "Linux x86_64" || \
	  { echo "volley: a rehearsal needs Linux on x86_64, this is $$(uname -sm)" >&2; exit 2; }

clean:  ## Remove the virtual environment
	rm -rf .venv

.venv/uv: requirements/uv.txt
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.exit(v not in "$(PYTHONS)".split() and \
	  "volley needs Python 3.11, 3.12 or 3.13; $(PYTHON) is " + v + ". Try: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	touch $@

.venv/payload: .venv/uv requirements/payload.txt pyproject.toml
	@echo "Installing packages into .venv (about 6 GB; some minutes, once) ..."
	$(UV) -r requirements/payload.txt
	$(BIN)/uv pip install --quiet --no-deps --python $(BIN)/python --editable .
	touch $@

.venv/infra: .venv/uv requirements/infra.txt pyproject.toml
	$(UV) -r requirements/infra.txt
	$(BIN)/uv pip install --quiet --no-deps --python $(BIN)/python --editable .
	touch $@

.venv/onnx: .venv/payload requirements/onnx.txt
	$(UV) -r requirements/onnx.txt
	touch $@

.venv/dev: .venv/payload requirements/dev.txt
	$(UV) -r requirements/dev.txt
	touch $@
