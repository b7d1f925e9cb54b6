"""Writes the golden files beside it from NumPy, JAX, mpmath and exact fractions: `python generate.py`.

Every line is a case, `name dtype… | operand | … = result`. Elements are in the text of their dtype,
arrays are `dtype 2x3: elements` (`-` is the shape of a scalar), lists of numbers `1,2` or `-`."""
import itertools
import math
import pathlib
from fractions import Fraction

import jax
import jax.numpy as jnp
import ml_dtypes
import mpmath as mp
import numpy as np

jax.config.update("jax_enable_x64", True)
mp.mp.prec = 200
np.seterr(all="ignore")
rng = np.random.default_rng(0)
HERE = pathlib.Path(__file__).parent
DTYPES = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3": ml_dtypes.float8_e4m3fn, "bool": np.bool_,
    **{f"{k}{n}": np.dtype(f"{t}{n}").type for k, t in [("i", "int"), ("u", "uint")] for n in (8, 16, 32, 64)},
}
NAMES = {np.dtype(v): k for k, v in DTYPES.items()}
inf, nan = math.inf, math.nan


def element(v):
    """The text of one element; a float's is that of its exact value as f64, which every dtype reads."""
    if isinstance(v, (bool, np.bool_)):
        return str(bool(v)).lower()
    return str(int(v)) if isinstance(v, (int, np.integer)) else repr(float(v))


def elements(values):
    return " ".join(element(v) for v in values)


def array(a):
    a = np.asarray(a)
    shape = "x".join(map(str, a.shape)) or "-"
    return f"{NAMES[a.dtype]} {shape}: {elements(a.reshape(-1))}".strip()


def field(v):
    if isinstance(v, bool) or v is None:
        return str(v).lower()
    if isinstance(v, (tuple, list)):
        return ",".join(map(str, v)) or "-"
    if isinstance(v, (str, int, float)):
        return str(v)
    return array(v)


def line(name, fields, result):
    return " | ".join([name, *map(field, fields)]) + " = " + field(result)


# --- scalars ---------------------------------------------------------------------------------------

FORMATS = {"f64": (11, 52), "f32": (8, 23), "f16": (5, 10), "bf16": (8, 7), "f8e5m2": (5, 2), "f8e4m3": (4, 3)}


def rounded(dtype, v):
    """A fraction rounded once to a float dtype, to nearest, ties to even."""
    exp_bits, man = FORMATS[dtype]
    bias = 2 ** (exp_bits - 1) - 1
    if v == 0:
        return 0.0
    e = math.floor(mp.log(abs(mp.mpf(v.numerator) / v.denominator), 2))
    e += (abs(v) >= Fraction(2) ** (e + 1)) - (abs(v) < Fraction(2) ** e)
    quantum = Fraction(2) ** (max(e, 1 - bias) - man)
    r = round(v / quantum) * quantum
    top = Fraction(448) if dtype == "f8e4m3" else (2 - Fraction(2) ** -man) * Fraction(2) ** bias
    if abs(r) > top:
        return nan if dtype == "f8e4m3" else math.copysign(inf, v)
    return math.copysign(float(r), v)


