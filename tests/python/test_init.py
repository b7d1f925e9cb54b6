"""Initial values: like those of PyTorch's layers; `init`, keys, and saving."""

import math

import jax
import numpy as np
import pytest
import torch
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril.models import (
    MLP,
    BatchNorm1d,
    ElementWiseAffine,
    Embedding,
    Layer,
    LayerNorm,
    Linear,
    Model,
    MultiHeadAttention,
    Relu,
    RMSNorm,
)

NUMPY = ml.NumpyBackend()


def params(block, shape=(4, 300), backend=NUMPY, seed=0, **options):
    compiled = ml.compile(block, backend, shapes={"input": shape})
    return compiled.randomize_params(seed, **options)


def alike(own, theirs):
    """Compares two samples within sampling error: mean, deviation, maximum and quantiles."""
    own, theirs = np.asarray(own, np.float64).ravel(), np.asarray(theirs, np.float64).ravel()
    assert own.size == theirs.size
    if theirs.std() == 0:
        np.testing.assert_array_equal(own, theirs)
        return
    # About five standard errors of the difference of two samples' quantiles.
    slack = 10 * theirs.std() / math.sqrt(own.size)
    assert abs(own.mean() - theirs.mean()) < slack
    assert abs(own.std() - theirs.std()) < slack
    for q in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert abs(np.quantile(own, q) - np.quantile(theirs, q)) < 2 * slack
    # The maximum of a bounded distribution is near its bound; that of a normal one varies more.
    assert abs(own).max() == pytest.approx(abs(theirs).max(), rel=0.3)


def test_linear():
    torch.manual_seed(0)
    own, theirs = params(Linear(400)), torch.nn.Linear(300, 400)
    alike(own["w"], theirs.weight.detach())
    alike(own["b"], theirs.bias.detach())
    assert max(abs(own["w"]).max(), abs(own["b"]).max()) <= 1 / math.sqrt(300)


def test_embedding():
    torch.manual_seed(0)
    own = ml.compile(Embedding(500, 64), NUMPY, shapes={"input": [3]}).randomize_params(0)
    alike(own["w"], torch.nn.Embedding(500, 64).weight.detach())


@pytest.mark.parametrize(
    ("own", "theirs", "names"),
    [
        (LayerNorm(), torch.nn.LayerNorm(300), {"w": "weight", "b": "bias"}),
        (RMSNorm(), torch.nn.RMSNorm(300), {"w": "weight"}),
        (BatchNorm1d(), torch.nn.BatchNorm1d(300), {"w": "weight", "b": "bias"}),
    ],
)
def test_norms(own, theirs, names):
    drawn = params(own)
    assert sorted(drawn) == sorted(names)
    for name, value in drawn.items():
        np.testing.assert_array_equal(value, getattr(theirs, names[name]).detach())


def test_running_moments():
    compiled = ml.compile(BatchNorm1d(), NUMPY, shapes={"input": [4, 7]})
    theirs = torch.nn.BatchNorm1d(7)
    for name, value in compiled.initial_state().items():
        np.testing.assert_array_equal(value, getattr(theirs, name))


@pytest.mark.parametrize("context", [96, 160])
def test_multi_head_attention(context):
    """PyTorch joins the query, key and value weights if their inputs have the same width."""
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(96, 4, kdim=context, vdim=context)
    model = Model()
    model |= MultiHeadAttention(4)(input="input", context="context", output="output")
    shapes = {"input": [2, 5, 96], "context": [2, 6, context]}
    own = ml.compile(model, NUMPY, shapes=shapes).randomize_params(0)
    own = {name.rpartition(".")[2]: value for name, value in own.items()}
    if context == 96:
        joined = np.concatenate([own["w_query"], own["w_key"], own["w_value"]], 1)
        alike(joined, theirs.in_proj_weight.detach())
        for part in ("w_query", "w_key", "w_value"):
            alike(own[part], theirs.in_proj_weight[:96].detach())
    else:
        for name in "query", "key", "value":
            alike(own[f"w_{name}"], getattr(theirs, f"{name[0]}_proj_weight").detach())
    alike(own["w_output"], theirs.out_proj.weight.detach())
    for name in "query", "key", "value", "output":
        assert not own[f"b_{name}"].any()


def test_heads_that_share_keys():
    own = params(MultiHeadAttention(8, kv_heads=2), (2, 5, 64))
    # The joined matrix would have 64 columns for queries, and 16 each for keys and values.
    bound = math.sqrt(6 / (64 + 64 + 2 * 16))
    for name in ("w_query", "w_key", "w_value"):
        assert 0.97 * bound < abs(own[name]).max() <= bound


def test_every_learned_block_documents_its_initial_values():
    for name in ml.models.__all__:
        own = getattr(ml.models, name)
        if "init" in (p for p, _, _ in getattr(_info(name), "parameters", [])):
            assert " start" in own.__doc__ or "`init` is that of" in own.__doc__, name


def _info(name):
    return ml._core.block_info(name)


