"""Generated PyTorch source on an NVIDIA GPU against public implementations.

    python tests/cuda/bench.py

prints milliseconds of a call, the public implementation's, and the ratio: above 1, Mithril's is
faster. The least of several calls, in turns. `training` is outputs and the gradients of all params.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torchvision
import transformers

import mithril as ml
from mithril import zoo

CUDA = "cuda:0"
SECONDS = 1.0
Call = Callable[[], object]


def fastest(calls: list[Call]) -> list[float]:
    """Milliseconds of each call, taken in turns."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        for _ in range(3):
            call()
    end = time.perf_counter() + SECONDS * len(calls)
    while time.perf_counter() < end or len(times[0]) < 5:
        for own, call in zip(times, calls):
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            own.append(time.perf_counter() - start)
    return [min(own) * 1e3 for own in times]


def report(name: str, ours: Call, theirs: Call) -> None:
    own, other = fastest([ours, theirs])
    print(f"{name:44} {own:9.3f} {other:9.3f} {other / own:6.2f}", flush=True)


def compare(
    name: str, build: Call, module: Any, x: Any, output: str, *, amp: bool, jit: bool
) -> None:
    """Forward and training of a model and of the module with the same weights."""
    model: Any = build()
    params, states = zoo.load(model, module.state_dict())
    options = {"shapes": {"input": list(x.shape)}}
    backend = ml.TorchBackend(device=CUDA, use_amp="bfloat16" if amp else False, jit_compile=jit)
    params = {n: backend.array(v) for n, v in params.items()}
    module = module.to(CUDA)
    run = torch.compile(module) if jit else module
    leaves = list(module.parameters())
    context = lambda: torch.autocast("cuda", torch.bfloat16, enabled=amp)  # noqa: E731

    def logits() -> Any:
        with context():
            found = run(x)
        return found.logits if hasattr(found, "logits") else found

    def infer() -> Any:
        with torch.no_grad():
            return logits()

    def train() -> None:
        found = logits()
        torch.autograd.grad(found, leaves, torch.ones_like(found))

    label = f"{name}{', bfloat16' if amp else ''}{', torch.compile' if jit else ''}"
    module.eval()
    forward = ml.compile(model, backend, inference=True, **options)
    if states:
        forward.state = {n: backend.array(v) for n, v in states.items()}
    got = forward.evaluate(params, {"input": x})[output]
    want = infer()
    error = float((got - want).abs().max() / want.abs().max())
    assert error < (0.05 if amp else 1e-3), error
    report(f"{label}, forward", lambda: forward.evaluate(params, {"input": x}), infer)
    module.train(bool(states))
    whole = ml.compile(model, backend, **options)
    if states:
        whole.state = {n: backend.array(v) for n, v in states.items()}
    seeds = {output: torch.ones_like}
    report(
        f"{label}, training",
        lambda: whole.evaluate(params, {"input": x}, output_gradients=seeds),
        train,
    )


def main() -> None:
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    print(torch.cuda.get_device_name(), torch.__version__)
    tokens = torch.randint(0, 50257, (8, 512), device=CUDA)
    images = torch.randn(32, 3, 224, 224, device=CUDA)
    own = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    for amp, jit in ((False, False), (True, False), (True, True)):
        gpt = transformers.GPT2LMHeadModel(own)
        compare(
            "GPT-2, 8 x 512", lambda: zoo.GPT2(dropout=0.0), gpt, tokens, "output", amp=amp, jit=jit
        )
        resnet = torchvision.models.resnet50()
        compare(
            "ResNet-50, 32 x 224 x 224",
            lambda: zoo.ResNet(50, classes=1000),
            resnet,
            images,
            "output",
            amp=amp,
            jit=jit,
        )


if __name__ == "__main__":
    main()
