"""Models under `use_amp=True` equal PyTorch's own modules under `torch.autocast`: the dtypes of
results, and numbers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mithril as ml
from mithril.models import Add, BatchNorm2d, Conv2d, Gelu, Linear, Model, Relu

WIDTH, HEADS, HIDDEN = 16, 4, 32


def mlp():
    model = Model()
    model += Linear(64)(input="x")
    model += Gelu()
    model += Linear(64)
    model += Relu()
    model += Linear(10)(output="y")
    return model


def block():
    inner = Model()
    inner += Conv2d(8, 3, padding=1)(input="x")
    inner += BatchNorm2d()
    inner += Relu()
    inner += Conv2d(8, 3, padding=1)
    inner += BatchNorm2d()(output="h")
    inner |= Add()(left="x", right="h", output="sum")
    inner |= Relu()(input="sum", output="y")
    return inner


def layer():
    model = Model()
    model += ml.TransformerEncoderLayer(WIDTH, HEADS, feedforward=HIDDEN, dropout=0.0)(
        input="x", output="y"
    )
    return model


class ResNetBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(2))

    def forward(self, x):
        h = torch.relu(self.norms[0](self.convs[0](x)))
        return torch.relu(x + self.norms[1](self.convs[1](h)))


# PyTorch's modules, with our names of their params, and whether ours are transposed.


def of_mlp():
    module = nn.Sequential(
        nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    pairs = {f"{2 * i}.weight": (f"linear_{i}.w", True) for i in range(3)}
    return module, pairs | {f"{2 * i}.bias": (f"linear_{i}.b", False) for i in range(3)}


def of_block():
    names = {}
    for i in range(2):
        for part, own in (("weight", "w"), ("bias", "b")):
            names[f"convs.{i}.{part}"] = (f"conv2d_{i}.{own}", False)
            names[f"norms.{i}.{part}"] = (f"batch_norm2d_{i}.{own}", False)
    return ResNetBlock(), names


def of_layer():
    module = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True)

    def own(*names):
        return [f"transformer_encoder_layer.{name}" for name in names]

    parts = ("query", "key", "value")
    names = {
        "self_attn.in_proj_weight": (own(*(f"attention.w_{part}" for part in parts)), True),
        "self_attn.in_proj_bias": (own(*(f"attention.b_{part}" for part in parts)), False),
        "self_attn.out_proj.weight": (own("attention.w_output"), True),
        "self_attn.out_proj.bias": (own("attention.b_output"), False),
    }
    for i in range(2):
        names[f"linear{i + 1}.weight"] = (own(f"linear_{i}.w"), True)
        names[f"linear{i + 1}.bias"] = (own(f"linear_{i}.b"), False)
        names[f"norm{i + 1}.weight"] = (own(f"norm_{i}.w"), False)
        names[f"norm{i + 1}.bias"] = (own(f"norm_{i}.b"), False)
    return module, names


def gathered(arrays, name, transposed):
    """The array that PyTorch's module has for one of ours, or for several."""
    several = [arrays[own] for own in ([name] if isinstance(name, str) else name)]
    return torch.cat([x.T if transposed else x for x in several])


CASES = {
    "mlp": (mlp, of_mlp, (16, 32)),
    "block": (block, of_block, (4, 8, 6, 6)),
    "layer": (layer, of_layer, (3, 7, WIDTH)),
}


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
@pytest.mark.parametrize("memory_efficient", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_amp_equals_the_modules_of_torch(case, memory_efficient, autodiff):
    make, of, shape = CASES[case]
    backend = ml.TorchBackend(use_amp=True, memory_efficient=memory_efficient)
    compiled = ml.compile(make(), backend, shapes={"x": list(shape)}, autodiff=autodiff)
    params = compiled.randomize_params(seed=0)
    module, names = of()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator)
    with torch.no_grad():
        for name, leaf in module.named_parameters():
            leaf.copy_(gathered(params, *names[name]))
    double = copy.deepcopy(module).double()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = module(x)
    seed = torch.randn(want.shape, generator=generator).to(want.dtype)
    want.backward(seed)
    outputs, gradients = compiled.evaluate(
        params, {"x": x}, state=compiled.initial_state(), output_gradients={"y": seed}
    )[:2]
    assert outputs["y"].dtype == want.dtype
    exact = double(x.double())
    exact.backward(seed.double())
    found, leaves = [outputs["y"]], [leaf.grad for _, leaf in module.named_parameters()]
    found += [gathered(gradients, *names[name]) for name, _ in module.named_parameters()]
    truth = [exact, *(leaf.grad for leaf in double.parameters())]
    for got, of_torch, true in zip(found, [want, *leaves], truth):
        assert got.dtype == of_torch.dtype
        if autodiff == "framework":
            assert torch.equal(got, of_torch)
            continue
        # Our formulas round other values, such as those inside of batch norms.
        error = (of_torch - true).abs().max()
        assert (got - true).abs().max() <= 2 * error + 1e-6 * true.abs().max()


def test_products_and_biases_are_one_call_under_amp():
    """The sum would have the bias's dtype, where that of PyTorch's linear layer is narrow."""
    model = Model()
    model += Linear(5)(input="x")
    model += Linear(3, use_bias=False)(output="y")
    x = torch.ones(2, 4)
    for backend, line in (
        (ml.TorchBackend(use_amp=True), "F.linear(x, linear_0_w.T, linear_0_b)"),
        (ml.TorchBackend(), "x @ linear_0_w + linear_0_b"),
    ):
        for level in ("none", "basic", "full"):
            compiled = ml.compile(
                model, backend, shapes={"x": ["n", 4]}, optimization_level=level, inference=True
            )
            assert line in compiled.code
    params = compiled.randomize_params(0)
    amp = ml.compile(model, ml.TorchBackend(use_amp=True), shapes={"x": ["n", 4]}, inference=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = F.linear(x, params["linear_0.w"].T, params["linear_0.b"]) @ params["linear_1.w"]
    assert torch.equal(amp.evaluate(params, {"x": x})["y"], want)


def test_a_part_under_amp_beside_another_backend():
    """Only the source of the part under AMP has one call for both."""
    model = Model()
    model |= Linear(4, name="first")(input="x", output="h")
    model |= Linear(3, name="second")(input="h", output="y")
    for own, other, amp in (
        (ml.NumpyBackend(), ml.TorchBackend(use_amp=True), True),
        (ml.TorchBackend(use_amp=True), ml.TorchBackend("float32", eager_mode=True), True),
    ):
        compiled = ml.compile(
            model, own, shapes={"x": [2, 4]}, backend_map={"second": other}, inference=True
        )
        assert ("F.linear(" in compiled.code) is amp
        assert " @ " in compiled.code
