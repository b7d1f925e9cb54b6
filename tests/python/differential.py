"""Runs generated source and compares its results with the evaluator's.

Usage: `python differential.py FRAMEWORK KIND cases.json`. The cases are the output of
`cargo run --example differential -- FRAMEWORK KIND`.
"""

import collections
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import ml_dtypes
import numpy as np
import references

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
# Operations that lose digits to cancellation in every implementation, near 0 or far from it.
CONDITIONED = {
    "batch_norm_training", "gelu", "gelu_tanh", "gelu_tanh_gradient", "inverse", "layer_norm",
}  # fmt: skip
# Errors by which a framework, or the emitter, refuses a dtype.
REFUSALS = re.compile(r"NotImplementedError|Backend does not support|RuntimeError: Promotion")
# What PyTorch lacks on CUDA, products of integers, and what has few digits there.
ON_CUDA = re.compile(r'NotImplementedError: "add\w+_cuda" not implemented')
CONDITIONED_ON_CUDA = {"variance"}
# The number of cases of each operation that may differ, by kind and framework.
# tinygrad takes 0.1 s for most cases, to compile them: of these kinds one case in so many runs.
SAMPLES = {("tinygrad", "forward"): 8, ("tinygrad", "gradients"): 4, ("tinygrad", "corners"): 4}
SAMPLES |= {("jax", "forward"): 6, ("jax", "gradients"): 3, ("jax", "corners"): 4}
RECORDS = pathlib.Path(__file__).with_name("records")


def array(tensor):
    """Converts a tensor of the cases to a NumPy array."""
    name = tensor["dtype"]
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    return np.frombuffer(bytes.fromhex(tensor["bytes"]), dtype).reshape(tensor["shape"])


class Numpy:
    """Converts arrays to the framework's and back, and computes the framework's own gradients."""

    # The kind of device where the arrays are.
    place = "cpu"

    def into(self, x):
        return x

    def back(self, x):
        return np.asarray(x)


class Torch(Numpy):
    def __init__(self):
        import torch  # noqa: PLC0415

        self.torch = torch
        self.device = torch.device(os.environ.get("MITHRIL_TORCH_DEVICE") or "cpu")
        self.place = self.device.type
        torch.backends.cudnn.allow_tf32 = False

    def on_host(self):
        host = copy.copy(self)
        host.device, host.place = self.torch.device("cpu"), "cpu"
        return host

    def into(self, x):
        return self.tensor(x).to(self.device)

    def tensor(self, x):
        if x.dtype == ml_dtypes.bfloat16:
            return self.torch.from_numpy(x.view(np.int16).copy()).view(self.torch.bfloat16)
        if x.dtype.name.startswith("float8"):
            eights = getattr(self.torch, x.dtype.name)
            return self.torch.from_numpy(x.view(np.uint8).copy()).view(eights)
        return self.torch.from_numpy(x.copy())

    def back(self, x):
        x = x.cpu()
        if x.dtype == self.torch.bfloat16:
            return x.contiguous().view(self.torch.int16).numpy().view(ml_dtypes.bfloat16)
        if x.dtype.itemsize == 1 and x.dtype.is_floating_point:
            name = str(x.dtype).removeprefix("torch.")
            return x.detach().contiguous().view(self.torch.uint8).numpy().view(name)
        return x.detach().numpy()

    def gradients(self, outputs, params, seeds):
        """Gradients by the framework's autograd. `outputs` is a function of the params."""
        params = {name: x.requires_grad_() for name, x in params.items()}
        found = outputs(params)
        # autograd refuses outputs that do not depend on the params.
        varying = [name for name in seeds if found[name].requires_grad]
        if not varying:
            return {name: self.torch.zeros_like(x) for name, x in params.items()}
        got = self.torch.autograd.grad(
            [found[name] for name in varying],
            list(params.values()),
            [seeds[name] for name in varying],
            materialize_grads=True,
            allow_unused=True,
        )
        return dict(zip(params, got))


class Jax(Numpy):
    def __init__(self):
        import jax  # noqa: PLC0415

        jax.config.update("jax_default_matmul_precision", "highest")
        self.place = jax.default_backend()

    def into(self, x):
        import jax.numpy as jnp  # noqa: PLC0415

        return jnp.asarray(x)

    def gradients(self, outputs, params, seeds):
        import jax  # noqa: PLC0415

        def gradients(params, seeds):
            pull = jax.vjp(lambda p: {name: outputs(p)[name] for name in seeds}, params)[1]
            return pull(seeds)[0]

        # One compilation takes less time than one for each operation.
        return jax.jit(gradients)(params, seeds)


class Mlx(Numpy):
    def into(self, x):
        import mlx.core as mx  # noqa: PLC0415

        if x.dtype == ml_dtypes.bfloat16:
            return mx.array(x.view(np.int16)).view(mx.bfloat16)
        return mx.array(x, dtype=mx.float64 if x.dtype == np.float64 else None)

    def back(self, x):
        import mlx.core as mx  # noqa: PLC0415

        if x.dtype == mx.bfloat16:
            return np.asarray(x.view(mx.int16)).view(ml_dtypes.bfloat16)
        return np.asarray(x)

    def gradients(self, outputs, params, seeds):
        import mlx.core as mx  # noqa: PLC0415

        def total(params):
            found = outputs(params)
            return sum(mx.sum(found[name] * seed) for name, seed in seeds.items())

        return mx.grad(total)(params)


