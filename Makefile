# Two commands for a newcomer: `make demo` and `make test`. Both make what they need (a virtual environment in .venv).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-seeds fuzz test-peers test-nvrtc test-races lint bench bench-peers docs site notebooks clean

demo: $(VENV)/.examples
	$(BIN)/python -m tensorexpr demo

# What compares with peers, the rehearsal of the GPU benchmark and some long files are `make test-peers`, also where the peers are installed, and so is the
# second third of the largest laws. What runs long kernels of CUDA on the CPU is `make test-nvrtc`, with the last third and the longest files of other
# rooms: each of the three takes less than ten minutes.
BESIDE := tests/peers $(addprefix tests/,benchmarks/test_gpu.py autodiff/test_modes.py autodiff/test_steering.py contract/test_language.py \
  runtime/test_laws.py)
THIRDS := $(addprefix tests/,autodiff/test_pieces.py autodiff/test_ragged.py autodiff/test_scans.py autodiff/test_segments.py \
  codegen/auto/test_search.py codegen/auto/test_tiles.py contract/test_gradient.py fuzz/test_fuzz.py kernels/test_laws.py)
CUDA   := $(addprefix tests/codegen/cuda/,model test_blocks.py test_columns.py test_groups.py test_isolation.py test_laws.py test_operations.py test_parts.py \
  test_products.py test_row_blocks.py test_rows.py test_sorting.py test_triangles.py test_turned.py)
LATER  := $(addprefix tests/,algebra/test_supports.py autodiff/test_budget.py autodiff/test_turns.py benchmarks/test_run.py \
  benchmarks/test_workloads.py codegen/auto/test_open.py codegen/llvm/test_fences.py codegen/test_pieces.py examples graph/test_open_sizes.py \
  kernels/test_empty.py kernels/test_rearrange.py kernels/test_run_time_sizes.py language/test_special.py runtime/test_open_programs.py runtime/test_versions.py)
AGREE  := tests/benchmarks/test_workloads.py::test_peers_agree_with_ours
PAGE   := 'tests/docs/test_blocks.py::test_the_blocks_of_a_page_run_in_order[docs/interop.md]'
test: $(VENV)/.test
	TENSOREXPR_TEST_THIRD=first $(BIN)/python -m pytest -n 2 --dist worksteal $(addprefix --ignore ,$(BESIDE) $(CUDA) $(LATER)) --deselect $(AGREE) --deselect $(PAGE) tests

# The laws on all of their random programs, of which `make test` takes every seventh, and the planted faults that they are to find.
test-seeds: $(VENV)/.test
	TENSOREXPR_TEST_SEEDS=all $(BIN)/python -m pytest -n 2 --dist worksteal $$(grep -rl --include='test_*.py' -e 'share_of(' -e 'is_campaign(' tests)

# Random programs on new seeds for SECONDS, in PROCESSES processes: values, gradients, layouts, threads, schedules. What fails is made
# smaller and printed as a test to paste. SEED=n begins with that seed; `python -m tests.fuzz --only SEED` runs one.
SECONDS ?= 600
PROCESSES ?= 2
fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --processes $(PROCESSES) $(if $(SEED),--seed $(SEED))

test-peers: $(VENV)/.peers
	TENSOREXPR_TEST_THIRD=second $(BIN)/python -m pytest -n 2 --dist worksteal $(BESIDE) $(AGREE) $(PAGE) $(THIRDS)

# The CUDA backend without a GPU: every kernel of the library on the CPU, all accesses checked, and through NVIDIA's compiler; and what is
# left of `make test`.
test-nvrtc: $(VENV)/.nvrtc
	TENSOREXPR_TEST_KERNELS=all $(BIN)/python -m pytest -n 2 --dist worksteal tests/codegen/cuda tests/runtime/test_gpu_function.py
	TENSOREXPR_TEST_THIRD=third $(BIN)/python -m pytest -n 2 --dist worksteal --deselect $(AGREE) $(LATER) $(THIRDS)

# Every kernel of the library, forward and gradient, as CUDA text on the CPU: races, bounds, what nothing was written to.
test-races: $(VENV)/.test
	TENSOREXPR_TEST_KERNELS=all $(BIN)/python -m pytest -n 2 --dist worksteal tests/codegen/cuda/test_kernels.py -k on_the_cpu

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	./scripts/typecheck.sh $(BIN)

# Beside the peers that are installed, some ten minutes for each number of threads; `make bench-peers` installs them all, and
# `benchmarks/measure.sh` fills their caches first (searches for schedules, compilers of C++), which takes up to an hour, once.
bench: $(VENV)/.examples
	$(BIN)/python -m tensorexpr bench --threads 1 --threads all --rounds 5 --limit 3 --json build/benchmarks/bench.json --html build/benchmarks/bench.html

bench-peers: $(VENV)/.bench

# Writes the parts of the documents that the program prints.
docs: $(VENV)/.examples
	$(BIN)/python docs/generate.py
	$(BIN)/python scripts/language_reference.py
	$(BIN)/python scripts/kernel_reference.py
	$(BIN)/python scripts/schedule_reference.py
	$(BIN)/python scripts/cuda_goldens.py

# The documents as a web site in build/site; every warning, such as a link that leads nowhere, is an error.
site: $(VENV)/.site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The pages that run, as notebooks in build/notebooks.
notebooks: $(VENV)/bin/python
	$(BIN)/python scripts/notebooks.py build/notebooks

# A stamp per extra: set up once, again whenever pyproject.toml changes.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("tensorexpr needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.examples: $(VENV)/bin/python pyproject.toml
	$(PIP) -e '.[examples]'
	@touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml
	$(PIP) -e '.[examples,test]'
	@touch $@

$(VENV)/.site: $(VENV)/bin/python pyproject.toml
	$(PIP) -e '.[site]'
	@touch $@

$(VENV)/.lint: $(VENV)/bin/python pyproject.toml
	$(PIP) -e '.[examples,test,lint]'
	@touch $@

# Exactly this torch: other spellings bring gigabytes of CUDA libraries.
$(VENV)/.peers: $(VENV)/.test
	$(PIP) torch==2.13.0
	$(PIP) jax onnx==1.23.2 expecttest
	@touch $@

$(VENV)/.bench: $(VENV)/bin/python pyproject.toml
	$(PIP) -e '.[examples,bench]'
	@touch $@

$(VENV)/.nvrtc: $(VENV)/.test
	$(PIP) -e '.[examples,test,nvrtc]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache
