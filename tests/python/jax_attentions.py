"""Checks of attention on meshes of JAX, with operands and masks that are divided in many ways."""

import jax
import numpy as np
import ring_models
from check_runs import some
from mesh_models import close

import mithril as ml


def same_place(array, like):
    assert array.sharding.is_equivalent_to(like.sharding, array.ndim), (array.sharding, like)


# The lengths of queries and keys, how a mesh of 2 x 2 divides query, key and value of shape (batch,
# heads, length, width), and whether the call is causal. In turns, no heads share
# keys, two do, all do.
ROWS, HEADS, LENGTH = 0, 1, 2
ATTENTIONS = [
    ((8, 8), [(LENGTH, LENGTH)] * 3, True),
    ((8, 8), [(LENGTH, HEADS)] * 3, False),
    ((8, 8), [(ROWS, LENGTH), (), ()], True),
    ((8, 8), [(), (ROWS, LENGTH), (LENGTH, ROWS)], True),
    ((8, 8), [(LENGTH,), (ROWS, LENGTH), (HEADS, ROWS)], False),
    ((8, 12), [(ROWS, LENGTH)] * 3, False),
    ((8, 12), [(None, LENGTH), (), (LENGTH, LENGTH)], False),
    ((8, 12), [(None, LENGTH)] * 3, True),
    ((8, 7), [(ROWS, LENGTH), (), ()], False),
    ((5, 5), [(ROWS, HEADS), (), ()], True),
    ((8, 8), [(HEADS, HEADS), (), ()], True),
    ((8, 8), [(HEADS, LENGTH), (None, LENGTH), (None, LENGTH)], False),
    ((8, 8), [(HEADS, HEADS), (), ()], False),
    ((8, 8), [(HEADS, HEADS), (ROWS, HEADS), ()], False),
    ((8, 8), [(ROWS, LENGTH)] * 3, True),
]


def check_attentions():
    """Attention whose operands are divided in many ways, compiled by JAX and not."""
    one, many = (ml.JaxBackend(precision=64, device_mesh=mesh) for mesh in (None, (2, 2)))
    names = ("query", "key", "value")
    *cases, last = enumerate(ATTENTIONS)
    for at, ((queries, keys), splits, causal) in (*some(cases, 4), last):
        heads = (4, 2, 1)[at % 3]
        sizes = [(2, 4, queries, 6), (2, heads, keys, 6), (2, heads, keys, 6)]
        shapes = dict(zip(names, sizes))
        block = ml.ScaledDotProduct(is_causal=causal, grouped=heads < 4)
        made = [ml.compile(block, b, shapes=shapes, trainable_keys=names) for b in (one, many)]
        plain = ml.compile(block, many, shapes=shapes, trainable_keys=names, jit=False)
        whole = {name: one.randn(*shape) for name, shape in shapes.items()}
        seeds = {"output": one.randn(*shapes["query"])}
        parts = {n: many.shard(whole[n], tensor_split=own) for n, own in zip(names, splits)}
        want = made[0].evaluate(whole, {}, output_gradients=seeds)
        for compiled in (made[1], plain):
            got = compiled.evaluate(parts, {}, output_gradients=seeds)
            ring_models.compare_results(one, many, want, got, 1e-12)
            for name in names:
                same_place(got[1][name], parts[name])
    check_transforms(made, whole, parts)
    check_order(one, many)


# Masks of scores (batch 2, heads 4, 8 queries, 8 keys), how a mesh of 2 x 2 divides query, key
# and value, and further settings.
MASKS = [
    ((8, 8), bool, (LENGTH, LENGTH), {}),
    ((2, 4, 8, 8), float, (ROWS, LENGTH), {"softcap": 2.0}),
    ((4, 8, 8), float, (HEADS, LENGTH), {"window": 2}),
    ((2, 1, 1, 8), bool, (None, LENGTH), {"is_causal": True}),
    ((1, 8), float, (ROWS, LENGTH), {"softcap": 1.5, "is_causal": True}),
    ((2, 1, 8, 8), float, (LENGTH, HEADS), {"window": (0, 3)}),
    (None, None, (LENGTH, LENGTH), {"window": 1, "softcap": 2.0}),
]


