"""Models written without the composite blocks compile to the same as models that use them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import mithril as ml
from mithril.models import (
    Absolute,
    Buffer,
    Elu,
    Erf,
    Gelu,
    LayerNorm,
    LeakyRelu,
    LogSoftmax,
    LogSumExp,
    MatrixMultiply,
    Mish,
    Model,
    Relu,
    RMSNorm,
    ScaledDotProduct,
    Sigmoid,
    Silu,
    Softmax,
    Softplus,
    SwapAxes,
    Tanh,
    Where,
    ZerosLike,
)

Value = Any


class Writer:
    """Applies blocks to connections of a model."""

    def __init__(self) -> None:
        self.model = Model()
        self._count = 0

    def __call__(self, block: Any, *inputs: Value) -> Value:
        name = f"v{self._count}"
        self._count += 1
        self.model |= block(*inputs, name)
        return getattr(self.model, name)

    def input(self, name: str) -> Value:
        return self(Buffer(), name)

    def done(self, value: Value) -> Model:
        self.model |= Buffer()(input=value, output="y")
        return self.model


Write = Callable[[Writer], Value]


@dataclass
class Case:
    name: str
    clumsy: Write
    neat: Write
    shapes: dict[str, list[int]]
    math: str = "recognise"


ROWS = {"x": [6, 16]}
IMAGE = {"x": [2, 5, 16]}
HEADS = {"q": [2, 4, 8, 16], "k": [2, 4, 8, 16], "v": [2, 4, 8, 16]}
MASKED = {**HEADS, "m": [8, 8]}
CASES: list[Case] = []


def case(
    name: str, shapes: dict[str, list[int]], neat: Write, math: str = "recognise"
) -> Callable[[Write], Write]:
    def add(clumsy: Write) -> Write:
        CASES.append(Case(name, clumsy, neat, shapes, math))
        return clumsy

    return add


def on(block: Any) -> Write:
    """Applies the block to `x`."""
    return lambda w: w(block(), w.input("x"))


@case("softmax", ROWS, on(Softmax))
def _(w: Writer) -> Value:
    e = w.input("x").exp()
    return e / e.sum(axis=-1, keepdim=True)


@case("softmax less its maximum", ROWS, on(Softmax))
def _(w: Writer) -> Value:
    x = w.input("x")
    e = (x - x.max(axis=1, keepdim=True)).exp()
    return e * (1.0 / e.sum(axis=1, keepdim=True))


@case("softmax whose sums are given their axis back", ROWS, on(Softmax))
def _(w: Writer) -> Value:
    e = w.input("x").exp()
    return e / e.sum(axis=-1).expand_dims(-1)


@case("softmax of an axis within", IMAGE, on(lambda: Softmax(axis=1)))
def _(w: Writer) -> Value:
    e = w.input("x").exp()
    return e / e.sum(axis=1, keepdim=True)


@case("log of a softmax", ROWS, on(LogSoftmax))
def _(w: Writer) -> Value:
    return w(Softmax(), w.input("x")).log()


@case("log softmax", ROWS, on(LogSoftmax))
def _(w: Writer) -> Value:
    x = w.input("x")
    shifted = x - x.max(axis=-1, keepdim=True)
    return shifted - shifted.exp().sum(axis=-1, keepdim=True).log()


@case("log of the sum of exponentials", ROWS, on(lambda: LogSumExp(axis=-1)))
def _(w: Writer) -> Value:
    return w.input("x").exp().sum(axis=-1).log()


def _plain_norm(w: Writer) -> Value:
    return w(LayerNorm(use_scale=False, use_bias=False), w.input("x"))


@case("layer norm", ROWS, _plain_norm)
def _(w: Writer) -> Value:
    x = w.input("x")
    centred = x - x.mean(axis=-1, keepdim=True)
    return centred / ((centred * centred).mean(axis=-1, keepdim=True) + 1e-5).sqrt()


@case("layer norm by a variance", ROWS, _plain_norm)
def _(w: Writer) -> Value:
    x = w.input("x")
    return (x - x.mean(axis=-1, keepdim=True)) / (x.var(axis=-1, keepdim=True) + 1e-5) ** 0.5


@case("layer norm by sums", ROWS, _plain_norm)
def _(w: Writer) -> Value:
    x = w.input("x")
    centred = x - x.sum(axis=-1, keepdim=True) / 16.0
    return centred * ((centred**2).sum(axis=-1, keepdim=True) / 16.0 + 1e-5) ** -0.5


@case("layer norm by the mean of squares", ROWS, _plain_norm)
def _(w: Writer) -> Value:
    x = w.input("x")
    mean = x.mean(axis=-1, keepdim=True)
    variance = (x * x).mean(axis=-1, keepdim=True) - mean * mean
    return (x - mean) / (variance + 1e-5).sqrt()


@case("rms norm", ROWS, lambda w: w(RMSNorm(use_scale=False), w.input("x")))
def _(w: Writer) -> Value:
    x = w.input("x")
    return x / ((x**2).mean(axis=-1, keepdim=True) + 1e-5).sqrt()


@case("sigmoid", ROWS, on(Sigmoid))
def _(w: Writer) -> Value:
    return 1.0 / (1.0 + (-w.input("x")).exp())


@case("sigmoid of exponentials", ROWS, on(Sigmoid))
def _(w: Writer) -> Value:
    e = w.input("x").exp()
    return e / (e + 1.0)


@case("silu", ROWS, on(Silu))
def _(w: Writer) -> Value:
    x = w.input("x")
    return x / (1.0 + (-x).exp())


@case("silu by a sigmoid", ROWS, on(Silu))
def _(w: Writer) -> Value:
    x = w.input("x")
    return w(Sigmoid(), x) * x


@case("tanh", ROWS, on(Tanh))
def _(w: Writer) -> Value:
    x = w.input("x")
    return (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())


@case("gelu", ROWS, on(Gelu))
def _(w: Writer) -> Value:
    x = w.input("x")
    return x * 0.5 * (1.0 + w(Erf(), x / 1.4142135623730951))


@case("gelu in another order", ROWS, on(Gelu))
def _(w: Writer) -> Value:
    x = w.input("x")
    return 0.5 * (x * (w(Erf(), 0.7071067811865476 * x) + 1.0))


@case("gelu by tanh", ROWS, on(lambda: Gelu(approximate=True)))
def _(w: Writer) -> Value:
    x = w.input("x")
    return 0.5 * x * (1.0 + w(Tanh(), 0.7978845608028654 * (x + 0.044715 * x**3)))


@case("gelu by tanh of products", ROWS, on(lambda: Gelu(approximate=True)))
def _(w: Writer) -> Value:
    x = w.input("x")
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x * (0.5 * (1.0 + w(Tanh(), inner)))


@case("softplus", ROWS, on(Softplus))
def _(w: Writer) -> Value:
    return (1.0 + w.input("x").exp()).log()


@case("mish", ROWS, on(Mish))
def _(w: Writer) -> Value:
    x = w.input("x")
    return x * w(Tanh(), (x.exp() + 1.0).log())


@case("elu", ROWS, on(lambda: Elu(alpha=0.5)))
def _(w: Writer) -> Value:
    x = w.input("x")
    return w(Where(), x > 0.0, x, 0.5 * (x.exp() - 1.0))


@case("leaky relu", ROWS, on(lambda: LeakyRelu(slope=0.25)))
def _(w: Writer) -> Value:
    x = w.input("x")
    return w(Where(), x > 0.0, x, x * 0.25)


@case("mean", ROWS, lambda w: w.input("x").mean(axis=0))
def _(w: Writer) -> Value:
    return w.input("x").sum(axis=0) / 6.0


@case("variance", ROWS, lambda w: w.input("x").var(axis=1))
def _(w: Writer) -> Value:
    x = w.input("x")
    return ((x - x.mean(axis=1, keepdim=True)) ** 2).mean(axis=1)


def _attend(w: Writer) -> Value:
    q, k, v = (w.input(name) for name in "qkv")
    w.model |= ScaledDotProduct()(query=q, key=k, value=v, output="attended")
    return w.model.attended


@case("attention", HEADS, _attend)
def _(w: Writer) -> Value:
    q, k, v = (w.input(name) for name in "qkv")
    scores = w(MatrixMultiply(), q, w(SwapAxes(-1, -2), k)) / 4.0
    e = (scores - scores.max(axis=-1, keepdim=True)).exp()
    return w(MatrixMultiply(), e / e.sum(axis=-1, keepdim=True), v)


@case("attention whose queries are scaled", HEADS, _attend)
def _(w: Writer) -> Value:
    q, k, v = (w.input(name) for name in "qkv")
    turned = k.transpose((0, 1, 3, 2))
    return w(MatrixMultiply(), w(Softmax(), w(MatrixMultiply(), q * 0.25, turned)), v)


@case("the same twice", ROWS, on(Softmax))
def _(w: Writer) -> Value:
    x = w.input("x")
    return (x * 1.0).exp() / ((x + 0.0).exp() - 0.0).sum(axis=-1, keepdim=True)


@case("what undoes itself", IMAGE, lambda w: w(Relu(), w.input("x")))
def _(w: Writer) -> Value:
    x = w.input("x")
    turned = x.transpose((0, 2, 1)).reshape((2, 80)).reshape((2, 16, 5)).transpose((0, 2, 1))
    return w(Relu(), w(Relu(), -1.0 * (-turned)))


@case("numbers one by one", ROWS, lambda w: w.input("x") * 6.0 + 3.0, "reassociate")
def _(w: Writer) -> Value:
    return (w.input("x") * 2.0) * 3.0 + 1.0 + 2.0


@case("squares that cancel", ROWS, on(Absolute))
def _(w: Writer) -> Value:
    return (w.input("x") ** 2).sqrt()


def shape_of(module: str) -> str:
    """Only the operations of a module, without names, locations and paths."""
    body = module[module.index("{") + 1 :]
    body = re.sub(r" @ .*$", "", body, flags=re.MULTILINE)
    body = re.sub(r"square\((%\w+)\)", r"mul(\1, \1)", body)
    names: dict[str, str] = {}
    return re.sub(r"%\w+", lambda m: names.setdefault(m[0], f"%{len(names)}"), body)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verbose_models_are_simplified(case: Case) -> None:
    def compiled(write: Write, **options: Any) -> ml.CompiledModel:
        writer = Writer()
        model = writer.done(write(writer))
        backend = ml.CpuBackend()
        return ml.compile(model, backend, shapes=case.shapes, inference=True, **options)

    clumsy, neat = compiled(case.clumsy, math=case.math), compiled(case.neat)
    assert shape_of(clumsy.module) == shape_of(neat.module)
    random = np.random.default_rng(0)
    inputs = {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in case.shapes.items()
    }
    kept = compiled(case.clumsy, optimization_level="none")
    expected = kept.evaluate({}, inputs)["y"]
    np.testing.assert_allclose(clumsy.evaluate({}, inputs)["y"], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("math", ["exact", "recognise"])
@pytest.mark.parametrize("rows", ["n", 2])
def test_uniform_arrays_become_numbers(math: str, rows: Any) -> None:
    w = Writer()
    x = w.input("x")
    model = w.done(w(ZerosLike(), x) * 3.0 + 2.0 + x)
    shapes = {"x": [rows, 3]}
    compiled = ml.compile(model, ml.NumpyBackend(), shapes=shapes, inference=True, math=math)
    assert "y = x + 2.0\n" in compiled.code or "y = 2.0 + x\n" in compiled.code
    assert "np." not in compiled.code
    for n in (0, 2) if rows == "n" else (2,):
        x = np.arange(3.0 * n, dtype=np.float32).reshape(n, 3)
        np.testing.assert_array_equal(compiled.evaluate({}, {"x": x})["y"], x + 2)


def test_explain_states_the_size_assumed_for_unknown_dims() -> None:
    def explained(*shape: Any) -> str:
        compiled = ml.compile(Softmax(), ml.NumpyBackend(), shapes={"input": list(shape)})
        return str(compiled.explain()).splitlines()[0]

    assert explained("n", 3).endswith(" after, with 128 for unknown dims")
    assert explained(2, 3).endswith(" after")
