"""Mithril among its peers: more classes for the peers' benchmark, and the run of it.

    python tests/benches/peers.py BENCHMARK [options of its bench_peers.py]

`BENCHMARK` is the folder of the benchmark of torch, Inductor, JAX, ONNX Runtime, OpenVINO and
others. It is copied to `--work` (by default a temporary folder), these classes are added to its
peers, and it is run there: `mithril` is native code; `mithril_torch` and `mithril_jax` are the
source with gradients that Mithril writes, for workloads that train; `mithril_torch_own` and
`mithril_jax_own` are the same source with the framework's gradients. A workload is written once,
over operators that each peer maps to its own; here they are blocks. Weights of an inference
workload are bound, as they are constants to the peers that take ONNX.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

HERE = pathlib.Path(__file__).resolve()
ADDED = """

import importlib.util as _util
_spec = _util.spec_from_file_location("mithril_peer", {path!r})
_module = _util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
PEERS |= _module.PEERS
"""


class Blocks:
    """The operators of the benchmark, as blocks of `model` over terminals of these shapes."""

    def __init__(self, ml: Any, model: Any, shapes: dict[str, tuple[int, ...]]) -> None:
        self.ml, self.model, self.shapes = ml, model, shapes
        self.count = 0

    def add(self, block: Any, **connections: Any) -> Any:
        """The output of a block."""
        self.count += 1
        name = f"v{self.count}"
        self.model |= block(**connections, output=name)
        return getattr(self.model, name)

    def matmul(self, a: Any, b: Any) -> Any:
        return a @ b

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        return x @ w + b

    def linear_t(self, x: Any, w: Any) -> Any:
        return x @ w.transpose()

    def relu(self, x: Any) -> Any:
        return self.add(self.ml.Relu(), input=x)

    def gelu(self, x: Any) -> Any:
        return self.add(self.ml.Gelu(approximate=True), input=x)

    def softmax(self, x: Any) -> Any:
        return self.add(self.ml.Softmax(), input=x)

    def layernorm(self, x: Any, g: Any, b: Any) -> Any:
        return self.add(self.ml.LayerNorm(), input=x, w=g, b=b)

    def rmsnorm(self, x: Any, g: Any) -> Any:
        return self.add(self.ml.RMSNorm(), input=x, w=g)

    def attention(self, qkv: Any, heads: int) -> Any:
        batch, length = self.shapes["ids" if "ids" in self.shapes else "x"][:2]
        width = next(shape[0] for name, shape in self.shapes.items() if name.endswith("o__w"))
        split = (batch, length, heads, width // heads)
        parts = (qkv[:, :, at * width : (at + 1) * width] for at in range(3))
        query, key, value = (part.reshape(split).transpose((0, 2, 1, 3)) for part in parts)
        core = self.ml.ScaledDotProduct(is_causal=True)
        seen = self.add(core, query=query, key=key, value=value)
        return seen.transpose((0, 2, 1, 3)).reshape((batch, length, width))

    def embed(self, table: Any, ids: Any) -> Any:
        return self.add(self.ml.Gather(), input=table, indices=ids)

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        return self.add(self.ml.Reshape(shape), input=x)

    def sum(self, x: Any) -> Any:
        return x.sum()

    def xent(self, logits: Any, targets: Any) -> Any:
        return self.add(self.ml.CrossEntropy(), input=logits, target=targets).mean()


class MithrilPeer:
    """Native code through the public interface, compiled anew for each workload."""

    pkgs = ("mithril",)
    autodiff: str | None = None

    def __init__(self, threads: int) -> None:
        os.environ["MITHRIL_CACHE"] = ""
        self.ml, self.threads = importlib.import_module("mithril"), threads

    def supports(self, workload: Any) -> bool:
        return workload.group not in ("W7", "W8")

    def backend(self) -> Any:
        return self.ml.CpuBackend(threads=self.threads)

    def data(self, workload: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Params and inputs, under names that terminals may have."""
        params, inputs = workload.data()
        return {safe(k): v for k, v in params.items()}, {safe(k): v for k, v in inputs.items()}

    def array(self, backend: Any, array: Any) -> Any:
        return backend.array(array)

    def prep(self, workload: Any) -> None:
        ml = self.ml
        params, inputs = self.data(workload)
        arrays = params | inputs
        model = ml.Model()
        for name in arrays:
            model |= ml.Buffer()(input=name, output=f"{name}_in")
        model.set_shapes({name: list(array.shape) for name, array in arrays.items()})
        model.set_types({name: array.dtype.name for name, array in arrays.items()})
        blocks = Blocks(ml, model, {name: array.shape for name, array in arrays.items()})
        connections = {name: getattr(model, f"{name}_in") for name in arrays}
        p, x = (Terminals(connections, of) for of in (params, inputs))
        model |= ml.Buffer()(input=workload.fn(blocks, p, x), output="result")
        compiled = ml.compile(
            model,
            backend := self.backend(),
            trainable_keys=list(params),
            data_keys=list(inputs),
            inference=not workload.train,
            autodiff=self.autodiff,
        )
        if workload.train:
            both = ({k: self.array(backend, v) for k, v in of.items()} for of in (params, inputs))
            params, inputs = both
            ones = {"result": self.array(backend, np.ones((), np.float32))}

            def call() -> None:
                self.out = compiled.evaluate(params, inputs, output_gradients=ones)
                self.wait()

        else:
            bound = compiled.bind(params)

            def call() -> None:
                self.out = bound.evaluate({}, inputs)

        self.call = call

    def wait(self) -> None:
        """Until what the call gave is there."""

    def result(self) -> Any:
        if isinstance(self.out, dict):
            return self.out["result"]
        outputs, gradients = self.out
        found = {unsafe(name): np.asarray(g) for name, g in gradients.items()}
        return np.asarray(outputs["result"]), found

    def drop(self) -> None:
        self.call = self.out = None


