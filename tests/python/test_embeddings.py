"""Embeddings whose rows are limited, gradients by frequency, and bags by offsets, compared with
PyTorch on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril.models import Embedding, EmbeddingBag

F = torch.nn.functional
# Two rows are on the bound of a norm of 5, one is 0, one is beyond it.
ROWS = [[3.0, 4.0, 0.0], [0.0, 0.0, -5.0], [0.0, 0.0, 0.0], [6.0, -2.0, 1.0], [1.0, 2.0, -2.0]]
LIMITS: list[dict[str, Any]] = [
    {"max_norm": 5.0},
    {"max_norm": 2.5, "norm_type": 1.0},
    {"max_norm": 2.0, "norm_type": float("inf")},
    {"max_norm": 2.2, "norm_type": 3.5},
    {"max_norm": 1.0, "norm_type": 0.0},
    {"max_norm": 0.0},
]
FREQUENT = {"scale_grad_by_freq": True}
# Bags that are empty at either end and in the middle, and one of a single index.
BAGS = {
    "usual": ([3, 0, 3, 1, 4, 4, 3], [0, 2, 2, 3]),
    "empty at the ends": ([3, 0, 3, 1], [0, 0, 4, 4]),
    "one bag": ([1, 1, 1], [0]),
    "one index": ([4], [0, 1]),
    "no index": ([], [0, 0]),
    "no bag": ([], []),
}


def index_dtype(backend: Any) -> Any:
    return np.int32 if backend.kind == "jax" else np.int64


class Case:
    """A block whose params and floats are differentiated, next to torch's function."""

    def __init__(
        self, block: Any, backend: Any, arrays: dict[str, Any], shapes: Any = None
    ) -> None:
        self.backend, self.arrays = backend, arrays
        model = ml.Model()
        model |= block(**{n: n for n in arrays if n != "w"}, output="output")
        floats = [n for n, v in arrays.items() if n != "w" and v.dtype.kind == "f"]
        self.compiled = ml.compile(
            model,
            backend,
            shapes=shapes or {n: list(v.shape) for n, v in arrays.items() if n != "w"},
            dtypes={n: v.dtype for n, v in arrays.items() if v.dtype.kind == "i"},
            trainable_keys=floats,
        )

    def check(self, want: Any, leaves: dict[str, Any], tolerance: float = 2e-6) -> None:
        backend = self.backend
        own = {n: "w" if n.endswith(".w") else n for n in self.compiled.params}
        seed = np.random.default_rng(9).standard_normal(tuple(want.shape))
        take = lambda v: backend.array(v) if v.dtype.kind == "f" else v  # noqa: E731
        outputs, gradients = self.compiled.evaluate(
            {n: take(self.arrays[leaf]) for n, leaf in own.items()},
            {n: take(v) for n, v in self.arrays.items() if n not in own.values()},
            output_gradients={"output": take(seed)},
        )
        want.backward(torch.tensor(seed).to(want.dtype))
        pairs = [(outputs["output"], want)]
        pairs += [(gradients[n], leaves[leaf].grad) for n, leaf in own.items()]
        for found, wanted in pairs:
            got = np.asarray(backend.to_numpy(found)).astype(np.float64)
            other = wanted.detach().double().numpy()
            assert got.shape == other.shape
            np.testing.assert_allclose(got, other, tolerance, tolerance)


def table() -> Any:
    return np.array(ROWS)


