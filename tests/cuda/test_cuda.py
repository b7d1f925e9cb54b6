"""What PyTorch and JAX do on an NVIDIA GPU: numbers, options, borders and errors."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest
import torch
from crossings import watch
from models import CUDA, SHAPES, by_hand, mlp, near, step
from networks import MODELS

import mithril as ml
from mithril.errors import BackendError, IndexRangeError, MithrilError
from mithril.models import (
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Linear,
    Relu,
    Sequential,
)

# Numbers.


@pytest.mark.parametrize("how", ["eager", "torch.compile", "script", "mithril"])
@pytest.mark.parametrize("name", MODELS)
def test_networks_have_the_numbers_of_the_cpu(name, how):
    build, draw = MODELS[name]
    given = draw(np.random.default_rng(3))
    given = given if given.dtype.kind == "i" else given.astype(np.float32)
    options = {"shapes": {"input": list(given.shape)}}
    if how == "mithril":
        options["autodiff"] = "mithril"
    cpu = ml.compile(build(), ml.TorchBackend(), **options)
    jit = {"torch.compile": True, "script": "script"}.get(how, False)
    gpu = ml.compile(build(), ml.TorchBackend(device=CUDA, jit_compile=jit), **options)
    want, want_slopes = step(cpu, torch.from_numpy(given), 1)
    got, slopes = step(gpu, torch.from_numpy(given).to(CUDA), 1)
    assert got["output"].device == torch.device(CUDA)
    near(got["output"], want["output"], 2e-5)
    for key, slope in slopes.items():
        assert slope.device == torch.device(CUDA)
        near(slope, want_slopes[key], 1e-4, least=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_networks_of_jax_have_the_numbers_of_the_cpu(name):
    build, draw = MODELS[name]
    given = draw(np.random.default_rng(3))
    given = given if given.dtype.kind == "i" else given.astype(np.float32)
    shapes = {"input": list(given.shape)}
    results = []
    with jax.default_matmul_precision("highest"):
        for device in ("cpu", "gpu:0"):
            backend = ml.JaxBackend(device=device)
            compiled = ml.compile(build(), backend, shapes=shapes)
            params = compiled.randomize_params(seed=1)
            seeds = {"output": backend.ones_like}
            results.append(compiled.evaluate(params, {"input": given}, output_gradients=seeds))
    (want, want_slopes), (got, slopes) = results
    assert {d.platform for d in got["output"].devices()} == {"gpu"}
    for one, other in ((got, want), (slopes, want_slopes)):
        for key in one:
            scale = max(0.01, np.abs(np.asarray(other[key])).max())
            np.testing.assert_allclose(one[key], other[key], rtol=0, atol=1e-4 * scale)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtypes_stay(dtype):
    compiled = ml.compile(mlp(), ml.TorchBackend(dtype=dtype, device=CUDA), shapes=SHAPES)
    outputs, gradients = step(compiled, torch.ones(4, 32, device=CUDA, dtype=getattr(torch, dtype)))
    assert outputs["output"].dtype == getattr(torch, dtype)
    assert {g.dtype for g in gradients.values()} == {getattr(torch, dtype)}


def test_the_source_runs_without_mithril(tmp_path):
    """On the device of its arguments."""
    path = tmp_path / "gpt.py"
    build, draw = MODELS["gpt"]
    tokens = torch.from_numpy(draw(np.random.default_rng(3))).to(CUDA)
    options = {"shapes": {"input": list(tokens.shape)}}
    compiled = ml.compile(build(), ml.TorchBackend(device=CUDA), file_path=str(path), **options)
    params = compiled.randomize_params(seed=0)
    scope: dict[str, object] = {}
    exec(path.read_text(), scope)
    got = scope["forward"](params, {"input": tokens})["output"]
    near(got, compiled.evaluate(params, {"input": tokens})["output"], 1e-6)


def test_dropout_draws_on_the_device():
    """The exact bits are those of the CPU; the framework's own repeat for a key."""
    model = Sequential([Dropout(0.5), Linear(4)])
    key = np.array([3, 4], np.uint32)
    found = {}
    for random in ("exact", "framework"):
        for device in ("cpu", CUDA):
            backend = ml.TorchBackend(device=device)
            compiled = ml.compile(model, backend, shapes={"input": [64, 32]}, random=random)
            name = next(n for n in compiled.inputs if n != "input")
            params = compiled.randomize_params(seed=0)
            inputs = {"input": backend.ones(64, 32), name: key}
            first, again = (compiled.evaluate(params, inputs)["output"] for _ in range(2))
            assert torch.equal(first, again)
            found[random, device] = first
    near(found["exact", CUDA], found["exact", "cpu"], 1e-5)


# Mixed precision.


