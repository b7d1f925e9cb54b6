"""Functions of one element."""

from __future__ import annotations

from typing import Any

import torch
from scipy import special

import mithril as ml

from .row import BOOL, INT, M, alone, row

F = torch.nn.functional


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


ROWS = {
    "Relu": row(torch.relu),
    "LeakyRelu": row(F.leaky_relu),
    "Elu": row(F.elu),
    "Selu": row(F.selu),
    "Gelu": row(F.gelu),
    "Silu": row(F.silu),
    "Mish": row(F.mish),
    "Hardswish": row(F.hardswish),
    "Sigmoid": row(torch.sigmoid),
    # The gradient of torch's own function divides by six in single precision.
    "HardSigmoid": row(lambda x: F.relu6(x + 3) / 6).but(tolerance=1e-7),
    "Softplus": row(lambda x: torch.log1p(torch.exp(x))),
    "Softsign": row(F.softsign),
    "Tanh": row(torch.tanh),
    "Relu6": row(F.relu6),
    "Hardtanh": row(F.hardtanh),
    "Celu": row(F.celu),
    "Hardshrink": row(F.hardshrink),
    "Softshrink": row(F.softshrink),
    "Tanhshrink": row(F.tanhshrink),
    "Threshold": row(lambda x: F.threshold(x, 0.5, 0.25), M, threshold=0.5, value=0.25),
    "LogSigmoid": row(F.logsigmoid),
    "Sign": row(torch.sign),
    "Square": row(torch.square),
    "Sqrt": row(torch.sqrt),
    "Exponential": row(torch.exp),
    "Log": row(torch.log),
    "Log1p": row(torch.log1p),
    "Expm1": row(torch.expm1),
    "Absolute": row(torch.abs),
    "Negate": row(torch.neg),
    "Reciprocal": row(torch.reciprocal),
    # The range of numbers has none near 0, where the block differs.
    "StableReciprocal": row(torch.reciprocal),
    "Buffer": row(torch.clone),
    "Sine": row(torch.sin),
    "Cosine": row(torch.cos),
    "Tan": row(torch.tan),
    "Asin": row(torch.asin),
    "Acos": row(torch.acos),
    "Atan": row(torch.atan),
    "Sinh": row(torch.sinh),
    "Cosh": row(torch.cosh),
    "Erf": row(torch.erf),
    "Floor": row(torch.floor),
    "Ceil": row(torch.ceil),
    "Round": row(torch.round),
    "IsNan": row(torch.isnan),
    "IsInf": row(torch.isinf),
    "NanToNum": row(torch.nan_to_num),
    "LogicalNot": row(torch.logical_not, M, dtypes=BOOL),
    "BitwiseNot": row(torch.bitwise_not, M, dtypes=INT),
    "Cast": row(torch.Tensor.float, M, dtype=ml.float32),
    # torch's own clamp has a gradient of 0 at the bounds.
    "Clamp": row(
        lambda x: torch.where((x < 0.25) | (x > 0.625), x.detach().clamp(0.25, 0.625), x),
        M,
        min=0.25,
        max=0.625,
    ),
    "StopGradient": row(torch.detach),
    "Shard": row(torch.clone, M, tensor_split=[1]),
    "Lgamma": row(torch.lgamma),
    # torch's own gradient has few digits.
    "Digamma": row(Digamma.apply).but(twice=False, tolerance=1e-8),
    "Erfinv": row(torch.erfinv),
    "I0": row(torch.i0),
    "Sinc": row(torch.sinc),
    "Logit": row(torch.logit),
    "Dropout": alone(M, rate=0.5),
}
