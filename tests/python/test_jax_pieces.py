"""The functions of a stage: its forward pass and two of gradients, compared with the whole."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from jax import numpy as jnp  # noqa: E402

from mithril.backends.jax_pieces import Pieces, StageArguments  # noqa: E402


def stage(params, inputs, taken):
    """A part of a network with a random mask, and a result without a gradient."""
    weight, bias, last, scale = params
    hidden = jax.nn.gelu(taken[0] @ weight + bias)
    key = jax.random.wrap_key_data(inputs[0])
    hidden = jnp.where(jax.random.bernoulli(key, 0.5, hidden.shape), hidden, 0)
    result = jax.nn.softmax(hidden @ last) * scale
    return [result, result > 0]


def joint(params, inputs, taken, seeds):
    def learned(params, taken):
        values = stage(params, inputs, taken)
        return values[:1], values

    _, pullback, values = jax.vjp(learned, params, taken, has_aux=True)
    gradients, of_taken = pullback(seeds)
    return values, of_taken, gradients


def arguments():
    draw = np.random.default_rng(0)
    array = lambda *shape: jnp.asarray(draw.standard_normal(shape), "float32")  # noqa: E731
    return StageArguments(
        [array(4, 8), array(8), array(8, 3), array(3)],
        [jnp.array([1, 2], "uint32")],
        [array(2, 4)],
        [array(2, 3)],
    )


def products(function, *arguments):
    """The matrix products that a function computes."""
    equations = jax.make_jaxpr(function)(*arguments).jaxpr.eqns
    return sum(equation.primitive.name == "dot_general" for equation in equations)


def test_pieces_are_equal_to_the_whole():
    given = arguments()
    types = jax.tree_util.tree_map(lambda own: jax.ShapeDtypeStruct(own.shape, own.dtype), given)
    pieces = Pieces(joint, types)
    values, kept = pieces.forward(given.params, given.inputs, given.taken)
    of_taken, inner = pieces.backward(given.params, given.inputs, kept, given.seeds)
    gradients = pieces.weights(given.params, given.inputs, kept, inner)
    want = joint(*given)
    for got, own in zip((values, of_taken, gradients), want):
        assert len(got) == len(own)
        for one, other in zip(got, own):
            np.testing.assert_array_equal(one, other, strict=True)
    assert [own.shape for own in kept] == [own.shape for own in pieces.kept]
    assert [own.shape for own in inner] == [own.shape for own in pieces.inner]


def test_each_piece_has_its_products():
    given = arguments()
    types = jax.tree_util.tree_map(lambda own: jax.ShapeDtypeStruct(own.shape, own.dtype), given)
    pieces = Pieces(joint, types)
    kept = [jnp.zeros(own.shape, own.dtype) for own in pieces.kept]
    inner = [jnp.zeros(own.shape, own.dtype) for own in pieces.inner]
    own = given.params, given.inputs
    assert products(pieces.forward, *own, given.taken) == 2
    assert products(pieces.backward, *own, kept, given.seeds) == 2
    assert products(pieces.weights, *own, kept, inner) == 2
    # Params are at hand, and no vector holds random keys.
    assert all(own.shape not in [(4, 8), (8, 3)] for own in pieces.kept)
    assert {own.dtype.name for own in pieces.kept} == {"float32", "bool"}
