"""Fixtures that several test files use."""

import importlib.util
import sys
from pathlib import Path

import pytest

import mithril as ml

MAKERS = {"numpy": "NumpyBackend", "torch": "TorchBackend", "jax": "JaxBackend"}
INSTALLED = [kind for kind in MAKERS if importlib.util.find_spec(kind)]


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def jax_types():
    """A test that turns JAX's 64-bit types on does so for itself alone."""
    yield
    jax = sys.modules.get("jax")
    if jax is not None:
        jax.config.update("jax_enable_x64", False)


@pytest.fixture(params=INSTALLED)
def backend(request):
    """A backend of each framework that is installed, with float32."""
    return getattr(ml, MAKERS[request.param])()


@pytest.fixture
def frameworks():
    """The names of the frameworks that are installed."""
    return INSTALLED
