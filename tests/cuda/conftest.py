"""Tests of PyTorch and JAX on an NVIDIA GPU, which `make test-cuda` runs; `make test` does not."""

import pytest
import torch


@pytest.fixture(autouse=True)
def no_cache():
    torch.cuda.empty_cache()
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