def check_masks():
    """Attention with masks, which may be learned, windows and bounded scores. Some masks hide all
    keys of a query or of a device."""
    one, many = (ml.JaxBackend(precision=64, device_mesh=mesh) for mesh in (None, (2, 2)))
    for at, (shape, kind, split, options) in some(list(enumerate(MASKS)), 4):
        heads = 2 if HEADS in split else (4, 1)[at % 2]
        names = ["query", "key", "value"]
        sizes = [(2, 4, 8, 6), (2, heads, 8, 6), (2, heads, 8, 6)]
        shapes = dict(zip(names, sizes))
        whole = {name: one.randn(*own) for name, own in shapes.items()}
        model = ml.Model()
        block = ml.ScaledDotProduct(grouped=heads < 4, **options)
        mask = {} if shape is None else {"mask": "mask"}
        model |= block(**{name: name for name in names}, **mask, output=ml.IOKey("output"))
        inputs = {}
        if kind is bool:
            hidden = np.random.default_rng(at).random(shape) < 0.4
            hidden[..., 4:] |= np.arange(shape[-2])[:, None] < 2
            inputs["mask"] = one.array(~hidden)
        elif kind is float:
            names.append("mask")
            whole["mask"] = one.randn(*shape)
        shapes |= {"mask": shape} if shape else {}
        made = [ml.compile(model, b, shapes=shapes, trainable_keys=names) for b in (one, many)]
        seeds = {"output": one.randn(2, 4, 8, 6)}
        parts = {n: many.shard(whole[n], tensor_split=split) for n in names if n != "mask"}
        if kind is float:
            parts["mask"] = many.shard(whole["mask"])
        want = made[0].evaluate(whole, inputs, output_gradients=seeds)
        got = made[1].evaluate(
            parts, {n: many.shard(x) for n, x in inputs.items()}, output_gradients=seeds
        )
        ring_models.compare_results(one, many, want, got, 1e-12)


def check_order(one, many):
    """A sequence that a sharding of JAX divides by mesh axes in another order than the mesh's."""
    names = ("query", "key", "value")
    shapes = dict.fromkeys(names, (2, 4, 8, 6))
    made = [
        ml.compile(ml.ScaledDotProduct(is_causal=True), b, shapes=shapes, trainable_keys=names)
        for b in (one, many)
    ]
    whole = {name: one.randn(*shape) for name, shape in shapes.items()}
    axes = many.device_mesh.axis_names[::-1]
    spec = jax.sharding.PartitionSpec(None, None, axes)
    place = jax.sharding.NamedSharding(many.device_mesh, spec)
    parts = {name: jax.device_put(value, place) for name, value in whole.items()}
    seeds = {"output": one.randn(2, 4, 8, 6)}
    want = made[0].evaluate(whole, {}, output_gradients=seeds)
    got = made[1].evaluate(parts, {}, output_gradients=seeds)
    ring_models.compare_results(one, many, want, got, 1e-12)


def check_transforms(made, whole, parts):
    """Second derivatives of the last attention, and batches of it, by JAX."""

    def output(compiled):
        return lambda params: compiled.evaluate(params, {})["output"]

    def steepness(compiled):
        gradient = jax.grad(lambda params: jax.numpy.sin(output(compiled)(params)).sum())
        return lambda params: sum((own**2).sum() for own in gradient(params).values())

    want, got = (jax.grad(steepness(own))(p) for own, p in zip(made, (whole, parts)))
    for name, value in want.items():
        close(got[name], value, 1e-12)
    batches = ({n: jax.numpy.stack([v, -v]) for n, v in p.items()} for p in (whole, parts))
    want, got = (jax.vmap(output(own))(p) for own, p in zip(made, batches))
    close(got, want, 1e-12)