def functions():
    """Unary functions at points where they are smooth, from mpmath; and special values from NumPy."""
    wide = [*(rng.uniform(-1, 1, 12) * 10.0 ** rng.integers(-5, 2, 12)), 0.5, -0.75, 1e-300, 3e-40]
    positive = [abs(v) for v in wide] + [1.0, 7e8]
    unit = [v for v in wide if abs(v) <= 1]
    table = {
        "exp": (mp.exp, wide), "expm1": (mp.expm1, wide), "log": (mp.log, positive),
        "log1p": (mp.log1p, positive + unit[:4]), "sqrt": (mp.sqrt, positive),
        "sin": (mp.sin, wide + [1e22, 355.0]), "cos": (mp.cos, wide + [1e22, 355.0]), "tan": (mp.tan, wide),
        "asin": (mp.asin, unit), "acos": (mp.acos, unit), "atan": (mp.atan, wide),
        "sinh": (mp.sinh, wide), "cosh": (mp.cosh, wide), "tanh": (mp.tanh, wide + [20.0, -400.0]),
        "erf": (mp.erf, wide + list(rng.uniform(-6, 6, 40)) + [0.84375, 1.25, 2.857]),
    }
    specials = np.array([0.0, -0.0, inf, -inf, nan])
    for name, (f, points) in table.items():
        for dtype in ("f64", "f32", "f16", "bf16"):
            xs = [rounded(dtype, Fraction(v)) for v in points]
            xs = [x for x in xs if math.isfinite(x)]
            ys = []
            for x in xs:
                y = f(mp.mpf(x))
                ys.append(rounded(dtype, exact(y)) if mp.isfinite(y) else float(y))
            yield f"{name} {dtype} | {elements(xs)} = {elements(ys)}"
        numpy_name = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}.get(name, name)
        ends = [0.0, -0.0, 1.0, -1.0, nan] if name == "erf" else getattr(np, numpy_name)(specials)
        yield f"{name} f64 | {elements(specials)} = {elements(ends)}"


def exact(y):
    """An mpmath number as a fraction."""
    sign, man, exp, _ = mp.mpf(y)._mpf_
    return (-1) ** sign * Fraction(int(man)) * Fraction(2) ** exp


def numpy_scalars():
    """What NumPy defines in every corner: division, remainder, powers, angles, whole numbers."""
    values = [0.0, -0.0, 1.0, -1.0, 0.3, 2.5, -2.5, 7.0, inf, -inf, nan]
    pairs = list(itertools.product(values, values))
    pairs += [tuple(v) for v in (rng.standard_normal((30, 2)) * [100, 3]).round(2)]
    for name, f in {"floor_div": np.floor_divide, "mod": np.mod, "pow": np.power, "atan2": np.arctan2}.items():
        for dtype in ("f64", "f32", "f16"):
            x, y = np.array(pairs, DTYPES[dtype]).T
            # Taken in f64 and rounded where the machine's f32 functions are not to the last bit.
            r = f(x.astype("f8"), y.astype("f8")).astype(x.dtype) if name in ("pow", "atan2") else f(x, y)
            yield f"{name} {dtype} | {elements(x)} | {elements(y)} = {elements(r)}"
    x = np.array([*values, 0.5, -0.5, 1.5, -1.5, 0.49999999999999994, 2.0**52 + 1, -0.2])
    for name, f in {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "sign": np.sign, "abs": np.abs, "neg": np.negative}.items():
        r = np.where(x == 0, x, f(x)) if name == "sign" else f(x)
        yield f"{name} f64 | {elements(x)} = {elements(r)}"
    for name in ("add", "sub", "mul", "div"):
        for dtype in ("f32", "f16"):
            x, y = np.array(pairs, DTYPES[dtype]).T
            r = getattr(np, {"sub": "subtract", "mul": "multiply", "div": "divide"}.get(name, name))(x, y)
            yield f"{name} {dtype} | {elements(x)} | {elements(y)} = {elements(r)}"
    for dtype in ("i8", "u8", "i64", "u64"):
        info = np.iinfo(DTYPES[dtype])
        ints = [info.min, 1, 2, 7, info.max - 1, info.max] + ([-1, -3] if info.min else [])
        x, y = np.array(list(itertools.product(ints, [v for v in ints if v])), DTYPES[dtype]).T
        for name in ("add", "subtract", "multiply", "floor_divide", "mod", "minimum", "maximum", "bitwise_xor"):
            short = {"subtract": "sub", "multiply": "mul", "floor_divide": "floor_div", "minimum": "min", "maximum": "max", "bitwise_xor": "xor"}
            yield f"{short.get(name, name)} {dtype} | {elements(x)} | {elements(y)} = {elements(getattr(np, name)(x, y))}"


