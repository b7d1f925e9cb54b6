"""What the options of the PyTorch backend promise."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import mithril as ml
from mithril.backends.torch_autocast import LossScaler
from mithril.errors import BackendError, BackendWarning, UsageError
from mithril.models import (
    MLP,
    BatchNorm1d,
    Buffer,
    Conv2d,
    Flatten,
    Linear,
    Model,
    Relu,
    Sequential,
)

SHAPES = {"input": ["batch", 32]}


def mlp():
    return MLP(activations=[Relu(), Relu(), Buffer()], dimensions=[64, 64, 10])


def by_hand(params, x):
    """The same model as a user of PyTorch writes it."""
    w = [params[f"linear_{i}.{name}"] for i in range(3) for name in ("w", "b")]
    linear = torch.nn.functional.linear
    x = torch.relu(linear(x, w[0].T, w[1]))
    x = torch.relu(linear(x, w[2].T, w[3]))
    return linear(x, w[4].T, w[5])


def near(got, want, tolerance):
    got, want = (np.asarray(x.detach().float()) for x in (got, want))
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


# Mixed precision.


@pytest.mark.parametrize("dtype", [True, torch.bfloat16, "float16"])
def test_amp_gives_the_numbers_of_torch(dtype):
    """Outputs and gradients equal those of the same model under `torch.autocast`; in float16, with
    a loss scaler."""
    half = torch.bfloat16 if dtype is True else getattr(torch, str(dtype).removeprefix("torch."))
    compiled = ml.compile(mlp(), ml.TorchBackend(use_amp=dtype), shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(0))
    seed = torch.full((16, 10), 0.1)
    outputs, gradients = compiled.evaluate(params, {"input": x}, output_gradients={"output": seed})
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    with torch.autocast("cpu", dtype=half):
        want = by_hand(leaves, x)
        rounded = (x @ params["linear_0.w"]).dtype
    assert rounded == half
    scale = 2.0**16 if half == torch.float16 else 1.0
    while True:
        # As a loss scaler does while gradients are infinite.
        scaled = [(seed * scale).to(want.dtype)]
        grads = torch.autograd.grad([want], leaves.values(), scaled, retain_graph=True)
        if all(grad.isfinite().all() for grad in grads):
            break
        scale /= 2
    assert torch.equal(outputs["output"], want)
    for name, grad in zip(leaves, grads):
        assert gradients[name].dtype == torch.float32
        near(gradients[name], grad / scale, 1e-6)
    exact = ml.compile(mlp(), ml.TorchBackend(), shapes=SHAPES)
    assert not torch.equal(exact.evaluate(params, {"input": x})["output"], outputs["output"])


def test_amp_of_convolutions_computes_in_half_precision():
    model = Sequential([Conv2d(4, 3), Relu(), Flatten(start=1), Linear(5)])
    compiled = ml.compile(model, ml.TorchBackend(use_amp=True), shapes={"input": [2, 3, 8, 8]})
    params = compiled.randomize_params(seed=0)
    x = torch.randn(2, 3, 8, 8)
    with torch.autocast("cpu"):
        want = torch.nn.functional.conv2d(x, params["conv2d.w"], params["conv2d.b"]).relu()
        weights, bias = params["linear.w"], params["linear.b"]
        want = torch.nn.functional.linear(want.flatten(1), weights.T, bias)
    assert torch.equal(compiled.evaluate(params, {"input": x})["output"], want)


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
def test_gradients_below_float16_are_kept(autodiff):
    """Without the scaler they would be 0 or far off."""
    model, backend = Linear(1, use_bias=False), ml.TorchBackend(use_amp="float16")
    compiled = ml.compile(model, backend, shapes={"input": [4, 3]}, autodiff=autodiff)
    x = torch.full((4, 3), 1e-3)
    array = torch.full((4, 1), 2.0**-22)
    for tiny in ({"output": array}, lambda outputs: {"output": array.half()}):
        own = {"w": torch.ones(3, 1)}
        _, gradients = compiled.evaluate(own, {"input": x}, output_gradients=tiny)
        near(gradients["w"], torch.full((3, 1), 4 * 1e-3 * 2.0**-22), 2e-3)


def convolutions():
    model = Model()
    model += Conv2d(2, 1, name="a")(input="x")
    model += Conv2d(2, 1, name="b")(output="y")
    return model


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
def test_source_with_amp_runs_by_itself(autodiff, tmp_path, monkeypatch):
    path = tmp_path / "net_with_amp.py"
    shapes = {"x": [1, 2, 3, 3]}
    backend = ml.TorchBackend(use_amp=True)
    compiled = ml.compile(
        convolutions(), backend, shapes=shapes, file_path=str(path), autodiff=autodiff
    )
    assert '@torch.autocast("cpu", dtype=torch.bfloat16)\ndef forward(' in compiled.code
    monkeypatch.syspath_prepend(tmp_path)
    params, inputs = compiled.randomize_params(seed=0), {"x": torch.ones(1, 2, 3, 3)}
    want = compiled.evaluate(params, inputs)["y"]
    found = importlib.import_module("net_with_amp").forward(params, inputs)["y"]
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, want)
    # The gradient of an output may have the output's own dtype.
    gradients = compiled.evaluate_gradients(params, inputs, {"y": want})
    wide = compiled.evaluate_gradients(params, inputs, {"y": want.float()})
    for name, gradient in gradients.items():
        assert gradient.dtype == torch.float32
        assert torch.equal(gradient, wide[name])


@pytest.mark.parametrize("amp_outside", [True, False])
@pytest.mark.parametrize("other", ["NumpyBackend", "JaxBackend", "CpuBackend"])
def test_parts_beside_amp_get_the_stated_dtypes(other, amp_outside):
    amp, plain = ml.TorchBackend(use_amp=True), getattr(ml, other)()
    own, inner = (amp, plain) if amp_outside else (plain, amp)
    compiled = ml.compile(convolutions(), own, shapes={"x": [1, 2, 3, 3]}, backend_map={"b": inner})
    params = compiled.randomize_params(seed=0)
    inputs = {"x": np.ones((1, 2, 3, 3), np.float32)}
    outputs, gradients = compiled.evaluate(params, inputs, output_gradients={"y": own.ones_like})
    assert "float32" in str(outputs["y"].dtype)
    single = ml.compile(convolutions(), ml.NumpyBackend(), shapes={"x": [1, 2, 3, 3]})
    given = {name: own.to_numpy(value) for name, value in params.items()}
    want, slopes = single.evaluate(given, inputs, output_gradients={"y": np.ones_like})
    for name, value in {**slopes, **want}.items():
        got = own.to_numpy({**gradients, **outputs}[name])
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, value, rtol=0.02, atol=0.02, err_msg=name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_under_autocast_have_the_dtypes_of_params(dtype):
    backend = ml.TorchBackend(use_amp=dtype)
    found = []
    for autodiff in ("framework", "mithril"):
        compiled = ml.compile(mlp(), backend, shapes=SHAPES, autodiff=autodiff)
        params = compiled.randomize_params(seed=0)
        x = {"input": torch.linspace(-1, 1, 4 * 32).reshape(4, 32)}
        found.append(compiled.evaluate(params, x, output_gradients=lambda y: y)[1])
    for name, gradient in found[0].items():
        assert gradient.dtype == found[1][name].dtype == torch.float32
        near(found[1][name], gradient, 2e-2)


def test_eager_mode_refuses_to_compile():
    with pytest.raises(UsageError, match="`jit` and `eager_mode` contradict each other"):
        ml.compile(mlp(), ml.TorchBackend(eager_mode=True), shapes=SHAPES, jit=True)


def test_the_scale_falls_where_gradients_overflow_and_grows_again(monkeypatch):
    monkeypatch.setattr(LossScaler, "interval", 3)
    scaler = LossScaler(torch)
    x = torch.ones(2, requires_grad=True)
    seed = torch.full((2,), 100.0, dtype=torch.float16)
    # 100 * 2**16 is beyond float16, whose largest number is 65504.
    (found,) = scaler.gradients([x.half() * 2], [x], [seed])
    assert torch.equal(found, torch.full((2,), 200.0))
    fallen = scaler.factor
    assert fallen < LossScaler.start
    for _ in range(2):
        scaler.gradients([x.half() * 2], [x], [torch.full_like(seed, 0.5)])
    assert scaler.factor == 2 * fallen
    # What is infinite by itself stays so.
    (found,) = scaler.gradients([x.half() * 2], [x], [torch.full_like(seed, torch.inf)])
    assert bool(found.isinf().all())


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_amp_refuses_other_dtypes(dtype):
    with pytest.raises(UsageError, match="expected: True, False, float16 or bfloat16"):
        ml.TorchBackend(use_amp=dtype)


# Memory.


def test_calls_beyond_the_memory_limit_are_refused_before_they_start():
    backend = ml.TorchBackend(memory_limit="1MB")
    compiled = ml.compile(mlp(), backend, shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    small, large = torch.ones(4, 32), torch.ones(4096, 32)
    assert compiled.evaluate(params, {"input": small})["output"].shape == (4, 10)
    seeds = {"output": torch.ones_like}
    compiled.evaluate(params, {"input": small}, output_gradients=seeds)
    with pytest.raises(BackendError) as error:
        compiled.evaluate(params, {"input": large})
    text = str(error.value)
    assert "more memory than `memory_limit` allows" in text
    assert "expected: at most 1MB\n" in text
    assert "arrays of the call" in text
    # A step of training needs more than a forward pass.
    middle = torch.ones(1024, 32)
    compiled.evaluate(params, {"input": middle})
    with pytest.raises(BackendError, match="inner values that are kept"):
        compiled.evaluate(params, {"input": middle}, output_gradients=seeds)


def test_the_planned_memory_is_about_what_torch_allocates():
    """The plan is compared with the peak that PyTorch's profiler sees."""
    limit = 2**40
    compiled = ml.compile(mlp(), ml.TorchBackend(memory_limit=limit), shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    x = {"input": torch.ones(4096, 32)}
    total = compiled.cost({"input": [4096, 32]}).total
    seeds = {"output": torch.ones(4096, 10)}
    with torch.profiler.profile(profile_memory=True) as profile:
        compiled.evaluate(params, x, output_gradients=seeds)
    now = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    kept = total.kept + total.peak + sum(value.nbytes for value in params.values())
    assert peak <= kept <= 4 * peak


@pytest.mark.parametrize("limit", ["-1GB", "much", 1.5])
def test_wrong_limits_are_refused(limit):
    with pytest.raises(UsageError, match="`memory_limit` is not a size"):
        ml.TorchBackend(memory_limit=limit)


@pytest.mark.parametrize(
    ("limit", "text"), [("1KB", "1KB"), (" 2 KiB", " 2 KiB"), (1000, "1000 B"), (2048, "2 KiB")]
)
def test_the_limit_is_shown_as_it_was_given(limit, text):
    compiled = ml.compile(mlp(), ml.TorchBackend(memory_limit=limit), shapes=SHAPES)
    with pytest.raises(BackendError) as error:
        compiled.evaluate(compiled.randomize_params(seed=0), {"input": torch.ones(4, 32)})
    assert f"expected: at most {text}\n" in str(error.value)


def test_memory_efficient_recomputes():
    """The source of every model has checkpoints, and the numbers stay."""
    model = Sequential([mlp() for _ in range(4)])
    plain = ml.compile(model, ml.TorchBackend(), shapes={"input": [8, 10]})
    efficient = ml.compile(model, ml.TorchBackend(memory_efficient=True), shapes={"input": [8, 10]})
    assert "_checkpoint(" in efficient.code
    assert "_checkpoint(" not in plain.code
    params = plain.randomize_params(seed=0)
    seeds = {"output": torch.ones(8, 10)}
    runs = [
        run.evaluate(params, {"input": torch.ones(8, 10)}, output_gradients=seeds)
        for run in (plain, efficient)
    ]
    for name, want in runs[0][1].items():
        near(runs[1][1][name], want, 1e-6)


def test_memory_hooks_are_called_with_sizes():
    backend = ml.TorchBackend()
    compiled = ml.compile(mlp(), backend, shapes=SHAPES)
    params = compiled.randomize_params(seed=0)
    calls = []
    backend.register_memory_hook(lambda *args: calls.append(args))
    # Tensors of other tests are not to be freed during the call.
    gc.collect()
    outputs = compiled.evaluate(params, {"input": torch.ones(1024, 32)})
    ((device, allocated, freed),) = calls
    assert device == "cpu"
    # What is freed are the inner values: the result is left.
    assert allocated > outputs["output"].nbytes
    assert allocated - freed == outputs["output"].nbytes
    stats = backend.get_memory_stats()
    assert stats["allocated"] >= outputs["output"].nbytes
    assert stats["cached"] == 0
    backend.clear_cache()


@pytest.mark.parametrize("hook", [3, None, lambda: None, lambda device, sizes: None, len])
def test_hooks_that_cannot_be_called_are_refused(hook):
    with pytest.raises(UsageError, match="a memory hook must ") as error:
        ml.TorchBackend().register_memory_hook(hook)
    assert "expected: a function of a device and the bytes that" in str(error.value)


def test_hooks_of_every_kind_are_taken():
    backend = ml.TorchBackend()
    for hook in (print, max, lambda *args: None, lambda d, a, f, more=1: None):
        backend.register_memory_hook(hook)


# Compiling, switches, devices.


@pytest.mark.parametrize("shapes", [{"input": [16, 32]}, SHAPES])
def test_torchscript_gives_the_same_numbers(shapes):
    plain = ml.compile(mlp(), ml.TorchBackend(), shapes=shapes)
    backend = ml.TorchBackend(jit_compile="script")
    scripted = ml.compile(mlp(), backend, shapes=shapes)
    assert scripted.jit
    params = plain.randomize_params(seed=0)
    for batch in (16, 16, *([7] if shapes is SHAPES else [])):
        x = torch.randn(batch, 32)
        seeds = {"output": torch.ones(batch, 10)}
        want = plain.evaluate(params, {"input": x}, output_gradients=seeds)
        got = scripted.evaluate(params, {"input": x}, output_gradients=seeds)
        near(got[0]["output"], want[0]["output"], 1e-6)
        for name, value in want[1].items():
            near(got[1][name], value, 1e-6)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_torch_compile_gives_the_same_numbers():
    """Also of recurrent layers, which PyTorch computes itself, for every shape."""
    block = ml.LSTM(4, bidirectional=True)
    shapes = {"input": ["batch", "time", 3]}
    plain = ml.compile(block, ml.TorchBackend(), shapes=shapes)
    compiled = ml.compile(block, ml.TorchBackend(jit_compile=True), shapes=shapes)
    params = plain.randomize_params(seed=0)
    for sizes in ((2, 5), (3, 4)):
        x = {"input": torch.randn(*sizes, 3)}
        seeds = {"output": torch.ones_like}
        want = plain.evaluate(params, x, output_gradients=seeds)
        got = compiled.evaluate(params, x, output_gradients=seeds)
        for one, other in zip(got, want):
            for name, value in other.items():
                near(one[name], value, 1e-5)


def test_eager_mode_is_not_compiled():
    compiled = ml.compile(mlp(), ml.TorchBackend(eager_mode=True), shapes=SHAPES)
    assert not compiled.jit
    with pytest.raises(UsageError, match="contradict each other"):
        ml.TorchBackend(eager_mode=True, jit_compile=True)
    with pytest.raises(UsageError, match='expected: True, False or "script"'):
        ml.TorchBackend(jit_compile="fast")


SWITCHES = [
    "requires_grad", "eager_mode", "deterministic", "benchmark", "release_unused",
    "memory_efficient",
]  # fmt: skip


@pytest.mark.parametrize("value", ["yes", 2, [], torch.ones(2)], ids=["text", "2", "list", "array"])
@pytest.mark.parametrize("option", SWITCHES)
def test_switches_take_bools_alone(option, value):
    with pytest.raises(UsageError, match=f"`{option}` must be True or False"):
        ml.TorchBackend(**{option: value})


@pytest.mark.parametrize("option", ["requires_grad", "eager_mode", "memory_efficient", "use_amp"])
def test_switches_take_bools_of_numpy(option):
    assert ml.TorchBackend(**{option: np.bool_(True)}) == ml.TorchBackend(**{option: True})
    assert not ml.TorchBackend(use_amp=np.bool_(False)).use_amp


@pytest.mark.parametrize("value", ["yes", 2, [], torch.ones(2)], ids=["text", "2", "list", "array"])
def test_options_of_several_values_name_them(value):
    for option, expected in (
        ("use_amp", "True, False, float16 or bfloat16"),
        ("jit_compile", 'True, False or "script"'),
        ("memory_allocation", '"lazy"'),
    ):
        with pytest.raises(UsageError, match=f"`{option}` ") as error:
            ml.TorchBackend(**{option: value})
        assert f"expected: {expected}" in str(error.value)


@pytest.mark.parametrize("given", [None, 3, np.ones(3)], ids=["None", "3", "numpy"])
def test_from_torch_takes_tensors_alone(given):
    backend = ml.TorchBackend()
    assert backend.from_torch(torch.ones(3)).shape == (3,)
    with pytest.raises(UsageError, match="`from_torch` takes a tensor of PyTorch") as error:
        backend.from_torch(given)
    assert "hint: `backend.array(x)` takes other arrays" in str(error.value)


def test_switches_are_those_of_torch():
    code = (
        "import torch, mithril as ml\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "ml.TorchBackend(deterministic=True, benchmark=True)\n"
        "print(torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark)\n"
        "ml.TorchBackend(deterministic=False, benchmark=False)\n"
        "print(torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "True", "False", "False"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the options have an effect")
def test_options_without_an_effect_are_named_at_construction():
    with pytest.warns(BackendWarning) as found:
        ml.TorchBackend(benchmark=True, release_unused=True)
    (warning,) = found
    assert str(warning.message) == (
        "`benchmark` and `release_unused` have an effect on CUDA alone\n  got: the device 'cpu'"
    )
    assert warning.filename == __file__
    torch.backends.cudnn.benchmark = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ml.TorchBackend(memory_allocation="lazy", memory_efficient=True, benchmark=False)


def test_absent_devices_are_listed():
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(BackendError, match=f"no device `{absent}` here") as error:
        ml.TorchBackend(device=absent)
    assert "expected: cpu" in str(error.value)


@pytest.mark.parametrize("device", ["cuda:99", "mps", "xpu", "gpu"])
def test_errors_of_absent_devices_are_short(device):
    """PyTorch's own message for `mps` lists its 50 dispatch keys."""
    if device == "mps" and torch.backends.mps.is_available():
        device = "mps:99"
    with pytest.raises(BackendError) as error:
        ml.TorchBackend(device=device)
    assert max(len(line) for line in str(error.value).splitlines()) < 200
    assert "expected: cpu" in str(error.value)


def test_params_require_gradients_on_request():
    model = Model()
    model |= Linear(2)(input="input", output="output")
    compiled = ml.compile(model, ml.TorchBackend(requires_grad=True), shapes={"input": [4, 3]})
    params = compiled.get_parameters()
    assert all(value.requires_grad and value.is_leaf for value in params.values())
    torch.optim.SGD(params.values(), lr=0.1)


@pytest.mark.parametrize("how", [{}, {"use_amp": True}, {"use_amp": "float16"}])
def test_gradients_are_returned_and_not_stored(how):
    backend = ml.TorchBackend(requires_grad=True, **how)
    compiled = ml.compile(Sequential([Linear(2), BatchNorm1d()]), backend)
    params = compiled.randomize_params(seed=0) | {"linear.w": torch.ones(3, 2, requires_grad=True)}
    x = torch.randn(4, 3, requires_grad=True)
    state = {
        name: v.requires_grad_() for name, v in compiled.initial_state(params, {"input": x}).items()
    }
    seed = torch.ones(4, 2, requires_grad=True)
    _, gradients, _ = compiled.evaluate(params, {"input": x}, state, {"output": seed})
    assert set(gradients) == set(params)
    for tensor in [*params.values(), *state.values(), x, seed]:
        assert tensor.grad is None