@pytest.mark.parametrize("dtype", [True, "float16", "bfloat16"])
def test_amp_gives_the_numbers_of_torch(dtype):
    half = torch.float16 if dtype is True else getattr(torch, dtype)
    compiled = ml.compile(mlp(), ml.TorchBackend(device=CUDA, use_amp=dtype), shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(0)).to(CUDA)
    seed = torch.full((16, 10), 0.1, device=CUDA)
    outputs, gradients = compiled.evaluate(params, {"input": x}, output_gradients={"output": seed})
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    with torch.autocast("cuda", dtype=half):
        want = by_hand(leaves, x)
        assert (x @ params["linear_0.w"]).dtype == half
    scale = 2.0**16 if half == torch.float16 else 1.0
    (want * seed.to(want.dtype)).sum().mul(scale).backward()
    assert torch.equal(outputs["output"], want)
    for name, leaf in leaves.items():
        assert gradients[name].dtype == torch.float32
        near(gradients[name], leaf.grad / scale, 1e-6)


def test_amp_of_a_network_trains():
    """Two hundred steps of a convolutional network in float16 reach the loss of float32."""
    torch.manual_seed(0)
    images = torch.randn(64, 3, 16, 16, device=CUDA)
    labels = (images.mean((1, 2, 3)) > 0).long()
    losses = []
    for amp in (False, True):
        model = Sequential([Conv2d(8, 3), Relu(), Flatten(start=1), Linear(2)])
        backend = ml.TorchBackend(device=CUDA, use_amp=amp)
        compiled = ml.compile(model, backend, shapes={"input": [64, 3, 16, 16]})
        params = compiled.randomize_params(seed=0)
        optimizer = torch.optim.Adam(params.values(), lr=1e-2)
        for _ in range(200):

            def slope(outputs):
                scores = outputs["output"].float().detach().requires_grad_()
                loss = torch.nn.functional.cross_entropy(scores, labels)
                loss.backward()
                losses.append(loss.item())
                return {"output": scores.grad}

            outputs = compiled.evaluate(params, {"input": images})
            _, gradients = compiled.evaluate(
                params, {"input": images}, output_gradients=slope(outputs)
            )
            for name, gradient in gradients.items():
                params[name].grad = gradient
            optimizer.step()
    assert losses[199] < 0.05
    assert losses[399] < 0.05


# Switches and devices.


def run(program):
    code = textwrap.dedent(program)
    own = {key: value for key, value in os.environ.items() if key != "CUBLAS_WORKSPACE_CONFIG"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=own, check=False
    )


def test_deterministic_and_benchmark_are_torchs_switches():
    """A deterministic backend also multiplies matrices, which CUDA does with a setting alone."""
    program = """
        import warnings; warnings.simplefilter("error")
        import torch, mithril as ml
        backend = ml.TorchBackend(device="cuda:0", deterministic=True, benchmark=True)
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cudnn.benchmark
        model = ml.models.Sequential([ml.models.Embedding(50, 64), ml.models.Linear(8)])
        compiled = ml.compile(model, backend, shapes={"input": [4096]})
        params = compiled.randomize_params(seed=0)
        tokens = torch.arange(4096, device="cuda:0") % 50
        runs = [
            compiled.evaluate(
                params, {"input": tokens}, output_gradients={"output": backend.ones(4096, 8)}
            )
            for _ in range(5)
        ]
        for one in runs[1:]:
            for name, slope in one[1].items():
                assert torch.equal(slope, runs[0][1][name]), name
        print("same")
    """
    found = run(program)
    assert found.stdout == "same\n", found.stderr


def test_options_have_an_effect_without_a_warning():
    found = run(
        """
        import warnings; warnings.simplefilter("error")
        import mithril as ml
        ml.TorchBackend(device="cuda", benchmark=True, release_unused=True)
        """
    )
    assert found.returncode == 0, found.stderr


def test_absent_devices_are_listed():
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(BackendError, match=f"no device `{absent}` here") as error:
        ml.TorchBackend(device=absent)
    assert f"expected: cpu, {CUDA}" in str(error.value)
    with pytest.raises(BackendError, match="JAX has no device `gpu:9`"):
        ml.JaxBackend(device="gpu:9")


def test_arrays_are_where_the_backend_says():
    backend = ml.TorchBackend(device="cuda")
    arrays = [
        backend.ones(2, 3),
        backend.zeros(2),
        backend.randn(3),
        backend.arange(4),
        backend.array([1.0, 2.0]),
        backend.from_torch(torch.ones(2)),
        backend.to_torch(np.ones(2, np.float32)),
    ]
    assert {a.device for a in arrays} == {torch.device(CUDA)}
    assert np.asarray(backend.to_numpy(arrays[0])).sum() == 6