def casts():
    """Rounding into each format, at ties and just beside them, and the ends of its range."""
    for dtype in ("f32", "f16", "bf16", "f8e5m2", "f8e4m3"):
        exp_bits, man = FORMATS[dtype]
        tiny = Fraction(2) ** (2 - 2 ** (exp_bits - 1) - man)
        top = Fraction(448) if dtype == "f8e4m3" else (2 - Fraction(2) ** -man) * Fraction(2) ** (2 ** (exp_bits - 1) - 1)
        ulp = Fraction(2) ** -man
        near = [1 + ulp / 2, 1 + 3 * ulp / 2, tiny / 2, tiny * 3 / 2, tiny * 5 / 2, top, top + ulp * top / 4, tiny]
        xs = [float(v * (1 + Fraction(k, 2**52))) for v in near for k in (-1, 0, 1)]
        xs += [float(top * (1 + ulp / 2)), 3.0e38, 1e300, 5e-324, *rng.standard_normal(10)]
        xs += [-x for x in xs]
        yield f"cast f64 {dtype} | {elements(xs)} = {elements(rounded(dtype, Fraction(x)) for x in xs)}"
        ints = [2**62 + 1, 2**53 + 1, 2**40 + 2**16 + 1, 2**60 + 2**36 + 1, 2**60 + 2**52, 2**60 + 2**52 + 1, 257, 2049, 2051, -(2**63), 0]
        yield f"cast i64 {dtype} | {elements(ints)} = {elements(rounded(dtype, Fraction(v)) for v in ints)}"


# --- kernels ---------------------------------------------------------------------------------------

F = np.array([[3, nan, -1], [2.5, 2.5, -0.0]], "f4")
M = np.arange(24).reshape(2, 3, 4).astype("f4") - 7
I = np.array([[5, -3, 5], [0, 7, -128]], "i1")
E = np.zeros((0, 3), "f4")


def kernels():
    for name, f in {"max": np.max, "min": np.min, "sum": np.sum, "prod": np.prod, "any": np.any, "all": np.all}.items():
        for x, axes, keep in [(F, (1,), False), (F, (0, 1), True), (M, (0, 2), False), (I, (0,), True), (M, (), False)]:
            r = f(x, axis=axes, keepdims=keep)
            yield line(name, (x, axes, keep), r.astype(x.dtype) if name in ("sum", "prod") else r)
        if name in ("sum", "prod", "any", "all"):
            yield line(name, (E, (0,), False), f(E, axis=0))
    for name, f in {"argmax": np.argmax, "argmin": np.argmin}.items():
        for x, axis in [(F, 0), (F, 1), (F, None), (I, 1), (M, None), (F[1:], 1)]:
            yield line(name, (x, axis, False), f(x, axis=axis))
        yield line(name, (M, 1, True), f(M, axis=1, keepdims=True))
    for name, f in {"cumsum": np.cumsum, "cumprod": np.cumprod}.items():
        for x, axis in [(F + 0, 1), (M, 1), (I, 0), (E, 0)]:  # NumPy alone keeps -0 in a running sum.
            yield line(name, (x, axis, False), f(x, axis=axis, dtype=x.dtype))
            yield line(name, (x, axis, True), np.flip(f(np.flip(x, axis), axis=axis, dtype=x.dtype), axis))
    for x, axis in [(F, 1), (F, 0), (I, 1), (E, 1), (np.array([2**63, 1, 0], "u8"), 0), (np.array([1.0, 0.0, nan, -0.0, inf, 1.0, nan]), 0)]:
        for down in (False, True):
            r = jnp.argsort(jnp.asarray(x), axis=axis, stable=True, descending=down)
            yield line("argsort", (x, axis, down), np.asarray(r).astype("i8"))
            yield line("sort", (x, axis, down), np.take_along_axis(x, np.asarray(r), axis))
    yield from layouts()
    yield from indexing()
    yield from dots()
    for text, *inputs in [
        ("x + y", M, np.array([1, 2, 3, 4], "f4")), ("x * y", F[:, :1], F[1]), ("x - y", I, I[:1]),
        ("x < y", F, F[:1]), ("x + y", E, F[:1, :1]), ("-x", E), ("x * y", np.float32(2), M[0]),
        ("x // y", M, np.array([[2], [-3], [0]], "f4")), ("(x < y) & (y != 0)", I, I[::-1]),
    ]:
        names = dict(zip("xyz", inputs))
        yield line("elementwise", (text, *inputs), eval(text, {}, names))


