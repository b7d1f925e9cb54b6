"""Functions on native targets for NaN, infinities and subnormal numbers, compared with NumPy in
extended precision; and integer operations without a defined result, compared with NumPy."""

import numpy as np
import pytest
from conftest import has
from scipy import special

import mithril as ml
from mithril import models
from mithril.models import Model

MAKERS = {}
if has("cpu"):
    MAKERS["llvm"] = ml.CpuBackend
    MAKERS["instant"] = lambda dtype: ml.CpuBackend(dtype=dtype, tier="instant")
if has("c"):
    MAKERS["c"] = ml.CBackend
by_every_target = pytest.mark.parametrize("target", MAKERS)
by_both_precisions = pytest.mark.parametrize("dtype", ["float32", "float64"])
ONE = np.longdouble(1)


def ordered(function):
    """Wraps minimum or maximum to order -0 before 0, which NumPy considers equal."""
    below = function(np.float64(1), 2) == 1

    def own(x, y):
        signs = (np.logical_or if below else np.logical_and)(np.signbit(x), np.signbit(y))
        zero = np.where(signs, -0.0, 0.0)
        return np.where((x == 0) & (y == 0), zero, function(x, y))

    return own


def sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, ONE) / (1 + small)


FUNCTIONS = {
    "Exponential": np.exp,
    "Expm1": np.expm1,
    "Log": np.log,
    "Log1p": np.log1p,
    "Sqrt": np.sqrt,
    "Sine": np.sin,
    "Cosine": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tanh": np.tanh,
    "Erf": lambda x: special.erf(x.astype(np.float64)),
    "Sigmoid": sigmoid,
    "Reciprocal": lambda x: 1 / x,
    "Square": np.square,
    "Absolute": np.abs,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.round,
}
# Functions of two numbers, with the names of their terminals.
PAIRS = {
    "Power": (np.power, "base", "exponent"),
    "Atan2": (np.arctan2, "left", "right"),
    "Divide": (np.divide, "numerator", "denominator"),
    "Minimum": (ordered(np.minimum), "left", "right"),
    "Maximum": (ordered(np.maximum), "left", "right"),
}
UNITS = {"float32": 2, "float64": 4}


def values(dtype, count):
    """Special values, numbers near which functions overflow, and numbers of every magnitude."""
    about = np.finfo(dtype)
    least = [about.smallest_subnormal, about.tiny / 3, about.tiny, about.max, about.eps]
    known = [0, np.inf, *least, 0.5, 1, 1.5, 2, 3, 88.8, 103.9, 709.7, 745.1, 2**17, 2**17 + 1, 1e6]
    rng = np.random.default_rng(0)
    spread = np.exp2(rng.uniform(about.minexp - about.nmant, about.maxexp, count))
    near = rng.uniform(0, 20, count)
    every = np.concatenate([known, spread, near]).astype(dtype)
    return np.concatenate([every, -every, [np.nan]]).astype(dtype)


def check(name, got, want, units):
    """Compares NaN, infinities and signs of zero exactly, others within `units` in the last
    place."""
    nearest = want.astype(got.dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(nearest), name)
    known = np.isfinite(nearest)
    np.testing.assert_array_equal(got[~known], nearest[~known], name)
    got, want, nearest = got[known], want[known], nearest[known]
    zero = (nearest == 0) & (got == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(nearest[zero]), name)
    error = np.abs(got - want) / np.spacing(np.abs(nearest))
    assert error.max() <= units, f"{name}: {got[error.argmax()]}, expected {want[error.argmax()]}"


@by_every_target
@by_both_precisions
def test_functions_of_a_number(target, dtype):
    model = Model()
    for name in FUNCTIONS:
        model |= getattr(models, name)()(input="x", output=name)
    # Powers of a constant base, and the reciprocal of a square root.
    model |= models.Power()(base=2.0, exponent="x", output="exp2")
    model |= models.Sqrt()(input="x", output="root")
    model |= models.Reciprocal()(input="root", output="rsqrt")
    x = values(dtype, 2000)
    compiled = ml.compile(model, MAKERS[target](dtype=dtype), shapes={"x": ["n"]}, inference=True)
    got = compiled.evaluate({}, {"x": x})
    exact = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        for name, function in FUNCTIONS.items():
            check(name, got[name], function(exact), UNITS[dtype])
        check("exp2", got["exp2"], np.exp2(exact), UNITS[dtype])
        check("rsqrt", got["rsqrt"], 1 / np.sqrt(exact), UNITS[dtype])


