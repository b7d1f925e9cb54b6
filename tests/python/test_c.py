"""Generated C: warnings, sanitizers, what a program in C gets from it, the backend's options."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from comparing import chain
from conftest import has

import mithril as ml
from mithril.models import (
    Buffer,
    Concat,
    Embedding,
    LayerNorm,
    Linear,
    Model,
    Relu,
    Softmax,
)

pytestmark = pytest.mark.skipif(not has("c"), reason="there is no C compiler")

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)] or ["cc"]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
SANITIZED = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def has_sanitizers(compiler):
    """Whether a compiler is there, and its sanitizers with it."""
    if shutil.which(compiler) is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        command = [compiler, *SANITIZED, "-x", "c", "-", "-o", f"{folder}/main"]
        program = b"int main(void) { return 0; }"
        done = subprocess.run(command, input=program, capture_output=True, check=False)
        return done.returncode == 0


CHECKED = [name for name in COMPILERS if has_sanitizers(name)]
by_every_compiler = pytest.mark.parametrize("compiler", COMPILERS)
by_checked_compilers = pytest.mark.parametrize("compiler", CHECKED)
by_every_build = pytest.mark.parametrize(
    ("compiler", "options"),
    [
        *(pytest.param(name, ["-O3", "-march=native"], id=f"{name}-fast") for name in COMPILERS),
        *(pytest.param(name, SANITIZED, id=f"{name}-checked") for name in CHECKED),
    ],
)


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


def run(compiler, folder, body, *options, before=""):
    program = folder / "main.c"
    text = PROGRAM.replace("@BODY@", body).replace("\nint main", f"{before}\nint main")
    if "load(" in body:
        text = text.replace("\nint main", f"{FILES}\nint main")
    program.write_text(text)
    command = [compiler, *STRICT, *options, program, "-o", folder / "main", "-lm"]
    subprocess.run(command, check=True)
    subprocess.run([folder / "main"], cwd=folder, check=True)


def near(folder, wanted):
    for name, want in wanted.items():
        got = np.fromfile(folder / f"{identifier(name)}.out", want.dtype).reshape(want.shape)
        scale = max(1.0, float(np.max(np.abs(want), initial=0)))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale, err_msg=name)


@by_every_compiler
@pytest.mark.parametrize("name", MODELS)
def test_files_compile_without_a_warning(name, compiler, tmp_path):
    compiled = made(name)[0]
    path = tmp_path / "model.c"
    path.write_text(compiled.code)
    for options in (["-O0"], ["-O3"], ["-O3", "-march=native", "-DMITHRIL_STATIC_ARENA"]):
        command = [compiler, *STRICT, *options, "-c", path, "-o", tmp_path / "model.o"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@by_every_build
@pytest.mark.parametrize("name", MODELS)
def test_programs_in_c_get_what_numpy_gives(name, options, compiler, tmp_path):
    compiled, numpy, params, inputs, sizes = made(name)
    (tmp_path / "model.c").write_text(compiled.code)
    outputs = numpy.evaluate(params, inputs)
    body = call(
        "mithril_model", sizes.values(), inputs, params, outputs, gradients={}, folder=tmp_path
    )
    run(compiler, tmp_path, body, *options)
    near(tmp_path, outputs)


@by_every_build
@pytest.mark.parametrize("name", ["mlp", "fixed", "norm", "embedding", "attention"])
def test_programs_in_c_get_gradients(name, options, compiler, tmp_path):
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
    run(compiler, tmp_path, body, *options)
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
    run(compiler, tmp_path, body, *SANITIZED)
    near(tmp_path, {**outputs, **gradients})


@by_checked_compilers
def test_a_static_arena_is_for_known_sizes(compiler, tmp_path):
    compiled, numpy, params, inputs, _ = made("fixed")
    (tmp_path / "model.c").write_text(compiled.code)
    outputs = numpy.evaluate(params, inputs)
    body = call("mithril_model", [], inputs, params, outputs, gradients={}, folder=tmp_path)
    body = body.replace(", workspace)", ", NULL)")
    run(compiler, tmp_path, body, "-DMITHRIL_STATIC_ARENA", *SANITIZED)
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
    run(compiler, tmp_path, body, *SANITIZED)


# Functions of the file's own, beside those of C's library in f64.
FUNCTIONS = {
    "exp": (ml.Exponential, "exp(x)"),
    "log": (ml.Log, "log(x)"),
    "tanh": (ml.Tanh, "tanh(x)"),
    "erf": (ml.Erf, "erf(x)"),
    "sigmoid": (ml.Sigmoid, "1 / (1 + exp(-x))"),
    "sinh": (ml.Sinh, "sinh(x)"),
    "cosh": (ml.Cosh, "cosh(x)"),
    "atan": (ml.Atan, "atan(x)"),
}
# Every 4099th float, special values among them, and what is most wrong.
SWEEP = """
#define COUNT 4096
static double wanted(double x) { return @WANTED@; }