SHAPE = (300, 400)
NAMED = {
    "zeros": torch.nn.init.zeros_,
    "ones": torch.nn.init.ones_,
    "normal": torch.nn.init.normal_,
    "uniform": torch.nn.init.uniform_,
    "truncated_normal": torch.nn.init.trunc_normal_,
    "xavier_uniform": torch.nn.init.xavier_uniform_,
    "xavier_normal": torch.nn.init.xavier_normal_,
    "kaiming_uniform": torch.nn.init.kaiming_uniform_,
    "kaiming_normal": torch.nn.init.kaiming_normal_,
    "orthogonal": torch.nn.init.orthogonal_,
}


@pytest.mark.parametrize("name", NAMED)
def test_named(name):
    torch.manual_seed(0)
    # PyTorch's weights are (out, in).
    theirs = NAMED[name](torch.empty(400, 300))
    own = params(Linear(400, init=name))
    alike(own["w"], theirs)
    # `init` for the weights does not change the bias.
    assert 0 < abs(own["b"]).max() <= 1 / math.sqrt(300)


@pytest.mark.parametrize(("rows", "columns"), [(40, 60), (60, 40), (50, 50)])
def test_orthogonal(rows, columns):
    own = np.asarray(params(Linear(columns, init="orthogonal"), (2, rows))["w"], np.float64)
    product = own @ own.T if rows < columns else own.T @ own
    np.testing.assert_allclose(product, np.eye(min(rows, columns)), atol=1e-5)


def test_truncated_normal_is_cut():
    own = params(Linear(400, init="truncated_normal"))["w"]
    assert 1.9 < abs(own).max() <= 2


def test_embedding_has_the_fan_of_torch():
    """`Embedding` has weights of PyTorch's shape, whose inits read it as (out, in)."""
    torch.manual_seed(0)
    theirs = torch.nn.init.kaiming_normal_(torch.empty(500, 64))
    block = Embedding(500, 64, init="kaiming_normal")
    own = ml.compile(block, NUMPY, shapes={"input": [3]}).randomize_params(0)
    alike(own["w"], theirs)


def test_numbers_and_functions():
    assert (params(Linear(3, init=0.25))["w"] == 0.25).all()
    assert (params(Linear(3, init=2))["w"] == 2).all()
    seen = []

    def small(key, shape):
        seen.append((key, shape))
        return 0.02 * np.random.default_rng(key).standard_normal(shape)

    own = params(Linear(400, init=small))["w"]
    [(key, shape)] = seen
    assert shape == (300, 400)
    assert key.dtype == np.uint32 and key.shape == (2,)
    assert own.dtype == np.float32
    assert np.std(own) == pytest.approx(0.02, rel=0.02)
    np.testing.assert_array_equal(own, params(Linear(400, init=small))["w"])
    assert (own != params(Linear(400, init=small), seed=1)["w"]).all()


def test_functions_of_jax_and_torch():
    own = params(Linear(400, init=jax.nn.initializers.he_normal()))["w"]
    assert np.std(own) == pytest.approx(math.sqrt(2 / 300), rel=0.02)

    def sparse(key, shape):
        return torch.nn.init.sparse_(torch.empty(shape), 0.1)

    own = params(Linear(400, init=sparse), backend=ml.TorchBackend())["w"]
    assert (own == 0).float().mean().item() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    "block",
    [
        Layer(Relu(), 4, init="ones"),
        MLP([Relu(), None], [4, 4], init="ones"),
        MultiHeadAttention(2, init="ones"),
        ElementWiseAffine(init=1),
    ],
)
def test_composite_blocks_pass_init_to_their_layers(block):
    for name, value in params(block, (2, 4, 4)).items():
        last = name.rpartition(".")[2]
        assert not last.startswith("w") or (value == 1).all(), name


def stacked():
    model = Model()
    model += Linear(8)(input="input")
    model += LayerNorm()
    model += Linear(6)
    return model


def test_patterns():
    given = {"linear_1.*": 0.5, "*.b": "zeros", "linear_?.w": "ones"}
    own = params(stacked(), init=given)
    assert (own["linear_1.w"] == 0.5).all() and (own["linear_1.b"] == 0.5).all()
    assert (own["linear_0.b"] == 0).all() and (own["layer_norm.b"] == 0).all()
    assert (own["linear_0.w"] == 1).all() and (own["layer_norm.w"] == 1).all()


@pytest.mark.parametrize("shapes", [True, False])
def test_the_same_on_every_backend(shapes):
    model = stacked()
    x = np.ones((4, 5), np.float32)
    drawn = []
    for kind in INSTALLED:
        backend = getattr(ml, MAKERS[kind])()
        compiled = ml.compile(model, backend, shapes={"input": [4, 5]} if shapes else None)
        own = compiled.randomize_params(key=7, init={"linear_1.w": "orthogonal"})
        compiled.evaluate(own, {"input": x}, output_gradients={"output": np.ones((4, 6), "f4")})
        drawn.append({name: backend.to_numpy(value) for name, value in own.items()})
    for other in drawn[1:]:
        for name, value in drawn[0].items():
            np.testing.assert_array_equal(value, other[name])
    # The bias uses the fan of the weights, which is known at the first call.
    assert 0 < abs(drawn[0]["linear_0.b"]).max() <= 1 / math.sqrt(5)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_params_begin_at_cache_lines(kind):
    backend = getattr(ml, MAKERS[kind])()
    compiled = ml.compile(stacked(), backend, shapes={"input": [4, 5]})
    for value in compiled.randomize_params(seed=0).values():
        assert backend.to_numpy(value).ctypes.data % 64 == 0


