"""Attention on a mesh of JAX, whose axes may divide the sequence. A file contains those
functions that it calls."""

import math

import jax
import jax.numpy as jnp
import numpy as np


def _attention(
    query,
    key,
    value,
    mask=None,
    causal=False,
    left=None,
    right=None,
    softcap=None,
    scale=None,
):
    """Attention over (batch, heads, sequence, width) on a mesh.

    Several heads of `query` may share a head of `key` and `value`. A query sees the
    keys from `left` before its position to `right` after it.

    If the mesh divides the sequence, keys and values go round a ring of devices, and
    no device holds all of them (Liu, Zaharia, Abbeel 2023). A mask has the rows of the
    device's queries.
    """
    scale = (query.shape[-1] or 1) ** -0.5 if scale is None else scale
    options = {"left": left, "right": 0 if causal else right, "scale": scale}
    options["softcap"] = softcap
    operands, masks = "b (h g) s d, b h t d, b h t e", ()
    if mask is not None:
        mask = _with_all_axes(mask, key.shape[2])
        operands, masks = f"{operands}, {_mask_axes(mask, query)}", (mask,)

    def attend(*arrays):
        rule = f"{operands} -> b (h g) s e, b (h g) s"
        return _on_parts(_attend_in_ring, rule, arrays, options)

    def forward(*arrays):
        output, logsumexp = attend(*arrays)
        return output, (*arrays, output, logsumexp)

    def backward(saved, gradient):
        more = "b (h g) s e, b (h g) s, b (h g) s e"
        arrays = (*saved[:3], *saved[-2:], gradient, *saved[3:-2])
        own = operands.split(", ")
        is_added = [x.dtype != bool for x in arrays[6:]]
        results = ", ".join(own[:3] + own[3:] * sum(is_added))
        rule = ", ".join([*own[:3], more, *own[3:]])
        found = _on_parts(
            _differentiate_in_ring, f"{rule} -> {results}", arrays, options
        )
        return found if all(is_added) else (*found, None)

    attention = jax.custom_vjp(lambda *arrays: attend(*arrays)[0])
    attention.defvjp(forward, backward)
    return attention(query, key, value, *masks)


def _with_all_axes(mask, keys):
    """The mask with axes for batch, heads and queries, and a column for each key."""
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    return jnp.broadcast_to(mask, (*mask.shape[:3], keys))


def _mask_axes(mask, query):
    """The names of a mask's axes. Those that repeat a row have names of their own."""
    names = zip(("b", "(h g)", "s"), "uvw", query.shape, mask.shape)
    own = (name if size == of else other for name, other, of, size in names)
    return " ".join([*own, "c"])


