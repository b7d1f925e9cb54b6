"""Arrays of other frameworks in calls of native code and C, and its results in frameworks."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from conftest import has

import mithril as ml
from mithril.models import BatchNorm1d, Linear, Relu

BACKENDS = [
    pytest.param(make, marks=pytest.mark.skipif(not has(name), reason=f"without {name}"))
    for name, make in (("cpu", ml.CpuBackend), ("c", ml.CBackend))
]


class Bare:
    """An array of an unknown framework, which has only the methods of DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("make", BACKENDS)
def test_arrays_of_other_frameworks_are_taken(make: Any) -> None:
    compiled = ml.compile(Linear(4), make(), shapes={"input": [2, 3]})
    params = compiled.randomize_params(seed=0)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    ones = {"output": np.ones((2, 4), np.float32)}
    want, gradients = compiled.evaluate(params, {"input": x}, output_gradients=ones)
    turned = torch.tensor(x.T.copy()).T
    for take in (torch.tensor, jnp.asarray, Bare):
        own = {name: take(value) for name, value in params.items()}
        seeds = {"output": take(ones["output"])}
        got, found = compiled.evaluate(own, {"input": take(x)}, output_gradients=seeds)
        np.testing.assert_array_equal(got["output"], want["output"])
        for name, gradient in gradients.items():
            np.testing.assert_array_equal(found[name], gradient)
    assert not turned.is_contiguous()
    np.testing.assert_array_equal(
        compiled.evaluate(params, {"input": turned})["output"], want["output"]
    )


@pytest.mark.parametrize("make", BACKENDS)
def test_arrays_of_other_frameworks_are_read_in_place(make: Any) -> None:
    backend = make()
    tensor, own = torch.ones(2, 3), np.ones((2, 3), np.float32)
    for array, memory in ((tensor, tensor.numpy()), (Bare(own), own)):
        assert np.shares_memory(backend.adopt(array), memory)
    halves = torch.ones(2, 3, dtype=torch.bfloat16)
    adopted = backend.adopt(halves)
    assert adopted.dtype.name == "bfloat16"
    assert np.shares_memory(adopted.view(np.int16), halves.view(torch.int16).numpy())
    assert backend.adopt(jnp.ones(2, jnp.bfloat16)).dtype.name == "bfloat16"


@pytest.mark.parametrize("make", BACKENDS)
def test_delayed_negations_of_torch_are_applied(make: Any) -> None:
    """The imaginary part of a conjugate has a delayed negation."""
    compiled = ml.compile(Relu(), make(), shapes={"input": [2]}, inference=True)
    x = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert x.is_neg()
    np.testing.assert_array_equal(compiled.evaluate({}, {"input": x})["output"], [0, 4])
    np.testing.assert_array_equal(make().to_numpy(make().array(x)), [-2, 4])


def test_outputs_go_to_other_frameworks_in_place() -> None:
    compiled = ml.compile(Relu(), ml.CpuBackend(), shapes={"input": [2, 3]})
    output = compiled.evaluate({}, {"input": torch.ones(2, 3)})["output"]
    tensor = torch.from_dlpack(output)
    tensor += 1
    assert (output == 2).all()


def test_unsupported_arrays_are_errors() -> None:
    compiled = ml.compile(Relu(), ml.CpuBackend(), shapes={"input": [2, 3]})
    for wrong, message in (
        (
            torch.nn.Parameter(torch.ones(2, 3)),
            r"another framework(.|\n)*Parameter, which would get no gradient(.|\n)*"
            r"`backend.array\(x\)`",
        ),
        (torch.ones(2, 3, device="meta"), "another framework"),
        (torch.ones(2, 3).to_sparse(), "another framework"),
        (torch.ones(2, 3, dtype=torch.float64), "the wrong dtype"),
        (torch.ones(3, 2), "the wrong shape"),
    ):
        with pytest.raises(ml.MithrilError, match=message):
            compiled.evaluate({}, {"input": wrong})


FRAMEWORKS = [
    ml.NumpyBackend,
    ml.TorchBackend,
    ml.JaxBackend,
    ml.MlxBackend,
    ml.TinygradBackend,
    *BACKENDS,
]


@pytest.mark.parametrize("make", FRAMEWORKS)
def test_arrays_of_numpys_classes(make: Any) -> None:
    """A matrix is read as an array, with elementwise `*`. Masked elements are refused."""
    model = ml.Model()
    model |= ml.models.Multiply()(left="w", right="x", output="y")
    model.set_shapes({"w": [2, 2], "x": [2, 2]})
    backend = make()
    compiled = ml.compile(model, backend, trainable_keys=["w"], data_keys=["x"])
    w = np.float32([[1, 2], [3, 4]])
    x = backend.array(w)
    for matrix in (w.view(np.matrix), backend.array(w.view(np.matrix))):
        got = compiled.evaluate({"w": matrix}, {"x": x})["y"]
        assert type(got) is type(x)
        np.testing.assert_array_equal(backend.to_numpy(got), w * w)
    masked = np.ma.array(w, mask=w > 2)
    with pytest.raises(ml.MithrilError, match="`w` of params is an array of another framework"):
        compiled.evaluate({"w": masked}, {"x": x})
    with pytest.raises(ml.MithrilError, match=r"masked elements have no value(.|\n)*filled"):
        backend.array(masked)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", FRAMEWORKS)
def test_sparse_tensors_are_errors(make: Any) -> None:
    ones = torch.ones(2, 3)
    for tensor, message in (
        (ones.to_sparse(), r"torch.sparse_coo(.|\n)*`x.to_dense\(\)`"),
        (ones.to_sparse_csr(), r"torch.sparse_csr(.|\n)*`x.to_dense\(\)`"),
        (ones.to("meta"), "on the device meta"),
        (torch.quantize_per_tensor(ones, 0.1, 0, torch.qint8), r"qint8(.|\n)*`x.dequantize\(\)`"),
    ):
        with pytest.raises(ml.MithrilError, match=message):
            make().array(tensor)


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_params_of_torch_are_bound(make: Any, dtype: str) -> None:
    """Tensors that require gradients can be bound too: constants have no gradients."""
    backend = make(dtype=dtype)
    compiled = ml.compile(Linear(3), backend, shapes={"input": ["n", 4]})
    own = getattr(torch, dtype)
    params = {"w": torch.full((4, 3), 0.5, dtype=own), "b": torch.ones(3, dtype=own)}
    bound = compiled.bind({name: value.requires_grad_() for name, value in params.items()})
    output = bound.evaluate({}, {"input": backend.ones(2, 4)})["output"]
    assert output.astype("float32").tolist() == [[3.0] * 3] * 2
    with pytest.raises(ml.UsageError, match="is not a dense array"):
        compiled.bind({"w": torch.ones(4, 3).to_sparse()})


@pytest.mark.parametrize("make", BACKENDS)
def test_states_of_torch_are_taken(make: Any) -> None:
    compiled = ml.compile(BatchNorm1d(), make(), shapes={"input": ["n", 2]})
    params, x = compiled.randomize_params(seed=0), np.ones((4, 2), np.float32)
    state = compiled.initial_state()
    want = compiled.evaluate(params, {"input": x}, state)[1]
    state = {name: torch.tensor(value) for name, value in compiled.initial_state().items()}
    got = compiled.evaluate(params, {"input": x}, state)[1]
    assert all(np.array_equal(got[name], want[name]) for name in want)