class TorchSourcePeer(MithrilPeer):
    """PyTorch source, trained by the gradients in it."""

    pkgs = ("mithril", "torch")
    autodiff = "mithril"

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        importlib.import_module("torch").set_num_threads(threads)

    def supports(self, workload: Any) -> bool:
        return super().supports(workload) and workload.train

    def backend(self) -> Any:
        return self.ml.TorchBackend()

    def array(self, backend: Any, array: Any) -> Any:
        """In NumPy's memory, as the benchmark's own peer: it has pages of another size."""
        return importlib.import_module("torch").from_numpy(array)


class TorchOwnPeer(TorchSourcePeer):
    """The same, trained by PyTorch's autograd."""

    autodiff = "framework"


class JaxSourcePeer(MithrilPeer):
    """JAX source under one `jax.jit`, trained by the gradients in it."""

    pkgs = ("mithril", "jax")
    autodiff = "mithril"

    def supports(self, workload: Any) -> bool:
        return super().supports(workload) and workload.train

    def backend(self) -> Any:
        return self.ml.JaxBackend()

    def data(self, workload: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Without 64-bit integers, as the benchmark's own peer."""
        params, inputs = super().data(workload)
        narrow = {k: v.astype(np.int32) if v.dtype == np.int64 else v for k, v in inputs.items()}
        return params, narrow

    def wait(self) -> None:
        importlib.import_module("jax").block_until_ready(self.out)


class JaxOwnPeer(JaxSourcePeer):
    """The same, trained by JAX's gradients."""

    autodiff = "framework"


PEERS = {
    "mithril": MithrilPeer,
    "mithril_torch": TorchSourcePeer,
    "mithril_torch_own": TorchOwnPeer,
    "mithril_jax": JaxSourcePeer,
    "mithril_jax_own": JaxOwnPeer,
}


class Terminals(dict):
    """The connections of a workload's arrays, under the workload's names."""

    def __init__(self, connections: dict[str, Any], of: dict[str, Any]) -> None:
        super().__init__({unsafe(name): connections[name] for name in of})


def safe(name: str) -> str:
    """The terminal for a name of the benchmark, where dots part names."""
    return name.replace(".", "__")


def unsafe(name: str) -> str:
    return name.replace("__", ".")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("benchmark", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path)
    options, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or pathlib.Path(folder) / "bench"
        if not work.exists():
            shutil.copytree(options.benchmark, work)
            with (work / "peers.py").open("a") as peers:
                peers.write(ADDED.format(path=str(HERE)))
        subprocess.run([sys.executable, work / "bench_peers.py", *rest], check=True)


if __name__ == "__main__":
    main()
