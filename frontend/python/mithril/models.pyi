# Generated from the block table: `make bless` regenerates it.

import typing
from collections.abc import Callable, Mapping, Sequence

from ._core import Block as Block
from ._core import Connection as Connection
from ._core import IOKey as IOKey
from ._core import Model as Model
from ._core import TrainModel as TrainModel

__all__ = [
    "Block",
    "Connection",
    "IOKey",
    "Model",
    "TrainModel",
    "Relu",
    "LeakyRelu",
    "Elu",
    "Selu",
    "Gelu",
    "Silu",
    "Mish",
    "Hardswish",
    "Sigmoid",
    "HardSigmoid",
    "Softplus",
    "Softsign",
    "Tanh",
    "Relu6",
    "Hardtanh",
    "Celu",
    "Hardshrink",
    "Softshrink",
    "Tanhshrink",
    "Threshold",
    "LogSigmoid",
    "Softmin",
    "Glu",
    "PRelu",
    "RRelu",
    "GumbelSoftmax",
    "Sign",
    "Square",
    "Sqrt",
    "Exponential",
    "Log",
    "Log1p",
    "Expm1",
    "Absolute",
    "Negate",
    "Reciprocal",
    "StableReciprocal",
    "Buffer",
    "Sine",
    "Cosine",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Erf",
    "Floor",
    "Ceil",
    "Round",
    "IsNan",
    "IsInf",
    "NanToNum",
    "LogicalNot",
    "BitwiseNot",
    "Cast",
    "Clamp",
    "StopGradient",
    "Shard",
    "Lgamma",
    "Digamma",
    "Erfinv",
    "I0",
    "Sinc",
    "Logit",
    "Xlogy",
    "Add",
    "Subtract",
    "Multiply",
    "Divide",
    "FloorDivide",
    "Modulo",
    "Power",
    "Atan2",
    "Minimum",
    "Maximum",
    "MatrixMultiply",
    "Equal",
    "NotEqual",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "LogicalAnd",
    "LogicalOr",
    "LogicalXor",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "ShiftLeft",
    "ShiftRight",
    "Where",
    "Sum",
    "Mean",
    "Max",
    "Min",
    "Prod",
    "Variance",
    "Std",
    "Norm",
    "LogSumExp",
    "ArgMax",
    "ArgMin",
    "Any",
    "All",
    "Cumsum",
    "Cumprod",
    "LossMean",
    "Reshape",
    "Flatten",
    "Transpose",
    "SwapAxes",
    "PermuteTensor",
    "Squeeze",
    "ExpandDims",
    "BroadcastTo",
    "Concat",
    "Stack",
    "Split",
    "Pad",
    "Tile",
    "Repeat",
    "Flip",
    "Roll",
    "Slice",
    "Indexer",
    "Gather",
    "Scatter",
    "Sort",
    "ArgSort",
    "TopK",
    "Unique",
    "OneHot",
    "Tril",
    "Triu",
    "Diagonal",
    "Shape",
    "Size",
    "Length",
    "SegmentSum",
    "SegmentMean",
    "SegmentMax",
    "TakeAlongAxis",
    "ScatterReduce",
    "Quantile",
    "Median",
    "SearchSorted",
    "Bucketize",
    "Histogram",
    "Arange",
    "Linspace",
    "Eye",
    "Ones",
    "Zeros",
    "Full",
    "ZerosLike",
    "OnesLike",
    "Einsum",
    "GroupedMatrixMultiply",
    "FFT",
    "InverseFFT",
    "RealFFT",
    "InverseRealFFT",
    "Cholesky",
    "TriangularSolve",
    "Solve",
    "Inverse",
    "Det",
    "LogDet",
    "MatrixPower",
    "QR",
    "Eigh",
    "Eigvalsh",
    "SVD",
    "Randn",
    "RandUniform",
    "RandInt",
    "Bernoulli",
    "Categorical",
    "Linear",
    "LayerNorm",
    "RMSNorm",
    "ElementWiseAffine",
    "Softmax",
    "LogSoftmax",
    "Embedding",
    "EmbeddingBag",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm",
    "LocalResponseNorm",
    "CosineSimilarity",
    "PairwiseDistance",
    "Pdist",
    "Normalize",
    "Bilinear",
    "ChannelShuffle",
    "Unflatten",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "AlphaDropout",
    "FeatureAlphaDropout",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "LpPool",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "ReflectionPad",
    "ReplicationPad",
    "CircularPad",
    "PixelShuffle",
    "PixelUnshuffle",
    "Unfold",
    "Fold",
    "Upsample",
    "GridSample",
    "AffineGrid",
    "ScaledDotProduct",
    "MultiHeadAttention",
    "RotaryEmbedding",
    "PositionalEncoding",
    "AlibiBias",
    "RelativePositionBias",
    "Layer",
    "MLP",
    "Sequential",
    "Residual",
    "TransformerEncoderLayer",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerDecoder",
    "Transformer",
    "MoE",
    "SpectralNorm",
    "WeightNorm",
    "RNNCell",
    "LSTMCell",
    "GRUCell",
    "RNN",
    "LSTM",
    "GRU",
    "ManyToOne",
    "OneToMany",
    "EncoderDecoder",
    "Scan",
    "Map",
    "Vmap",
    "While",
    "Cond",
    "CartesianDifference",
    "DistanceMatrix",
    "EncoderDistanceMatrix",
    "NormModifier",
    "TransposedDiagonal",
    "EyeComplement",
    "RBFKernel",
    "PolynomialKernel",
    "KernelizedSVM",
    "LinearSVM",
    "LogisticRegression",
    "PolynomialFeatures",
    "PolynomialRegression",
    "GaussianProcessCore",
    "GaussianProcessRegression",
    "MDSCore",
    "MDS",
    "TSNECore",
    "TSNE",
    "SquaredError",
    "AbsoluteError",
    "Huber",
    "LogCosh",
    "HingeLoss",
    "QuadHingeLoss",
    "QuantileLoss",
    "CrossEntropy",
    "BinaryCrossEntropy",
    "KLDivergence",
    "CosineEmbedding",
    "NegativeLogLikelihood",
    "PoissonNLL",
    "GaussianNLL",
    "SoftMargin",
    "MarginRanking",
    "TripletMargin",
    "FocalLoss",
    "Dice",
    "HingeEmbedding",
    "MultiMargin",
    "MultiLabelSoftMargin",
    "MultiLabelMargin",
    "LinearCrossEntropy",
    "AdaptiveLogSoftmax",
    "TripletMarginWithDistance",
    "CTC",
    "GaussianProcessLoss",
    "L1",
    "L2",
    "QuadraticForm",
    "Accuracy",
    "Precision",
    "Recall",
    "F1",
    "AUC",
]

