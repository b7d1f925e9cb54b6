"""Functions of torch and scikit-learn for the blocks, called with inputs and params in order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from own_transformers import OWN_TRANSFORMERS
from scipy import special
from sklearn import metrics

F = torch.nn.functional


def attention(x: Any, *params: Any) -> Any:
    """Attention with two heads, which share one head of keys and values."""
    w_query, w_key, w_value, w_output, b_query, b_key, b_value, b_output = params
    parts = (x @ w + b for w, b in [(w_query, b_query), (w_key, b_key), (w_value, b_value)])
    heads = (part.unflatten(-1, (-1, 2)).transpose(-3, -2) for part in parts)
    joined = F.scaled_dot_product_attention(*heads, enable_gqa=True)
    return joined.transpose(-3, -2).flatten(-2) @ w_output + b_output


def offsets(x: Any) -> Any:
    """The distances from each row to each row."""
    return torch.arange(x.shape[-2]) - torch.arange(x.shape[-2])[:, None]


def alibi(x: Any) -> Any:
    """The slopes of three heads: those of two, and the first of those of four."""
    slopes = torch.tensor([2.0**-4, 2.0**-8, 2.0**-2], dtype=x.dtype)
    return -slopes[:, None, None] * offsets(x).abs()


def relative_bias(x: Any, w: Any) -> Any:
    """T5's bias with 8 buckets up to a distance of 20."""
    relative = offsets(x)
    far = relative.abs().clamp(min=1).float()
    steps = (far / 2).log() / math.log(20 / 2) * 2
    large = (2 + steps.long()).clamp(max=3)
    bucket = torch.where(relative.abs() < 2, relative.abs(), large) + 4 * (relative > 0)
    # The gradient of the input is 0.
    return w[bucket].permute(2, 0, 1) + 0 * x.sum()


def mixture(x: Any, w_router: Any, w_in: Any, w_out: Any) -> Any:
    """Two of three experts for each token."""
    tokens = x.flatten(0, -2)
    logits = tokens @ w_router
    values, experts = logits.topk(2)
    every = torch.einsum("td,edf->tef", tokens, w_in).relu()
    every = torch.einsum("tef,efd->ted", every, w_out)
    own = every.take_along_dim(experts[..., None], 1)
    return (own * values.softmax(-1)[..., None]).sum(1).reshape(x.shape)


def least(x: Any) -> Any:
    """The five smallest distinct elements, padded with the smallest one."""
    values, places = torch.sort(x.flatten(), stable=True)
    first = torch.ones_like(values, dtype=torch.bool)
    first[1:] = values[1:] != values[:-1]
    own = x.flatten()[places[first]][:5]
    return torch.cat([own, own[:1].expand(5 - len(own))])


def score(function: Callable[..., Any]) -> Callable[..., Any]:
    """A scikit-learn metric in which all classes have equal weights."""
    return lambda x, y: torch.tensor(
        function(y, x.detach().argmax(-1), average="macro", zero_division=0), dtype=x.dtype
    )


def focal(x: Any, y: Any, alpha: float = 0.25, gamma: float = 2) -> Any:
    """torchvision's `sigmoid_focal_loss`."""
    p = torch.sigmoid(x)
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    loss = loss * (1 - (p * y + (1 - p) * (1 - y))) ** gamma
    return loss if alpha < 0 else (alpha * y + (1 - alpha) * (1 - y)) * loss


def cubes(x, size):
    """All cubes of this size in the last three axes."""
    return x.unfold(-3, size, 1).unfold(-3, size, 1).unfold(-3, size, 1)


