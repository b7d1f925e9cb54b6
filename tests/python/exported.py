"""Helpers for exported libraries, which are called in a process without Mithril."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from comparing import random

import mithril as ml

DTYPES = {"f64": np.float64, "f32": np.float32, "bool": np.bool_}
DTYPES |= {"i64": np.int64, "i32": np.int32, "u32": np.uint32}


def place(array):
    return array.get("parameter") or f"{array['struct']}.{array['field']}"


def size(dim, dims):
    return eval(dim, {"min": min, "max": max}, dims) if isinstance(dim, str) else dim


class Library:
    """An exported model. Calls run in a separate process, which does not import Mithril."""

    def __init__(self, paths, folder):
        self.paths, self.folder = paths, folder
        self.meta = json.loads(paths["metadata"].read_text())

    def function(self, end=""):
        name = f"mithril_{self.meta['model']}{end}"
        return next(f for f in self.meta["functions"] if f["name"] == name)

    def call(self, end="", dims=None, **groups):
        """Calls the library with arrays by role and name; returns the status and the results."""
        own = self.function(end)
        arrays = {}
        for array in own["arguments"]:
            value = groups.get(array["role"], {}).get(array["name"])
            if value is not None:
                arrays[place(array)] = np.ascontiguousarray(value).tobytes().hex()
        status, given = self.ask(own, dims or {}, arrays)
        results = {}
        for array in own["results"]:
            shape = [size(dim, dims or {}) for dim in array["shape"]]
            value = np.frombuffer(bytes.fromhex(given[place(array)]), DTYPES[array["dtype"]])
            results[array["role"], array["name"]] = value.reshape(shape)
        return status, results

    def ask(self, own, dims, arrays):
        """Calls a function with arrays in hexadecimal, by place. Returns the status and results."""
        request = self.folder / "request.json"
        request.write_text(json.dumps({"dims": dims, "arrays": arrays}))
        script = Path(__file__).with_name("library.py")
        command = [sys.executable, "-S", "-E", script, self.paths["metadata"], own["name"], request]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr
        answer = json.loads(ran.stdout)
        assert answer["loaded"] == []
        assert answer["overrun"] == []
        return answer["status"], answer["results"]


def export(compiled, folder, *, kind=Library, **options):
    return kind(compiled.export(folder / "out", **options), folder)


def near(got, want, tolerance=1e-5):
    assert got.shape == want.shape
    scale = max(1.0, float(np.max(np.abs(want), initial=0)))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def agrees(model, folder, inputs, dims, shapes, *, tolerance=1e-5, **options):
    """Checks a model's library against NumPy: outputs, gradients and states."""
    compiled = ml.compile(model, ml.CpuBackend(), shapes=shapes)
    params = compiled.randomize_params(seed=0)
    library = export(compiled, folder, name="model", params=params, **options)
    reference = ml.compile(model, ml.NumpyBackend(), shapes=shapes)
    state = reference.initial_state(params, inputs)
    outputs, following = reference.evaluate(params, inputs, state)
    status, results = library.call(dims=dims, data=inputs, state=state)
    assert status == 0
    for name, want in outputs.items():
        near(results["output", name], want, tolerance)
    for name, want in following.items():
        near(results["state", name], want, tolerance)
    seeds = {name: random(*value.shape, seed=3) for name, value in outputs.items()}
    _, gradients, following = reference.evaluate(params, inputs, state, seeds)
    status, results = library.call(
        "_gradients", dims=dims, data=inputs, state=state, cotangent=seeds
    )
    assert status == 0
    for name, want in outputs.items():
        near(results["output", name], want, tolerance)
    for name, want in gradients.items():
        near(results["gradient", name], want, 10 * tolerance)
    for name, want in following.items():
        near(results["state", name], want, tolerance)
    return library
