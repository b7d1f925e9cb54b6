"""Native code: values, gradients, shapes, memory."""

import contextlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from comparing import chain, near, random
from conftest import has

import mithril as ml
from mithril.models import (
    Buffer,
    Flip,
    Gather,
    LayerNorm,
    Linear,
    Model,
    Relu,
    Softmax,
    Tanh,
    Transpose,
)

pytestmark = pytest.mark.skipif(not has("cpu"), reason="built without native code")
F = torch.nn.functional


def linear_relu(x, p):
    return torch.relu(x @ p["linear.w"] + p["linear.b"])


def mlp(x, p):
    x = torch.relu(x @ p["linear_0.w"] + p["linear_0.b"])
    x = torch.tanh(x @ p["linear_1.w"] + p["linear_1.b"])
    return x @ p["linear_2.w"] + p["linear_2.b"]


def normalised(x, p):
    x = F.layer_norm(x, x.shape[-1:], p["layer_norm.w"], p["layer_norm.b"])
    return x @ p["linear.w"] + p["linear.b"]


MODELS = {
    "linear_relu": (lambda: chain(Linear(16), Relu()), linear_relu),
    "mlp": (lambda: chain(Linear(33), Relu(), Linear(17), ml.Tanh(), Linear(5)), mlp),
    "softmax": (
        lambda: chain(Linear(10), Softmax()),
        lambda x, p: torch.softmax(x @ p["linear.w"] + p["linear.b"], -1),
    ),
    "layer_norm": (lambda: chain(LayerNorm(), Linear(4)), normalised),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shapes", [None, {"input": ["batch", 24]}, {"input": [7, 24]}])
def test_models_and_gradients_agree_with_torch(name, shapes):
    make, reference = MODELS[name]
    compiled = ml.compile(make(), ml.CpuBackend(), shapes=shapes)
    params = compiled.randomize_params(seed=1)
    for batch in (7,) if shapes and shapes["input"][0] == 7 else (7, 1, 33):
        x = random(batch, 24)
        outputs = compiled.evaluate(params, {"input": x})
        own = {n: torch.tensor(v, requires_grad=True) for n, v in params.items()}
        want = reference(torch.tensor(x), own)
        near(outputs["output"], want)
        seed = random(*want.shape, seed=2)
        outputs, gradients = compiled.evaluate(params, {"input": x}, output_gradients=seed)
        near(outputs["output"], want)
        want.backward(torch.tensor(seed))
        assert sorted(gradients) == sorted(params)
        for param, gradient in gradients.items():
            near(gradient, own[param].grad, 1e-4)


@pytest.mark.parametrize(("causal", "groups"), [(True, 4), (False, 4), (True, 2)])
def test_attention_and_its_gradients_agree_with_torch(causal, groups):
    block = ml.models.MultiHeadAttention(4, kv_heads=groups, is_causal=causal)
    compiled = ml.compile(block, ml.CpuBackend(), shapes={"input": [2, "length", 64]})
    params = compiled.randomize_params(seed=1)
    for length in (70, 3):
        x, seed = random(2, length, 64), random(2, length, 64, seed=2)
        own = {n: torch.tensor(v, requires_grad=True) for n, v in params.items()}
        q, k, v = (
            (torch.tensor(x) @ own[f"w_{side}"] + own[f"b_{side}"])
            .reshape(2, length, -1, 16)
            .transpose(1, 2)
            for side in ("query", "key", "value")
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=groups < 4)
        merged = heads.transpose(1, 2).reshape(2, length, 64)
        want = merged @ own["w_output"] + own["b_output"]
        want.backward(torch.tensor(seed))
        outputs, gradients = compiled.evaluate(params, {"input": x}, output_gradients=seed)
        near(outputs["output"], want)
        largest = max(float(w.grad.abs().max()) for w in own.values())
        for name, gradient in gradients.items():
            # The gradient of the bias of keys is 0 except for rounding.
            bound = 1e-5 * largest
            np.testing.assert_allclose(gradient, own[name].grad, rtol=1e-4, atol=bound)
    # The scores are never all in memory.
    assert compiled.code.count("attention_gradient(") == 3
    assert "softmax" not in compiled.code


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.CBackend])
@pytest.mark.parametrize(
    ("block", "moved"),
    [(Transpose(), np.transpose), (Flip(0), np.flipud), (Flip(1), np.fliplr)],
)
def test_rows_of_rearranged_values_are_correct(block, moved, backend):
    """`tanh`, after a move, is needed in several passes over a row."""
    model = Model()
    model |= Tanh()(input="x", output="h")
    model |= block(model.h, output="moved")
    model |= Buffer()(input="y", output="other")
    total = model.moved - model.other
    model |= Buffer()(input=total - total.sum(axis=-1, keepdim=True), output="z")
    shapes = {"x": [4, 4], "y": [4, 4]}
    compiled = ml.compile(model, backend(dtype=ml.float64), shapes=shapes, inference=True)
    x, y = np.random.default_rng(0).standard_normal((2, 4, 4))
    total = moved(np.tanh(x)) - y
    expected = total - total.sum(-1, keepdims=True)
    np.testing.assert_allclose(compiled.evaluate({}, {"x": x, "y": y})["z"], expected, rtol=1e-9)


