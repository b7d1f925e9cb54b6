"""Random blocks of sequences, matrices and spectra, loops and conditions, for the models of
`grower.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mithril import models
from mithril.models import Model

if TYPE_CHECKING:
    from grower import Grower

Shape = tuple[int, ...]
Grown = tuple[Any, Shape]
Ways = list[Callable[["Grower", Any, Shape], Grown]]
# Longer axes take NumPy too long.
LONGEST = 40


def grow_by(grower: Grower, ways: Ways) -> None:
    """Applies one block, or a few, to a bounded value: one of `ways`."""
    x, shape = grower.pick()
    if not shape or not all(0 < size <= LONGEST for size in shape):
        return
    own = grower.apply(models.NanToNum(), x) if grower.special else x
    tame = grower.apply(models.Tanh(), own)
    value, left = grower.choose.choice(ways)(grower, tame, shape)
    if len(left) <= 4:
        grower.keep(value, left)


def made(grower: Grower, block: Any, output: str, **inputs: Any) -> Any:
    """The value of one output of a block."""
    name = f"v{grower.count}"
    grower.count += 1
    grower.model |= block(**inputs, **{output: name})
    return getattr(grower.model, name)


def activated(grower: Grower, x: Any, shape: Shape) -> Grown:
    blocks = [
        models.Celu(alpha=0.5),
        models.Hardtanh(min=-0.5, max=0.75),
        models.Relu6(),
        models.Softshrink(lambd=0.25),
        models.Tanhshrink(),
        models.LogSigmoid(),
        models.Softmin(),
        models.Mish(),
        models.Softsign(),
    ]
    return grower.apply(grower.choose.choice(blocks), x), shape


def gated(grower: Grower, x: Any, shape: Shape) -> Grown:
    if shape[-1] % 2:
        return activated(grower, x, shape)
    return grower.apply(models.Glu(), x), (*shape[:-1], shape[-1] // 2)


def directed(grower: Grower, x: Any, shape: Shape) -> Grown:
    away = x * x + 0.5
    axis = grower.choose.randrange(len(shape))
    if grower.choose.random() < 0.5:
        return grower.apply(models.Normalize(axis=axis), away), shape
    turned = grower.apply(models.Flip(axis=axis), away)
    cosine = grower.apply(models.CosineSimilarity(axis=axis), away, turned)
    return cosine, (*shape[:axis], *shape[axis + 1 :])


def spectrum(grower: Grower, x: Any, shape: Shape) -> Grown:
    axis = grower.choose.randrange(len(shape))
    norm = grower.choose.choice(["backward", "ortho", "forward"])
    part = grower.choose.choice(["real", "imaginary"])
    size = shape[axis]
    if grower.choose.random() < 0.5:
        return made(grower, models.FFT(axis=axis, norm=norm), part, input=x), shape
    half = (*shape[:axis], size // 2 + 1, *shape[axis + 1 :])
    return made(grower, models.RealFFT(axis=axis, norm=norm), part, input=x), half


def matrix(grower: Grower, x: Any, shape: Shape) -> Grown:
    """Factors and solutions of well-conditioned matrices."""
    if len(shape) < 2 or shape[-1] > 12 or shape[-2] > 12:
        return activated(grower, x, shape)
    size = shape[-2]
    square = (*shape[:-1], size)
    turned = grower.apply(models.SwapAxes(-1, -2), x)
    eye = grower.apply(models.Eye(size, dtype=grower.dtype))
    positive = grower.apply(models.MatrixMultiply(), x, turned) * 0.1 + eye
    ways: list[Callable[[], Grown]] = [
        lambda: (grower.apply(models.Cholesky(), positive), square),
        lambda: (grower.apply(models.Inverse(), positive), square),
        lambda: (grower.apply(models.LogDet(), positive), shape[:-2]),
        lambda: (grower.apply(models.Eigvalsh(), positive), shape[:-1]),
        lambda: (grower.apply(models.Solve(), positive, x), shape),
    ]
    return grower.choose.choice(ways)()


def recurrent(grower: Grower, x: Any, shape: Shape) -> Grown:
    if len(shape) != 3:
        return activated(grower, x, shape)
    width = grower.choose.randint(1, 5)
    kind = grower.choose.choice([models.RNN, models.LSTM, models.GRU])
    reverse = grower.choose.choice([True, False])
    return grower.block(kind(width, reverse=reverse), x), (*shape[:2], width)


def scanned(grower: Grower, x: Any, shape: Shape) -> Grown:
    """The last value of a recurrence over the first axis."""
    if len(shape) < 2:
        return activated(grower, x, shape)
    body = Model()
    body |= models.Multiply()(left="h", right=0.5, output="half")
    body |= models.Add()(left="half", right="row", output="sum")
    body |= models.Tanh()(input="sum", output="h_next")
    first = x[0] * 0.5
    scan = models.Scan(body, carry={"h": "h_next"}, over=["row"])
    return made(grower, scan, "h_next", h=first, row=x), shape[1:]


def chosen(grower: Grower, x: Any, shape: Shape) -> Grown:
    """One of two blocks, by the sign of a sum."""
    total = grower.apply(models.Sum(), x)
    positive = grower.apply(models.Greater(), total, 0.1234)
    then, otherwise = Model(), Model()
    then |= models.Square()(input="x", output="y")
    otherwise |= models.Sigmoid()(input="x", output="y")
    cond = models.Cond(then, otherwise)
    return made(grower, cond, "y", condition=positive, x=x), shape


def repeated(grower: Grower, x: Any, shape: Shape) -> Grown:
    """Doubles a value until its largest element is above a bound, at most a few times."""
    body, condition = Model(), Model()
    body |= models.Multiply()(left="x", right=1.5, output="x_next")
    condition |= models.Absolute()(input="x", output="size")
    condition |= models.Max()(input="size", output="largest")
    condition |= models.Less()(left="largest", right=2.3456, output="running")
    loop = models.While(condition, body, carry={"x": "x_next"}, max_steps=5)
    return made(grower, loop, "x_next", x=x), shape


def distances(grower: Grower, x: Any, shape: Shape) -> Grown:
    if len(shape) != 2:
        return activated(grower, x, shape)
    block = models.DistanceMatrix(get_final_distance=False)
    return made(grower, block, "output", left=x, right=x), (shape[0], shape[0])


WAYS: Ways = [
    activated,
    gated,
    directed,
    spectrum,
    matrix,
    recurrent,
    scanned,
    chosen,
    repeated,
    distances,
]


def grow(grower: Grower) -> None:
    grow_by(grower, WAYS)