class Tinygrad(Numpy):
    def __init__(self):
        from mithril.backends.tinygrad import find_compiler  # noqa: PLC0415

        find_compiler()

    def into(self, x):
        from tinygrad import Tensor, dtypes  # noqa: PLC0415

        if x.dtype == ml_dtypes.bfloat16:
            flat = Tensor(x.view(np.uint16).reshape(-1)).bitcast(dtypes.bfloat16)
        else:
            # An array without axes would become a constant.
            flat = Tensor(x.reshape(-1))
        return flat.reshape(x.shape).contiguous().realize()

    def back(self, x):
        from tinygrad import dtypes  # noqa: PLC0415

        if x.dtype == dtypes.bfloat16:
            return x.contiguous().bitcast(dtypes.uint16).numpy().view(ml_dtypes.bfloat16)
        return x.numpy()

    def gradients(self, outputs, params, seeds):
        found = outputs(params)
        total = sum((found[name] * seed).sum().double() for name, seed in seeds.items())
        return dict(zip(params, total.gradient(*params.values())))


BRIDGES = {"numpy": Numpy, "torch": Torch, "jax": Jax, "mlx": Mlx, "tinygrad": Tinygrad}


def difference(framework, got, want, tolerance=None, least=0):
    """A message on a wrong result; None if it is right."""
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
    tolerance = tolerance or TOLERANCE[want.dtype.name]
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    # A minimum scale: half precision and gradients round inside, even if all results are 0.
    least = 1e-4 if tolerance > 1e-4 else least
    scale = np.maximum(np.abs(want), np.max(np.abs(want[finite]), initial=least))
    near = np.abs(got - want) <= tolerance * np.where(finite, scale, 0)
    same = near | (got == want) | (np.isnan(got) & np.isnan(want))
    return None if same.all() else f"{got!r}, expected {want!r}"


def inaccuracy(case, got, dtype):
    """A message if an elementwise result differs from its expression in many digits."""
    operands = {name: array(x) for name, x in case["arguments"]["inputs"].items()}
    with np.errstate(all="ignore"):
        for i, one in enumerate(got.ravel()):
            at = {name: x[i] for name, x in operands.items()}
            exact = references.value(case["expression"], at)
            want = np.array(float(exact), np.float64).astype(dtype)
            if not np.isfinite(want):
                continue
            error = abs(float(one) - float(exact))
            if not error <= TOLERANCE[dtype.name] * abs(float(exact)) + np.finfo(dtype).tiny:
                return f"{one} of {at}, expected {float(exact)}"
    return None


def load(case, folder):
    """Runs a case's source and returns its names. The source finds its constants by `__file__`."""
    if case["constants"]:
        stored = {name: array(x) for name, x in case["constants"].items()}
        np.savez(pathlib.Path(folder) / "model.npz", **stored)
    path = str(pathlib.Path(folder) / "model.py")
    scope = {"__file__": path}
    exec(compile(case["text"], path, "exec"), scope)
    return scope


def results(bridge, case, folder):
    """The dicts that a case's function returns, with arrays of the framework."""
    function = load(case, folder)[case["function"]]
    arguments = {
        group: {name: bridge.into(array(x)) for name, x in tensors.items()}
        for group, tensors in case["arguments"].items()
    }
    first = lambda outputs: outputs if isinstance(outputs, tuple) else (outputs,)  # noqa: E731
    if case["function"] == "forward" and "output_gradients" in arguments:
        seeds = arguments.pop("output_gradients")
        outputs = lambda params: first(function(**{**arguments, "params": params}))[0]  # noqa: E731
        return (bridge.gradients(outputs, arguments["params"], seeds),)
    return first(function(**arguments))


def hardship(framework, bridge, case, folder):
    """A message if the framework or the evaluator is wrong for hard arguments; otherwise None."""
    (outputs,) = results(bridge, case, folder)
    got, want = bridge.back(outputs["output"]), array(case["expected"]["outputs"]["output"])
    if "evaluator" in case:
        # Single precision is compared with the evaluator's results in double precision.
        both = got, array(case["evaluator"]["outputs"]["output"])
        # Results too small for single precision are 0 there.
        least = np.finfo(np.float32).tiny
        faults = (difference(framework, x.astype(want.dtype), want, 1e-5, least) for x in both)
    elif want.dtype == bool:
        faults = (difference(framework, got, want),)
    else:
        faults = (inaccuracy(case, x, want.dtype) for x in (got, want))
    return next(filter(None, faults), None)