def test_large_rows_behind_an_axis_of_one():
    """The stores of a row are interleaved with the first pass over the next one."""
    x = random(1, 4200, 512)
    compiled = ml.compile(Softmax(), ml.CpuBackend(), shapes={"input": x.shape}, inference=True)
    powers = np.exp(x - x.max(-1, keepdims=True))
    near(compiled.evaluate({}, {"input": x})["output"], powers / powers.sum(-1, keepdims=True))


@pytest.mark.parametrize("threads", [1, 2])
def test_special_rows_among_large_ones(threads):
    """The row maximum is computed while the exponentials of the previous row are."""
    x = random(4200, 512)
    x[[0, 7, 8, 4199], 3] = np.nan
    x[[1, 7, 2100], 511] = np.inf
    x[[9, 2099], 100:] = -np.inf
    x[[10, 4197]] = -np.inf
    x[[11, 4198]] = -0.0
    backend = ml.CpuBackend(threads=threads)
    large, small = (
        ml.compile(Softmax(), backend, shapes={"input": [rows, 512]}, inference=True)
        for rows in (4200, 600)
    )
    parts = [small.evaluate({}, {"input": part})["output"] for part in np.split(x, 7)]
    got = large.evaluate({}, {"input": x})["output"]
    np.testing.assert_array_equal(got, np.concatenate(parts))
    with np.errstate(invalid="ignore"):
        top = x.max(-1, keepdims=True)
        powers = np.exp(x - np.where(np.isinf(top), 0, top))
        near(got, powers / powers.sum(-1, keepdims=True))


def test_sizes_vary_without_compiling_again():
    compiled = ml.compile(chain(Linear(8), Relu()), ml.CpuBackend())
    params = compiled.randomize_params(seed=0)
    compiled.evaluate(params, {"input": random(3, 4)})
    before = compiled.report()
    for batch in (1, 2, 65):
        x = random(batch, 4)
        got = compiled.evaluate(params, {"input": x})["output"]
        near(got, np.maximum(x @ params["linear.w"] + params["linear.b"], 0))
    assert compiled.report() == before


def test_another_rank_is_another_variant(caplog):
    compiled = ml.compile(Linear(8), ml.CpuBackend())
    params = compiled.randomize_params(seed=0)
    with caplog.at_level("INFO", logger="mithril"):
        for shape in [(3, 4), (5, 4), (2, 3, 4), (4, 4), (2, 2, 4), (4,)]:
            x = random(*shape)
            got = compiled.evaluate(params, {"input": x})["output"]
            near(got, x @ params["w"] + params["b"])
    assert len(caplog.records) == 3


def test_compile_without_a_backend_is_native():
    compiled = ml.compile(Linear(2), shapes={"input": [1, 2]})
    assert isinstance(compiled.backend, ml.CpuBackend)
    params = {"w": np.eye(2, dtype=np.float32), "b": np.ones(2, np.float32)}
    assert compiled.evaluate(params, {"input": np.ones((1, 2), np.float32)})["output"].tolist() == [
        [2.0, 2.0]
    ]


