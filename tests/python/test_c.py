"""Models as generated C: compiler warnings, sanitizers, and results in a C program."""

import subprocess

import numpy as np
import pytest
from c_programs import (
    CROSS,
    EMULATOR,
    HAS_CROSS,
    SANITIZED,
    STRICT,
    Build,
    by_builds,
    by_checked_compilers,
    call,
    identifier,
    run,
)
from comparing import chain
from conftest import has

import mithril as ml
from mithril.models import Embedding, LayerNorm, Linear, Model, Relu, Softmax

pytestmark = pytest.mark.skipif(not has("c"), reason="there is no C compiler")


def attention():
    model = Model()
    model |= ml.MultiHeadAttention(4, is_causal=True)(input="x", output="y")
    return model


def statistics():
    model = Model()
    model |= ml.Max(axis=-1)(input="x", output="greatest")
    model |= ml.Mean(axis=0)(input="x", output="mean")
    model |= ml.ArgMax(axis=1)(input="x", output="place")
    model |= ml.Cumsum(axis=1)(input="x", output="sums")
    return model


# A model, the shapes of its inputs, and the sizes of its named dims.
MODELS = {
    "mlp": (
        lambda: chain(Linear(33), Relu(), Linear(17), ml.Tanh(), Linear(5)),
        {"input": ["batch", 24]},
        {"batch": 7},
    ),
    "fixed": (lambda: chain(Linear(8), ml.Gelu(), Softmax()), {"input": [3, 4]}, {}),
    "norm": (lambda: chain(LayerNorm(), Linear(4)), {"input": ["batch", 24]}, {"batch": 5}),
    "embedding": (
        lambda: chain(Embedding(11, 6), Linear(3)),
        {"input": ["batch", 4]},
        {"batch": 3},
    ),
    "attention": (attention, {"x": ["batch", 9, 32]}, {"batch": 2}),
    "statistics": (statistics, {"x": ["n", 10]}, {"n": 6}),
}


def made(name):
    """A model compiled for C and for NumPy, with params, inputs and output gradients."""
    make, shapes, sizes = MODELS[name]
    compiled = ml.compile(make(), ml.CBackend(), shapes=shapes)
    numpy = ml.compile(make(), ml.NumpyBackend(), shapes=shapes)
    params = compiled.randomize_params(seed=1)
    random = np.random.default_rng(2)
    inputs = {}
    for key, dims in shapes.items():
        shape = [sizes.get(dim, dim) for dim in dims]
        whole = name == "embedding"
        inputs[key] = (
            random.integers(0, 11, shape)
            if whole
            else random.standard_normal(shape).astype(np.float32)
        )
    return compiled, numpy, params, inputs, sizes


def near(folder, wanted):
    for name, want in wanted.items():
        got = np.fromfile(folder / f"{identifier(name)}.out", want.dtype).reshape(want.shape)
        scale = max(1.0, float(np.max(np.abs(want), initial=0)))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale, err_msg=name)


@pytest.mark.skipif(not HAS_CROSS, reason=f"{CROSS} or {EMULATOR} is missing")
def test_programs_in_c_run_as_arm64(tmp_path):
    compiled, numpy, params, inputs, sizes = made("attention")
    (tmp_path / "model.c").write_text(compiled.code)
    outputs = numpy.evaluate(params, inputs)
    body = call(
        "mithril_model", sizes.values(), inputs, params, outputs, gradients={}, folder=tmp_path
    )
    run(Build(CROSS, ("-static", "-O3"), (EMULATOR,)), tmp_path, body)
    near(tmp_path, outputs)


