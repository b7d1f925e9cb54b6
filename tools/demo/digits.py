"""Trains a classifier of handwritten digits on every backend, with the same initial params and
batches, and shows that the results agree.

    make demo            or: python tools/demo/digits.py --backends numpy,torch,jax

The accuracy is that on 360 images that are not used for training. The folder out/ gets the code
that each backend runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# More threads do not help on such small matrices, and are much slower if other programs run.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits

import mithril as ml
from mithril.models import Linear, Model, Relu

OUT = Path(__file__).resolve().parents[2] / "out"
BACKENDS = {
    "numpy": ml.NumpyBackend,
    "torch": ml.TorchBackend,
    "jax": ml.JaxBackend,
    "cpu": ml.CpuBackend,
    "c": ml.CBackend,
}
# The width in columns if standard output is not a terminal: enough for every table and line.
WIDE = 1000
BATCH = 64
RATE = 0.3
TOLERANCE = 1e-5


@dataclass
class Data:
    """Images as rows of 64 numbers from 0 to 1, and labels, split for training and testing."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


@dataclass
class Run:
    """The results of one backend."""

    name: str
    compile_ms: float
    losses: list[float] = field(default_factory=list)
    first_ms: float = 0.0
    step_ms: float = 0.0
    accuracy: float = 0.0
    path: Path = OUT


def digits() -> Data:
    """The images in a fixed random order; the last 360, a fifth, are for testing."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order] / 16.0, labels[order]
    return Data(images[:-360], labels[:-360], images[-360:], labels[-360:])


def classifier() -> Model:
    """The model for all backends: two hidden layers, with logits as output."""
    hidden = Model(name="hidden")
    for _ in range(2):
        hidden += Linear(64)
        hidden += Relu()
    model = Model()
    model += hidden(input="input")
    model += Linear(10, name="head")(output="logits")
    return model


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean loss, and its gradient with respect to the logits."""
    rows = np.arange(len(labels))
    chances = softmax(logits)
    gradient = chances.copy()
    gradient[rows, labels] -= 1
    return float(-np.log(chances[rows, labels]).mean()), gradient / len(labels)


def train(name: str, data: Data, initial: dict[str, np.ndarray], steps: int, bar: Any) -> Run:
    """Trains the classifier on one backend by gradient descent."""
    backend = BACKENDS[name](dtype=ml.float64)
    # Source goes to a file; of machine code there is a listing of its launches.
    is_source = backend.target.dialect != "machine"
    path = OUT / f"digits_{name}{backend.target.suffix if is_source else '.txt'}"
    start = time.perf_counter()
    compiled = ml.compile(
        classifier(),
        backend,
        shapes={"input": ["batch", 64]},
        file_path=str(path) if is_source else None,
    )
    run = Run(name, 1000 * (time.perf_counter() - start), path=path)
    if not is_source:
        path.write_text(compiled.code)
    params = {key: backend.array(value) for key, value in initial.items()}
    order = np.random.default_rng(1)
    seconds: list[float] = []
    for _ in range(steps):
        batch = order.choice(len(data.images), BATCH, replace=False)
        labels = data.labels[batch]

        def seed(logits: Any, labels: np.ndarray = labels) -> Any:
            loss, gradient = cross_entropy(backend.to_numpy(logits), labels)
            run.losses.append(loss)
            return backend.array(gradient)

        inputs = {"input": backend.array(data.images[batch])}
        start = time.perf_counter()
        _, gradients = compiled.evaluate(params, inputs, output_gradients={"logits": seed})
        params = {key: params[key] - RATE * gradients[key] for key in params}
        backend.to_numpy(params["head.b"])
        seconds.append(time.perf_counter() - start)
        bar()
    run.first_ms = 1000 * seconds[0]
    run.step_ms = 1000 * float(np.median(seconds))
    test = compiled.evaluate(params, {"input": backend.array(data.test_images)})
    guesses = backend.to_numpy(test["logits"]).argmax(axis=1)
    run.accuracy = float((guesses == data.test_labels).mean())
    return run


def chosen(text: str | None, console: Console) -> list[str]:
    """The named backends, or all whose frameworks are installed."""
    names = list(BACKENDS) if text is None else [n.strip() for n in text.split(",") if n.strip()]
    usable = []
    for name in names:
        if name not in BACKENDS:
            sys.exit(f"no backend `{name}` in the demo; there are {', '.join(BACKENDS)}")
        try:
            BACKENDS[name]()
            usable.append(name)
        except ml.BackendError as error:
            if text is not None:
                sys.exit(str(error))
            hints = [line.strip() for line in str(error).splitlines() if "hint: " in line]
            told = ", or ".join([*hints, f"make demo BACKENDS={name}"])
            console.print(f"[dim]{name} is left out: {told}[/dim]")
    return usable if text is None or "numpy" in usable else ["numpy", *usable]


def report(runs: list[Run], console: Console) -> bool:
    """Prints the table and the agreement. Returns whether all backends pass."""
    table = Table(
        title="One classifier of digits, trained from the same params on the same batches"
    )
    columns = ("compile ms", "first step ms", "step ms", "first loss", "last loss", "accuracy")
    table.add_column("backend")
    for column in columns:
        table.add_column(column, justify="right")
    for run in runs:
        table.add_row(
            run.name,
            f"{run.compile_ms:.1f}",
            f"{run.first_ms:.0f}",
            f"{run.step_ms:.2f}",
            f"{run.losses[0]:.4f}",
            f"{run.losses[-1]:.4f}",
            f"{100 * run.accuracy:.1f} %",
        )
    console.print(table)
    first = np.array(runs[0].losses[:20])
    good = all(run.accuracy >= 0.97 for run in runs)
    for run in runs[1:]:
        apart = float(np.max(np.abs(np.array(run.losses[:20]) - first) / np.abs(first)))
        good &= apart <= TOLERANCE
        console.print(
            f"losses of the first 20 steps, {run.name} against {runs[0].name}: "
            f"at most {apart:.1e} apart (bound {TOLERANCE:.0e})"
        )
    for run in runs:
        console.print(f"{run.name} ran {run.path}", soft_wrap=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="Trains a classifier of digits on every backend.")
    parser.add_argument("--backends", help="names behind commas; what is installed, if left out")
    parser.add_argument("--steps", type=int, default=800, help="training steps (800)")
    options = parser.parse_args()
    # A file or a pipe has no width, so tables are not wrapped.
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    names = chosen(options.backends, console)
    data = digits()
    OUT.mkdir(exist_ok=True)
    # NumPy's backend draws the initial params for all backends.
    numpy = ml.NumpyBackend(dtype=ml.float64)
    start = ml.compile(classifier(), numpy, shapes={"input": [BATCH, 64]})
    initial = start.randomize_params(seed=0)
    columns = (TextColumn("{task.description:6}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        runs = []
        for name in names:
            task = progress.add_task(name, total=options.steps)
            runs.append(
                train(name, data, initial, options.steps, lambda t=task: progress.advance(t))
            )
    return 0 if report(runs, console) else 1


if __name__ == "__main__":
    sys.exit(main())