def test_training_goes_down():
    model = ml.TrainModel(chain(Linear(16), ml.Tanh(), Linear(1)))
    model.add_loss(ml.SquaredError(), input="output", target="target")
    losses = {}
    for backend in (ml.CpuBackend(), ml.NumpyBackend()):
        compiled = ml.compile(model, backend, shapes={"input": [32, 3], "target": [32, 1]})
        params = compiled.randomize_params(seed=0)
        x = random(32, 3)
        inputs = {"input": x, "target": np.sin(x.sum(1, keepdims=True)).astype(np.float32)}
        found = losses.setdefault(backend.kind, [])
        for _ in range(40):
            outputs, gradients = compiled.evaluate(params, inputs, output_gradients=True)
            found.append(float(outputs["final_cost"]))
            params = {n: v - np.float32(0.2) * gradients[n] for n, v in params.items()}
    assert losses["cpu"][-1] < 0.5 * losses["cpu"][0]
    np.testing.assert_allclose(losses["cpu"], losses["numpy"], rtol=1e-4)


def test_sizes_beyond_memory_are_errors():
    refused = {2**62: "more elements than any memory holds", 2**63: "too large"}
    refused[2**64 - 1] = "too large"
    for size, why in refused.items():
        with pytest.raises(ml.MithrilError, match=why):
            ml.compile(Linear(2**62), ml.CpuBackend(), shapes={"input": [size, 8]})
    shapes = {"left": ["n", 1], "right": [1, "m"]}
    compiled = ml.compile(ml.models.Add(), ml.CpuBackend(), shapes=shapes, inference=True)
    one = np.ones(1, np.float32)
    for n in (2**22, 2**40):
        left, right = (np.broadcast_to(one, shape) for shape in ((n, 1), (1, n)))
        with pytest.raises(ml.MithrilError, match="Out of memory"):
            compiled.evaluate({}, {"left": left, "right": right})
    got = compiled.evaluate({}, {"left": left[:2], "right": right[:, :3]})["output"]
    np.testing.assert_array_equal(got, np.full((2, 3), 2, np.float32))


