"""Functions in generated C: accuracy, vectorization, and names."""

import subprocess

import numpy as np
import pytest
from c_programs import STRICT, by_builds, by_every_compiler, run
from conftest import has

import mithril as ml
from mithril.models import Model, Softmax

pytestmark = pytest.mark.skipif(not has("c"), reason="there is no C compiler")

# The functions that the file defines, and the same by the C library in f64.
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
# Evaluates every 4099th float, including special values, and prints the largest error.
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
    """C source of a function applied to an array."""
    model = Model()
    model |= FUNCTIONS[name][0]()(input="x", output="y")
    return ml.compile(model, ml.CBackend(), shapes={"x": ["n"]}, jit=False).code


@by_builds(FUNCTIONS, checked=False)
def test_functions_are_within_two_units_of_the_last_place(name, build, tmp_path):
    (tmp_path / "model.c").write_text(function(name))
    sweep = SWEEP.replace("@WANTED@", FUNCTIONS[name][1])
    run(build, tmp_path, "  sweep();\n", "-ffp-contract=off", before=sweep)


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
    reports = {"gcc": "-fopt-info-vec", "clang": "-Rpass=loop-vectorize", "cc": None}
    report = reports[compiler.partition("-")[0]]
    if report is None:
        return
    command = [compiler, *STRICT[:1], "-O3", report, "-c", path, "-o", tmp_path / "model.o"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # The row maximum, the powers with their sum, and the quotients.
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
