"""Draws the random models that `fuzz.py` compiles for all backends."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grower_functions
import grower_images
import grower_library
import grower_models
import numpy as np

import mithril as ml
from mithril.models import (
    Absolute,
    ArgMax,
    Buffer,
    Cast,
    Concat,
    CrossEntropy,
    Cumsum,
    Embedding,
    Erf,
    Gather,
    Gelu,
    LayerNorm,
    Linear,
    LogSoftmax,
    MatrixMultiply,
    Maximum,
    Minimum,
    Model,
    NanToNum,
    OneHot,
    Relu,
    RMSNorm,
    ScaledDotProduct,
    Sigmoid,
    Silu,
    Softmax,
    Sort,
    SwapAxes,
    Tanh,
    Where,
)

SHAPES = [(3, 4), (4, 4), (2, 3, 4), (4,), (3, 1), (1, 4)]
EMPTY = [(0, 4), (3, 0), (2, 0, 4), (0,)]
INTEGERS = [ml.int8, ml.int32, ml.int64]
# Added before floats are truncated or compared with integers, so that rounding errors cannot change
# the result.
APART = 0.1234

# Seeds from this one on draw blocks of images as well; earlier ones keep their models.
IMAGES = 1_500_000_000
# Seeds from this one on draw loops, matrices and spectra as well.
FUNCTIONS = 1_600_000_000
# Seeds from this one on draw statistics, losses, attention and batches of models as well.
MODELS = 1_700_000_000
# Seeds from this one on draw every block of the library as well.
LIBRARY = 1_790_000_000
# Attention over more rows takes NumPy too long.
MOST_QUERIES = 300

Value = Any
Shape = tuple[int, ...]
Way = tuple[Callable[[], Value], Shape]


@dataclass
class Known:
    """A connection of the model, with its shape and dtype."""

    value: Value
    shape: Shape
    # The dtype of integers; None for others.
    dtype: Any = None


class Grower:
    """A model that grows by random operations on its values."""

    def __init__(self, seed: int, *, special: bool = False, sized: bool = False) -> None:
        self.seed = seed
        self.choose = random.Random(seed)
        # The size for each size in `SHAPES`; with `sized`, it is drawn from 1 to 33.
        self.sizes = {2: 2, 3: 3, 4: 4}
        self.widths = [2, 3, 4]
        if sized:
            self.sizes = {size: self.choose.randint(1, 33) for size in self.sizes}
            self.widths = [self.choose.randint(1, 33) for _ in self.widths]
        # Whether inputs contain NaN and infinities.
        self.special = special
        self.dtype = self.choose.choice([ml.float64, ml.float64, ml.float32])
        self.model = Model()
        self.count = 0
        self.shapes: dict[str, list[int]] = {}
        self.floats: list[Known] = []
        self.integers: list[Known] = []
        self.truths: list[Known] = []
        shapes = SHAPES + (EMPTY if self.choose.random() < 0.15 else [])
        for at in range(self.choose.randint(1, 3)):
            shape = tuple(self.sizes.get(size, size) for size in self.choose.choice(shapes))
            self.shapes[f"x{at}"] = list(shape)
            self.keep(self.apply(Buffer(), f"x{at}"), shape)

    def apply(self, block: Any, *inputs: Value) -> Value:
        name = f"v{self.count}"
        self.count += 1
        self.model |= block(*inputs, name)
        return getattr(self.model, name)

    def keep(self, value: Value, shape: Shape) -> None:
        self.floats.append(Known(value, shape))

    def pick(self, among: list[Known] | None = None) -> tuple[Value, Shape]:
        # Recent values are chosen most often, so that chains become long.
        known = self.floats if among is None else among
        chosen = known[-1 - min(int(self.choose.expovariate(0.6)), len(known) - 1)]
        return chosen.value, chosen.shape

    def partner(self, shape: Shape, among: list[Known]) -> tuple[Value, Shape] | None:
        """A value that broadcasts with `shape`, and the broadcast shape of both."""
        other = self.choose.choice(among)
        try:
            return other.value, np.broadcast_shapes(shape, other.shape)
        except ValueError:
            return None

    def finite(self, x: Value) -> Value:
        """Bounds the value if inputs are special. With infinities, or values whose squares are
        infinite, targets differ in softmax, and PyTorch's GELU and layer norm give NaN."""
        return self.apply(Tanh(), x) if self.special else x

    def log_of_exp(self, power: Value) -> Value:
        """The log of exp(x), unless numbers may be tiny: XLA simplifies log(exp(x)) to x."""
        return power * 0.5 if self.special else power.log()

    def unary(self) -> None:
        x, shape = self.pick()
        tame = self.apply(Tanh(), x)

        def gelu() -> Value:
            own = self.finite(x)
            return own * (0.5 * (1.0 + self.apply(Erf(), own / 1.4142135623730951)))

        ways: list[Callable[[], Value]] = [
            lambda: x * self.choose.choice([1.0, -1.0, 2.0, 0.5, 3.0]),
            lambda: x + self.choose.choice([0.0, 1.0, -2.0]),
            lambda: x / self.choose.choice([1.0, 4.0, -3.0]),
            lambda: -x,
            lambda: x**2,
            lambda: tame**3,
            tame.exp,
            (x**2 + 0.5).sqrt,
            (x**2 + 0.5).log,
            lambda: (x * x + 1.0) ** -0.5,
            lambda: 1.0 / (1.0 + (-tame).exp()),
            lambda: self.log_of_exp(tame.exp()),
            lambda: self.apply(Absolute(), x),
            lambda: self.apply(Gelu(), self.finite(x)),
            lambda: self.apply(Silu(), x),
            lambda: self.apply(Sigmoid(), x),
            lambda: self.apply(Where(), x > 0.25, x, 0.5 * x),
            lambda: self.apply(Relu(), self.apply(Relu(), x)),
            gelu,
            lambda: tame,
        ]
        self.keep(self.choose.choice(ways)(), shape)

    def binary(self) -> None:
        x, shape = self.pick()
        other = self.partner(shape, self.floats)
        if other is None:
            return
        y, shape = other
        ways: list[Callable[[], Value]] = [
            lambda: x + y,
            lambda: x - y,
            lambda: x * y,
            lambda: x / (y * y + 1.0),
            lambda: self.apply(Maximum(), x, y),
            lambda: self.apply(Minimum(), x, y),
            lambda: (x + y) - y * 0.5,
            lambda: x * y + x,
            lambda: self.apply(Where(), x > y, x, y),
        ]
        self.keep(self.choose.choice(ways)(), shape)

    def fold(self) -> None:
        x, shape = self.pick()
        if self.seed >= IMAGES:
            # Sums of huge numbers that cancel depend on their order.
            x = self.finite(x)
        if not shape:
            return
        axis = self.choose.randrange(len(shape))
        signed = self.choose.choice([axis, axis - len(shape)])
        keep = self.choose.choice([True, False])
        left = (*shape[:axis], *([1] if keep else []), *shape[axis + 1 :])
        options = {"axis": signed, "keepdim": keep}
        ways: list[Callable[[], Value]] = [lambda: x.sum(**options)]
        if shape[axis]:
            ways += [
                lambda: x.mean(**options),
                lambda: x.max(**options),
                lambda: x.var(**options),
                lambda: x.sum(**options) / float(shape[axis]),
                lambda: self.log_of_exp(self.apply(Tanh(), x).exp().sum(**options)),
            ]
        if left:
            self.keep(self.choose.choice(ways)(), left)

    def rows(self) -> None:
        x, shape = self.pick()
        if not shape or not shape[-1]:
            return
        centred = x - x.mean(axis=-1, keepdim=True)
        tame = self.apply(Tanh(), x)

        def softmax() -> Value:
            powers = tame.exp()
            return powers / powers.sum(axis=-1, keepdim=True)

        def shifted() -> Value:
            own = self.finite(x)
            powers = (own - own.max(axis=-1, keepdim=True)).exp()
            return powers * (1.0 / powers.sum(axis=-1, keepdim=True))

        def norm() -> Value:
            return centred / ((centred**2).mean(axis=-1, keepdim=True) + 0.01).sqrt()

        ways = [
            softmax,
            shifted,
            norm,
            lambda: self.apply(Softmax(), self.finite(x)),
            lambda: self.apply(LogSoftmax(), self.finite(x)),
            lambda: x / ((x * x).mean(axis=-1, keepdim=True) + 0.01).sqrt(),
            lambda: self.block(LayerNorm(eps=0.01), self.finite(x)),
            lambda: self.block(RMSNorm(eps=0.01), x),
        ]
        self.keep(self.choose.choice(ways)(), shape)

    def block(self, block: Any, x: Value = None, **named: Value) -> Value:
        """Applies a block with its own params, or with other inputs than the first ones."""
        name = f"v{self.count}"
        self.count += 1
        self.model |= block(**(named or {"input": x}), output=name)
        return getattr(self.model, name)

    def layout(self) -> None:
        x, shape = self.pick()
        order = list(range(len(shape)))
        self.choose.shuffle(order)
        flat = int(np.prod(shape))
        ways: list[Way] = [
            (lambda: x.transpose(tuple(order)), tuple(shape[axis] for axis in order)),
            (lambda: x.reshape((flat,)), (flat,)),
            (lambda: x.reshape((1, *shape)), (1, *shape)),
            (lambda: x.expand_dims(0), (1, *shape)),
            (lambda: x.reshape((flat,)).reshape(shape), shape),
        ]
        way, left = self.choose.choice(ways)
        if len(left) <= 4:
            self.keep(way(), left)

    def part(self) -> None:
        """Slices of a value, concatenations of slices, and similar."""
        x, shape = self.pick()
        if not shape:
            return
        axis, size = 0, shape[0]
        cut = self.choose.randint(0, size)
        rest = shape[1:]
        last = (*shape[:-1], 2 * shape[-1])
        ways: list[Way] = [
            (lambda: x[cut:], (size - cut, *rest)),
            (lambda: x[:cut], (cut, *rest)),
            (lambda: x[::-1], shape),
            (lambda: x[::2], ((size + 1) // 2, *rest)),
            (lambda: x[..., None], (*shape, 1)),
            (lambda: self.apply(Concat(axis=-1), [x, 2.0 * x]), last),
            (lambda: self.apply(Concat(axis=axis), [x[cut:], x[:cut]]), shape),
            (lambda: self.apply(Concat(axis=axis), [x, x])[1 : size + 1], shape),
            (lambda: self.apply(Cumsum(axis=axis), x), shape),
            (lambda: self.apply(Sort(axis=-1), x), shape),
        ]
        way, left = self.choose.choice(ways)
        if len(left) <= 4:
            self.keep(way(), left)

    def product(self) -> None:
        x, shape = self.pick()
        if len(shape) < 2:
            return
        x = self.finite(x)
        width = self.choose.choice(self.widths)
        # PyTorch's attention gives 0 for NaN scores.
        own = self.apply(NanToNum(), x) if self.special else x
        turned = self.apply(SwapAxes(-1, -2), own)
        length = shape[-2]

        def attention() -> Value:
            scores = self.apply(MatrixMultiply(), own, turned) * 0.5
            return self.apply(MatrixMultiply(), self.apply(Softmax(), scores), own)

        def masked() -> Value:
            mask = np.tril(np.ones((length, length))) > 0
            scores = self.apply(MatrixMultiply(), own, turned) * 0.5
            hidden = self.apply(Where(), mask, scores, -1e9)
            return self.apply(MatrixMultiply(), self.apply(Softmax(), hidden), own)

        def siblings() -> Value:
            one, two = (self.block(Linear(width), x) for _ in range(2))
            return one * self.apply(Sigmoid(), two)

        ways: list[Way] = [
            (lambda: self.block(Linear(width), x), (*shape[:-1], width)),
            (siblings, (*shape[:-1], width)),
        ]
        if 0 < length <= MOST_QUERIES and shape[-1]:
            causal = self.choose.choice([True, False])
            ways += [
                (attention, shape),
                (masked, shape),
                (
                    lambda: self.block(
                        ScaledDotProduct(is_causal=causal), query=own, key=own, value=own
                    ),
                    shape,
                ),
            ]
        way, left = self.choose.choice(ways)
        self.keep(way(), left)

    def whole(self) -> None:
        """Integers, computed from floats or from integers."""
        if not self.integers or self.choose.random() < 0.3:
            x, shape = self.pick()
            # NaN cannot be cast to an integer.
            tame = self.apply(Tanh(), self.apply(NanToNum(), x) if self.special else x)
            dtype = self.choose.choice(INTEGERS)
            whole = self.apply(Cast(dtype), tame * 5.0 + APART)
            self.integers.append(Known(whole, shape, dtype))
            return
        i, shape = self.pick(self.integers)
        dtype = next(known.dtype for known in self.integers if known.value is i)
        alike = [known for known in self.integers if known.dtype == dtype]
        j, both = self.partner(shape, alike) or (i, shape)
        ways: list[Way] = [
            (lambda: i + j, both),
            (lambda: i * j - i, both),
            (lambda: -i, shape),
            (lambda: i // 3, shape),
            (lambda: i % 3, shape),
            (lambda: i // -2, shape),
            (lambda: (i * 7) % 5, shape),
            (lambda: self.apply(Maximum(), i, j), both),
            (lambda: self.apply(Absolute(), i), shape),
            (lambda: i & 6, shape),
            (lambda: i | 1, shape),
            (lambda: i * 4 + 0, shape),
            (lambda: self.apply(Where(), i > j, i, j), both),
        ]
        if shape and shape[-1]:
            at = lambda: self.apply(Cast(dtype), self.apply(ArgMax(axis=-1), i))  # noqa: E731
            ways.append((at, shape[:-1]))
        way, left = self.choose.choice(ways)
        if left:
            self.integers.append(Known(way(), left, dtype))

    def truth(self) -> None:
        """Bools, from comparisons or from other bools."""
        if not self.truths or self.choose.random() < 0.5:
            among = self.choose.choice([self.floats, self.integers or self.floats])
            x, shape = self.pick(among)
            edge = 0 if among is self.integers else APART
            ways = [
                lambda: x > edge,
                lambda: x <= 1 + edge,
                lambda: x == x,  # noqa: PLR0124
                lambda: x >= -1 - edge,
            ]
            self.truths.append(Known(self.choose.choice(ways)(), shape))
            return
        p, shape = self.pick(self.truths)
        q, both = self.partner(shape, self.truths) or (p, shape)
        ways: list[Way] = [
            (lambda: p & q, both),
            (lambda: p | q, both),
            (lambda: ~p, shape),
            (lambda: p ^ q, both),
            (lambda: ~(p & ~q), both),
        ]
        way, left = self.choose.choice(ways)
        self.truths.append(Known(way(), left))

    def back(self) -> None:
        """Floats computed from integers and bools: casts, selections and gathers."""
        # XLA multiplies by the bool to select between 0 and a value, which is wrong for NaN.
        kinds = [self.integers] if self.special else [self.integers, self.truths]
        if not any(kinds):
            return
        i, shape = self.pick(self.choose.choice([known for known in kinds if known]))
        ways: list[Way] = [(lambda: self.apply(Cast(self.dtype), i), shape)]
        if self.truths:
            p, own = self.pick(self.truths)
            other, both = self.partner(own, self.floats) or (None, ())
            if other is not None:
                ways.append((lambda: self.apply(Where(), p, other, -other), both))
                ways.append((lambda: self.apply(Where(), p, other, 0.0), both))
        if self.integers:
            at, own = self.pick(self.integers)
            ways.append((lambda: self.apply(OneHot(3, dtype=self.dtype), at % 3), (*own, 3)))
            ways.append((lambda: self.block(Embedding(5, 3), at % 5), (*own, 3)))
            x, shape = self.pick()
            if shape and shape[0]:
                size = shape[0]
                within = lambda: self.below(at, size)  # noqa: E731
                ways.append((lambda: self.apply(Gather(), x, within()), (*own, *shape[1:])))
            if len(shape) >= 2 and shape[-1] and own == shape[:-1]:
                classes = shape[-1]
                label = lambda: self.below(at, classes)  # noqa: E731
                ways.append((lambda: self.apply(CrossEntropy(), self.finite(x), label()), own))
        way, left = self.choose.choice(ways)
        if len(left) <= 4:
            self.keep(way(), left)

    def images(self) -> None:
        """Convolutions, pooling and similar."""
        grower_images.grow(self)

    def functions(self) -> None:
        """Loops, conditions, matrices, spectra and similar."""
        grower_functions.grow(self)

    def learned(self) -> None:
        """Statistics, losses, attention, batches of models and similar."""
        grower_models.grow(self)

    def library(self) -> None:
        """Any block of the library."""
        grower_library.grow(self)

    def below(self, i: Any, size: int) -> Any:
        """Integers as indices of an axis of this size."""
        return (i if size < 128 else self.apply(Cast(ml.int64), i)) % size

    def grown(self) -> Model:
        """The model. Its outputs are `y` and, if it has integers and bools, `i` and `p`."""
        kinds = [self.unary, self.unary, self.binary, self.fold, self.rows, self.layout]
        kinds += [self.product, self.part, self.whole, self.truth, self.back, self.back]
        if self.seed >= IMAGES:
            kinds += [self.images, self.images]
        if self.seed >= FUNCTIONS:
            kinds += [self.functions] * 6
        if self.seed >= MODELS:
            kinds += [self.learned] * 8
        if self.seed >= LIBRARY:
            kinds += [self.library] * 12
        for _ in range(self.choose.randint(4, 16)):
            self.choose.choice(kinds)()
        for name, among in (("y", self.floats), ("i", self.integers), ("p", self.truths)):
            if among:
                self.model |= Buffer()(input=among[-1].value, output=name)
        return self.model
