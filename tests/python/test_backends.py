"""Equality, copies and pickles of backends."""

import copy
import pickle

import numpy as np
import pytest
from conftest import INSTALLED

import mithril as ml
from mithril import _core, backends
from mithril.models import Linear

OPTIONS = {
    "NumpyBackend": [{}, {"precision": 64}, {"dtype": "bfloat16"}],
    "CpuBackend": [{}, {"threads": 2, "tier": "auto"}, {"donate": True}],
    "CBackend": [{}, {"dtype": np.float64}],
    "TorchBackend": [{}, {"device": "cpu", "requires_grad": True}],
    "JaxBackend": [{}, {"device": "cpu"}],
    "MlxBackend": [{}, {"device": "cpu"}],
    "TinygradBackend": [{}, {"device": "CPU"}],
}
CASES = [(name, options) for name, all_ in OPTIONS.items() for options in all_]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda backend: pickle.loads(pickle.dumps(backend))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_are_equal(name, options, again):
    kind = name.removesuffix("Backend").lower()
    if kind not in INSTALLED:
        pytest.skip(f"{kind} is not installed")
    backend = getattr(ml, name)(**options)
    backend.set_seed(3)
    backend.rand(2)
    other = again(backend)
    assert type(other) is type(backend)
    assert other == backend
    assert hash(other) == hash(backend)
    assert repr(other) == repr(backend)
    compiled = ml.compile(Linear(2), other, shapes={"input": [1, 3]})
    x = other.ones(1, 3)
    compiled.evaluate(compiled.randomize_params(0), {"input": x})


def own_devices(kind):
    """A device of each of the framework's own types."""
    if kind == "jax":
        return pytest.importorskip("jax").devices()[:1]
    if kind == "mlx":
        mx = pytest.importorskip("mlx.core")
        return [mx.cpu, mx.Device(mx.cpu, 0)]
    return [pytest.importorskip("torch").device("cpu")]


@pytest.mark.parametrize("name", ["JaxBackend", "MlxBackend", "TorchBackend"])
def test_devices_of_the_framework_are_taken(name):
    cls = getattr(ml, name)
    by_name = cls(device="cpu")
    for device in own_devices(cls.kind):
        backend = cls(device=device)
        assert backend == by_name
        assert (repr(backend), hash(backend)) == (repr(by_name), hash(by_name))
        assert pickle.loads(pickle.dumps(backend)) == copy.deepcopy(backend) == by_name
        assert backend.at("cpu") == by_name
        assert "device='" in repr(backend)
        np.testing.assert_array_equal(backend.to_numpy(backend.ones(2)), [1, 1])


@pytest.mark.parametrize("device", [1.5, ["cpu"], True, b"cpu"], ids=str)
@pytest.mark.parametrize("name", [*OPTIONS])
def test_devices_of_other_types_are_refused(name, device):
    cls = getattr(ml, name)
    if cls.kind not in INSTALLED:
        pytest.skip(f"{cls.kind} is not installed")
    with pytest.raises(ml.UsageError, match=f"`device` of {name} has a wrong type") as error:
        cls(device=device)
    assert "expected: a string" in str(error.value)


def test_every_target_has_a_backend():
    built_in = [target for target in _core.targets() if target.name in backends.BUILT_IN]
    classes = {target.class_name: target for target in built_in}
    assert {"Backend", "find", "names", *classes} == set(backends.__all__)
    for name, target in classes.items():
        assert getattr(backends, name).kind == target.name
        assert getattr(ml, name) is getattr(backends, name)
        assert repr(_core.Target(target.name)) == f'Target("{target.name}")'
    with pytest.raises(ml.UsageError, match="there is no backend `nunpy`") as error:
        _core.Target("nunpy")
    assert "did you mean `numpy`?" in str(error.value)


def test_pickled_backends_continue_their_random_sequence():
    backend = ml.NumpyBackend()
    backend.set_seed(3)
    backend.rand(2)
    other = pickle.loads(pickle.dumps(backend))
    np.testing.assert_array_equal(other.rand(4), backend.rand(4))


def test_backends_of_other_options_differ():
    numpy = ml.NumpyBackend()
    assert numpy == ml.NumpyBackend("float32") == ml.NumpyBackend(precision=32)
    assert len({numpy, ml.NumpyBackend(ml.float32)}) == 1
    assert numpy != ml.NumpyBackend(precision=64)
    assert numpy != ml.CBackend()
    assert numpy != "numpy"
    assert ml.CpuBackend(threads=2) != ml.CpuBackend(threads=3)
    assert ml.CpuBackend(threads=None) == ml.CpuBackend()


def test_subclassed_backends_are_supported():
    class Own(ml.NumpyBackend):
        def __init__(self, scale, **options):
            super().__init__(**options)
            self.scale = scale

    own = Own(3, precision=64)
    other = copy.deepcopy(own)
    assert (other.scale, other.precision) == (3, 64)
    assert own == other != Own(4, precision=64)
