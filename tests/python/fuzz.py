"""Random models: compares all backends with NumPy's source without optimizations.

    python tests/python/fuzz.py 2000 --first 0 --keep tests/python/records/fuzz.txt
    python tests/python/fuzz.py 500 --first 1000000000 --backends cpu,c --levels v2,v3 \\
        --compilers gcc,clang

Prints the seeds whose results differ, and how. `--keep` adds them to a file of seeds, which
`test_fuzz.py` runs again. A seed draws a model by `grower.py`, a dtype, the inputs, with or without
special values, and the gradients of the output. It also draws whether the model is compiled for
these shapes, for named dims, or without shapes. Dims are at most 4; for seeds from 1000000000 on
they are 1 to 33, and some are known while others are open. From 1500000000 on, models have blocks
of images as well; from 1600000000 on loops, matrices and spectra; from 1700000000 on statistics,
losses, attention and batches of models. `--levels` are the processors to compile native code and C
for, `--compilers` the compilers of C.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import devices
import numpy as np
from grower import Grower

import mithril as ml

BACKENDS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda dtype: ml.NumpyBackend(dtype=dtype),
    "torch": lambda dtype: ml.TorchBackend(dtype=dtype),
    "jax": lambda dtype: ml.JaxBackend(dtype=dtype),
    "mlx": lambda dtype: ml.MlxBackend(dtype=dtype),
    "tinygrad": lambda dtype: ml.TinygradBackend(dtype=dtype),
    "cpu": lambda dtype: ml.CpuBackend(dtype=dtype),
    "c": lambda dtype: ml.CBackend(dtype=dtype),
}
# Seeds from this one on draw dims from 1 to 33.
SIZED = 1_000_000_000
# Tolerances by the dtype's bytes. Sums of so few numbers do not lose more in any model.
TOLERANCE = {8: 1e-8, 4: 2e-4}
# Special values among the ordinary inputs. A model gets one set, so some results stay finite.
SPECIAL = [
    [0.0, -0.0],
    [np.inf, 0.0],
    [-np.inf, np.nan],
    [np.nan, -0.0],
    [1e15, -1e15],
    [1e-30, -1e-30],
]

# tinygrad's functions that give a number for NaN (see `docs/ops.md`); a softmax does along an axis
# of one element.
LOSES_NAN = [".relu()", ".max_pool2d(", ".softmax(", ".log_softmax("]


class Case:
    """The model, options and inputs of a seed."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(-1 - seed)
        self.numbers = np.random.default_rng(seed)
        self.special = self.special_of(choose)
        sized = seed >= SIZED
        grower = Grower(seed, special=bool(self.special), sized=sized)
        self.model, self.dtype = grower.grown(), grower.dtype
        self.shape = grower.floats[-1].shape
        self.exact = choose.random() < 0.5
        self.autodiff = choose.choice(["framework", "mithril"])
        # Random numbers are the same on all backends.
        self.options = {"trainable_keys": list(grower.shapes), "random": "exact"}
        self.shapes = grower.shapes
        stated = {
            "these": self.shapes,
            "named": {
                name: [size if size == 1 else f"d{size}" for size in shape]
                for name, shape in self.shapes.items()
            },
            "unnamed": {
                name: [size if size == 1 else None for size in shape]
                for name, shape in self.shapes.items()
            },
            "any": {},
        }
        ways = ["these"] * 6 + ["named"] * 2 + ["unnamed"] * 2 + ["any"]
        if sized:
            sizes = {size for shape in self.shapes.values() for size in shape if size != 1}
            known = {size for size in sorted(sizes) if choose.random() < 0.5}
            stated["mixed"] = {
                name: [size if size == 1 or size in known else f"d{size}" for size in shape]
                for name, shape in self.shapes.items()
            }
            ways += ["mixed"] * 8
        self.stated = stated[choose.choice(ways)]

    @staticmethod
    def special_of(choose: random.Random) -> list[float]:
        return choose.choice(SPECIAL) if choose.random() < 0.25 else []

    def compiled(self, target: str) -> Any:
        backend, _, variant = target.partition(":")
        math = {"math": "exact"} if self.exact else {}
        own = {"shapes": self.stated} if self.stated else {}
        if backend in ("torch", "jax", "mlx", "tinygrad"):
            own["autodiff"] = self.autodiff
        made = BACKENDS[backend](self.dtype)
        if backend == "cpu" and variant:
            made = ml.CpuBackend(dtype=self.dtype, cpu=variant)
        return ml.compile(self.model, made, **own, **math, **self.options)

    def own_gradients(self, backend: str) -> bool:
        """Whether the framework computes the gradients itself."""
        return backend in ("torch", "jax", "mlx", "tinygrad") and self.autodiff == "framework"

    def plain(self) -> Any:
        """The model compiled for NumPy without optimizations."""
        own = {"shapes": self.shapes, "optimization_level": "none"}
        return ml.compile(self.model, BACKENDS["numpy"](self.dtype), **own, **self.options)

    def draw(self, shape: tuple[int, ...], scale: float, special: list[float]) -> Any:
        drawn = scale * self.numbers.standard_normal(shape)
        if special:
            chosen = self.numbers.choice(special, shape)
            drawn = np.where(self.numbers.random(shape) < 0.2, chosen, drawn)
        return drawn.astype(np.float32 if self.dtype == ml.float32 else np.float64)

    def arrays(self, plain: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The params, which include the inputs, and the gradient of the output."""
        params = {
            name: self.draw(value.shape, 1.0, self.special)
            if name in self.shapes
            else self.draw(value.shape, 0.5, [])
            for name, value in plain.randomize_params(seed=0).items()
        }
        return params, {"y": self.draw(self.shape, 1.0, [])}


@contextmanager
def surroundings(target: str) -> Iterator[None]:
    """Sets the environment for a target: `c:gcc:x86-64-v3` is C by that compiler for that level."""
    kind, *variant = target.split(":")
    names = ("CC", "MITHRIL_CPU") if kind == "c" else ()
    before = {name: os.environ.get(name) for name in names}
    os.environ.update((name, value) for name, value in zip(names, variant, strict=False) if value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def targets(backends: list[str], levels: list[str], compilers: list[str]) -> list[str]:
    """The backends; native code and C for each level, and C by each compiler."""
    found = []
    for name in backends:
        by = {"cpu": [""], "c": [f":{compiler}" for compiler in compilers]}.get(name)
        found += (
            [name]
            if by is None
            else [f"{name}{own}:{level}".rstrip(":") for own in by for level in levels]
        )
    return found


def results(compiled: Any, params: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The outputs, and the gradient of each param."""
    backend = compiled.backend
    own = {name: backend.array(value) for name, value in params.items()}
    of = {name: backend.array(value) for name, value in given.items()}
    keys = {name: np.array([1, 2], np.uint32) for name in compiled._keys}
    outputs, gradients = compiled.evaluate(own, keys, output_gradients=of)
    named = {f"gradient of {name}": value for name, value in gradients.items()}
    found = {**outputs, **named}
    return {name: np.asarray(backend.to_numpy(value)) for name, value in found.items()}


def difference(got: Any, want: Any, scale: float, exact: bool) -> str | None:
    """A message on how two results differ. NaN and infinities are compared only if `exact`: rules
    that recognise composites may change them."""
    # JAX has no 64-bit integers when its floats have 32 bits.
    if got.shape != want.shape or got.dtype.kind != want.dtype.kind:
        return f"is {got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
    if want.dtype.kind != "f":
        return None if np.array_equal(got, want) else f"is {got.ravel()}, expected {want.ravel()}"
    finite = np.isfinite(want)
    if np.any(finite & ~np.isfinite(got)):
        return "is not finite where it was"
    if exact and not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return f"is {got[~finite]}, expected {want[~finite]}"
    got, want = got[finite].astype(float), want[finite].astype(float)
    apart = np.abs(got - want)
    if np.any(apart > scale + scale * np.abs(want)):
        return f"is {float(np.max(apart)):.3g} away"
    return None


def differs(got: Any, want: Any, scale: float) -> Any:
    """Where results differ, element by element."""
    if want.dtype.kind != "f":
        return got != want
    with np.errstate(invalid="ignore"):
        return ~((np.abs(got - want) <= scale + scale * np.abs(want)) | (got == want))


def without_nan(arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays with 1 in place of NaN."""
    return {n: np.where(np.isnan(v), np.ones_like(v), v) for n, v in arrays.items()}


def is_rounding(
    run: Callable[[Any], Any], params: dict[str, Any], of: str, got: Any, scale: float
) -> bool:
    """Whether each wrong element is at a jump, as those of `Bucketize` are: the expected one
    changes as well if the params do by a few units in the last place. `run` gives the expected."""
    want = run(params)[of]
    if got.shape != want.shape:
        return False
    wrong = differs(got, want, scale)
    numbers = np.random.default_rng(0)
    for _ in range(16):
        near = {}
        for name, value in params.items():
            step = 4 * np.finfo(value.dtype).eps * numbers.uniform(-1, 1, value.shape)
            near[name] = (value * (1 + step)).astype(value.dtype)
        wrong = wrong & ~differs(run(near)[of], want, scale)
    return not wrong.any()


def check(seed: int, backends: list[str]) -> str | None:
    """A message on a wrong result of one of the backends; `None` if all agree."""
    case = Case(seed)
    plain = case.plain()
    params, given = case.arrays(plain)

    def expectation(params: dict[str, Any]) -> dict[str, Any]:
        with np.errstate(all="ignore"):
            return results(plain, params, given)

    expected = expectation(params)
    if expected["y"].shape != case.shape:
        return f"the output has the shape {expected['y'].shape}, expected {case.shape}"
    finite = [e[np.isfinite(e)] for e in expected.values() if e.dtype.kind == "f"]
    scale = max(float(np.max(np.abs(e), initial=1.0)) for e in finite)
    tolerance = TOLERANCE[expected["y"].dtype.itemsize] * scale
    for name in backends:
        with np.errstate(all="ignore"), surroundings(name):
            try:
                compiled = case.compiled(name)
                got = results(compiled, params, given)
            except ml.ShapeError as error:
                # Some blocks need a rank, and unknown dims are assumed to be equal.
                if case.stated is case.shapes or "where: block" not in str(error):
                    raise
                continue
        for of, want in expected.items():
            gradient = of.startswith("gradient")
            if gradient and case.special and case.own_gradients(name):
                continue  # Frameworks multiply gradients of 0 by NaN and infinities.
            lost = name == "tinygrad" and any(call in compiled.code for call in LOSES_NAN)
            exact = case.exact and not gradient and not lost
            wrong = difference(got[of], want, tolerance, exact)
            if wrong and lost:
                # What follows from such a number may be finite.
                arrays = without_nan(params), without_nan(given)
                both = (results(own, *arrays)[of] for own in (compiled, plain))
                wrong = difference(*both, tolerance, exact)
            if wrong and is_rounding(expectation, params, of, got[of], tolerance):
                continue
            if wrong:
                return f"{name}: {of} {wrong}"
    return None


def described(seed: int, backends: list[str]) -> str | None:
    """Like `check`, but returns errors as text."""
    try:
        return check(seed, backends)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, help="how many models")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--backends", default=",".join(BACKENDS), help="among them")
    parser.add_argument("--levels", default="", help="of cpu and c: v2,v3,v4")
    parser.add_argument("--compilers", default="", help="of c: gcc,clang")
    parser.add_argument("--keep", type=Path, help="the file that seeds which differ are added to")
    given = parser.parse_args()
    devices.use()
    warnings.simplefilter("ignore")
    # Detects kernels that write outside their memory.
    os.environ.setdefault("MITHRIL_GUARD", "1")
    backends = targets(*(x.split(",") for x in (given.backends, given.levels, given.compilers)))
    failures = 0
    for seed in range(given.first, given.first + given.count):
        wrong = described(seed, backends)
        if wrong:
            failures += 1
            print(f"seed {seed}: {wrong}", flush=True)
            if given.keep:
                with given.keep.open("a") as file:
                    file.write(f"{seed}  # {wrong.splitlines()[0]}\n")
        if sys.stderr.isatty():
            done = seed + 1 - given.first
            print(f"\r{done} of {given.count}, {failures} differ", end="", file=sys.stderr)
    print(f"{failures} of {given.count} models differ")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
