"""Generated C: warnings, sanitizers, what a program in C gets from it, the backend's options."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import has

import mithril as ml
from mithril.models import Embedding, LayerNorm, Linear, Model, Relu, Softmax

pytestmark = pytest.mark.skipif(not has("c"), reason="there is no C compiler")

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
SANITIZED = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def chain(*blocks):
    model = Model()
    for block in blocks:
        model += block
    return model


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


# A model, the shapes of its inputs, and the sizes of the dims that have names.
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
    """A model for C and for NumPy, with params, inputs and the seeds of its gradients."""
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


def identifier(name):
    return re.sub(r"_+", "_", name.replace(".", "_")).strip("_")


TYPES = {"float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t"}

PROGRAM = """
#include "model.c"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
@BODY@  return 0;
}
"""

FILES = """
static void *load(const char *name, size_t bytes) {
  void *memory = malloc(bytes);
  FILE *file = fopen(name, "rb");
  if (file == NULL || fread(memory, 1, bytes, file) != bytes) exit(2);
  fclose(file);
  return memory;
}

static void save(const char *name, const void *memory, size_t bytes) {
  FILE *file = fopen(name, "wb");
  if (file == NULL || fwrite(memory, 1, bytes, file) != bytes) exit(3);
  fclose(file);
}
"""


def fields(prefix, names):
    """The value of a struct of pointers, each to the variable of its name."""
    pairs = (f".{identifier(name)} = {prefix}_{identifier(name)}" for name in names)
    return "{" + ", ".join(pairs) + "}"


def call(function, dims, inputs, params, outputs, *, gradients, folder):
    """C that loads arrays, calls a function and saves what it gives."""
    lines, free, args = [], [], [str(size) for size in dims]
    for name, array in {**inputs, **params}.items():
        key = identifier(name)
        array.tofile(folder / f"{key}.in")
        own = f"const {TYPES[array.dtype.name]} *in_{key}"
        lines.append(f'{own} = load("{key}.in", {array.nbytes});')
        free.append(f"free((void *)in_{key});")
    args += [f"in_{identifier(name)}" for name in inputs]
    if params:
        lines.append(f"const mithril_model_params params = {fields('in', params)};")
        args.append("&params")
    for name, array in {**outputs, **gradients}.items():
        key = identifier(name)
        lines.append(f"{TYPES[array.dtype.name]} *out_{key} = malloc({array.nbytes});")
        free.append(f'save("{key}.out", out_{key}, {array.nbytes});')
        free.append(f"free(out_{key});")
    args += [f"out_{identifier(name)}" for name in outputs]
    if gradients:
        written = fields("out", gradients)
        lines.append(f"const mithril_model_param_gradients gradients = {written};")
        args.append("&gradients")
    numbers = ", ".join(map(str, dims))
    lines.append(f"const size_t bytes = {function}_workspace_bytes({numbers});")
    lines.append("void *workspace = aligned_alloc(64, (bytes / 64 + 1) * 64);")
    lines.append(f"if ({function}({', '.join([*args, 'workspace'])}) != MITHRIL_OK) return 1;")
    free.append("free(workspace);")
    return "".join(f"    {line}\n" for line in [*lines, *free])


def run(folder, body, *options):
    program = folder / "main.c"
    text = PROGRAM.replace("@BODY@", body)
    if "load(" in body:
        text = text.replace("\nint main", f"{FILES}\nint main")
    program.write_text(text)
    command = [COMPILERS[0], *STRICT, *options, program, "-o", folder / "main", "-lm"]
    subprocess.run(command, check=True)
    subprocess.run([folder / "main"], cwd=folder, check=True)


def near(folder, wanted):
    for name, want in wanted.items():
        got = np.fromfile(folder / f"{identifier(name)}.out", want.dtype).reshape(want.shape)
        scale = max(1.0, float(np.max(np.abs(want), initial=0)))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale, err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_files_compile_without_a_warning(name, tmp_path):
    compiled = made(name)[0]
    path = tmp_path / "model.c"
    path.write_text(compiled.code)
    for compiler in COMPILERS:
        for options in (["-O0"], ["-O3"], ["-O3", "-march=native", "-DMITHRIL_STATIC_ARENA"]):
            command = [compiler, *STRICT, *options, "-c", path, "-o", tmp_path / "model.o"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("options", [["-O3", "-march=native"], SANITIZED], ids=["fast", "checked"])
def test_programs_in_c_get_what_numpy_gives(name, options, tmp_path):
    compiled, numpy, params, inputs, sizes = made(name)
    (tmp_path / "model.c").write_text(compiled.code)
    outputs = numpy.evaluate(params, inputs)
    body = call(
        "mithril_model", sizes.values(), inputs, params, outputs, gradients={}, folder=tmp_path
    )
    run(tmp_path, body, *options)
    near(tmp_path, outputs)


@pytest.mark.parametrize("name", ["mlp", "fixed", "norm", "embedding", "attention"])
@pytest.mark.parametrize("options", [["-O3", "-march=native"], SANITIZED], ids=["fast", "checked"])
def test_programs_in_c_get_gradients(name, options, tmp_path):
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
    run(tmp_path, body, *options)
    near(tmp_path, {**outputs, **gradients})


def test_a_static_arena_is_for_known_sizes(tmp_path):
    compiled, numpy, params, inputs, _ = made("fixed")
    (tmp_path / "model.c").write_text(compiled.code)
    outputs = numpy.evaluate(params, inputs)
    body = call("mithril_model", [], inputs, params, outputs, gradients={}, folder=tmp_path)
    body = body.replace(", workspace)", ", NULL)")
    run(tmp_path, body, "-DMITHRIL_STATIC_ARENA", *SANITIZED)
    near(tmp_path, outputs)


def test_refused_calls_say_why(tmp_path):
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
    run(tmp_path, body, *SANITIZED)


# The backend.


def test_the_file_is_written(tmp_path):
    path = tmp_path / "deep" / "small.c"
    compiled = ml.compile(
        chain(Linear(2), Relu()), ml.CBackend(), shapes={"input": [4, 3]}, file_path=path, jit=False
    )
    assert path.read_text() == compiled.code
    assert "int mithril_small(" in compiled.code
    with pytest.raises(ml.BackendError, match="jit=False"):
        compiled.evaluate(compiled.randomize_params(), {"input": np.ones((4, 3), np.float32)})
    with pytest.raises(ml.MithrilError, match=r"ends in `\.c`"):
        ml.compile(Linear(2), ml.CBackend(), shapes={"input": [4, 3]}, file_path="model.py")
    with pytest.raises(ml.BackendError, match="shapes"):
        ml.compile(Linear(2), ml.CBackend(), file_path=tmp_path / "model.c")


def fresh(factor):
    """A model that no cache has."""
    model = Model()
    model |= ml.Multiply()(left="x", right=factor, output="y")
    return ml.compile(model, ml.CBackend(), shapes={"x": [3]})


def test_libraries_are_cached(monkeypatch, tmp_path):
    monkeypatch.setenv("MITHRIL_CACHE", str(tmp_path / "cache"))
    x = np.ones(3, np.float32)
    for found in ("1 compiled", "1 found"):
        compiled = fresh(1.625)
        assert compiled.evaluate({}, {"x": x})["y"].tolist() == [1.625] * 3
        assert found in compiled.report()
    (entry,) = (tmp_path / "cache").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    compiled = fresh(1.625)
    compiled.evaluate({}, {"x": x})
    assert "1 compiled" in compiled.report()


def test_compilers_that_fail_are_told(monkeypatch, tmp_path):
    monkeypatch.setenv("MITHRIL_CACHE", "")
    x = np.ones(3, np.float32)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ml.BackendError, match="no C compiler"):
        fresh(2.5).evaluate({}, {"x": x})
    broken = Path(tmp_path / "cc")
    broken.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] || { echo 'x.c:1: error: no' >&2; exit 1; }\n"
    )
    os.chmod(broken, 0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(ml.BackendError, match=r"x\.c:1: error: no"):
        fresh(3.5).evaluate({}, {"x": x})


def test_bits_do_not_change():
    compiled, _, params, inputs, _ = made("mlp")
    first = compiled.evaluate(params, inputs)["output"]
    again = ml.compile(MODELS["mlp"][0](), ml.CBackend()).evaluate(params, inputs)["output"]
    assert np.array_equal(first, again)