static double distance(float got, double want) {
  const float near = (float)want;
  if (want != want) return got != got ? 0 : 1e9;
  if (near == got) return signbit(near) == signbit(got) ? 0 : 1e9;
  const double unit = (double)nextafterf(fabsf(near), INFINITY) - fabsf(near);
  return isfinite(near) && isfinite(got) ? fabs(got - want) / unit : 1e9;
}

static void sweep(void) {
  static float x[COUNT], y[COUNT];
  const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f, -1.0f, 1e-40f, -1e-40f};
  for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += (uint64_t)COUNT * 4099) {
    for (int i = 0; i < COUNT; i++) {
      const uint32_t own = (uint32_t)(bits + (uint64_t)i * 4099);
      memcpy(&x[i], &own, sizeof own);
    }
    memcpy(x, special, sizeof special);
    if (mithril_model(COUNT, x, y, NULL) != MITHRIL_OK) exit(1);
    for (int i = 0; i < COUNT; i++) {
      if (distance(y[i], wanted(x[i])) > 2) {
        fprintf(stderr, "%.9g: %.9g, expected %.17g\\n", x[i], y[i], wanted(x[i]));
        exit(1);
      }
    }
  }
}
"""


def function(name):
    """C of a function of an array."""
    model = Model()
    model |= FUNCTIONS[name][0]()(input="x", output="y")
    return ml.compile(model, ml.CBackend(), shapes={"x": ["n"]}, jit=False).code


@by_every_compiler
@pytest.mark.parametrize("options", [["-O2"], ["-O3", "-march=native"]], ids=["plain", "native"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_two_units_of_the_last_place(name, options, compiler, tmp_path):
    (tmp_path / "model.c").write_text(function(name))
    sweep = SWEEP.replace("@WANTED@", FUNCTIONS[name][1])
    run(compiler, tmp_path, "  sweep();\n", *options, "-ffp-contract=off", before=sweep)


def atan2():
    model = Model()
    model |= ml.Atan2()(left="y", right="x", output="angle")
    return ml.compile(model, ml.CBackend(), shapes={"x": ["n"], "y": ["n"]})


def test_angles_are_within_two_units_of_the_last_place():
    random = np.random.default_rng(0)
    some = random.integers(0, 2**32, 300, np.uint32).view(np.float32)
    near = random.standard_normal(300).astype(np.float32)
    corners = np.float32([0.0, 1.0, np.inf, 1e-45, 1e-38, 3e38, np.nan])
    values = np.concatenate([some, near, corners, -corners])
    y, x = (side.ravel() for side in np.meshgrid(values, values))
    got = atan2().evaluate({}, {"x": x, "y": y})["angle"]
    want = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    known = ~np.isnan(want)
    assert (np.signbit(got) == np.signbit(want))[known].all()
    unit = np.spacing(np.abs(want[known]).astype(np.float32)).astype(np.float64)
    assert (np.abs(got[known] - want[known]) / unit).max() <= 2


@by_every_compiler
@pytest.mark.parametrize("name", [*FUNCTIONS, "atan2", "softmax"])
def test_compilers_make_vectors_of_loops(name, compiler, tmp_path):
    path = tmp_path / "model.c"
    softmax = ml.compile(Softmax(), ml.CBackend(), shapes={"input": [64, "n"]}, jit=False).code
    codes = {"softmax": lambda: softmax, "atan2": lambda: atan2().code}
    path.write_text(codes.get(name, lambda: function(name))())
    report = {"gcc": "-fopt-info-vec", "clang": "-Rpass=loop-vectorize"}.get(compiler)
    if report is None:
        return
    command = [compiler, *STRICT[:1], "-O3", report, "-c", path, "-o", tmp_path / "model.o"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # Maximum, powers and their sums, quotients.
    assert done.stderr.count("vectorized") >= (3 if name == "softmax" else 1), done.stderr


HIDDEN = [
    ["tan", "floor", "powf", "exp"],
    ["tan_kernel", "floor_kernel", "tanh_f32", "mithril_min"],
    ["memcpy", "memset", "NAN", "INFINITY"],
]


@pytest.mark.parametrize("names", HIDDEN)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_may_have_the_names_of_functions(names, dtype):
    functions = [np.tan, np.floor, lambda x: x**x, np.tanh]
    model = Model()
    model |= ml.Tan()(input="x", output=names[0])
    model |= ml.Floor()(input="x", output=names[1])
    model |= ml.Power()(base="x", exponent="x", output=names[2])
    model |= ml.Tanh()(input="x", output=names[3])
    compiled = ml.compile(model, ml.CBackend(dtype=dtype), shapes={"x": ["n"]}, inference=True)
    x = np.linspace(0.5, 2.5, 7, dtype=dtype)
    outputs = compiled.evaluate({}, {"x": x})
    for name, own in zip(names, functions):
        np.testing.assert_allclose(outputs[name], own(x), rtol=1e-6)


# The backend.


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("rows", [2, 3, 7])
@pytest.mark.parametrize("columns", [1, 2, 3, 16, 33])
def test_places_that_are_chosen_are_read(rows, columns, first):
    """The gradient of a part of what is doubled: GCC 12 took rows of it for 0."""
    model = Model()
    model |= Concat(axis=0)(inputs=["x", "x"], output="twice")
    model |= Buffer()(input=model.twice[first : first + rows], output="y")
    shapes = {"x": [max(rows, first), columns]}
    compiled = ml.compile(model, ml.CBackend(), shapes=shapes, trainable_keys=["x"])
    part = np.arange(1.0, 1 + rows * columns, dtype=np.float32).reshape(rows, columns)
    x = np.zeros(shapes["x"], np.float32)
    _, gradients = compiled.evaluate({"x": x}, {}, output_gradients={"y": part})
    whole = np.zeros([2 * len(x), columns], np.float32)
    whole[first : first + rows] = part
    np.testing.assert_array_equal(gradients["x"], whole[: len(x)] + whole[len(x) :])


def test_folders_that_others_left_are_not_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MITHRIL_CACHE", "")
    left = [tmp_path / f"mithril-c-{os.getpid()}-{number}" for number in range(1000)]
    for folder in left:
        folder.mkdir()
    compiled = ml.compile(Relu(), ml.CBackend(), shapes={"input": [3]}, inference=True)
    output = compiled.evaluate({}, {"input": np.array([-1, 0, 2], np.float32)})["output"]
    np.testing.assert_array_equal(output, [0, 0, 2])
    assert all(folder.exists() for folder in left)


def test_the_file_is_written(tmp_path):
    path = tmp_path / "small.c"
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


def test_dims_that_go_together_name_their_blocks():
    model = ml.Model()
    model |= ml.Add(name="sum")(left="a", right="b", output="y")
    compiled = ml.compile(model, ml.CBackend(), shapes={"a": ["n"], "b": ["m"]}, jit=False)
    assert " *   n == m of block `sum`\n" in compiled.code


@pytest.mark.parametrize("name", ["*/ int evil(void); /*", "/*/", "??/", "a\nb", "\\", "#if"])
def test_names_stay_in_comments(name, tmp_path):
    model = ml.Model(name=name)
    model |= Linear(2, name=name)(input=f"{name}x", output=f"{name}y")
    compiled = ml.compile(model, ml.CBackend(), shapes={f"{name}x": ["n", 3]}, jit=False)
    path = tmp_path / "model.c"
    path.write_text(compiled.code)
    subprocess.run([COMPILERS[0], *STRICT, "-c", path, "-o", tmp_path / "model.o"], check=True)


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