def _on_parts(function, rule, arrays, options):
    """Calls a function of `_Ring` on the parts of the arrays that each device has.

    `rule` names the axes of arrays and results: `h` are the heads of keys, `g` the
    heads of queries that share one, `s` is the sequence of queries, `t` that of keys,
    `c` the columns of a mask.
    """
    from jax.experimental.custom_partitioning import custom_partitioning

    # Sequences of the same length are divided alike.
    alike = arrays[0].shape[2] == arrays[1].shape[2]
    names = rule.replace("(h g)", "hg").replace(" ->", ",").split(",")
    names = [own.split() for own in names]
    groups = arrays[0].shape[1] // arrays[1].shape[1] if arrays[1].shape[1] else 1

    def partition(mesh, arrays, results):
        batch, heads, queries = (_divisors(arrays[0], i, mesh) for i in range(3))
        keys = _divisors(arrays[1], 2, mesh)
        # `ppermute` counts devices in the order of the mesh's axes.
        order = mesh.axis_names
        queries, keys = (
            tuple(name for name in order if name in own) for own in (queries, keys)
        )
        if alike and not queries and not {*keys} & {*batch, *heads}:
            queries = keys
        keys = queries if keys == queries else ()
        blocks = math.prod(mesh.shape[name] for name in keys)
        shared = _Heads(groups, arrays[1].shape[1], heads, mesh)
        owners = {"b": batch, "hg": shared.of_queries, "h": shared.of_keys}
        owners |= {"s": queries, "t": keys}

        def place(names):
            spec = jax.sharding.PartitionSpec(*(owners.get(n) or None for n in names))
            return jax.sharding.NamedSharding(mesh, spec)

        def call(*parts):
            ring = _Ring(queries, blocks, **options)
            ring.repeats = {own: owners[n] for own, n in zip("uvw", ("b", "hg", "s"))}
            return run(ring, shared, parts)

        places = list(map(place, names))
        count = len(arrays)
        return mesh, call, tuple(places[count:]), tuple(places[:count])

    def run(ring, heads, parts):
        """The results for the parts of a device."""
        ring.mask_axes = next((own for own in names if own[-1] == "c"), ())
        given = [heads.inward(*own) for own in zip(parts, names)]
        results = zip(function(ring, *given), names[len(parts) :])
        return tuple(heads.outward(*own) for own in results)

    def plain(*arrays):
        return run(_Ring((), 1, **options), _Heads(groups), arrays)

    def batch(_, batched, *arrays):
        found = jax.vmap(plain, [0 if own else None for own in batched])(*arrays)
        return found, (True,) * len(found)

    divided = custom_partitioning(plain)
    rule = rule.replace("t", "s") if alike else rule
    factors = {"g": groups}
    if groups == 1 or arrays[1].shape[1] == 1:  # an axis has one factor
        rule, factors = rule.replace("(h g)", "h" if groups == 1 else "g"), {}
    # Shardings that no mesh axes express cannot be decoded.
    divided.def_partition(
        partition, decode_shardings=False, sharding_rule=rule, **factors
    )
    # Batches and further derivatives are those of the plain function.
    with_batches = jax.custom_batching.custom_vmap(divided)
    with_batches.def_vmap(batch)
    differentiable = jax.custom_jvp(with_batches)
    differentiable.defjvp(lambda own, tangents: jax.jvp(plain, own, tangents))
    return differentiable(*arrays)


def _divisors(array, axis, mesh):
    """The mesh axes that divide an axis of an array into equal parts, outermost first.

    XLA may divide by a part of a mesh axis, which counts as none.
    """
    try:
        places = array.sharding.devices_indices_map(array.shape)
    except ValueError:  # the parts are not equal
        return ()
    first = np.vectorize(lambda device: places[device][axis].start or 0)(mesh.devices)
    ones = np.eye(first.ndim, dtype=int) * (np.array(first.shape) > 1)
    steps = {name: first[tuple(one)] for name, one in zip(mesh.axis_names, ones)}
    names = sorted(filter(steps.get, steps), key=steps.get, reverse=True)
    size = array.shape[axis]
    for name in names:
        size, rest = divmod(size, mesh.shape[name])
        if rest or size != steps[name]:
            return ()
    return tuple(names)


class _Heads:
    """The heads of queries, in groups that share a head of keys, and how a mesh divides
    them.

    If there are more devices than heads of keys, several devices have the same one.
    """

    def __init__(self, groups, keys=1, axes=(), mesh=None):
        devices = math.prod(mesh.shape[name] for name in axes)
        self.groups, self.keys = groups, keys
        is_even = keys % devices == 0
        self.of_keys = axes if is_even else ()
        self.sharers = 0 if is_even or devices % keys else devices // keys
        self.of_queries = axes if is_even or self.sharers else ()

    def inward(self, array, names):
        """The heads of a device. Those of queries get an axis of groups."""
        if names[1] == "v":  # a mask of all heads
            return array[:, :, None]
        if names[1] == "hg":
            groups = self.groups // (self.sharers or 1)
            heads = array.shape[1] // groups
            return array.reshape(array.shape[0], heads, groups, *array.shape[2:])
        if self.sharers:
            return jax.lax.dynamic_slice_in_dim(array, self.place(), 1, 1)
        return array

    def outward(self, array, names):
        """The opposite. The terms of a shared head are added up."""
        if names[1] in {"hg", "v"}:
            heads = array.shape[1] * array.shape[2]
            return array.reshape(array.shape[0], heads, *array.shape[3:])
        if self.sharers:
            shape = array.shape[0], self.keys, *array.shape[2:]
            zeros = jnp.zeros(shape, _wide(array))
            term = array.astype(zeros.dtype)
            term = jax.lax.dynamic_update_slice_in_dim(zeros, term, self.place(), 1)
            return jax.lax.psum(term, self.of_queries).astype(array.dtype)
        return array

    def place(self):
        """The number of the head of keys that this device has."""
        return jax.lax.axis_index(self.of_queries) // self.sharers