def test_keys():
    compiled = ml.compile(Linear(3), NUMPY, shapes={"input": [2, 5]})
    first, again = compiled.randomize_params(3), compiled.randomize_params(key=3)
    np.testing.assert_array_equal(first["w"], again["w"])
    key = jax.random.key_data(jax.random.key(5))
    by_key, by_words = compiled.randomize_params(key=key), compiled.randomize_params(key=5)
    np.testing.assert_array_equal(by_key["w"], by_words["w"])
    assert (first["w"] != by_key["w"]).all()
    for wrong in (-1, 1.5, "seed", np.zeros(2), True):
        with pytest.raises(
            ml.UsageError, match="`key` must be an integer of at least 0, or a random"
        ):
            compiled.randomize_params(key=wrong)
    with pytest.raises(ml.UsageError, match="cannot both be given"):
        compiled.randomize_params(1, key=2)


def test_tied_weights_determine_the_fan():
    model = Model()
    model |= Linear(16)(input="x", w="shared", b="bias", output="y")
    own = ml.compile(model, NUMPY, shapes={"x": [2, 400]}).randomize_params(0)
    assert 0 < abs(own["bias"]).max() <= 1 / math.sqrt(400)
    inside = Model()
    inside |= model(x="input", y="output")
    nested = ml.compile(inside, NUMPY, shapes={"input": [2, 400]}).randomize_params(0)
    biases = [v for name, v in nested.items() if v.ndim == 1]
    assert 0 < abs(biases[0]).max() <= 1 / math.sqrt(400)


def test_saving(tmp_path):
    model = Model()
    model += Linear(8, init="kaiming_normal")(input="input")
    model += Linear(4, init=0.5)
    again = ml.Model.from_json(model.to_json())
    own, loaded = params(model), params(again)
    for name, value in own.items():
        np.testing.assert_array_equal(value, loaded[name])
    model += Linear(2, init=lambda key, shape: np.ones(shape))
    for way in (model.to_json, lambda: model.save(tmp_path / "model.json")):
        with pytest.raises(ml.MithrilError, match="a function cannot be saved") as error:
            way()
        assert "`init` of `Linear`" in str(error.value)
        assert "randomize_params(init=" in str(error.value)


def test_equal_layers_stay_one_function():
    def half(key, shape):
        return np.full(shape, 0.5)

    def source(init):
        model = Model()
        for _ in range(3):
            model += MLP([Relu()] * 30, [4] * 30, init=init)
        return ml.compile(model, NUMPY, shapes={"input": [2, 4]}, inference=True).code

    assert source(None).count("def ") == 2
    assert source(None) == source("ones") == source(half)


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (
            lambda: Linear(8, init="xavier"),
            [
                "`init` of `Linear` has an invalid value",
                'the string "xavier"',
                "xavier_",
            ],
        ),
        (lambda: Linear(8, init=[1]), ["`init` of `Linear` has the wrong type", "a list of 1"]),
        (lambda: Linear(8, init=math.inf), ["`init` of `Linear`", "a finite number"]),
        (
            lambda: params(stacked(), init={"layer_norm.*": "orthogonal"}),
            [
                '`init="orthogonal"` needs a matrix, and `layer_norm.w` is not one',
                "at least two dims",
            ],
        ),
        (
            lambda: params(stacked(), init={"linear_2.w": "ones"}),
            ["no param matches the pattern `linear_2.w`", "did you mean `linear_"],
        ),
        (
            lambda: params(stacked(), init={"*.w": "kaiming"}),
            ["there is no such `init`", 'the string "kaiming"'],
        ),
        (
            lambda: params(Linear(8, init=lambda key, shape: np.ones(3))),
            ["`init` of `w` returned an array", "float64[3]", "floats of shape [300, 8]"],
        ),
    ],
)
def test_messages(make, lines):
    with pytest.raises(ml.MithrilError) as error:
        make()
    for line in lines:
        assert line in str(error.value)


def test_values_are_those_of_rust():
    """The same values are in `frontend/driver/tests/compiled.rs`."""
    model = Model()
    model += Linear(3)(input="x")
    model += Relu()
    model += Linear(2)(output="y")
    own = ml.compile(model, NUMPY, shapes={"x": ["batch", 2]}).randomize_params(7)
    np.testing.assert_array_equal(own["linear_1.b"], np.float32([-0.16966549, -0.28235534]))


def test_long_seeds_differ():
    seeds = [5, 5 + (1 << 64), 5 + (1 << 70), 5 << 64]
    drawn = [params(Linear(2), seed=seed)["w"] for seed in seeds]
    for at, own in enumerate(drawn):
        for other in drawn[at + 1 :]:
            assert (own != other).all()
