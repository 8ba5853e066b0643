# Two commands for a clean clone: `make quickstart` and `make test`. Everything goes into .venv/; nothing outside is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# The tests' networks are tiny: two processes of one thread each beat one process of many.
PYTEST_WORKERS ?= 2

.PHONY: quickstart test lint types pytest benchmark clean
.DELETE_ON_ERROR:

quickstart: $(READY)
	$(BIN)/electra quickstart $(if $(MINUTES),--minutes $(MINUTES))

test: lint types pytest

lint: $(READY)
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

pytest: $(READY)
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/pytest -n $(PYTEST_WORKERS)

# make benchmark ARGS="--batch-size 128 --rounds 3". Rivals go into an environment of their own, without their dependencies: those
# are transformers 3.0.2 for one and hundreds of megabytes that training never touches for the other.
benchmark: $(VENV)-benchmark/ready
	$(VENV)-benchmark/bin/python benchmarks/step.py $(ARGS)

$(VENV)-benchmark/ready: pyproject.toml constraints.txt benchmarks/requirements.txt
	$(PYTHON) -m venv $(VENV)-benchmark
	$(VENV)-benchmark/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[tensorboard]'
	$(VENV)-benchmark/bin/python -m pip install --disable-pip-version-check --no-deps -r benchmarks/requirements.txt
	@touch $@

# The stamp is newer than both files only when the last installation went through.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "electra needs Python 3.11 or newer, $(PYTHON) is older or missing: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 2; }
	@echo "Setting up $(VENV)/ (once; mostly the download of PyTorch) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[quickstart,test]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-benchmark .pytest_cache .mypy_cache .ruff_cache .hypothesis