class _Ring:
    """The devices along the mesh axes that divide queries.

    There are as many blocks of keys as devices, or one if each device has all keys.
    """

    def __init__(self, axes, blocks, left, right, scale, softcap):
        # The names of a mask's axes, and for those along which it repeats a row the
        # mesh axes that divide the scores there.
        self.mask_axes, self.repeats = (), {}
        self.axes, self.blocks, self.scale, self.softcap = axes, blocks, scale, softcap
        self.left, self.right = left, right

    def go(self, visit, query, blocks, state, sums, mask=None):
        """Calls `visit` with the scores of each block of keys.

        It returns the next state and sums. The state stays on the device, and the sums
        go with the blocks, back to their device at the end.
        """
        rank = jax.lax.axis_index(self.axes) if self.axes else 0

        def see(step, state, sums, blocks):
            at = (rank - step) % self.blocks
            part = None if mask is None else self.columns(mask, blocks[0], at)

            def run(state, sums):
                scores = self.scores(query, blocks[0], part, rank, at)
                return visit(*scores, at, blocks, state, sums)

            # A block may have no key that these queries see.
            is_seen = self.is_seen(query, blocks[0], part, rank, at)
            if self.blocks == 1 or is_seen is True:
                return run(state, sums)
            return jax.lax.cond(is_seen, run, lambda *own: own, state, sums)

        def turn(step, carried):
            state, sums, blocks = carried
            following = self.send(blocks)  # while this device computes
            state, sums = see(step, state, sums, blocks)
            return state, self.send(sums), following

        if self.blocks == 1:
            return see(0, state, sums, blocks)
        following = self.send(blocks)
        # The sums of its own block stay here until those of the others arrive.
        state, own = see(0, state, sums, blocks)
        carried = jax.lax.fori_loop(1, self.blocks - 1, turn, (state, sums, following))
        state, sums = see(self.blocks - 1, *carried)
        return state, tuple(map(jnp.add, own, self.send(sums)))

    def send(self, arrays):
        """The arrays of the previous device, to which this one is the next."""
        pairs = [(i, (i + 1) % self.blocks) for i in range(self.blocks)]
        return tuple(jax.lax.ppermute(x, self.axes, pairs) for x in arrays)

    def columns(self, mask, key, at):
        """The columns of a mask for a block of keys."""
        width = key.shape[2]
        return jax.lax.dynamic_slice_in_dim(mask, at * width, width, 4)

    def is_seen(self, query, key, mask, rank, at):
        """Whether the queries see a key of the block."""
        rows, columns = query.shape[3], key.shape[2]
        first, last = rank * rows, rank * rows + rows - 1
        seen = True
        if self.right is not None:
            seen &= at * columns <= last + self.right
        if self.left is not None:
            seen &= at * columns + columns - 1 >= first - self.left
        if mask is not None:
            seen &= jnp.any(mask if mask.dtype == bool else mask > -jnp.inf)
        return seen

    def scores(self, query, key, mask, rank, at):
        """The masked scores, and their derivative by those without `softcap`."""
        scores, slope = self.product("bhgsd,bhtd->bhgst", query, key) * self.scale, None
        if self.softcap is not None:
            bounded = jnp.tanh(scores / self.softcap)
            scores, slope = self.softcap * bounded, 1 - bounded**2
        rows = (rank * query.shape[3] + jnp.arange(query.shape[3]))[:, None]
        columns = at * key.shape[2] + jnp.arange(key.shape[2])
        if self.right is not None:
            scores = jnp.where(columns <= rows + self.right, scores, -jnp.inf)
        if self.left is not None:
            scores = jnp.where(columns >= rows - self.left, scores, -jnp.inf)
        if mask is not None:
            is_bool = mask.dtype == bool
            scores = jnp.where(mask, scores, -jnp.inf) if is_bool else scores + mask
        return scores, slope

    def with_terms(self, of_mask, of_scores, at):
        """The gradient of a mask with the columns for a block of keys."""
        axes = [i for i in range(4) if of_mask.shape[i] != of_scores.shape[i]]
        terms = of_scores.sum(axes, keepdims=True)
        start = at * of_scores.shape[4]
        return jax.lax.dynamic_update_slice_in_dim(of_mask, terms, start, 4)

    def with_all_terms(self, of_mask):
        """The gradient of a mask, whose rows several devices may share."""
        axes = [a for own in self.mask_axes for a in self.repeats.get(own, ())]
        return jax.lax.psum(of_mask, tuple(axes)) if axes else of_mask

    def product(self, form, x, y):
        """A sum of products, in f32 for f16 and bf16."""
        return jnp.einsum(form, x, y, preferred_element_type=_wide(x))