def test_native_code_accepts_empty_batches():
    compiled = ml.compile(chain(Linear(4), Relu()), ml.CpuBackend())
    params = compiled.randomize_params(seed=0)
    compiled.evaluate(params, {"input": random(2, 3)})
    assert compiled.evaluate(params, {"input": random(0, 3)})["output"].shape == (0, 4)
    outputs, gradients = compiled.evaluate(
        params, {"input": random(0, 3)}, output_gradients=random(0, 4)
    )
    assert not gradients["linear.w"].any()
    assert outputs["output"].shape == (0, 4)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_native_code_supports_every_float_dtype(dtype):
    backend = ml.CpuBackend(dtype=dtype)
    compiled = ml.compile(chain(Linear(9), Relu()), backend, shapes={"input": [5, 7]})
    params = compiled.randomize_params(seed=0)
    x = backend.array(random(5, 7))
    got = compiled.evaluate(params, {"input": x})["output"]
    own = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    assert got.dtype == own
    wide = {n: v.astype(np.float64) for n, v in {**params, "x": x}.items()}
    want = np.maximum(wide["x"] @ wide["linear.w"] + wide["linear.b"], 0)
    tolerance = {"float64": 1e-13, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_embeddings_are_sums(dtype):
    """Rows get thousands of updates, more than half precision can count. The result is the same
    for any number of threads."""
    count, width = 5000, 70
    indices = np.random.default_rng(1).integers(0, 40, count) ** 2
    seen = set()
    for threads in (1, 2, 3):
        backend = ml.CpuBackend(dtype=dtype, threads=threads)
        model = chain(ml.models.Embedding(1700, width))
        compiled = ml.compile(model, backend, shapes={"input": [count]})
        params = compiled.randomize_params(seed=0)
        (name, weight), *_ = params.items()
        seed = np.abs(random(count, width)).astype(weight.dtype)
        _, gradients = compiled.evaluate(
            params, {"input": indices}, output_gradients={"output": seed}
        )
        gradient = np.asarray(gradients[name])
        seen.add(gradient.tobytes())
    want = np.zeros((1700, width))
    np.add.at(want, indices, seed.astype(np.float64))
    rounding = {"float32": 1e-5, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_allclose(gradient.astype(np.float64), want, rtol=rounding)
    assert len(seen) == 1


@pytest.mark.parametrize("shape", [(7, 33, 17), (64, 96, 80), (130, 2050, 70), (0, 3, 5)])
def test_products_of_bfloat16(shape):
    rows, depth, columns = shape
    compiled = ml.compile(Linear(columns), ml.CpuBackend(dtype="bfloat16"))
    x, w, b = (
        random(*s).astype(ml_dtypes.bfloat16) for s in [(rows, depth), (depth, columns), (columns,)]
    )
    params = {"w": w, "b": b}
    want = x.astype(float) @ w.astype(float) + b.astype(float)
    for made in (compiled, compiled.bind(params)):
        given = params if made is compiled else {}
        got = made.evaluate(given, {"input": x})["output"]
        # One rounding to 8 bits at the end; the sums have the precision of f32.
        np.testing.assert_allclose(got.astype(float), want, rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input": random(2, 3).astype(np.float64)}, "the wrong dtype"),
        ({"input": random(2, 4)}, "the wrong shape"),
        ({"input": random(3)}, "the wrong rank"),
        ({"other": random(2, 3)}, "Terminal not found"),
        ({}, "missing"),
        ({"input": [[1.0, 2.0, 3.0]]}, "not an array"),
        ({"input": random(2, 3).astype(np.complex64)}, "got: ndarray of complex64"),
    ],
)
def test_calls_are_checked(inputs, message):
    compiled = ml.compile(Linear(2), ml.CpuBackend(), shapes={"input": ["batch", 3]})
    params = compiled.randomize_params(seed=0)
    for _ in range(2):
        with pytest.raises(ml.MithrilError, match=message):
            compiled.evaluate(params, inputs)
        compiled.evaluate(params, {"input": random(2, 3)})


def test_code_and_report_are_readable():
    compiled = ml.compile(chain(Linear(2), Relu()), ml.CpuBackend(), shapes={"input": [4, 3]})
    assert "dot_general" in compiled.code
    assert "func @kernel" in compiled.code
    assert "main: 1 launches of 1 kernels (not compiled yet)" in compiled.report()
    compiled.evaluate(compiled.randomize_params(), {"input": random(4, 3)})
    assert "1 compiled" in compiled.report() or "1 found" in compiled.report()


def test_kernels_say_how_long_they_take(capsys, monkeypatch):
    monkeypatch.setenv("MITHRIL_CACHE", "")
    model, shapes = chain(Linear(37), Softmax()), {"input": [41, 43]}
    compiled = ml.compile(model, ml.CpuBackend(), shapes=shapes, inference=True, verbose=True)
    printed = capsys.readouterr().out
    line = r"k0 x 1, 132 kflop, 19.6 kB(, compiled in \d+\.\d ms)"
    assert re.search(line + ": dot_general add in linear", printed)
    assert "a call" not in printed
    compiled.evaluate(compiled.randomize_params(), {"input": random(41, 43)})
    assert re.search(line + r", \d+\.\d (µs|ms) a call: dot_general", compiled.report())


PROGRESS = """
import mithril as ml
model = ml.Model()
for size in range(60):
    model += ml.Linear(4 * size + 7)
    model += ml.Softmax()
ml.compile(model, ml.CpuBackend(), shapes={"input": [5, 64]}, inference=True, verbose=True)
"""


def test_long_compilations_show_progress_on_a_terminal():
    environment = {**os.environ, "MITHRIL_CACHE": "", "TERM": "xterm"}
    command = [sys.executable, "-c", PROGRESS]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the end of the terminal's output
            while some := os.read(ours, 4096):
                shown += some
    assert process.returncode == 0
    assert re.search(rb"mithril: \d+ of 120 kernels", shown)
    piped = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert not piped.stderr


def test_options_are_checked():
    with pytest.raises(ml.UsageError, match="`threads`"):
        ml.CpuBackend(threads=0)
    with pytest.raises(ml.UsageError, match="`threads`"):
        ml.CpuBackend(threads=10**30)
    with pytest.raises(ml.UsageError, match="`donate` must be True or False"):
        ml.CpuBackend(donate="no")
    with pytest.raises(ml.UsageError, match="threads"):
        ml.CpuBackend(thread=2)
    with pytest.raises(ml.BackendError, match="file_path"):
        ml.compile(Linear(2), ml.CpuBackend(), file_path="model.py")


def test_gpt_generates_the_same_tokens_as_torch():
    script = Path(__file__).parents[1] / "benches" / "generate.py"
    sizes = ["2", "64", "4", "97", "100"]
    done = subprocess.run(
        [sys.executable, script, *sizes], capture_output=True, text=True, check=True
    )
    assert "100 tokens the same" in done.stdout
    difference = re.search(r"logits differ by (\S+)", done.stdout)
    assert difference and float(difference[1]) <= 1e-4


@pytest.mark.parametrize("threads", [1, 2])
def test_interleaved_row_epilogues_are_correct(threads):
    """Results of 8 MB and more are stored while the next row is computed. NaN, infinities and zeros
    stay in their rows, and the first and last rows are stored too."""
    x = np.random.default_rng(0).standard_normal((2051, 1024)).astype(np.float32) * 4
    x[0, 5], x[7, 1023], x[1025, 0], x[2050, 77] = np.nan, -np.inf, np.inf, np.nan
    x[9], x[10], x[11, ::2], x[11, 1::2] = -np.inf, 0, -0.0, -500
    model = Model()
    model |= Softmax()(input="x", output="y")
    model |= ml.models.Max(axis=1)(input="x", output="top")
    model |= LayerNorm()(input="x", output="z")
    compiled = ml.compile(model, ml.CpuBackend(threads=threads), shapes={"x": [2051, 1024]})
    params = compiled.randomize_params(seed=0)
    got = compiled.evaluate(params, {"x": x})
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        top = wide.max(axis=1, keepdims=True)
        powers = np.exp(wide - np.where(np.isinf(top), 0, top))
        expected = powers / powers.sum(axis=1, keepdims=True)
        centred = wide - wide.mean(axis=1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got["y"], expected, rtol=4e-6, atol=1e-12)
    np.testing.assert_array_equal(got["top"], x.max(axis=1))
    np.testing.assert_array_equal(np.signbit(got["top"][10:12]), [False, True])
    np.testing.assert_allclose(got["z"], normed, rtol=1e-4, atol=1e-5)


def test_results_do_not_depend_on_the_position_of_a_row():
    """The last row of a task, which has no next row, has the same bits; so with more threads."""
    row = np.random.default_rng(0).standard_normal(1024).astype(np.float32) * 30
    x = np.tile(row, (4096, 1))
    model = Model()
    model |= Softmax()(input="x", output="y")
    found = []
    for threads in (1, 2):
        backend = ml.CpuBackend(threads=threads)
        compiled = ml.compile(model, backend, shapes={"x": [4096, 1024]}, inference=True)
        found.append(np.array(compiled.evaluate({}, {"x": x})["y"]).view(np.uint32))
    first = np.broadcast_to(found[0][0], x.shape)
    for bits in found:
        np.testing.assert_array_equal(bits, first)


def test_sums_over_no_rows_are_zero():
    """The result does not depend on the previous contents of memory."""
    for rows in (64, 0):
        model = Model()
        model |= LayerNorm()(input="x", output="y")
        compiled = ml.compile(model, ml.CpuBackend(), shapes={"x": [rows, 16]})
        x, seed = (np.full((rows, 16), n, np.float32) for n in (2, 3))
        params = compiled.randomize_params(seed=0)
        _, gradients = compiled.evaluate(params, {"x": x}, output_gradients={"y": seed})
    for gradient in gradients.values():
        np.testing.assert_array_equal(gradient, np.zeros(16, np.float32))


@pytest.mark.parametrize("make", [ml.CpuBackend, ml.CBackend] if has("c") else [ml.CpuBackend])
@pytest.mark.parametrize("row", [[], [3], [40]])
def test_gather_from_an_empty_axis_gives_zero(make, row):
    """The size of the axis is known only at the call, and is 0 here."""
    shapes = {"input": ["n", *row], "indices": ["m"]}
    compiled = ml.compile(Gather(), make(), shapes=shapes, checks=False)
    for n in (0, 2):
        x, places = random(n, *row), np.array([0, 5, -1])
        got = compiled.evaluate({}, {"input": x, "indices": places})["output"]
        want = x[np.clip(places, -n, n - 1)] if n else np.zeros((3, *row), np.float32)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_that_are_bound_are_read_backwards(axis, dtype):
    model = Model()
    model |= Flip(axis=axis)(input="w", output="flipped")
    model |= ml.MatrixMultiply()(left="x", right="flipped", output="y")
    shapes = {"x": [5, 200], "w": [200, 130]}
    backend = ml.CpuBackend(dtype=dtype)
    compiled = ml.compile(model, backend, shapes=shapes, trainable_keys=["w"], inference=True)
    x, w = (backend.array(random(*shapes[name])) for name in "xw")
    got = compiled.bind({"w": w}).evaluate({}, {"x": x})["y"]
    np.testing.assert_array_equal(got, compiled.evaluate({"w": w}, {"x": x})["y"])
