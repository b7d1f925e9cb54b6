"""Runs emitted source for every operation and compares it with the evaluator's results.

`python differential.py FRAMEWORK cases.json`, the cases from `cargo run --example differential`.
"""

import collections
import json
import sys
import warnings

import ml_dtypes
import numpy as np

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def array(tensor):
    """A tensor of the cases as a NumPy array."""
    name = tensor["dtype"]
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    return np.frombuffer(bytes.fromhex(tensor["bytes"]), dtype).reshape(tensor["shape"])


def to_framework(framework, x):
    if framework == "torch":
        import torch  # noqa: PLC0415

        if x.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
        return torch.from_numpy(x.copy())
    if framework == "jax":
        import jax.numpy as jnp  # noqa: PLC0415

        return jnp.asarray(x)
    return x


def to_numpy(framework, x):
    if framework == "torch":
        import torch  # noqa: PLC0415

        x = x.detach()
        if x.dtype == torch.bfloat16:
            return x.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return x.numpy()
    return np.asarray(x)


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


def run(framework, case):
    """What is wrong with a case; None where nothing is."""
    if "error" in case:
        return case["error"]
    scope = {"__file__": "model.py"}
    try:
        exec(compile(case["text"], "model.py", "exec"), scope)
        inputs = {
            f"x{i}": to_framework(framework, array(x)) for i, x in enumerate(case["inputs"])
        }
        output = scope["forward"]({}, inputs)["output"]
        return difference(framework, to_numpy(framework, output), array(case["expected"]))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# Elements that the framework hardly computes with.
LACKING = {
    "numpy": {"int4", "uint4", "float8_e4m3fn", "float8_e5m2"},
    "torch": {"int4", "uint4", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"},
    "jax": {"int4", "uint4", "float8_e4m3fn", "float8_e5m2"},
}


def is_lacking(framework, case):
    if case["op"].startswith(("random_", "key_", "uniform", "normal")):
        return False
    tensors = [*case["inputs"], case["expected"]]
    return any(t["dtype"] in LACKING[framework] for t in tensors)


def main(framework, path, shown=3):
    warnings.simplefilter("ignore")
    with open(path) as file:
        cases = json.load(file)
    cases = [c for c in cases if not is_lacking(framework, c)]
    failures = collections.defaultdict(list)
    # A file that asks JAX for 64 bits does so for the whole process: such come last.
    for case in sorted(cases, key=lambda c: "jax_enable_x64" in c.get("text", "")):
        why = run(framework, case)
        if why:
            failures[case["op"]].append((why, case))
    for op, failed in failures.items():
        print(f"== {op}: {len(failed)} of {sum(c['op'] == op for c in cases)}")
        for why, case in failed[:shown]:
            print(f"-- {why}\n{case['form']}\n{case.get('text', '')}")
    print(f"{len(cases)} cases, {sum(map(len, failures.values()))} failures in {len(failures)} ops")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3], *map(int, sys.argv[3:4])))