def _wide(x):
    return jnp.promote_types(x.dtype, jnp.float32)


def _attend_in_ring(ring, query, key, value, mask=None):
    """The output, and the log-sum-exp of each query's scores: 0 if it sees no key."""

    def visit(scores, _slope, _at, blocks, state, sums):
        output, most, total = state
        both = jnp.maximum(most, scores.max(-1, initial=-jnp.inf))
        shift = jnp.where(both == -jnp.inf, 0, both)
        weights = jnp.exp(scores - shift[..., None])
        kept = jnp.exp(most - shift)
        part = ring.product("bhgst,bhte->bhgse", weights, blocks[1])
        output = output * kept[..., None] + part
        return (output, both, total * kept + weights.sum(-1)), sums

    output = jnp.zeros((*query.shape[:4], value.shape[3]), _wide(query))
    most = jnp.full(query.shape[:4], -jnp.inf, _wide(query))
    state = output, most, jnp.zeros_like(most)
    state, _ = ring.go(visit, query, (key, value), state, (), mask)
    output, most, total = state
    is_hidden = most == -jnp.inf
    total = jnp.where(is_hidden, 1, total)
    logsumexp = jnp.where(is_hidden, 0, most + jnp.log(total))
    return (output / total[..., None]).astype(query.dtype), logsumexp


def _differentiate_in_ring(ring, query, key, value, output, total, gradient, mask=None):
    """The gradients with respect to query, key and value, and a mask that is added."""
    shift = jnp.sum(gradient.astype(total.dtype) * output, -1)

    def visit(scores, slope, at, blocks, state, sums):
        key, value = blocks
        weights = jnp.exp(scores - total[..., None])
        of_weights = ring.product("bhgse,bhte->bhgst", gradient, value)
        of_scores = weights * (of_weights - shift[..., None])
        of_query, *of_mask = state
        of_mask = [ring.with_terms(own, of_scores, at) for own in of_mask]
        of_scores *= ring.scale if slope is None else ring.scale * slope
        of_key = sums[0] + ring.product("bhgst,bhgsd->bhtd", of_scores, query)
        of_value = sums[1] + ring.product("bhgst,bhgse->bhte", weights, gradient)
        of_query += ring.product("bhgst,bhtd->bhgsd", of_scores, key)
        return (of_query, *of_mask), (of_key, of_value)

    masks = [] if mask is None or mask.dtype == bool else [mask]
    zeros = [jnp.zeros(x.shape, _wide(x)) for x in (query, *masks, key, value)]
    state, sums = tuple(zeros[:-2]), tuple(zeros[-2:])
    (of_query, *of_mask), sums = ring.go(visit, query, (key, value), state, sums, mask)
    if ring.axes and ring.blocks == 1:
        # Each device has the terms of its queries.
        sums = jax.lax.psum(sums, ring.axes)
    of_mask = [ring.with_all_terms(own) for own in of_mask]
    found = zip((query, key, value, *masks), (of_query, *sums, *of_mask))
    return tuple(gradient.astype(own.dtype) for own, gradient in found)