def layouts():
    for dtype in (np.float32, np.int8, np.bool_):
        r = np.broadcast_to(np.arange(3)[None, :], (2, 3)).astype(dtype)
        yield line("iota", ((2, 3), 1, NAMES[np.dtype(dtype)]), r)
    yield line("reshape", (M, (4, 6)), M.reshape(4, 6))
    yield line("reshape", (E, (3, 0, 2)), E.reshape(3, 0, 2))
    yield line("transpose", (M, (2, 0, 1)), M.transpose(2, 0, 1))
    yield line("transpose", (E, (1, 0)), E.T)
    for x, shape, dims in [(I, (2, 2, 3), (0, 2)), (F[1], (3, 2), (0,)), (F[:, :1], (2, 4), (0, 1)), (np.float32(3), (2,), ())]:
        yield line("broadcast_in_dim", (x, shape, dims), np.asarray(jax.lax.broadcast_in_dim(x, shape, dims)))
    for x, spec in [(M, ((0, 2, 1), (0, 3, 2), (1, 4, 2))), (M, ((1, -1, -1), (2, -1, -2), (3, 0, -2))), (I, ((1, 1, 1), (0, 3, 1))), (I, ((0, 2, 5), (2, 3, -1)))]:
        cut = tuple(slice(a, None if b < 0 else b, s) for a, b, s in spec)
        yield line("slice", (x, *zip(*spec)), x[cut])
    yield line("concat", (1, F, F[:, :1], F), np.concatenate([F, F[:, :1], F], 1))
    yield line("concat", (0, E, F, F[1:]), np.concatenate([E, F, F[1:]], 0))
    for x, spec in [(F, ((1, 2, 0), (0, 0, 1))), (I, ((-1, 0, 0), (1, -2, 2))), (E, ((1, 1, 3), (0, -1, 0)))]:
        r = jax.lax.pad(jnp.asarray(x), jnp.asarray(9, x.dtype), spec)
        yield line("pad", (x, np.asarray(9, x.dtype), *zip(*spec)), np.asarray(r))
    for shape in [(3,), (2, 1), (1, 1), (), (2, 3, 4)]:
        x = M if len(shape) != 2 else F[1:].repeat(2, 0)
        lead = x.ndim - len(shape)
        if shape == (3,):
            x, lead = I.astype("i4"), 1
        axes = tuple(d for d in range(x.ndim) if d < lead or shape[d - lead] == 1)
        yield line("sum_to", (x, shape), x.sum(axis=axes, dtype=x.dtype).reshape(shape))


def indexing():
    k = np.array([[0, -1], [2, -9]], "i4")
    n = np.array([[0, 2], [2, 0]])
    for x, axis in [(F, 1), (M, 1), (I, 1)]:
        yield line("take", (x, k, axis), np.take(x, n, axis=axis))
    up = np.arange(2 * 4 * 4).reshape(2, 2, 2, 4).astype("f4")
    r = M.copy()
    for i, j in np.ndindex(2, 2):
        r[:, n[i, j], :] += up[:, i, j, :]
    yield line("scatter_add", (M, k, up, 1), r)
    yield line("take", (E, np.array([1, 2]), 0), np.zeros((2, 3), "f4"))
    yield line("scatter_add", (E, np.array([1]), F[:1], 0), E)
    for x, axis in [(F, 1), (I, 1)]:
        yield line("take_along_axis", (x, k, axis), np.take_along_axis(x, n, axis))
        r = x.copy()
        for i, j in np.ndindex(2, 2):
            r[i, n[i, j]] += x[i, j]
        yield line("scatter_add_along", (x, k, x[:, :2], axis), r)
    for starts, sizes in [((0, 1, 1), (1, 2, 2)), ((9, -4, 2), (1, 3, 3)), ((1, 1, 1), (0, 3, 1))]:
        yield line("dynamic_slice", (M, starts, sizes), np.asarray(jax.lax.dynamic_slice(M, starts, sizes)))
        if 0 not in sizes:
            put = np.full(sizes, 99, "f4")
            yield line("dynamic_update_slice", (M, put, starts), np.asarray(jax.lax.dynamic_update_slice(M, put, starts)))


