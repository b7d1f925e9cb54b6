"""Fixtures that several test files use."""

import atexit
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import devices
import levels
import pytest

import mithril as ml

# tinygrad would start processes that each compile a few kernels.
os.environ.setdefault("PARALLEL", "0")
MAKERS = {
    "numpy": "NumpyBackend",
    "torch": "TorchBackend",
    "jax": "JaxBackend",
    "mlx": "MlxBackend",
    "tinygrad": "TinygradBackend",
    "cpu": "CpuBackend",
    "c": "CBackend",
}
# A shell's background job ignores interrupts, and so do its children. Some tests send interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Native code needs this library, which is built only if LLVM is installed.
NATIVE = Path(os.environ.get("MITHRIL_NATIVE") or Path(ml.__file__).with_name("_native.so"))


def has(kind: str) -> bool:
    if kind == "tinygrad":
        return importlib.util.find_spec(kind) is not None and has_clang()
    if kind == "c":
        return shutil.which(os.environ.get("CC") or "cc") is not None
    return NATIVE.exists() if kind == "cpu" else importlib.util.find_spec(kind) is not None


def has_clang() -> bool:
    """Whether tinygrad has a compiler. Its tensors then become NumPy's arrays by `np.asarray`."""
    from tinygrad import Tensor  # noqa: PLC0415

    from mithril.backends.tinygrad import as_numpy, find_compiler  # noqa: PLC0415

    Tensor.__array__ = lambda self, dtype=None, copy=None: as_numpy(self).astype(
        dtype or as_numpy(self).dtype
    )
    return find_compiler() is not None


devices.use()
INSTALLED = [kind for kind in MAKERS if has(kind)]
CLASSES = [getattr(ml, MAKERS[kind]) for kind in INSTALLED]
# Backends whose code is Python.
SOURCES = [make for make in CLASSES if ml._core.Target(make.kind).dialect == "python"]
# Most of what C does is that of native code.
WITHOUT_C = [make for make in CLASSES if make.kind != "c"]
# The tests have a cache of their own.
os.environ["MITHRIL_CACHE"] = tempfile.mkdtemp(prefix="mithril-cache-")
# Detects kernels that write outside their memory.
os.environ.setdefault("MITHRIL_GUARD", "1")
# Cost estimates do not depend on measurements of this machine.
os.environ["MITHRIL_PROFILE"] = ""
atexit.register(shutil.rmtree, os.environ["MITHRIL_CACHE"], ignore_errors=True)


def pytest_report_header():
    return levels.header()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    kept = levels.chosen(items)
    left = {id(item) for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in left])
    items[:] = kept


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(levels.header())


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def jax_types():
    """Undoes JAX's switch to 64-bit types after a test that turns it on."""
    yield
    jax = sys.modules.get("jax")
    if jax is not None:
        jax.config.update("jax_enable_x64", False)


@pytest.fixture(params=INSTALLED)
def backend(request):
    """A backend of each installed framework, in float32."""
    return getattr(ml, MAKERS[request.param])()


@pytest.fixture
def frameworks():
    """The names of the frameworks that are installed."""
    return INSTALLED
