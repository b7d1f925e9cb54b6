# Everything is set up in .venv/ and target/ of this checkout; a second run sets up nothing.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/lib/llvm-22/bin
comma := ,

# Frameworks to install for the demo, and to run it on: numpy,torch,jax,mlx,tinygrad. By default what is there.
BACKENDS ?=
# The lists in tools/requirements/ that the named backends need; a backend without one needs nothing.
LISTS = $(notdir $(basename $(wildcard $(patsubst %,tools/requirements/%.txt,$(subst $(comma), ,$(BACKENDS))))))

# The crate that is built with LLVM, where there is none.
WITHOUT = $$(test -x /usr/lib/llvm-22/bin/llvm-config || echo --exclude mithril-native)

# How many tests of Python run at one time.
PYTEST = -n auto --maxprocesses 4 --dist worksteal

.PHONY: help build demo test test-all test-cuda fuzz bless lint wheel clean

help: ## Print this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 10

build: ## Build the package and the commands into .venv/.
	@tools/setup.sh $(sort numpy llvm $(LISTS))
	@tools/install.sh

demo: build ## Train a classifier of handwritten digits; BACKENDS=numpy,torch,jax installs those named.
	@.venv/bin/python tools/demo/digits.py $(if $(BACKENDS),--backends $(BACKENDS))

test: ## Run the tests: cargo, lit, pytest; of tests with many cases, and at lower levels of processor, a sample. Installs torch, JAX, MLX and tinygrad.
	@tools/setup.sh numpy llvm torch jax mlx tinygrad test
	@tools/install.sh
	@tools/examples.sh
	cargo test --release --workspace $(WITHOUT)
	.venv/bin/lit -sv tests/lit
	.venv/bin/python -m pytest $(PYTEST)
	@tools/levels.sh $(PYTEST)

test-all: export MITHRIL_TESTS = all
test-all: export MITHRIL_SHARD = $(SHARD)
test-all: test ## Run every case at every level of processor that this machine has; with SHARD=2/4 the second quarter of those that take long.

test-cuda: build ## Run the tests of PyTorch and JAX on an NVIDIA GPU, which must be there.
	@tools/setup.sh torch jax test
	PYTHONPATH=tests/python .venv/bin/python -m pytest tests/cuda
	for kind in forward corners gradients hard kinks models; do \
		cargo run --release --quiet --package mithril-source --example differential -- torch $$kind >target/$$kind.json; \
		MITHRIL_TORCH_DEVICE=cuda:0 .venv/bin/python tests/python/differential.py torch $$kind target/$$kind.json || exit 1; \
	done
	MITHRIL_TORCH_DEVICE=cuda:0 .venv/bin/python tests/python/fuzz.py 100 --first 1700600000 --backends torch

fuzz: ## Compile 2000 random models for all backends and compare; SEED is the first one, FUZZ more options. Keeps those that differ.
	.venv/bin/python tests/python/fuzz.py 2000 --first $(or $(SEED),$(shell date +%s)) $(FUZZ) \
		--keep tests/python/records/fuzz.txt

bless: ## Accept what the snapshot tests see now, type stubs included.
	BLESS=1 INSTA_UPDATE=always cargo test --release --workspace $(WITHOUT)

lint: ## Check formatting, clippy, ruff and mypy.
	@tools/setup.sh numpy lint
	cargo fmt --check
	cargo clippy --release --workspace $(WITHOUT) --all-targets -- -D warnings
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy

wheel: ## Build the wheel, with both commands in it, into dist/, and run a model from it.
	@tools/setup.sh wheel
	PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@.venv/bin/python tools/smoke.py dist/mithril-*.whl
	@ls dist/*.whl

clean: ## Remove what was built; .venv/ stays.
	rm -rf target dist frontend/python/mithril/_core.abi3.so frontend/python/mithril/_native.so