def dots():
    a, b = M, np.arange(40).reshape(5, 4, 2).astype("f4") % 7 - 3
    for x, y, dims in [
        (M[0], M[1], (((1,), (1,)), ((), ()))), (a, b, (((2,), (1,)), ((0,), (2,)))), (a, b, (((0, 2), (2, 1)), ((), ()))),
        (E, F, (((1,), (1,)), ((), ()))), (E, E, (((0,), (0,)), ((), ()))), (F[1], F[1], (((), ()), ((0,), (0,)))), (I[0], I, (((0,), (1,)), ((), ()))),
    ]:
        (lc, rc), (lb, rb) = dims
        yield line("dot_general", (x, y, lb, rb, lc, rc), np.asarray(jax.lax.dot_general(x, y, dims)))


# --- random ----------------------------------------------------------------------------------------


def randoms():
    key = jax.random.key(0x123456789AB)
    seed = 0x123456789AB
    yield line("split", (seed, 3), jax.random.key_data(jax.random.split(key, 3)))
    for n in (0, 7, 2**32 - 1):
        yield line("fold_in", (seed, n), jax.random.key_data(jax.random.fold_in(key, n))[None])
    for width in (8, 16, 32, 64):
        yield line("bits", (seed, (2, 3), width), jax.random.bits(key, (2, 3), f"uint{width}"))
    yield line("bits", (seed, (0,), 32), jax.random.bits(key, (0,), "uint32"))
    for dtype in ("f64", "f32", "f16", "bf16"):
        t = jnp.dtype(DTYPES[dtype])
        for lo, hi in [(0.0, 1.0), (3.0, 10.1), (-0.001, 0.7)]:
            yield line("uniform", (seed, (24,), dtype, lo, hi), jax.random.uniform(key, (24,), t, lo, hi))
        yield line("normal", (seed, (200,), dtype), jax.random.normal(key, (200,), t))
        yield line("bernoulli", (seed, (16,), dtype, 0.3), jax.random.bernoulli(key, jnp.array(0.3, t), (16,)))
    for dtype in ("f64", "f32"):
        tails = [0.0, 0.1, -0.5, 0.9, -0.99, 0.999, 1 - 1e-4, 1e-6 - 1, 1 - 1e-7, 1 - 1e-9, 1 - 1e-12, 1e-15 - 1, 1.0, -1.0]
        x = np.array(tails, DTYPES[dtype])
        yield line("erf_inv", (x,), jax.lax.erf_inv(x))
    for dtype, lo, hi in [("i32", 0, 10), ("i32", -5, 1000003), ("i32", 4, 4), ("u8", 0, 256), ("i8", -128, 128), ("i64", -(2**62), 2**62), ("i16", 3, 2**20), ("u32", 7, 2**31), ("u64", 0, 2**40), ("i8", -9, 300), ("i32", 7, -7)]:
        yield line("randint", (seed, (9,), dtype, lo, hi), jax.random.randint(key, (9,), lo, hi, DTYPES[dtype]))


for name, parts in {"scalar": (functions, numpy_scalars, casts), "kernels": (kernels,), "random": (randoms,)}.items():
    text = "\n".join(itertools.chain.from_iterable(part() for part in parts)) + "\n"
    (HERE / f"{name}.txt").write_text(text)