@by_builds(MODELS, checked=False)
def test_files_compile_without_a_warning(name, build, tmp_path):
    compiled = made(name)[0]
    path = tmp_path / "model.c"
    path.write_text(compiled.code)
    for own in ([], ["-DMITHRIL_STATIC_ARENA"]):
        options = [*STRICT, *build.options, *own]
        command = [build.compiler, *options, "-c", path, "-o", tmp_path / "model.o"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@by_builds(MODELS)
def test_programs_in_c_get_what_numpy_gives(name, build, tmp_path):
    compiled, numpy, params, inputs, sizes = made(name)
    (tmp_path / "model.c").write_text(compiled.code)
    outputs = numpy.evaluate(params, inputs)
    body = call(
        "mithril_model", sizes.values(), inputs, params, outputs, gradients={}, folder=tmp_path
    )
    run(build, tmp_path, body)
    near(tmp_path, outputs)


@by_builds(["mlp", "fixed", "norm", "embedding", "attention"])
def test_programs_in_c_get_gradients(name, build, tmp_path):
    compiled, numpy, params, inputs, sizes = made(name)
    (tmp_path / "model.c").write_text(compiled.code)
    outputs = numpy.evaluate(params, inputs)
    random = np.random.default_rng(3)
    seeds = {n: random.standard_normal(v.shape).astype(v.dtype) for n, v in outputs.items()}
    outputs, gradients = numpy.evaluate(params, inputs, output_gradients=seeds)
    given = {**inputs, **{f"{n}_gradient": seed for n, seed in seeds.items()}}
    body = call(
        "mithril_model_gradients",
        sizes.values(),
        given,
        params,
        outputs,
        gradients=gradients,
        folder=tmp_path,
    )
    run(build, tmp_path, body)
    near(tmp_path, {**outputs, **gradients})


@by_checked_compilers
def test_output_gradients_that_are_null_are_zero(compiler, tmp_path):
    compiled, numpy, params, inputs, sizes = made("mlp")
    (tmp_path / "model.c").write_text(compiled.code)
    outputs = numpy.evaluate(params, inputs)
    (name, value) = next(iter(outputs.items()))
    gradients = {n: np.zeros_like(params[n]) for n in params}
    body = call(
        "mithril_model_gradients",
        sizes.values(),
        {**inputs, f"{name}_gradient": value},
        params,
        outputs,
        gradients=gradients,
        folder=tmp_path,
    )
    body = body.replace(f", in_{identifier(name)}_gradient,", ", NULL,")
    assert "NULL" in body
    run(Build(compiler, tuple(SANITIZED)), tmp_path, body)
    near(tmp_path, {**outputs, **gradients})


@by_checked_compilers
def test_static_arena_requires_known_sizes(compiler, tmp_path):
    compiled, numpy, params, inputs, _ = made("fixed")
    (tmp_path / "model.c").write_text(compiled.code)
    outputs = numpy.evaluate(params, inputs)
    body = call("mithril_model", [], inputs, params, outputs, gradients={}, folder=tmp_path)
    body = body.replace(", workspace)", ", NULL)")
    run(Build(compiler, tuple(SANITIZED)), tmp_path, body, "-DMITHRIL_STATIC_ARENA")
    near(tmp_path, outputs)


@by_checked_compilers
def test_refused_calls_say_why(compiler, tmp_path):
    compiled = made("mlp")[0]
    (tmp_path / "model.c").write_text(compiled.code)
    body = """
  float x[1] = {0};
  mithril_model_params params = {x, x, x, x, x, x};
  if (mithril_model_workspace_bytes(-1) != SIZE_MAX) return 1;
  if (mithril_model(-1, x, &params, x, x) != MITHRIL_ERROR_DIMS) return 2;
  if (mithril_model(1, NULL, &params, x, x) != MITHRIL_ERROR_NULL) return 3;
  if (mithril_model(1, x, NULL, x, x) != MITHRIL_ERROR_NULL) return 4;
  if (mithril_model(1, x, &params, x, NULL) != MITHRIL_ERROR_NULL) return 5;
  if (mithril_model(1, x, &params, x, (char *)x + 1) != MITHRIL_ERROR_ALIGNMENT) return 6;
"""
    run(Build(compiler, tuple(SANITIZED)), tmp_path, body)
