"""Runs emitted source and compares it with the evaluator's results.

`python differential.py FRAMEWORK cases.json`, the cases from `cargo run --example differential`.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import ml_dtypes
import numpy as np

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
# Elements that the framework hardly computes with.
LACKING = {"numpy": set(), "torch": {"uint16", "uint32", "uint64"}, "jax": set()}
STORED = {"int4", "uint4", "float8_e4m3fn", "float8_e5m2"}


def array(tensor):
    """A tensor of the cases as a NumPy array."""
    name = tensor["dtype"]
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    return np.frombuffer(bytes.fromhex(tensor["bytes"]), dtype).reshape(tensor["shape"])


class Numpy:
    """Arrays to the framework and back."""

    def into(self, x):
        return x

    def back(self, x):
        return np.asarray(x)


class Torch(Numpy):
    def __init__(self):
        import torch  # noqa: PLC0415

        self.torch = torch

    def into(self, x):
        if x.dtype == ml_dtypes.bfloat16:
            return self.torch.from_numpy(x.view(np.int16).copy()).view(self.torch.bfloat16)
        return self.torch.from_numpy(x.copy())

    def back(self, x):
        if x.dtype == self.torch.bfloat16:
            return x.contiguous().view(self.torch.int16).numpy().view(ml_dtypes.bfloat16)
        return x.detach().numpy()


class Jax(Numpy):
    def into(self, x):
        import jax.numpy as jnp  # noqa: PLC0415

        return jnp.asarray(x)


BRIDGES = {"numpy": Numpy, "torch": Torch, "jax": Jax}


def difference(framework, got, want):
    """What is wrong with a result; None where nothing is."""
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    narrowed = framework == "jax" and want.dtype in (np.int64, np.uint64)
    if got.dtype != want.dtype and not narrowed:
        return f"dtype {got.dtype}, expected {want.dtype}"
    if not want.size:
        return None
    if want.dtype.name not in TOLERANCE:
        same = np.array_equal(got, want)
        return None if same else f"{got!r}, expected {want!r}"
    tolerance = TOLERANCE[want.dtype.name]
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    # Where all is 0, rounding inside half-precision operations still shows.
    least = 1e-4 if tolerance > 1e-4 else 0
    scale = np.maximum(np.abs(want), np.max(np.abs(want[finite]), initial=least))
    near = np.abs(got - want) <= tolerance * np.where(finite, scale, 0)
    same = near | (got == want) | (np.isnan(got) & np.isnan(want))
    return None if same.all() else f"{got!r}, expected {want!r}"


def load(case, folder):
    """The functions of a case's file, which finds its constants beside `__file__`."""
    if case["constants"]:
        stored = {name: array(x) for name, x in case["constants"].items()}
        np.savez(pathlib.Path(folder) / "model.npz", **stored)
    path = str(pathlib.Path(folder) / "model.py")
    scope = {"__file__": path}
    exec(compile(case["text"], path, "exec"), scope)
    return scope


def run(framework, bridge, case, folder):
    """What is wrong with a case; None where nothing is."""
    if "error" in case:
        return case["error"]
    try:
        function = load(case, folder)[case["function"]]
        arguments = {
            group: {name: bridge.into(array(x)) for name, x in tensors.items()}
            for group, tensors in case["arguments"].items()
        }
        outputs = function(**arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    got = outputs if isinstance(outputs, tuple) else (outputs,)
    for dict_, tensors in zip(got, case["expected"].values()):
        for name, want in tensors.items():
            why = difference(framework, bridge.back(dict_[name]), array(want))
            if why:
                return f"{name}: {why}"
    return None


def is_lacking(framework, case):
    tensors = [x for group in case["arguments"].values() for x in group.values()]
    tensors += [x for group in case["expected"].values() for x in group.values()]
    lacking = STORED if case["random"] else STORED | LACKING[framework]
    return any(x["dtype"] in lacking for x in tensors)


def lint(cases, folder):
    """What ruff says of the texts."""
    texts = {case["text"] for case in cases if "text" in case}
    for i, text in enumerate(sorted(texts)):
        (pathlib.Path(folder) / f"file_{i}.py").write_text(text)
    options = ["--isolated", "--line-length", "100", "--target-version", "py39", folder]
    rules = ["--select", "E4,E7,E9,F,I,W", "--quiet"]
    ruff = [sys.executable, "-m", "ruff"]
    checks = [[*ruff, "format", "--diff", *options], [*ruff, "check", *rules, *options]]
    results = [subprocess.run(c, capture_output=True, text=True, check=False) for c in checks]
    return "".join(r.stdout for r in results if r.returncode)


def main(framework, path, shown=3):
    warnings.simplefilter("ignore")
    with open(path) as file:
        cases = [c for c in json.load(file) if not is_lacking(framework, c)]
    bridge = BRIDGES[framework]()
    failures = collections.defaultdict(list)
    # A file that asks JAX for 64 bits does so for the whole process: such come last.
    for case in sorted(cases, key=lambda c: "jax_enable_x64" in c.get("text", "")):
        with tempfile.TemporaryDirectory() as folder:
            why = run(framework, bridge, case, folder)
        if why:
            failures[case["name"]].append((why, case))
    for name, failed in failures.items():
        print(f"== {name}: {len(failed)} of {sum(c['name'] == name for c in cases)}")
        for why, case in failed[:shown]:
            print(f"-- {why}\n{case['form']}\n{case.get('text', '')}")
    with tempfile.TemporaryDirectory() as folder:
        complaints = lint(cases, folder)
    print(complaints[:20000], end="")
    count = sum(map(len, failures.values()))
    print(f"{len(cases)} cases, {count} failures of {len(failures)}")
    return bool(failures or complaints)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3], *map(int, sys.argv[3:4])))