def test_arguments_on_another_device_are_an_error_that_says_so():
    backend = ml.TorchBackend(device=CUDA)
    compiled = ml.compile(mlp(), backend, shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    # NumPy's arrays are moved.
    numpy = compiled.evaluate(params, {"input": np.ones((4, 32), np.float32)})["output"]
    assert numpy.device == torch.device(CUDA)
    with pytest.raises(MithrilError) as error:
        compiled.evaluate(params, {"input": torch.ones(4, 32)})
    print(error.value)
    assert "input" in str(error.value)
    assert "cuda:0" in str(error.value)


def test_indices_are_checked_on_request():
    backend = ml.TorchBackend(device=CUDA)
    compiled = ml.compile(Embedding(10, 4), backend, shapes={"input": [3]}, checks=True)
    params = compiled.randomize_params(seed=0)
    with pytest.raises(IndexRangeError, match="10"):
        compiled.evaluate(params, {"input": torch.tensor([1, 2, 10], device=CUDA)})
    # NumPy's arrays are checked before they are moved.
    unchecked = ml.compile(Embedding(10, 4), backend, shapes={"input": [3]})
    with pytest.raises(IndexRangeError, match="10"):
        unchecked.evaluate(params, {"input": np.array([1, 2, 10])})


def test_a_stopped_kernel_is_explained():
    """In a process of its own, as nothing else works on the GPU after it."""
    found = run(
        """
        import torch, mithril as ml
        backend = ml.TorchBackend(device="cuda:0")
        compiled = ml.compile(ml.Embedding(10, 4), backend, shapes={"input": [3]})
        params = compiled.randomize_params(seed=0)
        tokens = torch.tensor([1, 2, 10], device="cuda:0")
        try:
            compiled.evaluate(params, {"input": tokens})
            torch.cuda.synchronize()
        except torch.AcceleratorError:
            pass
        try:
            compiled.evaluate(params, {"input": tokens})
        except ml.BackendError as error:
            print(error)
        """
    )
    assert "`checks=True`" in found.stdout, found.stderr


def test_blocks_lie_on_devices_of_their_own():
    """A model on the CPU with its second layer on the GPU."""
    model = ml.Model()
    model += Linear(16, name="first")(input="x")
    model += Relu()
    model += Linear(3, name="second", device=CUDA)(output="y")
    backend = ml.TorchBackend()
    compiled = ml.compile(model, backend, shapes={"x": [8, 4]})
    params = compiled.randomize_params(seed=0)
    assert params["first.w"].device.type == "cpu"
    assert params["second.w"].device.type == "cuda"
    assert compiled.code.count("transfer(") == 1
    x = torch.randn(8, 4)
    outputs, slopes = compiled.evaluate(params, {"x": x}, output_gradients={"y": torch.ones(8, 3)})
    assert outputs["y"].device.type == "cpu"
    assert {n: g.device.type for n, g in slopes.items()} == {
        n: p.device.type for n, p in params.items()
    }
    plain = copy.deepcopy(model)
    whole = ml.compile(plain, backend, shapes={"x": [8, 4]}, backend_map={"second": backend})
    own = {name: value.cpu() for name, value in params.items()}
    want, want_slopes = whole.evaluate(own, {"x": x}, output_gradients={"y": torch.ones(8, 3)})
    near(outputs["y"], want["y"], 1e-5)
    for name, slope in slopes.items():
        near(slope, want_slopes[name], 1e-5)


@pytest.mark.parametrize("pair", ["torch-jax", "jax-torch"])
def test_arrays_cross_on_the_gpu_without_a_copy(pair, monkeypatch):
    backends = {"torch": ml.TorchBackend(device=CUDA), "jax": ml.JaxBackend(device="gpu:0")}
    backend, other = (backends[name] for name in pair.split("-"))
    crossed = watch(monkeypatch, backend, other)
    model = Sequential([Linear(8, name="a"), Relu(), Linear(6, name="b"), Linear(3, name="d")])
    shapes = {"input": [64, 32]}
    places = {"b": other}
    compiled = ml.compile(model, backend, shapes=shapes, backend_map=places, jit=False)
    with jax.default_matmul_precision("highest"):
        params = compiled.randomize_params(seed=0)
        x = backend.randn(64, 32)
        outputs, slopes = compiled.evaluate(
            params, {"input": x}, output_gradients={"output": backend.ones(64, 3)}
        )
        whole = ml.compile(model, backend, shapes=shapes)
        want, want_slopes = whole.evaluate(
            params, {"input": x}, output_gradients={"output": backend.ones(64, 3)}
        )
    assert crossed
    assert all(before == after for _, before, after in crossed), crossed
    for name, slope in {**outputs, **slopes}.items():
        one, two = np.array(backend.to_numpy(slope)), {**want, **want_slopes}[name]
        two = np.array(backend.to_numpy(two))
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-4 * np.abs(two).max())


def test_params_are_saved_and_loaded(tmp_path):
    backend = ml.TorchBackend(device=CUDA)
    compiled = ml.compile(mlp(), backend, shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    ml.save_params(tmp_path / "model.safetensors", params)
    found = ml.load_params(tmp_path / "model.safetensors", backend)
    for name, value in params.items():
        assert found[name].device == torch.device(CUDA)
        assert torch.equal(found[name], value)