@by_every_target
@by_both_precisions
def test_functions_of_two_numbers(target, dtype):
    left, right = (side.ravel() for side in np.meshgrid(values(dtype, 60), values(dtype, 60)))
    left, right = left.copy(), right.copy()
    model = Model()
    for name, (_, first, second) in PAIRS.items():
        model |= getattr(models, name)()(**{first: "x", second: "y", "output": name})
    shapes = {"x": ["n"], "y": ["n"]}
    compiled = ml.compile(model, MAKERS[target](dtype=dtype), shapes=shapes, inference=True)
    got = compiled.evaluate({}, {"x": left, "y": right})
    with np.errstate(all="ignore"):
        for name, (function, *_) in PAIRS.items():
            want = function(left.astype(np.longdouble), right.astype(np.longdouble))
            check(name, got[name], want, UNITS[dtype])


def quotient(x, y, bits):
    return x // y if y else -1


def remainder(x, y, bits):
    return x % y if y else x


def power(x, y, bits):
    return pow(x, y, 2**bits) if y >= 0 else (x if y % 2 else 1) if x in (1, -1) else 0


def up(x, y, bits):
    return x << y if 0 <= y < bits else 0


def down(x, y, bits):
    return x >> y if 0 <= y < bits else -(x < 0)


INTEGERS = {
    "FloorDivide": (quotient, "numerator", "denominator"),
    "Modulo": (remainder, "numerator", "denominator"),
    "Power": (power, "base", "exponent"),
    "ShiftLeft": (up, "left", "right"),
    "ShiftRight": (down, "left", "right"),
}


@by_every_target
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_integers_that_have_no_quotient_and_shifts_beyond_the_width(target, dtype):
    """The results are those that `docs/ops.md` defines; overflow wraps around."""
    about = np.iinfo(dtype)
    some = [about.min, about.min + 1, -65, -7, -2, -1, 0, 1, 2, 3, 7, about.bits - 1, about.bits]
    some = [n for n in [*some, about.bits + 1, about.max - 1, about.max] if n >= about.min]
    pairs = [(x, y) for x in some for y in some]
    model, wanted = Model(), {}
    for name, (function, first, second) in INTEGERS.items():
        model |= getattr(models, name)()(**{first: "x", second: "y", "output": name})
        found = (function(x, y, about.bits) % 2**about.bits for x, y in pairs)
        wanted[name] = np.array(list(found), np.uint64).astype(dtype)
    model.set_types({"x": getattr(ml, dtype), "y": getattr(ml, dtype)})
    shapes = {"x": ["n"], "y": ["n"]}
    compiled = ml.compile(model, MAKERS[target](dtype="float32"), shapes=shapes, inference=True)
    x, y = (np.array(side, dtype) for side in zip(*pairs))
    for name, got in compiled.evaluate({}, {"x": x, "y": y}).items():
        np.testing.assert_array_equal(got, wanted[name], name)


@by_every_target
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_out_of_range(target, dtype):
    """Negative indices count from the end; then indices are clamped to the first or last row."""
    about = np.iinfo(dtype)
    indices = np.array([about.min, -6, -5, -1, 0, 4, 5, about.max], dtype)
    model = Model()
    model |= models.Gather()(input="x", indices="i", output="read")
    model |= models.Scatter()(input="x", indices="i", updates="u", output="written")
    model.set_types({"i": getattr(ml, dtype)})
    shapes = {"x": ["n", 3], "i": ["m"], "u": ["m", 3]}
    options = {"shapes": shapes, "inference": True, "checks": False}
    compiled = ml.compile(model, MAKERS[target](dtype="float32"), **options)
    rng = np.random.default_rng(0)
    x, u = (rng.standard_normal((n, 3)).astype(np.float32) for n in (5, len(indices)))
    got = compiled.evaluate({}, {"x": x, "i": indices, "u": u})
    places = [0, 0, 0, 4, 0, 4, 4, 4]
    np.testing.assert_array_equal(got["read"], x[places])
    np.add.at(x, places, u)
    np.testing.assert_allclose(got["written"], x, rtol=1e-6)