def run(framework, bridge, case, folder):
    """A message on what is wrong with a case; None if nothing is."""
    if "error" in case:
        return case["error"]
    if bridge.place == "cuda":
        # An index out of range would end all use of the device.
        why = run(framework, bridge.on_host(), case, folder)
        if why and re.match("IndexError|RuntimeError", why):
            return why
    try:
        if "expression" in case or "evaluator" in case:
            return hardship(framework, bridge, case, folder)
        got = results(bridge, case, folder)
        got = [{name: bridge.back(x) for name, x in dict_.items()} for dict_ in got]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    least = 1 if "output_gradients" in case["arguments"] else 0
    for dict_, tensors in zip(got, case["expected"].values()):
        for name, want in tensors.items():
            why = difference(framework, dict_[name], array(want), least=least)
            if why:
                return f"{name}: {why}"
    return None


def lint(cases, folder):
    """The messages of ruff on the generated source."""
    texts = {case["text"] for case in cases if "text" in case}
    for i, text in enumerate(sorted(texts)):
        (pathlib.Path(folder) / f"file_{i}.py").write_text(text)
    options = ["--isolated", "--target-version", "py39", folder]
    rules = ["--select", "E4,E7,E9,F,I,W", "--quiet"]
    ruff = [sys.executable, "-m", "ruff"]
    checks = [[*ruff, "format", "--diff", *options], [*ruff, "check", *rules, *options]]
    results = [subprocess.run(c, capture_output=True, text=True, check=False) for c in checks]
    return "".join(r.stdout for r in results if r.returncode)


def excuse(framework, case, why):
    """Whether a case may fail: the op reference says so, or the dtype or call is refused."""
    if "note" not in case or not case.get("corner", "elements").endswith("elements"):
        return REFUSALS.match(why)
    names = {"numpy": "NumPy", "torch": "torch", "jax": "JAX", "mlx": "MLX"}
    names["tinygrad"] = "tinygrad"
    told = names[framework] in case["note"] or "rameworks" in case["note"]
    hard = "expression" in case or "evaluator" in case
    return told or (hard and case["name"] in CONDITIONED)


def excuse_on(place, case, why):
    """Whether a case may fail on a device."""
    hard = "expression" in case or "evaluator" in case
    return place == "cuda" and (
        ON_CUDA.match(why) or (hard and case["name"] in CONDITIONED_ON_CUDA)
    )


def outcomes(framework, cases, shown, bridge=None):
    """Counts the failures of each operation; prints and returns those without an excuse. A backend
    of a package has a bridge of its own, and the excuses of the framework that it follows."""
    bridge = bridge or BRIDGES[framework]()
    counts, failures = collections.Counter(), collections.defaultdict(list)
    # Source that uses JAX's 64-bit types turns them on for the whole process, so it runs last.
    for case in sorted(cases, key=lambda c: "jax_enable_x64" in c.get("text", "")):
        with tempfile.TemporaryDirectory() as folder:
            why = run(framework, bridge, case, folder)
        if why:
            counts[case["name"]] += 1
        if why and not (excuse(framework, case, why) or excuse_on(bridge.place, case, why)):
            failures[case["name"]].append((why, case))
    for name, failed in failures.items():
        print(f"== {name}: {len(failed)} of {sum(c['name'] == name for c in cases)}")
        for why, case in failed[:shown]:
            print(f"-- {why}\n{case['form']}\n{case.get('text', '')}")
    return dict(counts), failures


def sampled(framework, kind, cases):
    """Every case, or where each takes long a sample of them: see `levels.py`."""
    part = SAMPLES.get((framework, kind), 1)
    if part == 1 or os.environ.get("MITHRIL_TESTS") == "all" or os.environ.get("BLESS") == "1":
        return cases
    seed = int(os.environ.get("MITHRIL_SEED") or "0")
    return cases[seed % part :: part]


def main(framework, kind, path, shown=3):
    """Compares the excused failures with the records as well; BLESS=1 rewrites the records."""
    warnings.simplefilter("ignore")
    with open(path) as file:
        every = json.load(file)
    cases = sampled(framework, kind, every)
    bridge = BRIDGES[framework]()
    counts, failures = outcomes(framework, cases, shown, bridge)
    with tempfile.TemporaryDirectory() as folder:
        complaints = lint(cases, folder)
    print(complaints[:20000], end="")
    record = RECORDS / f"{kind}_{framework}.json"
    found = json.dumps({"cases": len(cases), "differ": counts}, indent=1, sort_keys=True) + "\n"
    if bridge.place != "cpu":
        # The records are those of the CPU, and of the version that the tests install.
        print(f"{found}{len(failures)} operations fail on {bridge.place}")
        return bool(failures)
    if os.environ.get("BLESS") == "1":
        record.write_text(found)
    # Where rounding decides, fewer cases differ on some processors.
    known = json.loads(record.read_text())
    new = any(count > known["differ"].get(name, 0) for name, count in counts.items())
    changed = new or known["cases"] != len(every)
    print(f"{found}{len(failures)} operations fail", "; another record" if changed else "")
    return bool(failures or complaints or changed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], *map(int, sys.argv[4:5])))