class Relu(Block):
    """The positive part, `max(input, 0)`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LeakyRelu(Block):
    """`input` where positive, `slope * input` elsewhere."""

    def __init__(
        self,
        slope: float = 0.01,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Elu(Block):
    """`input` where positive, `alpha * (exp(input) - 1)` elsewhere."""

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Selu(Block):
    """The self-normalizing `elu` (Klambauer et al. 2017, eq. 2)."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Gelu(Block):
    """`input * P(X <= input)` for a standard normal X (Hendrycks & Gimpel 2016); `approximate` uses its tanh approximation."""

    def __init__(
        self,
        approximate: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Silu(Block):
    """`input * sigmoid(input)`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Mish(Block):
    """`input * tanh(softplus(input))` (Misra 2019)."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Hardswish(Block):
    """`input * min(max(input + 3, 0), 6) / 6` (Howard et al. 2019)."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Sigmoid(Block):
    """The logistic function `1 / (1 + exp(-input))`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class HardSigmoid(Block):
    """`min(max(input + 3, 0), 6) / 6`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Softplus(Block):
    """`log(1 + exp(beta * input)) / beta`."""

    def __init__(
        self,
        beta: float = 1.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Softsign(Block):
    """`input / (1 + |input|)`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Tanh(Block):
    """The hyperbolic tangent."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Relu6(Block):
    """`Relu`, but at most 6."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Hardtanh(Block):
    """`input` between `min` and `max`. The gradient at the bounds is 0; that of `Clamp` is 1."""

    def __init__(
        self,
        min: float = -1.0,
        max: float = 1.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Celu(Block):
    """`input` above 0, `alpha (exp(input / alpha) - 1)` below: an `Elu` whose slope at 0 is 1 for each `alpha`."""

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Hardshrink(Block):
    """0 where the magnitude is at most `lambd`, else `input`."""

    def __init__(
        self,
        lambd: float = 0.5,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Softshrink(Block):
    """`input`, moved towards 0 by `lambd`; 0 where the magnitude is less."""

    def __init__(
        self,
        lambd: float = 0.5,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Tanhshrink(Block):
    """`input - tanh(input)`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Threshold(Block):
    """`input` above `threshold`, else `value`."""

    def __init__(
        self,
        threshold: float,
        value: float,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LogSigmoid(Block):
    """The logarithm of `Sigmoid`, computed so that it does not overflow."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Softmin(Block):
    """The `Softmax` of the negated input."""

    def __init__(
        self,
        axis: int = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Glu(Block):
    """The first half of `input` along `axis`, times the `Sigmoid` of the second half."""

    def __init__(
        self,
        axis: int = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class PRelu(Block):
    """`input` above 0, `a * input` below, with a learned slope `a` that starts at 0.25, or as given by `init`."""

    def __init__(
        self,
        per_channel: bool = False,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class RRelu(Block):
    """`input` above 0; below it is multiplied by a slope that is drawn for each element, uniform between `lower` and `upper`. In inference, the slope is their mean."""

    def __init__(
        self,
        lower: float = 0.125,
        upper: float = 0.3333333333333333,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class GumbelSoftmax(Block):
    """A draw of a category, as a vector that sums to 1 and is differentiable: `softmax((input + g) / tau)` for Gumbel noise g."""

    def __init__(
        self,
        tau: float = 1.0,
        hard: bool = False,
        axis: int = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Sign(Block):
    """-1, 0 or 1, as `input` is negative, 0 or positive; NaN if `input` is NaN."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Square(Block):
    """`input * input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Sqrt(Block):
    """The square root. `robust` uses the magnitude and keeps the gradient finite."""

    def __init__(
        self,
        robust: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Exponential(Block):
    """e to the power `input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Log(Block):
    """The natural logarithm. `robust` uses the magnitude and stays finite at 0."""

    def __init__(
        self,
        robust: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Log1p(Block):
    """`log(1 + input)`, precise near 0."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Expm1(Block):
    """`exp(input) - 1`, precise near 0."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Absolute(Block):
    """The absolute value."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Negate(Block):
    """`-input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Reciprocal(Block):
    """`1 / input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class StableReciprocal(Block):
    """`1 / input`, continued by a line near 0, so that it stays finite."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Buffer(Block):
    """`input` itself."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Sine(Block):
    """The sine of an angle in radians."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Cosine(Block):
    """The cosine of an angle in radians."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Tan(Block):
    """The tangent of an angle in radians."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Asin(Block):
    """The angle from -pi/2 to pi/2 whose sine is `input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Acos(Block):
    """The angle from 0 to pi whose cosine is `input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Atan(Block):
    """The angle from -pi/2 to pi/2 whose tangent is `input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Sinh(Block):
    """The hyperbolic sine."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Cosh(Block):
    """The hyperbolic cosine."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Erf(Block):
    """The error function."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Floor(Block):
    """The largest integer that is at most `input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Ceil(Block):
    """The smallest integer that is at least `input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Round(Block):
    """The nearest integer; halves round to even."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class IsNan(Block):
    """Whether `input` is NaN."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class IsInf(Block):
    """Whether `input` is infinite."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class NanToNum(Block):
    """`input` with numbers in place of NaN and infinities."""

    def __init__(
        self,
        nan: float = 0.0,
        posinf: float | None = None,
        neginf: float | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LogicalNot(Block):
    """Logical not of bools, bitwise not of integers."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class BitwiseNot(Block):
    """Logical not of bools, bitwise not of integers."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Cast(Block):
    """The input converted to another dtype."""

    def __init__(
        self,
        dtype: object,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Clamp(Block):
    """`input` limited to the range from `min` to `max`."""

    def __init__(
        self,
        min: float | None = None,
        max: float | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class StopGradient(Block):
    """`input` itself, treated as a constant in differentiation."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Shard(Block):
    """`input` itself, divided over the backend's device mesh. Without a mesh it has no effect."""

    def __init__(
        self,
        tensor_split: Sequence[int | None] | Mapping[str, int | None],
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Lgamma(Block):
    """The logarithm of the magnitude of the gamma function. Its gradient is `Digamma`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Digamma(Block):
    """The derivative of `Lgamma`: infinite at 0, and NaN at negative integers."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Erfinv(Block):
    """The inverse of the error function: infinite at -1 and 1, and NaN beyond."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class I0(Block):
    """The modified Bessel function of the first kind of order 0."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Sinc(Block):
    """`sin(pi input) / (pi input)`, and 1 at 0."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Logit(Block):
    """`log(input / (1 - input))`, the inverse of `Sigmoid`: infinite at 0 and 1, and NaN beyond."""

    def __init__(
        self,
        eps: float | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Xlogy(Block):
    """`left * log(right)`, and 0 where `left` is 0, unless `right` is NaN. There the gradient of `right` is 0."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Add(Block):
    """The sum `left + right`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Subtract(Block):
    """The difference `left - right`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Multiply(Block):
    """The product `left * right`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Divide(Block):
    """The quotient `numerator / denominator` of floats."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class FloorDivide(Block):
    """The quotient rounded towards minus infinity."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Modulo(Block):
    """The remainder of `floor_div`, with the sign of `denominator`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Power(Block):
    """`base` to the power `exponent`. `robust` uses the magnitude of the base, and continues powers of floats by a line near 0."""

    def __init__(
        self,
        robust: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Atan2(Block):
    """The angle of the point (`right`, `left`), in radians from -pi to pi."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Minimum(Block):
    """The smaller of two numbers; NaN if either is NaN."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Maximum(Block):
    """The larger of two numbers; NaN if either is NaN."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MatrixMultiply(Block):
    """The matrix product with NumPy's broadcasting of leading axes."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Equal(Block):
    """Whether `left` equals `right`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class NotEqual(Block):
    """Whether `left` differs from `right`; true if either is NaN."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Greater(Block):
    """Whether `left` is greater than `right`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class GreaterEqual(Block):
    """Whether `left` is at least `right`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Less(Block):
    """Whether `left` is less than `right`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LessEqual(Block):
    """Whether `left` is at most `right`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LogicalAnd(Block):
    """Logical and of bools, bitwise and of integers."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LogicalOr(Block):
    """Logical or of bools, bitwise or of integers."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LogicalXor(Block):
    """Logical exclusive or of bools, bitwise exclusive or of integers."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class BitwiseAnd(Block):
    """Logical and of bools, bitwise and of integers."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class BitwiseOr(Block):
    """Logical or of bools, bitwise or of integers."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class BitwiseXor(Block):
    """Logical exclusive or of bools, bitwise exclusive or of integers."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class ShiftLeft(Block):
    """`left` shifted left by `right` bits; zeros are shifted in."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class ShiftRight(Block):
    """`left` shifted right by `right` bits; copies of the sign bit are shifted in (zeros if unsigned)."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Where(Block):
    """`input1` where `cond` holds, `input2` elsewhere."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Sum(Block):
    """The sum over `axis` (all if omitted). Each step rounds to `acc`, which is the dtype of `input` or a wider one. By default it is f32 for f16 and bf16 and f64 for other floats; targets may then choose another dtype. Targets may add in another order."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Mean(Block):
    """The mean over `axis` (all if omitted)."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Max(Block):
    """The maximum over `axis` (all if omitted); NaN if any element is NaN."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Min(Block):
    """The minimum over `axis` (all if omitted); NaN if any element is NaN."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Prod(Block):
    """The product over `axis` (all if omitted)."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Variance(Block):
    """The sum of squared distances from the mean over `axis` (all if omitted), divided by the count minus `correction`."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        correction: float = 0.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Std(Block):
    """The square root of the variance over `axis`, with the count minus `correction` as divisor. The gradient is 0 if all elements are equal."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        correction: float = 0.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Norm(Block):
    """`sum(|input|^p)^(1/p)` over `axis`; for `p=0` the number of elements that are not 0."""

    def __init__(
        self,
        p: float = 2.0,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LogSumExp(Block):
    """`log(sum(exp(input)))` over `axis` (all if omitted), without overflow."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class ArgMax(Block):
    """The index of the first maximum along `axis` (in the flattened array if omitted)."""

    def __init__(
        self,
        axis: int | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class ArgMin(Block):
    """The index of the first minimum along `axis` (in the flattened array if omitted)."""

    def __init__(
        self,
        axis: int | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Any(Block):
    """Whether any element over `axis` (all if omitted) is true."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class All(Block):
    """Whether every element over `axis` (all if omitted) is true."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Cumsum(Block):
    """The running sum along `axis`."""

    def __init__(
        self,
        axis: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Cumprod(Block):
    """The running product along `axis`."""

    def __init__(
        self,
        axis: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LossMean(Block):
    """The weighted mean of a loss: `sum(input) / sum(weights)` over `axis`, where `input` holds the losses times their weights; `CrossEntropy` returns both. If all weights are 0, the mean and its gradients are 0. The output `weight` is 1 where any weight is not 0, for taking the mean of such means."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Reshape(Block):
    """The same elements in row-major order in `shape`; one dim may be -1 or None, which is inferred from the others. Dims may be connections, and the whole shape may be a terminal."""

    def __init__(
        self,
        shape: int | Sequence[int | Connection | None] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Flatten(Block):
    """`input` with the axes from `start` to `end` joined into one."""

    def __init__(
        self,
        start: int = 0,
        end: int = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Transpose(Block):
    """`input` with its axes in the order `axes`, by default reversed."""

    def __init__(
        self,
        axes: int | Sequence[int] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class SwapAxes(Block):
    """The input with two axes exchanged."""

    def __init__(
        self,
        first: int,
        second: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class PermuteTensor(Block):
    """Axis `i` of the result is axis `permutation[i]` of `input`."""

    def __init__(
        self,
        permutation: int | Sequence[int],
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Squeeze(Block):
    """`input` with axes of size 1 removed: those in `axis`, by default all."""

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class ExpandDims(Block):
    """`input` with axes of size 1 inserted at `axis` of the result."""

    def __init__(
        self,
        axis: int | Sequence[int],
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class BroadcastTo(Block):
    """`input` broadcast to `shape`, as in NumPy."""

    def __init__(
        self,
        shape: int | Sequence[int | Connection | None] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Concat(Block):
    """The inputs concatenated along `axis`; with `axis=None` they are flattened first, as in NumPy."""

    def __init__(
        self,
        axis: int | None = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Stack(Block):
    """The inputs, all of one shape, stacked along a new axis."""

    def __init__(
        self,
        axis: int = 0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Split(Block):
    """`input` split into a list of `n` equal parts along `axis`."""

    def __init__(
        self,
        n: int,
        axis: int = 0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Pad(Block):
    """`input` padded with `value` before and after each axis: `pad_width` is a list of (before, after)."""

    def __init__(
        self,
        pad_width: Sequence[Sequence[int]],
        value: float = 0.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Tile(Block):
    """`input` repeated `reps` times along each of the last axes."""

    def __init__(
        self,
        reps: int | Sequence[int],
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Repeat(Block):
    """Each element repeated `repeats` times along `axis`."""

    def __init__(
        self,
        repeats: int,
        axis: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Flip(Block):
    """`input` with the elements along each of `axis` in reverse order."""

    def __init__(
        self,
        axis: int | Sequence[int],
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Roll(Block):
    """The elements shifted by `shift` along `axis`; those shifted past one end wrap around to the other."""

    def __init__(
        self,
        shift: int,
        axis: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Slice(Block):
    """Every `step`-th element from `start` to `stop` along `axis`."""

    def __init__(
        self,
        start: int | Connection | None = None,
        stop: int | Connection | None = None,
        step: int = 1,
        axis: int = 0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Indexer(Block):
    """`input[index]` as in NumPy, for integers, slices, None, `...` and one array of integers. If `index` is a terminal: the rows of `input` at these indices."""

    def __init__(
        self,
        index: typing.Any | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Gather(Block):
    """The slices of `input` at `indices` along `axis`. In the result the axes of `indices` replace `axis`."""

    def __init__(
        self,
        axis: int = 0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Scatter(Block):
    """`input` with each slice of `updates` added at its index along `axis`."""

    def __init__(
        self,
        axis: int = 0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Sort(Block):
    """The elements sorted along `axis` in ascending (or `descending`) order; NaN sorts as the largest."""

    def __init__(
        self,
        axis: int = -1,
        descending: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class ArgSort(Block):
    """The indices that sort the elements along `axis`; equal elements keep their order."""

    def __init__(
        self,
        axis: int = -1,
        descending: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class TopK(Block):
    """The `k` largest elements along `axis` in descending order, and their indices."""

    def __init__(
        self,
        k: int,
        axis: int = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Unique(Block):
    """The distinct elements of `input` in ascending order: the smallest `size` of them; if there are fewer, the rest is filled with the smallest."""

    def __init__(
        self,
        size: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class OneHot(Block):
    """A new last axis of size `classes` that is 1 at the index and 0 elsewhere."""

    def __init__(
        self,
        classes: int,
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Tril(Block):
    """`input` with 0 above the diagonal of the last two axes."""

    def __init__(
        self,
        diagonal: int = 0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Triu(Block):
    """`input` with 0 below the diagonal of the last two axes."""

    def __init__(
        self,
        diagonal: int = 0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Diagonal(Block):
    """The diagonal of the last two axes, `offset` to the right of the main one."""

    def __init__(
        self,
        offset: int = 0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Shape(Block):
    """The dims of `input`, as integers."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Size(Block):
    """The number of elements of `input`, or the size of `axis`."""

    def __init__(
        self,
        axis: int | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Length(Block):
    """The first dim of `input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class SegmentSum(Block):
    """The sum of the rows of `input` with each segment id: 0 for a segment without rows."""

    def __init__(
        self,
        num_segments: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class SegmentMean(Block):
    """The mean of the rows of `input` with each segment id: 0 for a segment without rows."""

    def __init__(
        self,
        num_segments: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class SegmentMax(Block):
    """The maximum of the rows of `input` with each segment id: minus infinity, or the least integer, for a segment without rows. Equal maxima share the gradient."""

    def __init__(
        self,
        num_segments: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class TakeAlongAxis(Block):
    """For each element of `indices`, the element of `input` at that index along `axis` and at the same position along the other axes, whose sizes are equal. With `partial`, `indices` may be smaller along the other axes, as in `torch.gather`."""

    def __init__(
        self,
        axis: int = 0,
        partial: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class ScatterReduce(Block):
    """`input` with each element of `updates` combined with that at its index along `axis`, as `torch.scatter_reduce` does it. Elements that no index names stay. Equal maxima, or minima, share the gradient. With `partial`, `indices` may be smaller than `updates`, and than `input` along the other axes: those of the first positions are used."""

    def __init__(
        self,
        axis: int = 0,
        reduce: typing.Literal["sum", "prod", "mean", "amax", "amin"] = "sum",
        include_self: bool = True,
        partial: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Quantile(Block):
    """The value below which a fraction `q` of the elements along `axis` lies; NaN if any of them is NaN. A list as `q` gives a further first axis, with the value of each fraction."""

    def __init__(
        self,
        q: float | Sequence[float],
        axis: int | None = None,
        keepdim: bool = False,
        interpolation: typing.Literal["linear", "lower", "higher", "midpoint", "nearest"] = "linear",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Median(Block):
    """The middle element along `axis`, of an even number the lower one of two, as in `torch.median`; NaN if any of them is NaN. `Quantile(0.5)` is the mean of the two. One element has the gradient."""

    def __init__(
        self,
        axis: int | None = None,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class SearchSorted(Block):
    """The number of `boundaries` below each element of `input`, which is the index at which it keeps them sorted. If `boundaries` has several axes, each row of `input` is placed in its own row."""

    def __init__(
        self,
        right: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Bucketize(Block):
    """The number of `boundaries`, a vector, below each element of `input`: the bucket that it falls into."""

    def __init__(
        self,
        right: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Histogram(Block):
    """The number of elements in each of `bins` bins of equal width from `min` to `max`, which the last bin includes, or between the edges that `bins` lists, as in `numpy.histogram`. With `weights` it is the sum of those, to which gradients pass. Elements outside, and NaN, are not counted. A range without width is widened by 1/2 on both sides, as in NumPy."""

    def __init__(
        self,
        bins: int | Sequence[float],
        min: float | None = None,
        max: float | None = None,
        density: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Arange(Block):
    """The integers from `start`, by default 0, up to `stop` by `step`; `Arange(n)` counts from 0 up to `n`."""

    def __init__(
        self,
        start: int | Connection | None = None,
        stop: int | Connection | None = None,
        step: int = 1,
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Linspace(Block):
    """`num` numbers from `start` to `stop`, evenly spaced."""

    def __init__(
        self,
        start: float,
        stop: float,
        num: int,
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Eye(Block):
    """The (n, m) matrix with 1 on the diagonal and 0 elsewhere; `m` defaults to `n`."""

    def __init__(
        self,
        n: int | Connection,
        m: int | Connection | None = None,
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Ones(Block):
    """An array of `shape` filled with 1."""

    def __init__(
        self,
        shape: int | Sequence[int | Connection | None],
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Zeros(Block):
    """An array of `shape` filled with 0."""

    def __init__(
        self,
        shape: int | Sequence[int | Connection | None],
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Full(Block):
    """An array of `shape` filled with `value`."""

    def __init__(
        self,
        shape: int | Sequence[int | Connection | None],
        value: float,
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class ZerosLike(Block):
    """An array of the shape of `input`, filled with 0."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class OnesLike(Block):
    """An array of the shape of `input`, filled with 1."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Einsum(Block):
    """The sum of products given by `equation`, as in NumPy: `"bij,bjk->bik"`. `...` stands for all unlabelled axes, which broadcast: `"...ij,...jk->...ik"`; if the result has no `...`, they are summed. Without `->` the result has the axes of `...`, then the labels that occur once, in alphabetical order."""

    def __init__(
        self,
        equation: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class GroupedMatrixMultiply(Block):
    """The product of each row of `left` with the matrix of its group: (rows, n). Group i has the rows from `offsets[i - 1]` to `offsets[i]`, as in `torch.nn.functional.grouped_mm`. Rows after the last group give 0."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class FFT(Block):
    """The discrete Fourier transform along `axis`: for each k the sum of `input[j] exp(-2 π i j k / n)`. Its parts are the outputs `real` and `imaginary`."""

    def __init__(
        self,
        n: int | Sequence[int] | None = None,
        axis: int | Sequence[int] = -1,
        norm: typing.Literal["backward", "ortho", "forward"] = "backward",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class InverseFFT(Block):
    """The inverse of `FFT` along `axis`: for each j the mean of `input[k] exp(2 π i j k / n)`. Its parts are the outputs `real` and `imaginary`."""

    def __init__(
        self,
        n: int | Sequence[int] | None = None,
        axis: int | Sequence[int] = -1,
        norm: typing.Literal["backward", "ortho", "forward"] = "backward",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class RealFFT(Block):
    """The first `n // 2 + 1` elements of the `FFT` of real numbers, of which the others are conjugates. Its parts are the outputs `real` and `imaginary`. Of several axes, the last one is halved."""

    def __init__(
        self,
        n: int | Sequence[int] | None = None,
        axis: int | Sequence[int] = -1,
        norm: typing.Literal["backward", "ortho", "forward"] = "backward",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class InverseRealFFT(Block):
    """The inverse of `RealFFT` along `axis`, which is real. An odd length must be given by `n`. The imaginary parts of the first element, and of the last one of an even length, do not matter."""

    def __init__(
        self,
        n: int | Sequence[int] | None = None,
        axis: int | Sequence[int] = -1,
        norm: typing.Literal["backward", "ortho", "forward"] = "backward",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Cholesky(Block):
    """The lower triangular `L` for which `L @ L.T` is `input`, which must be symmetric: only its lower triangle is read (JAX reads the mean of both). If it is not positive definite, the triangle is NaN on every backend. The gradient is symmetric, as in PyTorch."""

    def __init__(
        self,
        upper: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class TriangularSolve(Block):
    """The solution of `a @ output = b` for a triangular `a`. Batch axes broadcast. A 0 on the diagonal gives infinite elements or NaN."""

    def __init__(
        self,
        lower: bool = True,
        transposed: bool = False,
        unit_diagonal: bool = False,
        left: bool = True,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Solve(Block):
    """The solution of `a @ output = b`. `b` is a vector, or a vector for each matrix of `a`, or else matrices whose batch axes broadcast, as in `torch.linalg.solve`. A singular `a` gives infinite elements or NaN on every backend."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Inverse(Block):
    """The inverse of each matrix. A singular one gives infinite elements or NaN on every backend."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Det(Block):
    """The determinant of each matrix. Its gradient is not finite for a singular one, for which PyTorch and JAX have a gradient in some cases."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LogDet(Block):
    """The logarithm of the determinant of each matrix, without overflow: -inf for a singular one, NaN for a negative determinant."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MatrixPower(Block):
    """The product of `n` copies of each matrix, or of its inverse if `n` is negative. The power of 0 is the identity."""

    def __init__(
        self,
        n: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class QR(Block):
    """The factors of `input = q @ r`, where the columns of `q` are orthonormal and `r` is upper triangular. They have as many columns or rows as the shorter side of `input`, and LAPACK's signs. The further columns of a complete `q` have no gradient."""

    def __init__(
        self,
        mode: typing.Literal["reduced", "complete"] = "reduced",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Eigh(Block):
    """The eigenvalues of symmetric matrices in ascending order, and unit eigenvectors in columns. Only the lower triangle is read (JAX reads the mean of both). The signs of eigenvectors differ between backends, so a loss must not depend on them. If eigenvalues are equal, the gradient of eigenvectors is not finite, as in PyTorch. The gradient is symmetric."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Eigvalsh(Block):
    """The eigenvalues of symmetric matrices in ascending order. Only the lower triangle is read (JAX reads the mean of both). The gradient is symmetric."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class SVD(Block):
    """The factors of `input = u @ diag(s) @ vh`: left singular vectors in columns, singular values in descending order, and right singular vectors in rows, as many as the shorter side of `input`. The signs of pairs of vectors differ between backends, so a loss must not depend on them. If singular values are equal, or 0, the gradient of the vectors is not finite, as in PyTorch. The further vectors of `full_matrices` have no gradient."""

    def __init__(
        self,
        full_matrices: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Randn(Block):
    """Standard normal numbers of `shape`."""

    def __init__(
        self,
        shape: int | Sequence[int | Connection | None],
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class RandUniform(Block):
    """Uniform numbers from `low` up to but not including `high`."""

    def __init__(
        self,
        shape: int | Sequence[int | Connection | None],
        low: float = 0.0,
        high: float = 1.0,
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class RandInt(Block):
    """Uniform integers from `low` up to but not including `high`: 32 random bits modulo the range."""

    def __init__(
        self,
        shape: int | Sequence[int | Connection | None],
        low: int,
        high: int,
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Bernoulli(Block):
    """1 with probability `input`, else 0."""

    def __init__(
        self,
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Categorical(Block):
    """One class sampled for each row of the last axis, with the unnormalised log probabilities `input`, by the Gumbel-max trick."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Linear(Block):
    """`input @ w + b` over the last axis of `input`; `w` is (in_features, dimension). Both start uniform within `1 / sqrt(in_features)`, as in `torch.nn.Linear`; `init` is for `w`."""

    def __init__(
        self,
        dimension: int,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class LayerNorm(Block):
    """`(input - mean) / sqrt(variance + eps) * w + b` over the last axis, or over the axes in `axis` (Ba et al. 2016, eq. 4). `w` starts at 1, or as given by `init`, `b` at 0."""

    def __init__(
        self,
        eps: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        axis: int | Sequence[int] = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class RMSNorm(Block):
    """`input / sqrt(mean(input^2) + eps) * w` over the last axis, or over the axes in `axis` (Zhang & Sennrich 2019, eq. 4). `w` starts at 1, or as given by `init`."""

    def __init__(
        self,
        eps: float = 1e-5,
        use_scale: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        axis: int | Sequence[int] = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class ElementWiseAffine(Block):
    """`input * w + b` with one `w` and `b` for each index of the last axis. `w` starts at 1, or as given by `init`, `b` at 0."""

    def __init__(
        self,
        use_scale: bool = True,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Softmax(Block):
    """`exp(input) / sum(exp(input))` along `axis`."""

    def __init__(
        self,
        axis: int = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LogSoftmax(Block):
    """`input - log(sum(exp(input)))` along `axis`."""

    def __init__(
        self,
        axis: int = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Embedding(Block):
    """The rows of `w`, which is (num_embeddings, dimension), at the indices `input`. `w` starts standard normal, as in `torch.nn.Embedding`, or as given by `init`, with `dimension` as its fan in. With `max_norm`, a row whose norm is larger is multiplied by `max_norm / (norm + 1e-7)`. As in PyTorch, the gradient is that of the row without this factor. PyTorch changes `w` as well; a call here does not."""

    def __init__(
        self,
        num_embeddings: int,
        dimension: int,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class EmbeddingBag(Block):
    """The sum, mean or maximum of the rows of `w` at the indices of each bag, as in `torch.nn.EmbeddingBag`. A bag is a row of `input`, or the indices from one of the `offsets` to the next. The rows are those of `Embedding`, and `w` starts as there. Indices that are `padding_idx` do not count; a bag of no others gives 0. `per_sample_weights` multiply the rows of a sum. Of equal maxima, the first has the gradient."""

    def __init__(
        self,
        num_embeddings: int,
        dimension: int,
        mode: typing.Literal["sum", "mean", "max"] = "mean",
        padding_idx: int | None = None,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        include_last_offset: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class BatchNorm1d(Block):
    """`(input - mean) / sqrt(variance + eps) * w + b` of each channel of (batch, channels) or (batch, channels, length) (Ioffe & Szegedy 2015, alg. 1). Training uses the mean and variance of the batch, and moves the running ones towards them by `momentum` (with the unbiased variance); inference uses the running ones. With `momentum=None` these are the averages over all batches, whose number is the state `num_batches`. `w` starts at 1, or as given by `init`, `b` and the running mean at 0, the running variance at 1."""

    def __init__(
        self,
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        track_running_stats: bool = True,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class BatchNorm2d(Block):
    """`BatchNorm1d` for images, (batch, channels, height, width)."""

    def __init__(
        self,
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        track_running_stats: bool = True,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class BatchNorm3d(Block):
    """`BatchNorm1d` for volumes, (batch, channels, depth, height, width)."""

    def __init__(
        self,
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        track_running_stats: bool = True,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class GroupNorm(Block):
    """`(input - mean) / sqrt(variance + eps) * w + b` of (batch, channels, …), with mean and variance over each group of channels of a sample. `w` starts at 1, or as given by `init`, `b` at 0."""

    def __init__(
        self,
        groups: int,
        eps: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class InstanceNorm(Block):
    """`(input - mean) / sqrt(variance + eps) * w + b` of (batch, channels, …), with mean and variance over each channel of a sample. With `track_running_stats`, training also moves a running mean and variance by `momentum` towards the averages over the samples (of the unbiased variance), and inference uses these. `w` starts at 1, or as given by `init`, `b` and the running mean at 0, the running variance at 1."""

    def __init__(
        self,
        eps: float = 1e-5,
        use_scale: bool = False,
        use_bias: bool = False,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        track_running_stats: bool = False,
        momentum: float = 0.1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class LocalResponseNorm(Block):
    """`input / (k + alpha * mean) ** beta` of (batch, channels, …), with the mean of `input ** 2` over `size` neighbouring channels. Channels beyond the ends count as 0."""

    def __init__(
        self,
        size: int,
        alpha: float = 0.0001,
        beta: float = 0.75,
        k: float = 1.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class CosineSimilarity(Block):
    """The cosine of the angle between vectors along `axis`: their product, divided by both norms."""

    def __init__(
        self,
        axis: int = 1,
        eps: float = 1e-8,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class PairwiseDistance(Block):
    """The norm of `left - right + eps` along the last axis. `DistanceMatrix` compares all pairs of rows."""

    def __init__(
        self,
        p: float = 2.0,
        eps: float = 1e-6,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Pdist(Block):
    """The norms of the differences of all pairs of rows i < j of `input`, (n, features), as a vector: first those of row 0, as in `torch.pdist`. Distances of 0 have a gradient of 0."""

    def __init__(
        self,
        p: float = 2.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Normalize(Block):
    """`input` divided by its norm along `axis`."""

    def __init__(
        self,
        p: float = 2.0,
        axis: int = 1,
        eps: float = 1e-12,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Bilinear(Block):
    """`left @ w[k] @ right + b[k]` for each k up to `dimension`, over the last axes, as in `torch.nn.Bilinear`."""

    def __init__(
        self,
        dimension: int,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class ChannelShuffle(Block):
    """The channels, axis 1, in another order: the first of each of `groups` groups, then the second of each, and so on."""

    def __init__(
        self,
        groups: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Unflatten(Block):
    """`input` with `axis` as several axes: the reverse of `Flatten`."""

    def __init__(
        self,
        axis: int,
        sizes: int | Sequence[int],
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Dropout(Block):
    """Each element is 0 with probability `rate`, else `input / (1 - rate)`; in inference, `input` itself (Srivastava et al. 2014)."""

    def __init__(
        self,
        rate: float = 0.5,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Dropout1d(Block):
    """Each channel of sequences, (batch, channels, length), is 0 with probability `rate`, else `input / (1 - rate)`; in inference, `input` itself (Tompson et al. 2015)."""

    def __init__(
        self,
        rate: float = 0.5,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Dropout2d(Block):
    """Each channel of images, (batch, channels, height, width), is 0 with probability `rate`, else `input / (1 - rate)`; in inference, `input` itself (Tompson et al. 2015)."""

    def __init__(
        self,
        rate: float = 0.5,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Dropout3d(Block):
    """Each channel of volumes, (batch, channels, depth, height, width), is 0 with probability `rate`, else `input / (1 - rate)`; in inference, `input` itself (Tompson et al. 2015)."""

    def __init__(
        self,
        rate: float = 0.5,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class AlphaDropout(Block):
    """`Dropout` for `Selu`: an element that is dropped becomes the limit of `Selu` at minus infinity, and all elements are scaled and shifted so that mean 0 and variance 1 stay. In inference, `input` itself."""

    def __init__(
        self,
        rate: float = 0.5,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class FeatureAlphaDropout(Block):
    """`AlphaDropout` of whole channels of (batch, channels, …)."""

    def __init__(
        self,
        rate: float = 0.5,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Conv1d(Block):
    """The cross-correlation of sequences, (batch, channels, length), with `filters` kernels `w`, plus `b`. Both start uniform within `1 / sqrt(channels / groups * length)` of a kernel, as in `torch.nn.Conv1d`; `init` is for `w`."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int | Sequence[int]] | typing.Literal["same", "valid"] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        padding_mode: typing.Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Conv2d(Block):
    """The cross-correlation of images, (batch, channels, height, width), with `filters` kernels `w`, plus `b`. Both start uniform within `1 / sqrt(channels / groups * height * width)` of a kernel, as in `torch.nn.Conv2d`; `init` is for `w`."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int | Sequence[int]] | typing.Literal["same", "valid"] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        padding_mode: typing.Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Conv3d(Block):
    """The cross-correlation of volumes, (batch, channels, depth, height, width), with `filters` kernels `w`, plus `b`. Both start uniform within `1 / sqrt(channels / groups * depth * height * width)` of a kernel, as in `torch.nn.Conv3d`; `init` is for `w`."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int | Sequence[int]] | typing.Literal["same", "valid"] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        padding_mode: typing.Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class ConvTranspose1d(Block):
    """The transpose of `Conv1d`, as in `torch.nn.ConvTranspose1d`: each element of sequences, (batch, channels, length), adds its multiple of a kernel of `w` to the output, plus `b`. `padding` is removed from both ends."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        dilation: int | Sequence[int] = 1,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class ConvTranspose2d(Block):
    """The transpose of `Conv2d`, as in `torch.nn.ConvTranspose2d`: each element of images, (batch, channels, height, width), adds its multiple of a kernel of `w` to the output, plus `b`. `padding` is removed from all sides."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        dilation: int | Sequence[int] = 1,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class ConvTranspose3d(Block):
    """The transpose of `Conv3d`, as in `torch.nn.ConvTranspose3d`: each element of volumes, (batch, channels, depth, height, width), adds its multiple of a kernel of `w` to the output, plus `b`. `padding` is removed from all sides."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        dilation: int | Sequence[int] = 1,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class MaxPool1d(Block):
    """The maximum of each position of a window over the last axis, (…, length), padded with -inf. `indices` are positions of the maxima along the axis."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int | Sequence[int]] | typing.Literal["same", "valid"] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MaxPool2d(Block):
    """The maximum of each position of a window over the last two axes, (…, height, width), padded with -inf. `indices` are positions of the maxima in the flattened axes, as `MaxUnpool2d` takes them."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int | Sequence[int]] | typing.Literal["same", "valid"] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MaxPool3d(Block):
    """The maximum of each position of a window over the last three axes, (…, depth, height, width), padded with -inf. `indices` are positions of the maxima in the flattened axes."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int | Sequence[int]] | typing.Literal["same", "valid"] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class AvgPool1d(Block):
    """The mean of each position of a window over the last axis, (…, length), padded with zeros."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int | Sequence[int]] | typing.Literal["same", "valid"] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class AvgPool2d(Block):
    """The mean of each position of a window over the last two axes, (…, height, width), padded with zeros."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int | Sequence[int]] | typing.Literal["same", "valid"] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class AvgPool3d(Block):
    """The mean of each position of a window over the last three axes, (…, depth, height, width), padded with zeros."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int | Sequence[int]] | typing.Literal["same", "valid"] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LpPool(Block):
    """`sum(input**norm) ** (1 / norm)` of each position of a window over all axes after the first two, (batch, channels, …), as in `torch.nn.LpPool2d`. A list as `kernel_size` says of how many axes."""

    def __init__(
        self,
        norm: float,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        ceil_mode: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class GlobalAvgPool(Block):
    """The mean of each channel of (batch, channels, …)."""

    def __init__(
        self,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class GlobalMaxPool(Block):
    """The maximum of each channel of (batch, channels, …)."""

    def __init__(
        self,
        keepdim: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class AdaptiveAvgPool(Block):
    """The means of `output_size` ranges of each axis after the first two, (batch, channels, …). Range `i` of an axis of size `n` goes from `floor(i * n / size)` to `ceil((i + 1) * n / size)`, as in `torch.nn.AdaptiveAvgPool2d`. A list as `output_size` says of how many of the last axes. If the ranges of an axis differ in size, a NaN or an infinity is in the means of all of them."""

    def __init__(
        self,
        output_size: int | None | Sequence[int | None],
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class AdaptiveMaxPool(Block):
    """The maxima of `output_size` ranges of each axis after the first two, (batch, channels, …). The ranges are those of `AdaptiveAvgPool`. `indices` are positions of the maxima in the flattened axes."""

    def __init__(
        self,
        output_size: int | None | Sequence[int | None],
        return_indices: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MaxUnpool1d(Block):
    """The reverse of `MaxPool1d`: zeros, with the elements of `input`, (…, length), at `indices` of the last axis."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        output_size: int | Sequence[int] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MaxUnpool2d(Block):
    """The reverse of `MaxPool2d`: zeros, with the elements of `input`, (…, height, width), at `indices` of the flattened height and width."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        output_size: int | Sequence[int] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MaxUnpool3d(Block):
    """The reverse of `MaxPool3d`: zeros, with the elements of `input`, (…, depth, height, width), at `indices` of the flattened depth, height and width."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        output_size: int | Sequence[int] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class FractionalMaxPool2d(Block):
    """The maximum of each of `output_size` windows along the height and the width of (batch, channels, height, width). Distances between windows vary at random, so that the output may have any size below that of the input. `samples` are a number from 0 to 1 for the width and one for the height of each channel, as in `torch.nn.functional.fractional_max_pool2d`."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | None = None,
        return_indices: bool = False,
        draw: bool = True,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class FractionalMaxPool3d(Block):
    """`FractionalMaxPool2d` of volumes, (batch, channels, depth, height, width). `samples` are a number from 0 to 1 for the depth, the height and the width of each channel."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | None = None,
        return_indices: bool = False,
        draw: bool = True,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class ReflectionPad(Block):
    """`input`, (batch, channels, …), with each axis reflected at its first and last element, as in `torch.nn.ReflectionPad2d`."""

    def __init__(
        self,
        padding: int | Sequence[int | Sequence[int]],
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class ReplicationPad(Block):
    """`input`, (batch, channels, …), with the first and the last element of each axis repeated, as in `torch.nn.ReplicationPad2d`."""

    def __init__(
        self,
        padding: int | Sequence[int | Sequence[int]],
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class CircularPad(Block):
    """`input`, (batch, channels, …), with each axis continued from its other end, as in `torch.nn.CircularPad2d`."""

    def __init__(
        self,
        padding: int | Sequence[int | Sequence[int]],
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class PixelShuffle(Block):
    """`input`, (…, channels * factor**2, height, width), as (…, channels, height * factor, width * factor): `factor**2` channels become a square of pixels."""

    def __init__(
        self,
        factor: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class PixelUnshuffle(Block):
    """The reverse of `PixelShuffle`: `input`, (…, channels, height, width), as (…, channels * factor**2, height / factor, width / factor)."""

    def __init__(
        self,
        factor: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Unfold(Block):
    """The elements of each position of a window over images, (batch, channels, height, width), as columns: (batch, channels * size of the kernel, positions), as in `torch.nn.Unfold`."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Fold(Block):
    """The reverse of `Unfold`: each column of (batch, channels * size of the kernel, positions) is added to its window of an image, (batch, channels, height, width), as in `torch.nn.Fold`."""

    def __init__(
        self,
        output_size: int | Sequence[int],
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Upsample(Block):
    """`input`, (batch, channels, …), interpolated to another size, as by `torch.nn.functional.interpolate`. "bicubic" is cubic convolution (Keys 1981, eq. 4) with a = -0.75, or with -0.5 under `antialias`, whose filters are as wide as an element of the output."""

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale: float | Sequence[float] | None = None,
        mode: typing.Literal["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"] = "nearest",
        align_corners: bool = False,
        antialias: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class GridSample(Block):
    """Images, (batch, channels, height, width), or volumes, (batch, channels, depth, height, width), read at the positions `grid`: x and y go from -1 at the left and top edge to 1 at the right and bottom edge, as in `torch.nn.functional.grid_sample`. "bicubic" is cubic convolution (Keys 1981, eq. 4) with a = -0.75."""

    def __init__(
        self,
        mode: typing.Literal["bilinear", "nearest", "bicubic"] = "bilinear",
        padding_mode: typing.Literal["zeros", "border", "reflection"] = "zeros",
        align_corners: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class AffineGrid(Block):
    """The positions that `GridSample` reads to transform images by an affine map: the product of each matrix with (x, y, 1), or (x, y, z, 1), of each element of an image of this size, as in `torch.nn.functional.affine_grid`."""

    def __init__(
        self,
        size: int | Sequence[int],
        align_corners: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class ScaledDotProduct(Block):
    """`softmax(query keyᵀ scale + mask) value` over the last two axes (Vaswani et al. 2017, eq. 1); `scale` defaults to 1/sqrt(last dim of the query). The `mask` broadcasts to the scores, (…, queries, keys): a bool mask is True where a query attends to a key, a float mask is added to the scores. A query whose mask hides every key gives 0. `is_causal` hides later keys, and `window` those that are farther away (Beltagy et al. 2020). Positions count from the first query and the first key, also where their numbers differ, as in PyTorch. `softcap` bounds scores, before they are masked, to `softcap tanh(scores / softcap)` (Gemma Team 2024). With `sinks`, the weights of a query add up to less than 1 (Xiao et al. 2024). With `grouped`, several heads of the query share each head of key and value (axis -3)."""

    def __init__(
        self,
        is_causal: bool = False,
        scale: float | None = None,
        grouped: bool = False,
        window: int | Sequence[int] | None = None,
        softcap: float | None = None,
        dropout: float = 0.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class MultiHeadAttention(Block):
    """Attention in `heads` subspaces of (…, length, width) (Vaswani et al. 2017, sec. 3.2.2): of `input` to itself, or to `context` if that is connected, whose values come from `value` if that is. With `kv_heads`, several heads share keys and values (Ainslie et al. 2023). Initial values are those of `torch.nn.MultiheadAttention`: `w_query`, `w_key` and `w_value` start Xavier uniform (as one matrix if they read the width of `input`), `w_output` uniform within `1 / sqrt(width)`, biases at 0; `init` applies to each of these matrices separately. The `mask` has the axes (batch, heads, queries, keys), (batch, queries, keys), (queries, keys), (batch, keys) or (keys), where sizes of 1 broadcast: a bool mask is True where a query attends to a key, a float mask is added to the scores. A query whose mask hides every key gives 0. The `key_mask`, (batch, keys), hides keys from all queries, in addition to the `mask`. `add_bias_kv` and `add_zero_attn` add keys after the others, which every query attends to. `return_weights` gives the further output `weights`, (batch, heads, queries, keys), in training those after `dropout`. `window`, `softcap` and `sinks` are those of `ScaledDotProduct`. A mask of two axes that could be either (queries, keys) or (batch, keys) is an error."""

    def __init__(
        self,
        heads: int,
        kv_heads: int | None = None,
        is_causal: bool = False,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        window: int | Sequence[int] | None = None,
        softcap: float | None = None,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        return_weights: bool = False,
        alibi: bool = False,
        use_sinks: bool = False,
        dropout: float = 0.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class RotaryEmbedding(Block):
    """Rotates each pair of features of (…, length, width) by its position times `base^(-2i / width)` (Su et al. 2021, eq. 34). Feature `i` of the first half of the last axis is paired with that of the second half, as in Llama. `positions` default to 0, 1, 2, …."""

    def __init__(
        self,
        base: float = 10000.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class PositionalEncoding(Block):
    """`input`, (…, length, width), plus sines and cosines of its positions (Vaswani et al. 2017, sec. 3.5)."""

    def __init__(
        self,
        base: float = 10000.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class AlibiBias(Block):
    """A bias of attention, (heads, queries, keys): the distance of query and key times minus the head's slope, `2^(-8 i / heads)` for head i = 1, 2, … (Press et al. 2022). If `heads` is not a power of two, the further heads have every other slope of twice as many heads. It is added to the scores, as the `mask` of `ScaledDotProduct`."""

    def __init__(
        self,
        heads: int,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class RelativePositionBias(Block):
    """The bias that T5 adds to the scores of attention, (heads, queries, keys): the row of `w` for the bucket of the distance from query to key (Raffel et al. 2020). Half of the buckets are for single distances, the others for ranges that grow logarithmically up to `max_distance`, the last one for all beyond. With `bidirectional`, half of the buckets are for keys after the query; else these share the bucket of distance 0. It is added as the `mask` of `ScaledDotProduct`."""

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class Layer(Block):
    """A `Linear` of `dimension` followed by `activation`. `init` is that of the `Linear`."""

    def __init__(
        self,
        activation: Block,
        dimension: int,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class MLP(Block):
    """A `Linear` of each of `dimensions`, each followed by its activation; None is no activation. `init` is that of each `Linear`."""

    def __init__(
        self,
        activations: Sequence[Block | None],
        dimensions: int | Sequence[int],
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class Sequential(Block):
    """Blocks in sequence, connected by their standard terminals."""

    def __init__(
        self,
        blocks: Sequence[Block],
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class Residual(Block):
    """`input + block(input)`."""

    def __init__(
        self,
        block: Block,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class TransformerEncoderLayer(Block):
    """Attention of `input` to itself and a hidden layer for each position, with residuals and norms, as `torch.nn.TransformerEncoderLayer` with `batch_first=True`. The params are `attention.w_query`, …, `norm_0.w`, `linear_0.w`, `linear_1.w`, `norm_1.w`. A bool mask is True where a query attends to a key, as in `MultiHeadAttention`. `init` is that of the attention and of the linear layers."""

    def __init__(
        self,
        dimension: int,
        heads: int,
        feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Block | None = None,
        eps: float = 1e-5,
        norm_first: bool = False,
        is_causal: bool = False,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class TransformerDecoderLayer(Block):
    """`TransformerEncoderLayer` with attention to `context` after that to itself, as `torch.nn.TransformerDecoderLayer` with `batch_first=True`. The further params are `context_attention.w_query`, … and those of `norm_2`. `init` is that of the attention and of the linear layers."""

    def __init__(
        self,
        dimension: int,
        heads: int,
        feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Block | None = None,
        eps: float = 1e-5,
        norm_first: bool = False,
        is_causal: bool = False,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class TransformerEncoder(Block):
    """`layers` copies of a layer such as `TransformerEncoderLayer`, one after another, and `norm` after the last one. Each copy has its own params, `layer_0.…`, `layer_1.…`, and reads the same masks."""

    def __init__(
        self,
        layer: Block,
        layers: int,
        norm: Block | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class TransformerDecoder(Block):
    """`layers` copies of a layer such as `TransformerDecoderLayer`, one after another, and `norm` after the last one. Each copy has its own params, `layer_0.…`, `layer_1.…`, and reads the same `context` and masks."""

    def __init__(
        self,
        layer: Block,
        layers: int,
        norm: Block | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class Transformer(Block):
    """A `TransformerEncoder` of `input`, and a `TransformerDecoder` of `target` that attends to its result, each with a norm at the end, as `torch.nn.Transformer` with `batch_first=True`. The params are `encoder.layer_0.…`, `encoder.norm.w`, `decoder.layer_0.…` and `decoder.norm.w`. `is_causal` is for the decoder. Linear layers start Xavier uniform unless `init` is given, and their biases as in `Linear`."""

    def __init__(
        self,
        dimension: int = 512,
        heads: int = 8,
        encoder_layers: int = 6,
        decoder_layers: int = 6,
        feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Block | None = None,
        eps: float = 1e-5,
        norm_first: bool = False,
        is_causal: bool = False,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class MoE(Block):
    """A mixture of experts (Shazeer et al. 2017): each token, a row of `input` (…, width), goes to the `k` of `experts` MLPs for which the router `input @ w_router` is largest. `output` is the sum of their results, weighted by the softmax of the `k` largest logits (Jiang et al. 2024), or of all logits if not `normalize` (Fedus et al. 2022). An expert computes `activation(x @ w_in) @ w_out`, with `gated` `(activation(x @ w_in) * (x @ w_gate)) @ w_out`, for its own tokens alone. `balance` is the loss that spreads tokens evenly (Fedus et al. 2022, eq. 4): `experts` times the sum, over the experts, of the share of tokens that go to the expert times the mean of its probability. It is 1 if experts are used equally."""

    def __init__(
        self,
        experts: int,
        k: int = 2,
        dimension: int | None = None,
        activation: typing.Literal["relu", "gelu", "silu", "tanh", "sigmoid"] = "relu",
        gated: bool = False,
        use_bias: bool = False,
        normalize: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class SpectralNorm(Block):
    """`block` with its weight divided by its spectral norm, the largest singular value of the weight as a matrix (outputs, all other axes). The terminals are those of `block`. For a weight `w`, the states `w_u` and `w_v` are estimates of the singular vectors. Each call in training improves them by steps of the power iteration; inference only uses them. They start as PyTorch's do: random numbers, improved by 15 steps for the weight of the first call."""

    def __init__(
        self,
        block: Block,
        weight: str = "w",
        n_power_iterations: int = 1,
        eps: float = 1e-12,
        axis: int | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class WeightNorm(Block):
    """`block` with its weight given by a direction and a norm for each output: `w = w_g * w_v / norm(w_v)`, where the params `w_g` and `w_v` replace `w`. The other terminals are those of `block`. `w_v` starts as `w` does in `block`, and `w_g` as its norms."""

    def __init__(
        self,
        block: Block,
        weight: str = "w",
        axis: int | None = None,
        whole: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class RNNCell(Block):
    """One step of a recurrent network: `activation(input @ w + hidden @ u + b)` (Elman 1990). All params start uniform within `1 / sqrt(dimension)`, as in `torch.nn.RNNCell`, whose two biases are the one `b`; `init` is for `w` and `u`."""

    def __init__(
        self,
        dimension: int,
        activation: typing.Literal["tanh", "relu"] = "tanh",
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class LSTMCell(Block):
    """One step of long short-term memory (Hochreiter & Schmidhuber 1997) with a forget gate (Gers et al. 2000). `input @ w + hidden @ u + b` gives four gates, in the order input, forget, cell, output; `next_cell = sigmoid(forget) * cell + sigmoid(input) * tanh(cell gate)`, and `output = sigmoid(output gate) * tanh(next_cell)` is the next `hidden`. All params start uniform within `1 / sqrt(dimension)`, as in `torch.nn.LSTMCell`, whose two biases are the one `b`; `init` is for `w` and `u`."""

    def __init__(
        self,
        dimension: int,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class GRUCell(Block):
    """One step of a gated recurrent unit (Cho et al. 2014). Gates are in the order reset, update, new: `new = tanh(input @ w_new + b + sigmoid(reset) * (hidden @ u_new + b_new))`, and `output = (1 - sigmoid(update)) * new + sigmoid(update) * hidden` is the next `hidden`. All params start uniform within `1 / sqrt(dimension)`, as in `torch.nn.GRUCell`, whose biases of the reset and update gates are added in `b`; `init` is for `w` and `u`."""

    def __init__(
        self,
        dimension: int,
        use_bias: bool = True,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class RNN(Block):
    """`RNNCell` over sequences. `output` is (batch, time, directions * dimension), or the states after the last step, (batch, directions * dimension), with `return_sequence=False`; `last_hidden` has those of every layer and direction. The params of layer 0 are `layer_0.w`, …, or `layer_0.forward.w` and `layer_0.backward.w` in two directions. `init` is that of each cell."""

    def __init__(
        self,
        dimension: int,
        bidirectional: bool = False,
        layers: int = 1,
        reverse: bool = False,
        return_sequence: bool = True,
        activation: typing.Literal["tanh", "relu"] = "tanh",
        use_bias: bool = True,
        dropout: float = 0.0,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class LSTM(Block):
    """`LSTMCell` over sequences. `output` is (batch, time, directions * dimension), or the states after the last step, (batch, directions * dimension), with `return_sequence=False`; `last_hidden` and `last_cell` have those of every layer and direction. The params of layer 0 are `layer_0.w`, …, or `layer_0.forward.w` and `layer_0.backward.w` in two directions. `init` is that of each cell. With `projection`, the hidden state of each step is multiplied by `w_projection`, (dimension, projection), and `output` and `last_hidden` have that width (Sak et al. 2014), as with `proj_size` of `torch.nn.LSTM`."""

    def __init__(
        self,
        dimension: int,
        bidirectional: bool = False,
        layers: int = 1,
        reverse: bool = False,
        return_sequence: bool = True,
        use_bias: bool = True,
        dropout: float = 0.0,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        projection: int | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class GRU(Block):
    """`GRUCell` over sequences. `output` is (batch, time, directions * dimension), or the states after the last step, (batch, directions * dimension), with `return_sequence=False`; `last_hidden` has those of every layer and direction. The params of layer 0 are `layer_0.w`, …, or `layer_0.forward.w` and `layer_0.backward.w` in two directions. `init` is that of each cell."""

    def __init__(
        self,
        dimension: int,
        bidirectional: bool = False,
        layers: int = 1,
        reverse: bool = False,
        return_sequence: bool = True,
        use_bias: bool = True,
        dropout: float = 0.0,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class ManyToOne(Block):
    """Reads a sequence with a cell. `output` is that of the cell after the last step, or of `head`, which computes it from that; the last states are `last_hidden` and, of an `LSTMCell`, `last_cell`."""

    def __init__(
        self,
        cell: Block,
        head: Block | None = None,
        carry: Mapping[str, str] | Sequence[Sequence[str]] | None = None,
        use_lengths: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class OneToMany(Block):
    """Writes a sequence with a cell, (batch, steps, features). The first step reads `input`, and each later step the output of the step before; with `teacher_forcing`, the target of the step before, and there are as many steps as in `target` (Williams & Zipser 1989). The output of a step is that of the cell, or of `head`."""

    def __init__(
        self,
        cell: Block,
        steps: int | None = None,
        head: Block | None = None,
        carry: Mapping[str, str] | Sequence[Sequence[str]] | None = None,
        teacher_forcing: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class EncoderDecoder(Block):
    """Reads a sequence with the cell `encoder`, and writes one with the cell `decoder`, whose first states are the last ones of the encoder (Sutskever et al. 2014). The decoder is an `OneToMany`: its first step reads `start`, and each later step the output of the step before, or with `teacher_forcing` the target of the step before. With the same settings otherwise, both have params of the same names: one is for training, the other for inference."""

    def __init__(
        self,
        encoder: Block,
        decoder: Block,
        steps: int | None = None,
        head: Block | None = None,
        carry: Mapping[str, str] | Sequence[Sequence[str]] | None = None,
        teacher_forcing: bool = False,
        use_lengths: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class Scan(Block):
    """Calls `body` once for each slice of its sequences, one after another. The terminals are those of `body`: an input in `over` takes a sequence, whose slices along `axis` the steps read; an input in `carry` takes the value for the first step, and in each later step has the value that the output next to it had in the step before; every other input, and every param, is the same in all steps. An output in `carry` is that of the last step; one in `collect` is stacked along `axis`. An output that is both gives its last value by its own name, and all values by its name with the suffix `_sequence`. A body that draws random numbers gets a new key in each step. With `use_lengths`, there is an input `lengths`, (batch), for the first axis of the slices and of the carries: steps beyond the end of a sequence leave the carries as they are, and stack zeros of the other outputs. The names of params then begin with `body`."""

    def __init__(
        self,
        body: Block,
        carry: Mapping[str, str] | Sequence[Sequence[str]] | None = None,
        over: Sequence[str] | None = None,
        collect: Sequence[str] | None = None,
        axis: int = 0,
        reverse: bool = False,
        steps: int | None = None,
        use_lengths: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Map(Block):
    """Calls `body` on each slice of its inputs along `axis`, and stacks the outputs along `axis`. The terminals are those of `body`. An input in `fixed`, and every param, is the same in all calls."""

    def __init__(
        self,
        body: Block,
        axis: int = 0,
        fixed: Sequence[str] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Vmap(Block):
    """Computes `body` for all indices of an axis at once: the batch. Its results are those of `Map`, but its operations get one more axis instead of being repeated. Inputs have the axis that `axis` gives, or none if it gives None; outputs have it at `out_axis`. Params are shared by the whole batch. With `params`, they and running states have an axis of their own in front: each index has its own params, and its own gradients. `ml.vmap` makes this block, too."""

    def __init__(
        self,
        body: Block,
        axis: int | Mapping[str, int | None] = 0,
        out_axis: int = 0,
        params: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class While(Block):
    """Calls `body` for as long as `condition` is true, which is computed before each step. An input of `body` in `carry` takes the given value in the first step, and in each later step that of the output next to it in the step before. `condition` reads the carried values, and other inputs, by their names; its output is one bool. Other inputs, and every param, are the same in all steps. The outputs are the carried ones, after the last step. The gradient needs `max_steps`. Its backward pass keeps the carries of as many steps."""

    def __init__(
        self,
        condition: Block,
        body: Block,
        carry: Mapping[str, str] | Sequence[Sequence[str]] | None = None,
        max_steps: int | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Cond(Block):
    """Calls `then` if the input `condition` is true, and `otherwise` if it is not. Only one of the two is computed. `condition` is one bool, of rank 0. The other inputs are those of both blocks: an input that both have is the same value. The outputs have the same names and types in both blocks. `Where` chooses element by element instead. The gradient computes the values inside the chosen block again."""

    def __init__(
        self,
        then: Block,
        otherwise: Block,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class CartesianDifference(Block):
    """The difference of each row of `left` and each row of `right`: (n, m, features)."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class DistanceMatrix(Block):
    """The distance of each row of `left` from each row of `right`: (n, m). Distances of 0 have a gradient of 0."""

    def __init__(
        self,
        get_final_distance: bool = True,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class EncoderDistanceMatrix(Block):
    """`DistanceMatrix` with a norm that is learned, and that `NormModifier` keeps from 1 to 5. It starts at 2."""

    def __init__(
        self,
        get_final_distance: bool = True,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class NormModifier(Block):
    """`input` folded into the range from 1 to 5: it stays within, and is reflected at the ends, as often as needed."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class TransposedDiagonal(Block):
    """The diagonal of the last two axes as a column."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class EyeComplement(Block):
    """The (n, m) matrix with 0 on the diagonal and 1 elsewhere; `m` defaults to `n`."""

    def __init__(
        self,
        n: int,
        m: int | None = None,
        dtype: object | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class RBFKernel(Block):
    """`sigma^2 exp(-|x - y|^2 / (2 l_scale^2))` of each row x of `input1` and y of `input2`. Both numbers are learned, and start at 1. scikit-learn's `gamma` is `1 / (2 l_scale^2)`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class PolynomialKernel(Block):
    """`(x · y + poly_coef)^degree` of each row x of `input1` and y of `input2`. `poly_coef` is learned, and starts at 1."""

    def __init__(
        self,
        degree: int = 3,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class KernelizedSVM(Block):
    """The decision function of a support vector machine: a `Linear` of `dimension` after `kernel` of `input1` and the support vectors `input2`. Its weights are the dual coefficients."""

    def __init__(
        self,
        kernel: Block,
        dimension: int = 1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class LinearSVM(Block):
    """A `Linear` of one output, and in `decision_output` its sign. It is trained with `HingeLoss` or `QuadHingeLoss`, and `L2` of its weights."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class LogisticRegression(Block):
    """A `Linear` of `dimension`, which gives scores for `BinaryCrossEntropy`, and in `probs_output` their `Sigmoid`."""

    def __init__(
        self,
        dimension: int = 1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class PolynomialFeatures(Block):
    """The products of up to `degree` features, which are the last axis of `input`, in the order of scikit-learn: by degree, then by feature."""

    def __init__(
        self,
        degree: int,
        include_bias: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class PolynomialRegression(Block):
    """A `Linear` of `dimension` after `PolynomialFeatures` of `degree`."""

    def __init__(
        self,
        degree: int,
        dimension: int = 1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class GaussianProcessCore(Block):
    """`GaussianProcessRegression` of the values of a kernel."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class GaussianProcessRegression(Block):
    """The mean and the `variance` of a Gaussian process at each row of `input`, (m) or (m, targets) and (m), given `samples` with noisy labels; and its `loss`, which trains the params of `kernel` and the noise: `GaussianProcessLoss` of the samples (Rasmussen & Williams 2006, algorithm 2.1). `noise` starts at 0.1. scikit-learn's `alpha` is its square."""

    def __init__(
        self,
        kernel: Block,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class MDSCore(Block):
    """The stress of an embedding (Kruskal 1964): the root of the sum of squared errors of distances, over the sum of squared `distances`. scikit-learn's normalized stress divides by the squares of the embedding's distances instead."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MDS(Block):
    """Multidimensional scaling: the stress (`MDSCore`) of learned embeddings, which are also the output `predicted_coords`. Minimising it trains them. They start standard normal."""

    def __init__(
        self,
        prediction_dim: int,
        input_type: typing.Literal["distances", "points"] = "distances",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class TSNECore(Block):
    """The Kullback-Leibler divergence of t-SNE: of the probabilities of pairs of samples from those of their embeddings, which fall with distance as Student's t (van der Maaten & Hinton 2008). The former have no gradient, unless `p_joint` is given."""

    def __init__(
        self,
        perplexity: float = 30.0,
        calculate_p_joint: bool = True,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class TSNE(Block):
    """t-SNE: the divergence (`TSNECore`) of learned embeddings, which are also the output `predicted_coords`. Minimising it trains them. They start standard normal."""

    def __init__(
        self,
        prediction_dim: int,
        input_type: typing.Literal["distances", "points"] = "distances",
        perplexity: float = 30.0,
        calculate_p_joint: bool = True,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
    ) -> None: ...

class SquaredError(Block):
    """`(input - target)^2`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class AbsoluteError(Block):
    """`|input - target|`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Huber(Block):
    """`e^2 / 2` where `|e| <= delta`, else `delta (|e| - delta / 2)`, for `e = input - target` (Huber 1964)."""

    def __init__(
        self,
        delta: float = 1.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LogCosh(Block):
    """`log(cosh(input - target))`: half the squared error near 0, and far from it the absolute error less `log(2)`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class HingeLoss(Block):
    """`max(0, 1 - input target)`, for targets of -1 and 1 (Rosasco et al. 2004)."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class QuadHingeLoss(Block):
    """`max(0, 1 - input target)^2`, for targets of -1 and 1 (Rosasco et al. 2004)."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class QuantileLoss(Block):
    """`max(q e, (q - 1) e)` for `e = target - input` (Koenker & Bassett 1978)."""

    def __init__(
        self,
        q: float,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class CrossEntropy(Block):
    """`-log p(target)`. The classes are along `axis` of `input`, by default the last one; torch has them at `axis=1`. An integer `target` has the shape of `input` without that axis; a float one has the shape of `input` and holds the probability of each class. `weights` must have one number for each class. With `label_smoothing` a share of each target is spread evenly over the classes (Szegedy et al. 2016). The loss of a target that is `ignore_index` is 0. With `robust` the logarithm of a probability of 0 stays finite. With `weights` or `ignore_index` the second output `weight` is the weight of each target: that of its class, 0 if it is ignored, 1 for probabilities. torch's mean is `sum(output) / sum(weight)`: `TrainModel` computes it if a reduce step is `Mean`, and `LossMean` computes it anywhere; a plain `Mean` divides by the number of all targets."""

    def __init__(
        self,
        input_type: typing.Literal["logits", "probs", "log_probs"] = "logits",
        weights: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int | None = None,
        robust: bool = False,
        axis: int = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class BinaryCrossEntropy(Block):
    """`-(pos_weight target log p + (1 - target) log(1 - p))`, where `input` is p, or for logits `p = sigmoid(input)`, computed with softplus so that it does not overflow. With `robust` the logarithm of a probability of 0 stays finite. A mean divides by the number of all targets for any `pos_weight`, as in torch."""

    def __init__(
        self,
        input_type: typing.Literal["logits", "probs"] = "logits",
        pos_weight: float = 1.0,
        robust: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class KLDivergence(Block):
    """`target (log target - log input)`, 0 where `target` is 0; its sum is the divergence of `input` from `target` (Kullback & Leibler 1951). With `robust` the logarithm of a probability of 0 stays finite."""

    def __init__(
        self,
        input_type: typing.Literal["probs", "log_probs"] = "probs",
        robust: bool = False,
        target_type: typing.Literal["probs", "log_probs"] = "probs",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class CosineEmbedding(Block):
    """`1 - cos(input, target)` along the last axis; where `label` is -1, `max(0, cos(input, target) - margin)` (Hadsell et al. 2006, with cosines as in torch)."""

    def __init__(
        self,
        margin: float = 0.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class NegativeLogLikelihood(Block):
    """`-log p(target)`, where `input` is log p, for example from `LogSoftmax`. It is `CrossEntropy` of `log_probs`: the classes are along `axis`, `weights` has a number for each class, a target that is `ignore_index` has loss 0, and with either of them the second output `weight` is the weight of each target, by which means divide."""

    def __init__(
        self,
        weights: Sequence[float] | None = None,
        ignore_index: int | None = None,
        axis: int = -1,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class PoissonNLL(Block):
    """The negative log-likelihood of the count `target` for a Poisson distribution: `exp(input) - target input`, or `input - target log(input + eps)` if `input` is the rate itself. `full` adds Stirling's approximation of `log(target!)` where `target` is above 1: `target log(target) - target + log(2 pi target) / 2`. PyTorch does the same."""

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class GaussianNLL(Block):
    """The negative log-likelihood of `target` for a normal distribution with mean `input`: `(log v + (input - target)^2 / v) / 2`, where v is `max(variance, eps)`; `full` adds `log(2 pi) / 2` (Nix & Weigend 1994). The gradient of `variance` is that of v, as in PyTorch, so a variance below `eps` can grow."""

    def __init__(
        self,
        full: bool = False,
        eps: float = 1e-6,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class SoftMargin(Block):
    """`log(1 + exp(-target input))`, for targets of -1 and 1, computed so that it does not overflow."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MarginRanking(Block):
    """`max(0, -target (left - right) + margin)`: the loss of two scores in the wrong order."""

    def __init__(
        self,
        margin: float = 0.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class TripletMargin(Block):
    """`max(0, |anchor - positive| - |anchor - negative| + margin)` along the last axis, where `|x|` is the norm of order `p` (Balntas et al. 2016)."""

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class FocalLoss(Block):
    """`BinaryCrossEntropy` of logits, times `(1 - p)^gamma` for the probability p of the target, times `alpha` where the target is 1 and `1 - alpha` where it is 0 (Lin et al. 2017). It is torchvision's `sigmoid_focal_loss`."""

    def __init__(
        self,
        gamma: float = 2.0,
        alpha: float = 0.25,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Dice(Block):
    """`1 - (2 sum(input target) + smooth) / (sum(input) + sum(target) + smooth)` over the axes of a mask, by default those of each sample, where `input` is probabilities (Sudre et al. 2017)."""

    def __init__(
        self,
        smooth: float = 1.0,
        axis: int | Sequence[int] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class HingeEmbedding(Block):
    """`input` where `target` is 1, `max(0, margin - input)` where it is -1: the loss of a distance between samples that are alike, or not."""

    def __init__(
        self,
        margin: float = 1.0,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MultiMargin(Block):
    """The mean over classes of `max(0, margin - input[target] + input[i])^p`, for all classes i but the target, along the last axis, times the weight of the target, as in `torch.nn.MultiMarginLoss`."""

    def __init__(
        self,
        p: float = 1.0,
        margin: float = 1.0,
        weights: Sequence[float] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MultiLabelSoftMargin(Block):
    """The mean of `BinaryCrossEntropy` of logits over the labels, the last axis, each times the weight of its label."""

    def __init__(
        self,
        weights: Sequence[float] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class MultiLabelMargin(Block):
    """The mean over classes of `max(0, 1 - (input[j] - input[i]))`, summed over all labels j in `target` and all classes i that are no label, along the last axis, as in `torch.nn.MultiLabelMarginLoss`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class LinearCrossEntropy(Block):
    """`CrossEntropy` of the logits that a `Linear` computes from `input`, (…, features). Its param is `linear.w`. With `sizes`, there are as many logits of each class as their product, and `target` is (…, sizes …). `init` is that of the `Linear`."""

    def __init__(
        self,
        classes: int,
        sizes: int | Sequence[int] | None = None,
        use_bias: bool = False,
        weights: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int | None = None,
        init: str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any] | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class AdaptiveLogSoftmax(Block):
    """The negative logarithm of the probability of `target`, an integer for each row of `input`, (…, features), for classes that are sorted by frequency. The first `cutoffs[0]` classes are in the head; each further range of classes, up to the next cutoff, is a cluster, of which the head has one logit. A cluster has the weights `w_in_0`, (features, features / div_value), and `w_out_0`, the next one has a width that is `div_value` times less, and so on. `log_probs` are those of all classes. They start as in `torch.nn.AdaptiveLogSoftmaxWithLoss`, whose `output` is the negated loss."""

    def __init__(
        self,
        classes: int,
        cutoffs: int | Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        return_log_probs: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class TripletMarginWithDistance(Block):
    """`max(0, distance(anchor, positive) - distance(anchor, negative) + margin)` for a block of two inputs as `distance`. `TripletMargin` is the loss of norms."""

    def __init__(
        self,
        distance: Block | None = None,
        margin: float = 1.0,
        swap: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        checkpoint: bool = False,
        gradient: Block | None = None,
    ) -> None: ...

class CTC(Block):
    """The negative log-likelihood of the labels `target`, one number for each sample, summed over all alignments: each step of `input` gives a label or the `blank` class, repeated labels are joined, and blanks are dropped (Graves et al. 2006). It is infinite if the labels do not fit into the steps; its gradient is 0 there. It is computed in single precision at least."""

    def __init__(
        self,
        blank: int = 0,
        input_type: typing.Literal["logits", "log_probs"] = "logits",
        zero_infinity: bool = False,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class GaussianProcessLoss(Block):
    """The negative logarithm of the likelihood of `target` under a Gaussian process whose samples have the covariance `input`, summed over targets (Rasmussen & Williams 2006, eq. 2.30). NaN if `input` is not positive definite."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class L1(Block):
    """`sum(|input|)` (Tibshirani 1996)."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class L2(Block):
    """`sum(input^2) / 2` (Hoerl & Kennard 1970): its gradient is `input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class QuadraticForm(Block):
    """`x kernel xᵀ / 2`, summed over the vectors x along the last axis of `input`."""

    def __init__(
        self,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Accuracy(Block):
    """The fraction of samples whose class is `target`. The class is that of the highest score along the last axis of `input`; with `binary` it is 1 if the score is above `threshold`; integers are classes themselves. A float `target` with as many dims as `input` also holds one score for each class."""

    def __init__(
        self,
        binary: bool = False,
        threshold: float = 0.5,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Precision(Block):
    """True positives over predicted positives of each class, 0 if there are none. `average` is over the classes that occur ("macro"), weighted by how often they do ("weighted"), over all samples ("micro"), or of class 1 alone ("binary"). Classes are determined as in `Accuracy`; if `input` holds classes, `classes` is their number."""

    def __init__(
        self,
        average: typing.Literal["macro", "micro", "weighted", "binary"] = "macro",
        threshold: float = 0.5,
        classes: int | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class Recall(Block):
    """True positives over actual positives of each class, 0 if there are none; averaged as in `Precision`."""

    def __init__(
        self,
        average: typing.Literal["macro", "micro", "weighted", "binary"] = "macro",
        threshold: float = 0.5,
        classes: int | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class F1(Block):
    """`2 true positives / (predicted + actual positives)` of each class, the harmonic mean of precision and recall (van Rijsbergen 1979), 0 if there are none; averaged as in `Precision`."""

    def __init__(
        self,
        average: typing.Literal["macro", "micro", "weighted", "binary"] = "macro",
        threshold: float = 0.5,
        classes: int | None = None,
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...

class AUC(Block):
    """The area under the curve of true over false positives (Hanley & McNeil 1982), computed exactly by trapezoids over the sorted scores, with equal scores in one step. With "binary" `input` scores class 1; otherwise each class, along the last axis, is scored against the rest, and `average` is over the classes that have positive and negative samples. 0 if there is no such class."""

    def __init__(
        self,
        average: typing.Literal["macro", "weighted", "binary"] = "macro",
        *,
        name: str | None = None,
        backend: str | None = None,
        device: str | None = None,
        dtype: object = None,
        precision: int | None = None,
        acc: object = None,
        gradient: Block | None = None,
    ) -> None: ...
