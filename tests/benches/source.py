"""Generated source against the same models written by hand, and NumPy's against SciPy.

    python tests/benches/source.py [torch] [jax] [numpy]

prints milliseconds of a call on one thread, and the ratio to the model written by hand: above 1,
Mithril's is faster. The median of many calls, in turns. `training` is outputs and gradients of
all params, by the framework's own differentiation in both. `source alone` calls the generated
source as a user of PyTorch does, without `evaluate` and its checks.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import numpy as np

import mithril as ml
from mithril.models import (
    GRU,
    LSTM,
    BatchNorm2d,
    Conv1d,
    Conv2d,
    Flatten,
    Linear,
    MaxPool2d,
    Relu,
    Residual,
    Sequential,
)

SECONDS = 1.5


def medians(calls: list[Any]) -> list[float]:
    """Milliseconds of each call, taken in turns, in one order and then in the other: a call finds
    in the caches what the one before it left."""
    for call in calls:
        call()
        call()
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + SECONDS * len(calls)
    turns = list(zip(times, calls, strict=True))
    while time.perf_counter() < end or len(times[0]) < 6:
        for own, call in turns:
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
        turns.reverse()
    return [statistics.median(own) * 1e3 for own in times]


def report(name: str, ours: Any, theirs: Any) -> None:
    ms = medians([ours, theirs])
    print(f"{name:59} {ms[0]:9.3f} {ms[1]:9.3f} {ms[1] / ms[0]:6.2f}", flush=True)


# The models, as blocks.


def convolutions() -> Any:
    return Sequential(
        [
            Conv2d(16, 3, padding=1),
            Relu(),
            MaxPool2d(2),
            Conv2d(32, 3, padding=1),
            Relu(),
            MaxPool2d(2),
            Flatten(start=1),
            Linear(10),
        ]
    )


def residual() -> Any:
    inner = Sequential(
        [
            Conv2d(32, 3, padding=1, use_bias=False),
            BatchNorm2d(),
            Relu(),
            Conv2d(32, 3, padding=1, use_bias=False),
            BatchNorm2d(),
        ]
    )
    return Sequential([Residual(inner), Relu()])


def depthwise() -> Any:
    return Sequential([Conv2d(64, 3, padding=1, groups=64), Relu(), Conv2d(64, 1)])


def signals() -> Any:
    return Sequential([Conv1d(64, 5, stride=2), Relu(), Conv1d(64, 5, stride=2)])


MODELS: dict[str, tuple[Any, list[int]]] = {
    "convolutions and pooling, 16 x 3 x 32 x 32": (convolutions, [16, 3, 32, 32]),
    "residual with batch norm, 8 x 32 x 28 x 28": (residual, [8, 32, 28, 28]),
    "depthwise and 1x1, 8 x 64 x 28 x 28": (depthwise, [8, 64, 28, 28]),
    "signals, 16 x 8 x 1000": (signals, [16, 8, 1000]),
    "LSTM, 16 x 64 x 64, 128": (lambda: LSTM(128), [16, 64, 64]),
    "GRU, 16 x 64 x 64, 128": (lambda: GRU(128), [16, 64, 64]),
}


def by_hand_torch() -> dict[str, Any]:
    """The models as a user of PyTorch writes them."""
    from torch import nn  # noqa: PLC0415

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(32, 32, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(32)
            self.second = nn.Conv2d(32, 32, 3, padding=1, bias=False)
            self.last = nn.BatchNorm2d(32)

        def forward(self, x: Any) -> Any:
            inner = self.norm(self.first(x)).relu()
            return (x + self.last(self.second(inner))).relu()

    class First(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x)[0]

    small = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2048, 10),
    )
    return dict(
        zip(
            MODELS,
            [
                small,
                Block(),
                nn.Sequential(
                    nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.ReLU(), nn.Conv2d(64, 64, 1)
                ),
                nn.Sequential(
                    nn.Conv1d(8, 64, 5, stride=2), nn.ReLU(), nn.Conv1d(64, 64, 5, stride=2)
                ),
                First(nn.LSTM(64, 128, batch_first=True)),
                First(nn.GRU(64, 128, batch_first=True)),
            ],
            strict=True,
        )
    )


def torch_rows() -> None:
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    hand = by_hand_torch()
    for name, (make, shape) in MODELS.items():
        compiled = ml.compile(make(), ml.TorchBackend(), shapes={"input": shape})
        params = compiled.randomize_params(seed=0)
        predict, module = compiled.for_inference(), hand[name]
        data = {"input": torch.randn(shape)}
        seed = torch.ones_like(module(data["input"]))

        def forward(module: Any = module, data: Any = data) -> None:
            with torch.no_grad():
                module(data["input"])

        def training(module: Any = module, data: Any = data, seed: Any = seed) -> Any:
            module.zero_grad(set_to_none=True)
            output = module(data["input"])
            output.backward(seed)
            return output

        def ours_forward(predict: Any = predict, params: Any = params, data: Any = data) -> None:
            with torch.no_grad():
                predict.evaluate(params, data)

        module.eval()
        report(f"torch, {name}, forward", ours_forward, forward)
        module.train()
        ours = partial(compiled.evaluate, params, data, output_gradients={"output": seed})
        report(f"torch, {name}, training", ours, training)

        names: dict[str, Any] = {}
        exec(compiled.code, names)
        leaves = {name: param.clone().requires_grad_() for name, param in params.items()}
        arguments = [leaves, data] + ([compiled.initial_state()] if compiled.state else [])
        source = partial(names["forward"], *arguments)

        def alone(source: Any = source, leaves: Any = leaves, seed: Any = seed) -> Any:
            for leaf in leaves.values():
                leaf.grad = None
            result = source()
            output = (result[0] if isinstance(result, tuple) else result)["output"]
            output.backward(seed)
            return output

        report(f"torch, {name}, training, source alone", alone, training)


def by_hand_jax() -> dict[str, Any]:
    """Functions of the models' params and the input, as a user of JAX writes them. Batch norm is
    that of training."""
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415
    from jax import lax  # noqa: PLC0415

    def conv(
        x: Any, w: Any, b: Any = None, *, stride: int = 1, pad: int = 0, groups: int = 1
    ) -> Any:
        axes = "WHD"[: x.ndim - 2][::-1]
        y = lax.conv_general_dilated(
            x,
            w,
            (stride,) * len(axes),
            [(pad, pad)] * len(axes),
            dimension_numbers=(f"NC{axes}", f"OI{axes}", f"NC{axes}"),
            feature_group_count=groups,
        )
        return y if b is None else y + b.reshape(-1, *[1] * len(axes))

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def norm(x: Any, scale: Any, bias: Any) -> Any:
        mean = x.mean((0, 2, 3), keepdims=True)
        variance = x.var((0, 2, 3), keepdims=True)
        own = (1, -1, 1, 1)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale.reshape(own) + bias.reshape(own)

    def small(w: Any, x: Any) -> Any:
        x = pool(jax.nn.relu(conv(x, w[0], w[1], pad=1)))
        x = pool(jax.nn.relu(conv(x, w[2], w[3], pad=1)))
        return x.reshape(len(x), -1) @ w[4] + w[5]

    def block(w: Any, x: Any) -> Any:
        inner = jax.nn.relu(norm(conv(x, w[0], pad=1), w[1], w[2]))
        return jax.nn.relu(x + norm(conv(inner, w[3], pad=1), w[4], w[5]))

    def deep(w: Any, x: Any) -> Any:
        return conv(jax.nn.relu(conv(x, w[0], w[1], pad=1, groups=64)), w[2], w[3])

    def wave(w: Any, x: Any) -> Any:
        return conv(jax.nn.relu(conv(x, w[0], w[1], stride=2)), w[2], w[3], stride=2)

    def lstm(p: Any, x: Any) -> Any:
        wx, wh, b = p

        def step(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(x + h @ wh, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((len(x), wh.shape[0]))
        _, y = lax.scan(step, (start, start), jnp.swapaxes(x @ wx + b, 0, 1))
        return jnp.swapaxes(y, 0, 1)

    def gru(p: Any, x: Any) -> Any:
        wx, wh, b, bh = p

        def step(h: Any, x: Any) -> Any:
            xr, xz, xn = jnp.split(x, 3, axis=-1)
            hr, hz, hn = jnp.split(h @ wh, 3, axis=-1)
            z = jax.nn.sigmoid(xz + hz)
            n = jnp.tanh(xn + jax.nn.sigmoid(xr + hr) * (hn + bh))
            h = (1 - z) * n + z * h
            return h, h

        start = jnp.zeros((len(x), wh.shape[0]))
        _, y = lax.scan(step, start, jnp.swapaxes(x @ wx + b, 0, 1))
        return jnp.swapaxes(y, 0, 1)

    return dict(zip(MODELS, [small, block, deep, wave, lstm, gru], strict=True))


def jax_rows() -> None:
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415

    hand = by_hand_jax()
    for name, (make, shape) in MODELS.items():
        compiled = ml.compile(make(), ml.JaxBackend(), shapes={"input": shape})
        params = compiled.randomize_params(seed=0)
        function = jax.jit(hand[name])
        x = jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)
        data = {"input": x}
        outputs, gradients = compiled.evaluate(
            params, data, output_gradients={"output": jnp.ones_like}
        )
        seed = jnp.ones_like(outputs["output"])

        def both(p: Any, x: Any, seed: Any, function: Any = function) -> Any:
            y, back = jax.vjp(lambda p: function(p, x), p)
            return y, back(seed)[0]

        step = jax.jit(both)
        own = [params[key] for key in compiled.params]
        want, expected = step(own, x, seed)
        np.testing.assert_allclose(outputs["output"], want, rtol=1e-3, atol=1e-3)
        for key, value in zip(compiled.params, expected, strict=True):
            np.testing.assert_allclose(gradients[key], value, rtol=1e-2, atol=1e-2)

        def wait(call: Any) -> Any:
            return lambda: jax.block_until_ready(call())

        report(
            f"jax, {name}, forward",
            wait(partial(compiled.evaluate, params, data)),
            wait(partial(function, own, x)),
        )
        report(
            f"jax, {name}, training",
            wait(partial(compiled.evaluate, params, data, output_gradients={"output": seed})),
            wait(partial(step, own, x, seed)),
        )


def numpy_rows() -> None:
    import scipy.fft  # noqa: PLC0415
    import scipy.ndimage  # noqa: PLC0415
    import scipy.signal  # noqa: PLC0415

    random = np.random.default_rng(0)

    def compare(name: str, model: Any, x: Any, hand: Any) -> None:
        compiled = ml.compile(model, ml.NumpyBackend(), shapes={"input": list(x.shape)})
        params = compiled.randomize_params(seed=0)
        np.testing.assert_allclose(
            np.asarray(next(iter(compiled.evaluate(params, {"input": x}).values()))),
            hand(params, x),
            rtol=1e-3,
            atol=1e-3,
        )
        ours = partial(compiled.evaluate, params, {"input": x})
        report(f"numpy, {name}", ours, partial(hand, params, x))

    def correlated(method: str) -> Any:
        def run(params: Any, x: Any) -> Any:
            (w,) = params.values()
            return np.stack(
                [
                    np.stack(
                        [
                            sum(
                                scipy.signal.correlate(c, k, "valid", method)
                                for c, k in zip(image, kernel, strict=True)
                            )
                            for kernel in w
                        ]
                    )
                    for image in x
                ]
            )

        return run

    def filtered(params: Any, x: Any) -> Any:
        (w,) = params.values()
        return np.stack(
            [
                np.stack(
                    [
                        sum(
                            scipy.ndimage.correlate(c, k)[1:-1, 1:-1]
                            for c, k in zip(image, kernel, strict=True)
                        )
                        for kernel in w
                    ]
                )
                for image in x
            ]
        )

    for batch, channels, size, filters, kernel in [
        (1, 1, 256, 1, 3),
        (1, 1, 256, 1, 9),
        (1, 1, 256, 1, 15),
        (1, 1, 256, 1, 31),
        (4, 3, 128, 4, 15),
        (4, 3, 64, 8, 3),
        (4, 16, 28, 32, 3),
    ]:
        x = random.standard_normal((batch, channels, size, size)).astype(np.float32)
        shape = f"{batch} x {channels} x {size} x {size}, {filters} of {kernel} x {kernel}"
        model = partial(Conv2d, filters, kernel, use_bias=False)
        for method in ("direct", "fft"):
            compare(f"{shape}, signal {method}", model(), x, correlated(method))
        if kernel == 3:
            compare(f"{shape}, ndimage", model(), x, filtered)
    for length, taps in [(4096, 64), (4096, 512), (100_000, 64), (100_000, 512), (1_000_000, 512)]:
        x = random.standard_normal((1, 1, length)).astype(np.float32)
        model = partial(Conv1d, 1, taps, use_bias=False)
        for method in ("auto", "fft"):
            compare(f"{length}, {taps} taps, signal {method}", model(), x, correlated(method))


HEAP = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}
"""The heap keeps its pages. Otherwise the next call may have to map again what this one has freed,
which takes up to a quarter of its time."""


def main() -> None:
    if not HEAP.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **HEAP})
    kinds = sys.argv[1:] or ["torch", "jax", "numpy"]
    for kind, rows in (("torch", torch_rows), ("jax", jax_rows), ("numpy", numpy_rows)):
        if kind in kinds:
            rows()


if __name__ == "__main__":
    main()