@pytest.mark.parametrize("open_dims", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 5), (0, 3)])
@pytest.mark.parametrize(
    "settings", [*LIMITS, FREQUENT, {**LIMITS[0], **FREQUENT, "padding_idx": 3}]
)
def test_embeddings(settings, shape, open_dims, backend):
    indices = np.random.default_rng(1).integers(0, 5, shape).astype(index_dtype(backend))
    arrays = {"input": indices, "w": table()}
    shapes = {"input": ["a", "b"][: len(shape)]} if open_dims else None
    case = Case(Embedding(5, 3, **settings), backend, arrays, shapes)
    leaf = torch.tensor(ROWS, dtype=torch.float64, requires_grad=True)
    want = F.embedding(torch.tensor(indices, dtype=torch.int64), leaf.clone(), **settings)
    case.check(want, {"w": leaf})


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", [k for k in INSTALLED if k in ("numpy", "torch", "jax", "cpu")])
def test_embeddings_in_other_dtypes(kind, dtype):
    backend = getattr(ml, MAKERS[kind])(dtype=dtype)
    settings = {"max_norm": 2.5, "scale_grad_by_freq": True}
    indices = np.random.default_rng(1).integers(0, 5, (3, 4)).astype(np.int32)
    case = Case(Embedding(5, 3, **settings), backend, {"input": indices, "w": table()})
    leaf = torch.tensor(ROWS, dtype=torch.float64, requires_grad=True)
    want = F.embedding(torch.tensor(indices), leaf.clone(), **settings)
    case.check(want, {"w": leaf}, {"float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}[dtype])


def test_a_call_does_not_change_the_table(backend):
    compiled = ml.compile(Embedding(5, 3, max_norm=1.0), backend, shapes={"input": [2]})
    w = backend.array(table())
    compiled.evaluate({"w": w}, {"input": np.array([0, 3], index_dtype(backend))})
    np.testing.assert_array_equal(backend.to_numpy(w), table())


def test_infinite_weights_are_read(backend):
    compiled = ml.compile(Embedding(2, 2, **FREQUENT), backend, shapes={"input": [2]})
    w = np.float32([[-np.inf, 1], [np.inf, 2]])
    given = {"input": np.array([1, 0], index_dtype(backend))}
    got = compiled.evaluate({"w": backend.array(w)}, given)["output"]
    np.testing.assert_array_equal(backend.to_numpy(got), w[::-1])


def bag_settings() -> list[dict[str, Any]]:
    modes: list[dict[str, Any]] = [{"mode": mode} for mode in ("sum", "mean", "max")]
    return [
        *modes,
        *({**own, "padding_idx": 3} for own in modes),
        *({**own, "max_norm": 2.5} for own in modes),
        *({**own, "max_norm": 2.5, "scale_grad_by_freq": True} for own in modes[:2]),
        {"mode": "mean", "padding_idx": -5, "scale_grad_by_freq": True},
    ]


@pytest.mark.parametrize("settings", bag_settings(), ids=repr)
def test_bags_that_are_rows(settings, backend):
    indices = np.array([[3, 0, 3], [3, 3, 3], [4, 1, 0]], index_dtype(backend))
    case = Case(EmbeddingBag(5, 3, **settings), backend, {"input": indices, "w": table()})
    leaf = torch.tensor(ROWS, dtype=torch.float64, requires_grad=True)
    want = F.embedding_bag(torch.tensor(indices, dtype=torch.int64), leaf.clone(), **settings)
    case.check(want, {"w": leaf})


@pytest.mark.parametrize("open_dims", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("bags", BAGS)
@pytest.mark.parametrize("settings", bag_settings(), ids=repr)
def test_bags_by_offsets(settings, bags, last, open_dims, backend):
    indices, offsets = (np.array(v, index_dtype(backend)) for v in BAGS[bags])
    if last:
        offsets = np.append(offsets, np.array(len(indices), offsets.dtype))
    arrays = {"input": indices, "offsets": offsets, "w": table()}
    shapes = {"input": ["n"], "offsets": ["bags"]} if open_dims else None
    block = EmbeddingBag(5, 3, include_last_offset=last, **settings)
    case = Case(block, backend, arrays, shapes)
    leaf = torch.tensor(ROWS, dtype=torch.float64, requires_grad=True)
    if not len(offsets) - last:
        want = leaf.sum() * torch.zeros(0, 3)
    else:
        own = [torch.tensor(v, dtype=torch.int64) for v in (indices, offsets)]
        want = F.embedding_bag(own[0], leaf.clone(), own[1], include_last_offset=last, **settings)
    case.check(want, {"w": leaf})


@pytest.mark.parametrize(
    "settings", [{}, {"padding_idx": 3}, {"max_norm": 2.5, **FREQUENT}], ids=repr
)
@pytest.mark.parametrize("bags", ["usual", "empty at the ends", "one index"])
def test_weighted_bags_by_offsets(bags, settings, backend):
    indices, offsets = (np.array(v, index_dtype(backend)) for v in BAGS[bags])
    factors = np.random.default_rng(2).standard_normal(len(indices))
    arrays = {"input": indices, "offsets": offsets, "per_sample_weights": factors, "w": table()}
    case = Case(EmbeddingBag(5, 3, mode="sum", **settings), backend, arrays)
    leaf, own = (torch.tensor(v, requires_grad=True) for v in (table(), factors))
    places = [torch.tensor(v, dtype=torch.int64) for v in (indices, offsets)]
    want = F.embedding_bag(
        places[0], leaf.clone(), places[1], mode="sum", per_sample_weights=own, **settings
    )
    case.check(want, {"w": leaf, "per_sample_weights": own})


def test_the_first_of_equal_maxima_has_the_gradient(backend):
    """Rows 1 and 3 are equal, and are read several times."""
    w = np.array([[0.0, 1.0], [2.0, 3.0], [1.0, 1.0], [2.0, 3.0]])
    indices = np.array([0, 3, 1, 3, 1, 1, 3], index_dtype(backend))
    arrays = {"input": indices, "offsets": np.array([0, 4], indices.dtype), "w": w}
    case = Case(EmbeddingBag(4, 2, mode="max"), backend, arrays)
    leaf = torch.tensor(w, requires_grad=True)
    places = [torch.tensor(arrays[n], dtype=torch.int64) for n in ("input", "offsets")]
    case.check(F.embedding_bag(places[0], leaf, places[1], mode="max"), {"w": leaf})


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_indices_after_the_last_offset_are_in_no_bag(mode, backend):
    block = EmbeddingBag(5, 3, mode=mode, include_last_offset=True)
    model = ml.Model()
    model |= block(input="input", offsets="offsets", output="output")
    compiled = ml.compile(model, backend, shapes={"input": [4], "offsets": [3]})
    indices, offsets = (np.array(v, index_dtype(backend)) for v in ([3, 0, 3, 1], [0, 1, 2]))
    given = {"input": indices, "offsets": offsets}
    got = compiled.evaluate({compiled.params[0]: backend.array(table())}, given)["output"]
    np.testing.assert_allclose(backend.to_numpy(got), table()[[3, 0]], 1e-6)


def compiled_with(names: dict[str, Any], **settings: Any) -> None:
    model = ml.Model()
    block = EmbeddingBag(5, 3, **settings)
    model |= block(**{n: n for n in names}, output="output")
    ml.compile(model, ml.NumpyBackend(), shapes=names)


@pytest.mark.parametrize(
    ("shapes", "settings", "message"),
    [
        ({"input": [4]}, {}, r"takes bags of indices(.|\n)*hint: `offsets` are the starts"),
        ({"input": [4, 2, 3]}, {}, "takes bags of indices"),
        ({"input": [4, 2], "offsets": [2]}, {}, r"has bags(.|\n)*hint: leave out `offsets`"),
        ({"input": [4], "offsets": [2, 1]}, {}, "`offsets` of `EmbeddingBag` are not a vector"),
        ({"input": [4], "offsets": [0]}, {"include_last_offset": True}, "do not include the last"),
        ({"input": [4, 2]}, {"include_last_offset": True}, "needs `offsets`"),
        (
            {"input": [4], "offsets": [2], "per_sample_weights": [3]},
            {"mode": "sum"},
            "do not have the shape of `input`",
        ),
        (
            {"input": [4], "offsets": [2], "per_sample_weights": [4]},
            {},
            "multiply the rows of a sum",
        ),
    ],
)
def test_mistakes_with_offsets(shapes, settings, message):
    with pytest.raises(ml.MithrilError, match=message):
        compiled_with(shapes, **settings)


def test_mistakes_with_settings():
    with pytest.raises(ml.MithrilError, match="is for sums and means"):
        EmbeddingBag(5, 3, mode="max", scale_grad_by_freq=True)
    with pytest.raises(ml.MithrilError, match="`max_norm` of `Embedding` is out of range"):
        Embedding(5, 3, max_norm=-1.0)


def test_offsets_beyond_the_indices_are_told():
    model = ml.Model()
    model |= EmbeddingBag(5, 3)(input="input", offsets="offsets", output="output")
    compiled = ml.compile(model, ml.CpuBackend(), shapes={"input": [4], "offsets": [2]})
    params = compiled.randomize_params()
    given = {"input": np.array([0, 1, 2, 3]), "offsets": np.array([0, 9])}
    with pytest.raises(ml.MithrilError, match="offsets"):
        compiled.evaluate(params, given)
