"""Random blocks of statistics, losses, classical learning and attention, and batches of models, for
the models of `grower.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grower_functions import Grown, Shape, Ways, activated, grow_by, made

from mithril import models
from mithril.models import Model

if TYPE_CHECKING:
    from grower import Grower


def ranks(grower: Grower, size: int, count: int) -> Any:
    """`size` integers below `count`."""
    ramp = grower.apply(models.Arange(size))
    return grower.apply(models.Modulo(), ramp * grower.choose.randint(1, 5), count)


def ordered(grower: Grower, x: Any, shape: Shape) -> Grown:
    """Quantiles, medians and sorted positions."""
    axis = grower.choose.randrange(len(shape))
    without = (*shape[:axis], *shape[axis + 1 :])
    ways: list[Callable[[], Grown]] = [
        lambda: (
            grower.apply(models.Quantile(grower.choose.choice([0.0, 0.3, 1.0]), axis=axis), x),
            without,
        ),
        lambda: (grower.apply(models.Median(axis=axis), x), without),
        lambda: (grower.apply(models.Std(axis=axis, correction=0.5), x + 0.0 * x), without),
        lambda: (grower.apply(models.LogSumExp(axis=axis), x), without),
    ]
    return grower.choose.choice(ways)()


def counted(grower: Grower, x: Any, shape: Shape) -> Grown:
    """The bins of values; bounds are no results of other blocks."""
    bounds = grower.apply(models.Linspace(start=-0.8765, stop=0.9123, num=5, dtype=grower.dtype))
    block = grower.choose.choice([models.Bucketize, models.SearchSorted])(
        right=grower.choose.random() < 0.5
    )
    bins = grower.apply(block, x, bounds)
    return grower.apply(models.Cast(grower.dtype), bins) * x, shape


def segments(grower: Grower, x: Any, shape: Shape) -> Grown:
    count = grower.choose.randint(1, 4)
    kind = grower.choose.choice([models.SegmentSum, models.SegmentMean])
    ids = ranks(grower, shape[0], count)
    return grower.apply(kind(num_segments=count), x, ids), (count, *shape[1:])


def scattered(grower: Grower, x: Any, shape: Shape) -> Grown:
    """Elements read, or combined, at indices along an axis."""
    axis = grower.choose.randrange(len(shape))
    size = shape[axis]
    index = ranks(grower, size, size)
    ones = [1] * len(shape)
    ones[axis] = size
    indices = grower.apply(models.BroadcastTo(shape), index.reshape(tuple(ones)))
    if grower.choose.random() < 0.5:
        return grower.apply(models.TakeAlongAxis(axis=axis), x, indices), shape
    how = grower.choose.choice(["sum", "mean"])
    block = models.ScatterReduce(axis=axis, reduce=how)
    return grower.apply(block, x, indices, x * 0.5), shape


def special(grower: Grower, x: Any, shape: Shape) -> Grown:
    """Functions of values within (-1, 1), away from their poles."""
    ways: list[Callable[[], Any]] = [
        lambda: grower.apply(models.Lgamma(), x + 2.5),
        lambda: grower.apply(models.Digamma(), x + 2.5),
        lambda: grower.apply(models.Erfinv(), x * 0.75),
        lambda: grower.apply(models.I0(), x),
        lambda: grower.apply(models.Sinc(), x * 0.5 + 1.25),
        lambda: grower.apply(models.Logit(), x * 0.25 + 0.5),
        lambda: grower.apply(models.Xlogy(), x, x * 0.5 + 1.0),
    ]
    return grower.choose.choice(ways)(), shape


def losses(grower: Grower, x: Any, shape: Shape) -> Grown:
    other = grower.apply(models.Flip(axis=-1), x)
    share, target = x * 0.25 + 0.5, other * 0.25 + 0.5
    ways: list[Callable[[], Any]] = [
        lambda: grower.apply(models.BinaryCrossEntropy(), x, target),
        lambda: grower.apply(models.KLDivergence(), share, target),
        lambda: grower.apply(models.PoissonNLL(), x, target),
        lambda: grower.apply(models.GaussianNLL(), x, other, share),
        lambda: grower.apply(models.SoftMargin(), x, other),
        lambda: grower.apply(models.FocalLoss(), x, target),
        lambda: grower.apply(models.Huber(delta=0.1357), x, other),
        lambda: grower.apply(models.QuantileLoss(q=0.25), x, other + 0.0123),
        lambda: grower.apply(models.SquaredError(), x, other),
        lambda: grower.apply(models.MarginRanking(margin=0.1357), x, other, share),
    ]
    loss = grower.choose.choice(ways)()
    return grower.apply(models.Mean(), loss) * x, shape


def classical(grower: Grower, x: Any, shape: Shape) -> Grown:
    """Kernels, features and differences of rows."""
    if len(shape) != 2:
        return special(grower, x, shape)
    rows, width = shape
    turned = grower.apply(models.Flip(axis=0), x)
    pair = {"input1": x, "input2": turned}
    kernel, near = models.PolynomialKernel(degree=2), models.RBFKernel()
    scales = {"l_scale": 0.75, "sigma": 1.25}
    ways: list[Callable[[], Grown]] = [
        lambda: (grower.block(kernel, **pair, poly_coef=0.5), (rows, rows)),
        lambda: (grower.block(near, **pair, **scales), (rows, rows)),
        lambda: (grower.apply(models.CartesianDifference(), x, turned), (rows, rows, width)),
        lambda: (grower.block(models.LogisticRegression(dimension=3), x), (rows, 3)),
        lambda: (grower.block(models.PolynomialRegression(degree=2, dimension=2), x), (rows, 2)),
        lambda: (grower.apply(models.NormModifier(), x + 1.5), shape),
    ]
    if width > 6:
        ways = [way for at, way in enumerate(ways) if at != 4]
    return grower.choose.choice(ways)()


def attended(grower: Grower, x: Any, shape: Shape) -> Grown:
    """Attention in windows, with a soft limit of scores, and layers around it."""
    if len(shape) < 2:
        return activated(grower, x, shape)
    window = grower.choose.choice([None, 1, (2, 0)])
    cap = grower.choose.choice([None, 1.5])
    causal = grower.choose.random() < 0.5
    block = models.ScaledDotProduct(window=window, softcap=cap, is_causal=causal)
    value = grower.apply(models.Flip(axis=-1), x)
    return grower.block(block, query=x, key=value, value=x), shape


def encoded(grower: Grower, x: Any, shape: Shape) -> Grown:
    """A layer of a transformer."""
    if len(shape) != 3 or shape[-1] > 12:
        return attended(grower, x, shape)
    block = models.TransformerEncoderLayer(
        shape[-1],
        1,
        feedforward=5,
        dropout=0.0,
        norm_first=grower.choose.random() < 0.5,
        is_causal=grower.choose.random() < 0.5,
    )
    # The variance of a single element is 0.
    if shape[-1] < 2:
        return attended(grower, x, shape)
    return grower.block(block, x), shape


def normed(grower: Grower, x: Any, shape: Shape) -> Grown:
    """A layer whose weight is normalised."""
    width = grower.choose.randint(2, 5)
    layer = models.WeightNorm(models.Linear(width))
    return grower.block(layer, x), (*shape[:-1], width)


def experts(grower: Grower, x: Any, shape: Shape) -> Grown:
    if len(shape) != 2:
        return normed(grower, x, shape)
    block = models.MoE(3, k=3, dimension=4, activation="tanh", gated=grower.choose.random() < 0.5)
    return grower.block(block, x), shape


def batched(grower: Grower, x: Any, shape: Shape) -> Grown:
    """A model of one slice, computed for all slices of an axis."""
    if len(shape) < 2:
        return activated(grower, x, shape)
    axis = grower.choose.randrange(len(shape))
    inner = [size for at, size in enumerate(shape) if at != axis]
    body = Model()
    kind = grower.choose.choice(["layer", "row", "order", "loop", "product"])
    left = list(inner)
    if kind == "layer":
        body |= models.Linear(3, name="layer")(input="x", output="hidden")
        body |= models.Softmax()(input="hidden", output="y")
        left[-1] = 3
    elif kind == "row":
        body |= models.Max(axis=0, keepdim=True)(input="x", output="top")
        body |= models.Subtract()(left="x", right="top", output="y")
    elif kind == "order":
        body |= models.Sort(axis=0)(input="x", output="ordered")
        body |= models.Cumsum(axis=-1)(input="ordered", output="y")
    elif kind == "loop":
        step = Model()
        step |= models.Multiply()(left="h", right=0.5, output="half")
        step |= models.Add()(left="half", right="row", output="h_next")
        first = models.Mean(axis=0)
        body |= first(input="x", output="first")
        scan = models.Scan(step, carry={"h": "h_next"}, over=["row"], collect=["h_next"])
        body |= scan(h="first", row="x", h_next_sequence="y")
    else:
        body |= models.Einsum("...i,...j->...ij")(inputs=["x", "x"], output="outer")
        body |= models.Sum(axis=-1)(input="outer", output="y")
    own = grower.choose.random() < 0.5 and kind == "layer"
    block = models.Vmap(body, axis=axis, params=own)
    return made(grower, block, "y", x=x), (shape[axis], *left)


WAYS: Ways = [
    ordered,
    counted,
    segments,
    scattered,
    special,
    losses,
    classical,
    attended,
    encoded,
    normed,
    experts,
    batched,
    batched,
]


def grow(grower: Grower) -> None:
    grow_by(grower, WAYS)