def maxima(x, axis, size):
    """The maxima of `size` ranges of an axis, where ties share the gradient."""
    count = x.shape[axis]
    ranges = ((i * count // size, -(-(i + 1) * count // size)) for i in range(size))
    return torch.stack([x.narrow(axis, i, j - i).amax(axis) for i, j in ranges], axis)


class Digamma(torch.autograd.Function):
    """SciPy's derivative: torch's has few digits."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return torch.digamma(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * torch.tensor(special.polygamma(1, x.numpy()))


def segments(reduce: str, empty: float) -> Callable[..., Any]:
    """The reduced rows of each of four segments, and a number for those without rows."""

    def reduced(x: Any, ids: Any) -> Any:
        rows = x.new_full((4, *x.shape[1:]), empty)
        return rows.scatter_reduce(0, ids[:, None].expand(x.shape), x, reduce, include_self=False)

    return reduced


def cell(module: Any) -> Callable[..., Any]:
    """A cell of torch for a state of 0."""

    def function(x: Any, w: Any, u: Any, b: Any, *b_new: Any) -> Any:
        width = u.shape[0]
        zeros = torch.zeros_like(b)
        second = torch.cat([zeros[: 2 * width], *b_new]) if b_new else zeros
        own = {"weight_ih": w.T, "weight_hh": u.T, "bias_ih": b, "bias_hh": second}
        made = module(x.shape[-1], width, dtype=x.dtype)
        output = torch.func.functional_call(made, own, (x,))
        return output[0] if isinstance(output, tuple) else output

    return function


def network(module: Any) -> Callable[..., Any]:
    """A network of torch with one layer, whose params are in the order of their names."""

    def function(x: Any, b: Any, *rest: Any) -> Any:
        *b_new, u, w = rest
        width = u.shape[0]
        zeros = torch.zeros_like(b)
        second = torch.cat([zeros[: 2 * width], *b_new]) if b_new else zeros
        own = {"weight_ih": w.T, "weight_hh": u.T, "bias_ih": b, "bias_hh": second}
        made = module(x.shape[-1], width, batch_first=True, dtype=x.dtype)
        own = {f"{name}_l0": value for name, value in own.items()}
        return torch.func.functional_call(made, own, (x,))[0]

    return function


def reads(x: Any, b: Any, u: Any, w: Any) -> Any:
    """The last state of a plain cell that reads a sequence."""
    h = x.new_zeros(x.shape[0], u.shape[0])
    for part in x.unbind(1):
        h = torch.tanh(part @ w + b + h @ u)
    return h


def writes(x: Any, b: Any, u: Any, w: Any, h: Any = None) -> Any:
    """Three states of a plain cell, each of which reads the one before."""
    states = []
    for _ in range(3):
        x = h = torch.tanh(x @ w + b + (0 if h is None else h @ u))
        states.append(h)
    return torch.stack(states, 1)


def ctc(x: Any, y: Any) -> Any:
    """The loss of whole sequences; the blank is class 3. torch's own function, with which another
    test compares, is not accurate to 1e-12 for 1000 steps."""
    never, labels = -1e30, y.shape[1]
    states = torch.full((len(y), 2 * labels + 1), 3)
    states[:, 1::2] = y
    skips = torch.zeros_like(states, dtype=torch.bool)
    skips[:, 2:] = (states[:, 2:] != 3) & (states[:, 2:] != states[:, :-2])
    old = torch.full(states.shape, never, dtype=x.dtype)
    old[:, 0] = 0
    total = x.new_zeros(len(y))
    for scores in torch.log_softmax(x, -1).unbind(1):
        one = F.pad(old, (1, 0), value=never)[:, :-1]
        two = torch.where(skips, F.pad(old, (2, 0), value=never)[:, :-2], never)
        new = torch.stack([old, one, two]).logsumexp(0) + scores.gather(1, states)
        greatest = new.detach().amax(1, keepdim=True)
        old, total = new - greatest, total + greatest[:, 0]
    total = total + old[:, -2:].logsumexp(1)
    return torch.where(total < never / 2, 0.0, -total)


def quantile(x: Any, q: float) -> Any:
    """torch's quantile over the last axis, with the gradient of the first of equal elements."""
    place = q * (x.shape[-1] - 1)
    ordered = torch.sort(x, dim=-1, stable=True).values
    low, high = ordered[..., math.floor(place)], ordered[..., math.ceil(place)]
    found = low + (high - low) * (place % 1)
    assert torch.allclose(found, torch.quantile(x, q, -1), rtol=1e-12)
    return found


def products(x: Any) -> Any:
    """The features, and the products of two of them."""
    rows, columns = torch.triu_indices(x.shape[-1], x.shape[-1])
    return torch.cat([x, x[..., rows] * x[..., columns]], -1)


def stress(x: Any, y: Any) -> Any:
    return torch.linalg.norm(x - y) / torch.linalg.norm(x)


def distances(x: Any, y: Any) -> Any:
    """The distances of rows, not by a product of matrices, which loses digits."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def embedded(given: Any, coords: Any) -> Any:
    return stress(given, distances(coords, coords))


def grown(x: Any) -> Any:
    steps = 0
    while x < 3.0 and steps < 12:
        x, steps = x * 1.5, steps + 1
    return x


def likelihood(covariance: Any, label: Any) -> Any:
    """The negative logarithm of the likelihood of labels."""
    own = torch.distributions.MultivariateNormal(torch.zeros_like(label), covariance)
    return -own.log_prob(label)


def predict(kernel: Any, cross: Any, own: Any, label: Any, noise: Any) -> Any:
    """The mean, the variance and the loss of a Gaussian process."""
    covariance = kernel + noise**2 * torch.eye(len(kernel), dtype=kernel.dtype)
    # Its gradient is symmetric.
    factor = torch.linalg.cholesky(covariance)
    explained = cross @ torch.cholesky_solve(cross.T, factor)
    variance = (own - explained).diagonal().clamp(min=0)
    mean = cross @ torch.cholesky_solve(label[:, None], factor)[:, 0]
    return mean, variance, likelihood(covariance, label)


def regress(x: Any, samples: Any, label: Any, *params: Any) -> Any:
    """A Gaussian process with a kernel of radial basis functions."""
    noise, length, sigma = params

    def kernel(x: Any, y: Any) -> Any:
        return sigma**2 * torch.exp(-((x[:, None] - y) ** 2).sum(-1) / (2 * length**2))

    return predict(kernel(samples, samples), kernel(x, samples), kernel(x, x), label, noise)


def adaptive(x: Any, y: Any, *weights: Any) -> Any:
    """The loss of six classes, of which the second one and the last four are clusters."""
    w_head, first, second, w_out_0, w_out_1 = weights
    head = torch.log_softmax(x @ w_head, -1)
    tails = [torch.log_softmax(x @ a @ b, -1) for a, b in [(first, w_out_0), (second, w_out_1)]]
    parts = [head[:, :1], *(head[:, 1 + i, None] + tail for i, tail in enumerate(tails))]
    return -torch.cat(parts, -1).gather(-1, y[:, None])[:, 0]


def grouped(left: Any, right: Any, ends: Any) -> Any:
    """The product of each row with the matrix of the first group that ends after it."""
    own = (torch.arange(len(left))[:, None] >= ends).sum(-1)
    inside = (own < len(right))[:, None]
    products = (left[:, :, None] * right[own.clamp(max=len(right) - 1)]).sum(1)
    return torch.where(inside, products, torch.zeros_like(products))


OWN: dict[str, Callable[..., Any]] = {
    **OWN_TRANSFORMERS,
    "GaussianProcessLoss": likelihood,
    "GaussianProcessCore": predict,
    "GaussianProcessRegression": regress,
    "CTC": ctc,
    "ManyToOne": reads,
    "OneToMany": writes,
    "EncoderDecoder": lambda x, start, *p: writes(start, *p[:3], h=reads(x, *p[3:])),
    "RNNCell": cell(torch.nn.RNNCell),
    "LSTMCell": cell(torch.nn.LSTMCell),
    "GRUCell": cell(torch.nn.GRUCell),
    "RNN": network(torch.nn.RNN),
    "LSTM": network(torch.nn.LSTM),
    "GRU": network(torch.nn.GRU),
    "Scan": lambda first, x: first * x.prod(0),
    "Map": lambda x, y: x * y[:, None],
    "Vmap": lambda x, y: x.transpose(0, 1) * y.T[:, None],
    "While": grown,
    "Cond": lambda condition, x: torch.where(condition, x * x, -x),
    "Relu": torch.relu,
    "Relu6": F.relu6,
    "Hardtanh": F.hardtanh,
    "Celu": F.celu,
    "Hardshrink": F.hardshrink,
    "Softshrink": F.softshrink,
    "Tanhshrink": F.tanhshrink,
    "Threshold": lambda x: F.threshold(x, 0.5, 0.25),
    "LogSigmoid": F.logsigmoid,
    "Softmin": lambda x: F.softmin(x, -1),
    "Glu": F.glu,
    "PRelu": F.prelu,
    "CosineSimilarity": F.cosine_similarity,
    "PairwiseDistance": F.pairwise_distance,
    "Normalize": F.normalize,
    "Bilinear": F.bilinear,
    "ChannelShuffle": lambda x: F.channel_shuffle(x, 2),
    "Unflatten": lambda x: x.unflatten(1, (2, -1)),
    # torch gives the target no gradient, where zeros are meant.
    "HingeEmbedding": lambda x, y: F.hinge_embedding_loss(x, y, reduction="none") + 0 * y,
    "MultiMargin": lambda x, y: F.multi_margin_loss(x, y, reduction="none"),
    "MultiLabelMargin": lambda x, y: F.multilabel_margin_loss(x, y, reduction="none"),
    "MultiLabelSoftMargin": lambda x, y: F.multilabel_soft_margin_loss(x, y, reduction="none"),
    "LinearCrossEntropy": lambda x, y, w: F.cross_entropy(x @ w, y, reduction="none"),
    "AdaptiveLogSoftmax": adaptive,
    "TripletMarginWithDistance": lambda x, y, z: F.triplet_margin_with_distance_loss(
        x, y, z, reduction="none"
    ),
    "Pdist": torch.pdist,
    "LeakyRelu": F.leaky_relu,
    "Elu": F.elu,
    "Selu": F.selu,
    "Gelu": F.gelu,
    "Silu": F.silu,
    "Mish": F.mish,
    "Hardswish": F.hardswish,
    "Sigmoid": torch.sigmoid,
    # The gradient of torch's own function divides by six in single precision.
    "HardSigmoid": lambda x: F.relu6(x + 3) / 6,
    "Softplus": lambda x: torch.log1p(torch.exp(x)),
    "Softsign": F.softsign,
    "Tanh": torch.tanh,
    "Square": torch.square,
    "Sqrt": torch.sqrt,
    "Exponential": torch.exp,
    "Log": torch.log,
    "Log1p": torch.log1p,
    "Expm1": torch.expm1,
    "Absolute": torch.abs,
    "Reciprocal": torch.reciprocal,
    "Sine": torch.sin,
    "Cosine": torch.cos,
    "Tan": torch.tan,
    "Asin": torch.asin,
    "Acos": torch.acos,
    "Atan": torch.atan,
    "Sinh": torch.sinh,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Lgamma": torch.lgamma,
    "Digamma": Digamma.apply,
    "Erfinv": torch.erfinv,
    "I0": torch.i0,
    "Sinc": torch.sinc,
    "Logit": torch.logit,
    "Xlogy": torch.xlogy,
    "SegmentSum": segments("sum", 0),
    "SegmentMean": segments("mean", 0),
    "SegmentMax": segments("amax", -torch.inf),
    "Cholesky": torch.linalg.cholesky,
    "TriangularSolve": lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
    "Solve": torch.linalg.solve,
    "Inverse": torch.linalg.inv,
    "Det": torch.linalg.det,
    "LogDet": torch.logdet,
    "MatrixPower": lambda x: torch.linalg.matrix_power(x, -3),
    "QR": lambda x: tuple(torch.linalg.qr(x)),
    "Eigvalsh": torch.linalg.eigvalsh,
    "TakeAlongAxis": lambda x, i: torch.take_along_dim(x, i, 0),
    "ScatterReduce": lambda x, i, y: torch.scatter_reduce(x, 0, i, y, "sum"),
    "Quantile": lambda x: quantile(x, 0.3),
    "Median": lambda x: torch.median(x, 0).values,
    "SearchSorted": lambda x, y: torch.searchsorted(y, x),
    "Bucketize": torch.bucketize,
    "Histogram": lambda x: torch.histc(x, 4, 0, 1).long(),
    "FFT": lambda x: torch.fft.fft(x).real,
    "InverseFFT": lambda x: torch.fft.ifft(x).real,
    "RealFFT": lambda x: torch.fft.rfft(x).real,
    "InverseRealFFT": torch.fft.irfft,
    "Add": torch.add,
    "Subtract": torch.sub,
    "Multiply": torch.mul,
    "Divide": torch.div,
    "Power": torch.pow,
    "Atan2": torch.atan2,
    "Minimum": torch.minimum,
    "Maximum": torch.maximum,
    "MatrixMultiply": torch.matmul,
    "Sum": torch.sum,
    "Mean": torch.mean,
    "LossMean": lambda x, y: x.sum() / torch.where(y.sum() == 0, 1.0, y.sum()),
    "Max": torch.amax,
    "Min": torch.amin,
    "Prod": torch.prod,
    "Variance": lambda x: torch.var(x, correction=0),
    "Std": lambda x: torch.std(x, correction=0),
    "LogSumExp": lambda x: torch.logsumexp(x, tuple(range(x.ndim))),
    "Cumsum": lambda x: torch.cumsum(x, -1),
    "Cumprod": lambda x: torch.cumprod(x, -1),
    "Unique": least,
    "Flip": lambda x: torch.flip(x, (1,)),
    "Roll": lambda x: torch.roll(x, 1, -1),
    "Tile": lambda x: torch.tile(x, (2, 3)),
    "Repeat": lambda x: torch.repeat_interleave(x, 2, 1),
    "Tril": torch.tril,
    "Triu": torch.triu,
    "Softmax": lambda x: torch.softmax(x, -1),
    "LogSoftmax": lambda x: torch.log_softmax(x, -1),
    "ScaledDotProduct": F.scaled_dot_product_attention,
    "Einsum": lambda x, y: torch.einsum("ij,jk->ik", x, y),
    "SquaredError": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "AbsoluteError": lambda x, y: F.l1_loss(x, y, reduction="none"),
    "Huber": lambda x, y: F.huber_loss(x, y, reduction="none"),
    "CrossEntropy": lambda x, y: F.cross_entropy(x, y, reduction="none"),
    "BinaryCrossEntropy": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "Sign": torch.sign,
    "Negate": torch.neg,
    "Buffer": torch.clone,
    "StopGradient": torch.detach,
    "Shard": torch.clone,
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Round": torch.round,
    "IsNan": torch.isnan,
    "IsInf": torch.isinf,
    "NanToNum": torch.nan_to_num,
    "LogicalNot": torch.logical_not,
    "BitwiseNot": torch.bitwise_not,
    "Cast": torch.Tensor.float,
    # torch's own clamp has a gradient of 0 at the bounds.
    "Clamp": lambda x: torch.where((x < 0.25) | (x > 0.625), x.detach().clamp(0.25, 0.625), x),
    "FloorDivide": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "Modulo": torch.remainder,
    "Equal": torch.eq,
    "NotEqual": torch.ne,
    "Greater": torch.gt,
    "GreaterEqual": torch.ge,
    "Less": torch.lt,
    "LessEqual": torch.le,
    "LogicalAnd": torch.logical_and,
    "LogicalOr": torch.logical_or,
    "LogicalXor": torch.logical_xor,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "ShiftLeft": torch.bitwise_left_shift,
    "ShiftRight": torch.bitwise_right_shift,
    "Where": torch.where,
    "Norm": torch.linalg.vector_norm,
    "ArgMax": torch.argmax,
    "ArgMin": torch.argmin,
    "Any": lambda x: torch.any(x, 0),
    "All": lambda x: torch.all(x, -1),
    "Reshape": lambda x: torch.reshape(x, (2, -1)),
    "Flatten": torch.flatten,
    "Transpose": torch.t,
    "SwapAxes": lambda x: torch.swapaxes(x, 0, -1),
    "PermuteTensor": lambda x: torch.permute(x, (2, 0, 1)),
    "Squeeze": lambda x: torch.squeeze(x, 1),
    "ExpandDims": lambda x: torch.unsqueeze(x, 1),
    "BroadcastTo": lambda x: torch.broadcast_to(x, (3, 4)),
    "Concat": lambda *xs: torch.cat(xs, -1),
    "Stack": lambda *xs: torch.stack(xs),
    "Split": lambda x: torch.chunk(x, 2, -1),
    "Pad": lambda x: F.pad(x, (0, 1, 1, 2)),
    "Slice": lambda x: x[1:],
    "Indexer": lambda x: torch.select(x, 0, 1),
    "Gather": lambda x, i: torch.index_select(x, 0, i),
    "Scatter": lambda x, i, y: torch.index_add(x, 0, i, y),
    "Sort": lambda x: torch.sort(x, stable=True).values,
    "ArgSort": lambda x: torch.argsort(x, stable=True),
    "TopK": lambda x: torch.sort(x, descending=True, stable=True).values.narrow(-1, 0, 2),
    "OneHot": lambda x: F.one_hot(x, 4).double(),
    "Diagonal": torch.diagonal,
    "Shape": lambda x: torch.tensor(x.shape),
    "Size": lambda x: torch.tensor(x.numel()),
    "Length": lambda x: torch.tensor(len(x)),
    "Arange": lambda: torch.arange(5),
    "Linspace": lambda: torch.linspace(0, 1, 5, dtype=torch.float64),
    "Eye": lambda: torch.eye(3, dtype=torch.float64),
    "Ones": lambda: torch.ones(2, 3, dtype=torch.float64),
    "Zeros": lambda: torch.zeros(2, 3, dtype=torch.float64),
    "Full": lambda: torch.full((2, 3), 1.5, dtype=torch.float64),
    "ZerosLike": torch.zeros_like,
    "OnesLike": torch.ones_like,
    "Linear": lambda x, w, b: F.linear(x, w.T, b),
    "Embedding": F.embedding,
    "EmbeddingBag": F.embedding_bag,
    "LayerNorm": lambda x, w, b: F.layer_norm(x, w.shape, w, b),
    "RMSNorm": lambda x, w: F.rms_norm(x, w.shape, w, 1e-5),
    "Conv1d": lambda x, w, b: F.conv1d(x, w, b, padding=1, groups=2),
    "Conv2d": lambda x, w, b: F.conv2d(x, w, b, padding=1),
    "Conv3d": lambda x, w, b: F.conv3d(x, w, b, padding=1),
    "ConvTranspose1d": lambda x, w, b: F.conv_transpose1d(x, w, b, 2, groups=2),
    "ConvTranspose2d": lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1),
    "ConvTranspose3d": F.conv_transpose3d,
    "MaxPool1d": lambda x: x.unfold(-1, 2, 2).amax(-1),
    "MaxPool2d": lambda x: x.unfold(-2, 2, 2).unfold(-2, 3, 3).amax((-1, -2)),
    "MaxPool3d": lambda x: cubes(F.pad(x, (1,) * 6, value=-torch.inf), 3).amax((-1, -2, -3)),
    "AvgPool1d": lambda x: F.avg_pool1d(x, 2),
    "AvgPool2d": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    "AvgPool3d": lambda x: F.avg_pool3d(F.pad(x, (1,) * 6), 3, 1),
    "LpPool": lambda x: F.lp_pool2d(x, 3, (2, 1)),
    "GlobalAvgPool": lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1),
    "GlobalMaxPool": lambda x: x.amax((2, 3)),
    "FractionalMaxPool2d": lambda x, s: (
        F.fractional_max_pool2d(x, 2, 3, _random_samples=s.detach()) + 0 * s.sum()
    ),
    "FractionalMaxPool3d": lambda x, s: (
        F.fractional_max_pool3d(x, 2, 2, _random_samples=s.detach()) + 0 * s.sum()
    ),
    "AdaptiveAvgPool": lambda x: F.adaptive_avg_pool2d(x, (4, 2)),
    "AdaptiveMaxPool": lambda x: maxima(maxima(x, -2, 4), -1, 2),
    "ReflectionPad": lambda x: F.pad(x, (0, 3, 1, 2), "reflect"),
    "ReplicationPad": lambda x: F.pad(x, (0, 3, 1, 2), "replicate"),
    "CircularPad": lambda x: F.pad(x, (0, 3, 1, 2), "circular"),
    "PixelShuffle": lambda x: F.pixel_shuffle(x, 2),
    "PixelUnshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "Unfold": lambda x: F.unfold(x, (2, 3), padding=1, stride=2),
    "Fold": lambda x: F.fold(x, (5, 4), 2),
    "Upsample": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "GridSample": lambda x, g: F.grid_sample(x, g, align_corners=False),
    "AffineGrid": lambda x: F.affine_grid(x, [len(x), 1, 4, 7], align_corners=False),
    "BatchNorm1d": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "BatchNorm2d": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "BatchNorm3d": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "GroupNorm": lambda x, w, b: F.group_norm(x, 2, w, b),
    "InstanceNorm": lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    "LocalResponseNorm": lambda x: F.local_response_norm(x, 3, 2.0),
    "ElementWiseAffine": lambda x, w, b: torch.addcmul(b, x, w),
    "MultiHeadAttention": attention,
    "AlibiBias": alibi,
    "RelativePositionBias": relative_bias,
    "Layer": lambda x, b, w: torch.relu(F.linear(x, w.T, b)),
    "MLP": lambda x, c, v, d, w: F.linear(torch.tanh(F.linear(x, v.T, c)), w.T, d),
    "Sequential": lambda x: torch.sigmoid(torch.relu(x)),
    "Residual": lambda x: x + torch.tanh(x),
    "MoE": mixture,
    "GroupedMatrixMultiply": grouped,
    "SpectralNorm": lambda x, b, w: x @ (w / torch.linalg.matrix_norm(w, 2)) + b,
    "WeightNorm": lambda x, b, g, v: x @ (g * v / v.norm(dim=0, keepdim=True)) + b,
    "HingeLoss": lambda x, y: torch.relu(1 - x * y),
    "QuadHingeLoss": lambda x, y: torch.relu(1 - x * y) ** 2,
    "KLDivergence": lambda x, y: F.kl_div(x.log(), y, reduction="none"),
    "CosineEmbedding": lambda x, y: F.cosine_embedding_loss(
        x, y, torch.ones(len(x)), reduction="none"
    ),
    "NegativeLogLikelihood": lambda x, y: F.nll_loss(x, y, reduction="none"),
    "PoissonNLL": lambda x, y: F.poisson_nll_loss(x, y, reduction="none"),
    "GaussianNLL": lambda x, y, v: F.gaussian_nll_loss(x, y, v, reduction="none"),
    "SoftMargin": lambda x, y: F.softplus(-x * y),
    "MarginRanking": lambda x, y, t: F.margin_ranking_loss(x, y, t, reduction="none"),
    "TripletMargin": lambda x, y, z: F.triplet_margin_loss(x, y, z, reduction="none"),
    "FocalLoss": focal,
    "Dice": lambda x, y: 1 - (2 * (x * y).sum(-1) + 1) / ((x + y).sum(-1) + 1),
    "L1": lambda x: torch.linalg.vector_norm(x, 1),
    "L2": lambda x: F.mse_loss(x, torch.zeros_like(x), reduction="sum") / 2,
    "QuadraticForm": lambda x, w: torch.einsum("bi,ij,bj->", x, w, x) / 2,
    "CartesianDifference": lambda x, y: x[:, None] - y,
    "DistanceMatrix": distances,
    "NormModifier": lambda x: 5 - ((x - 1) % 8 - 4).abs(),
    "TransposedDiagonal": lambda x: torch.diagonal(x)[:, None],
    "EyeComplement": lambda: 1 - torch.eye(3, dtype=torch.float64),
    "RBFKernel": lambda x, y, width, s: s**2 * torch.exp(-(distances(x, y) ** 2) / 2 / width**2),
    "PolynomialKernel": lambda x, y, c: (x @ y.T + c) ** 3,
    "LinearSVM": lambda x, b, w: x @ w + b,
    "LogisticRegression": lambda x, b, w: x @ w + b,
    "PolynomialFeatures": products,
    "PolynomialRegression": lambda x, b, w: products(x) @ w + b,
    "MDSCore": stress,
    "MDS": embedded,
    "Accuracy": lambda x, y: (x.argmax(-1) == y).double().mean(),
    "Precision": score(metrics.precision_score),
    "Recall": score(metrics.recall_score),
    "F1": score(metrics.f1_score),
    "AUC": lambda x, y: torch.tensor(metrics.roc_auc_score(y, x.detach()), dtype=torch.float64),
}
# Other libraries do not have these blocks, or draw other random numbers.
ALONE = {
    # Signs of vectors are arbitrary.
    "Eigh",
    "SVD",
    "StableReciprocal",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "AlphaDropout",
    "FeatureAlphaDropout",
    "RRelu",
    "GumbelSoftmax",
    # torch takes indices of distinct elements only.
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "Randn",
    "RandUniform",
    "RandInt",
    "Bernoulli",
    "Categorical",
    "RotaryEmbedding",
    "PositionalEncoding",
    "QuantileLoss",
    "EncoderDistanceMatrix",
    "KernelizedSVM",
    "TSNECore",
    "TSNE",
}
