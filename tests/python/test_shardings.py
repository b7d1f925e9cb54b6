"""Layouts on device meshes that are proposed, given and explained. They need no device."""

import time

import numpy as np
import pytest
from networks import Residual

import mithril as ml
from mithril.models import (
    Embedding,
    Gelu,
    LayerNorm,
    Linear,
    Mean,
    MultiHeadAttention,
    Relu,
    Sequential,
)


def gpt(layers, dim, heads=4, vocabulary=64):
    def layer():
        attention = [LayerNorm(), MultiHeadAttention(heads, is_causal=True)]
        feed_forward = [LayerNorm(), Linear(4 * dim), Gelu(), Linear(dim)]
        return Sequential([Residual(Sequential(attention)), Residual(Sequential(feed_forward))])

    inner = [layer() for _ in range(layers)]
    return Sequential([Embedding(vocabulary, dim), *inner, LayerNorm(), Linear(vocabulary)])


def compiled(model, shape, **options):
    return ml.compile(model, ml.NumpyBackend(), shapes={"input": shape}, **options)


def perceptron():
    return Sequential([Linear(256), Relu(), Linear(256), Relu(), Linear(8)])


def collectives(plan, path=""):
    block = next(block for block in plan.blocks if block.path == path)
    return {(kind, axis): (count, size) for kind, axis, count, size in block.collectives}


def test_a_perceptron_on_a_data_mesh_gets_data_parallelism():
    plan = compiled(perceptron(), [4096, 64]).propose_shardings({"data": 4}, machine="8xH100")
    assert plan["input"] == {"data": 0}
    assert all(split == {} for name, split in plan.items() if name != "input")
    # A ring sends each gradient twice, but for the part of one device.
    params = 4 * (64 * 256 + 256 + 256 * 256 + 256 + 256 * 8 + 8)
    ((count, size),) = collectives(plan).values()
    assert (count, size) == (6, 2 * params * 3 / 4)


def test_a_transformer_gets_columns_and_rows_of_its_weights():
    """Megatron's layout: the first product of a pair is divided by columns, the second by rows.
    Between the pairs, the sequence is divided."""
    model = gpt(4, 2048, heads=16, vocabulary=32000)
    plan = compiled(model, [1, 1024]).propose_shardings({"model": 8}, machine="8xH100")
    for layer in range(4):
        attention = f"sequential_{layer}.residual_0.sequential.multi_head_attention"
        for name in ("query", "key", "value"):
            assert plan[f"{attention}.w_{name}"] == {"model": 1}
            assert plan[f"{attention}.b_{name}"] == {"model": 0}
        assert plan[f"{attention}.w_output"] == {"model": 0}
        assert plan[f"sequential_{layer}.residual_1.sequential.linear_0.w"] == {"model": 1}
        assert plan[f"sequential_{layer}.residual_1.sequential.linear_1.w"] == {"model": 0}
    assert plan["embedding.w"] == {"model": 0}
    assert plan["linear.w"] == {"model": 1}
    assert plan.residuals == [([1, 1024, 2048], {"model": 1})]
    assert "residual values of 1 x 1024 x 2048: _,model,_" in str(plan)
    found = collectives(plan, "sequential_0.residual_1.sequential.linear_0")
    # Forward gathers the sequence; gradients gather it again, and add up their parts.
    part = 1024 * 2048 * 4 * 7 / 8
    assert found == {("all-gather", "model"): (2, 2 * part), ("reduce-scatter", "model"): (1, part)}
    # Without sequences in parts, the sums of each pair are reduced as a whole.
    whole = compiled(model, [1, 1024]).explain_sharding(
        {"model": 8}, machine="8xH100", given=dict(plan)
    )
    assert {kind for kind, _ in collectives(whole)} == {"all-reduce"}
    assert whole.residuals == []
    assert plan.seconds < 0.85 * whole.seconds
    assert plan.memory < 0.9 * whole.memory
    picture = plan.dot(2)
    assert picture.startswith("digraph {")
    assert r'label = "sequential_0.residual_1\lsequential.linear_0.w: _,model\l' in picture
    assert r"gives _,model,_\l" in picture
    assert 'label = "[1 x 1024 x 2048]"' in picture
    again = compiled(model, [1, 1024]).explain_sharding({"model": 8}, machine="8xH100", given=plan)
    assert str(again).splitlines()[0] == str(plan).splitlines()[0]


def test_a_table_too_large_for_a_device_is_divided_by_rows():
    model = Sequential([Embedding(1_000_000, 12), Mean(axis=1), Linear(64), Relu(), Linear(1)])
    recommender = compiled(model, [512, 20])
    plan = recommender.propose_shardings((8,), machine="8xH100", memory="100MB")
    assert plan["embedding.w"] == {"axis_0": 0}
    assert plan.memory < 100e6
    with pytest.raises(ml.MithrilError, match="does not fit into the memory of 8 devices"):
        recommender.propose_shardings((8,), machine="8xH100", memory="10MB")


@pytest.mark.parametrize("mesh", [(2,), (4,), (8,), (2, 2)])
@pytest.mark.parametrize("width", [16, 32, 64, 128])
def test_the_table_of_a_recommender_is_divided_by_rows(width, mesh):
    """Parts of less than 128 elements of a row are not proposed, but can be given."""
    model = Sequential([Embedding(1_000_000, width), Mean(axis=1), Linear(64), Relu(), Linear(1)])
    recommender = compiled(model, [512, 20])
    rows = {f"axis_{at}": 0 for at in range(len(mesh))}
    for machine in ("cpu-gloo", "8xH100", "TPU-v5e-16"):
        assert recommender.propose_shardings(mesh, machine=machine)["embedding.w"] == rows
    given = {"embedding.w": {"axis_0": 1}}
    plan = recommender.propose_shardings(mesh, machine="8xH100", given=given)
    assert plan["embedding.w"] == given["embedding.w"]


def test_attention_with_masks_and_windows_goes_round_a_ring():
    """A plan predicts the same bytes as for attention without them."""
    found = []
    for options in ({}, {"is_causal": True, "window": 8}, {"alibi": True}, {"softcap": 5.0}):
        model = compiled(MultiHeadAttention(4, **options), [2, 64, 64])
        given = {"input": {"data": 0, "sequence": 1}}
        plan = model.explain_sharding({"data": 2, "sequence": 4}, given=given)
        found.append(collectives(plan))
    # Keys and values go round forward and backward, and their gradients once.
    part = 2 * 64 * 64 * 4 / 2
    assert found[0]["collective-permute", "sequence"] == (6, 6 * part * 3 / 4)
    for own in found:
        assert own["collective-permute", "sequence"] == found[0]["collective-permute", "sequence"]
        # Positions may be gathered.
        assert own.get(("all-gather", "sequence"), (0, 0))[1] < 1000


def test_equal_layers_are_decided_once_and_quickly():
    model = gpt(48, 1600, heads=16, vocabulary=51200)
    deep = compiled(model, [16, 1024])
    start = time.process_time()
    plan = deep.propose_shardings({"data": 8, "model": 8}, machine="2x8xH100")
    seconds = time.process_time() - start
    assert plan.compared < 25_000
    assert seconds < 6  # about 1.5 where nothing else runs
    first = {n: s for n, s in plan.items() if n.startswith("sequential_1.")}
    for layer in range(2, 48):
        assert {n: plan[n.replace("_1.", f"_{layer}.", 1)] for n in first} == first
    megatron = {
        "input": {"data": 0},
        "*.w_query": {"model": 1},
        "*.w_key": {"model": 1},
        "*.w_value": {"model": 1},
        "*.w_output": {"model": 0},
        "*.linear_0.w": {"model": 1},
        "*.linear_1.w": {"model": 0},
        "embedding.w": {"model": 0},
        "linear.w": {"model": 1},
    }
    own = deep.explain_sharding({"data": 8, "model": 8}, machine="2x8xH100", given=megatron)
    assert plan.seconds <= own.seconds


def test_thousands_of_devices_need_no_device():
    start = time.process_time()
    plan = compiled(gpt(6, 256), [2048, 64]).propose_shardings({"data": 512, "model": 8})
    assert plan.mesh == {"data": 512, "model": 8}
    assert plan["input"]["data"] == 0
    assert time.process_time() - start < 10  # about 0.4


def test_dims_that_a_mesh_does_not_divide_stay_whole():
    odd = compiled(Sequential([Linear(15), Relu(), Linear(9)]), [7, 25])
    plan = odd.propose_shardings((2, 4))
    assert all(split == {} for split in plan.values())
    assert collectives(plan) == {}
    # Of these dims, the axis of 3 divides some and that of 4 none.
    splits = odd.propose_shardings({"a": 3, "b": 4}, machine="8xH100").values()
    assert all(axis != "b" for split in splits for axis in split)


@pytest.mark.parametrize("mesh", [(1024,), (256, 512), (1, 128)])
def test_meshes_may_be_larger_than_any_dim(mesh):
    small = compiled(Sequential([Linear(64), Relu(), Linear(8)]), [32, 16])
    plan = small.propose_shardings(mesh)
    assert all(split == {} for split in plan.values())
    assert plan.seconds == small.propose_shardings((1,)).seconds


def test_conflicts_are_settled_by_what_is_sent_and_reported():
    """The batch and the columns of a weight are divided by one axis. The weight is smaller than
    the batch, so it is gathered; a larger one stays, and the batch is gathered."""
    for batch, gathered in ((4096, "w"), (8, "input")):
        given = {"input": (0,), "linear.w": (1,)}
        model = compiled(Sequential([Linear(256, use_bias=False)]), [batch, 128], inference=True)
        plan = model.explain_sharding({"data": 4}, given=given)
        size = {"w": 128 * 256, "input": batch * 128}[gathered] * 4 * 3 / 4
        assert collectives(plan)["all-gather", "data"] == (1, size)
        (line,) = plan.conflicts()
        assert line.startswith("linear: data for two dims, settled by 1 all-gather over data: ")
        assert f"conflict in {line}\n" in str(plan)
    assert compiled(perceptron(), [64, 64]).explain_sharding((2,), given={}).conflicts() == []


def test_blocks_have_layouts_and_traffic():
    given = {"input": (0,), "linear_1.w": (None, 1)}
    plan = compiled(perceptron(), [64, 64], inference=True).explain_sharding((2, 2), given=given)
    blocks = {block.path: block for block in plan.blocks}
    assert blocks["linear_0"].split == {"axis_0": 0}
    assert blocks["linear_1"].split == {"axis_0": 0, "axis_1": 1}
    # A quarter of the product, half of its rows and half of its columns, with the bias.
    moved = 64 * 256 / 2 + 256 * 256 / 2 + 64 * 256 / 4
    assert 4 * moved <= blocks["linear_1"].traffic <= 4 * (moved + 3 * 64 * 256 / 4)
    row = next(line for line in str(plan).splitlines() if line.startswith("linear_1 "))
    assert row.split()[1] == "axis_0,axis_1"


def test_pictures_color_layouts():
    given = {"input": (0,), "linear_1.w": (None, 1)}
    picture = compiled(perceptron(), [64, 64]).explain_sharding((2, 2), given=given).dot()
    boxes = [line for line in picture.splitlines() if "gives" in line]
    colors = {}
    for line in boxes:
        layout = line.split("gives ")[1].split("\\l")[0]
        colors.setdefault(layout, set()).add(line.split('fillcolor="')[1].split('"')[0])
    assert colors.keys() == {"axis_0,_", "axis_0,axis_1"}
    first, second = colors.values()
    assert len(first) == len(second) == 1 and first != second


def test_given_layouts_are_kept_and_others_follow():
    model = compiled(perceptron(), [64, 64])
    plan = model.propose_shardings((2, 2), given={"linear_0.w": (None, 1)})
    assert plan["linear_0.w"] == {"axis_1": 1}
    explained = model.explain_sharding((2, 2), given={"linear_0.w": (None, 1)})
    assert explained["linear_0.b"] == {"axis_1": 0}
    assert explained["linear_1.w"] == {"axis_1": 0}
    assert explained["input"] == {}
    # Forward sums over parts of the middle layer, 64 x 256 floats in a ring of two.
    assert collectives(explained, "linear_1")["all-reduce", "axis_1"] == (1, 64 * 256 * 4)


def test_weights_divided_like_the_batch_are_gathered_and_their_gradients_scattered():
    given = {"input": (0,), "linear_?.w": (0,)}
    plan = compiled(perceptron(), [4096, 64]).explain_sharding({"data": 4}, given=given)
    first, middle, last = (4 * size for size in (64 * 256, 256 * 256, 256 * 8))
    biases = 4 * (256 + 256 + 8)
    assert collectives(plan) == {
        # The gradient of the input is not needed, so the first weight is gathered once.
        ("all-gather", "data"): (5, (first + 2 * middle + 2 * last) * 3 / 4),
        ("reduce-scatter", "data"): (3, (first + middle + last) * 3 / 4),
        ("all-reduce", "data"): (3, 2 * biases * 3 / 4),
    }


def test_recomputed_values_need_no_memory_and_no_further_collectives():
    plans = [
        compiled(gpt(8, 64), [64, 32], gradient_checkpointing=again).explain_sharding(
            {"data": 4}, given={"input": (0,)}, optimizer_states=0
        )
        for again in (False, True)
    ]
    kept, recomputed = plans
    assert collectives(kept) == collectives(recomputed)
    assert recomputed.memory < 0.5 * kept.memory
    assert recomputed.blocks[0].flops > 1.1 * kept.blocks[0].flops


def test_a_step_without_gradients_reduces_none():
    trained = compiled(perceptron(), [64, 64]).explain_sharding((4,), given={"input": (0,)})
    inference = compiled(perceptron(), [64, 64], inference=True)
    plan = inference.explain_sharding((4,), given={"input": (0,)})
    assert collectives(plan) == {}
    assert collectives(trained) != {}
    assert plan.memory < trained.memory


def test_memory_is_that_of_params_gradients_and_states():
    model = compiled(Sequential([Linear(512, use_bias=False)]), [1, 512])
    param = 512 * 512 * 4
    for states in (0, 1, 2):
        own = model.explain_sharding((2,), given={}, optimizer_states=states).memory
        assert 0 <= own - (2 + states) * param < 0.02 * param
    split = model.explain_sharding((2,), given={"linear.w": (0,)}, optimizer_states=2).memory
    assert 0 <= split - 4 * param / 2 < 0.02 * param


def test_constraints_inside_a_model_are_part_of_the_plan():
    model = ml.Model()
    model |= Linear(64)(input="input", output=ml.IOKey("hidden"))
    model |= Linear(8)(input=model.hidden.relu().shard({"model": 1}), output="output")
    plan = compiled(model, [32, 16]).explain_sharding({"data": 2, "model": 2}, given={})
    assert plan["linear_0.w"] == {"model": 1}
    assert plan["linear_1.w"] == {"model": 0}


def test_dims_without_numbers_need_sizes():
    model = ml.compile(perceptron(), ml.NumpyBackend(), shapes={"input": ["batch", 64]})
    with pytest.raises(ml.ShapeError, match="layouts can be chosen only for known dims"):
        model.propose_shardings((2,))
    assert model.propose_shardings((2,), batch=1024)["input"] == {"axis_0": 0}


def test_plans_print_as_tables_and_are_mappings():
    plan = compiled(perceptron(), [4096, 64]).propose_shardings({"data": 4}, machine="8xH100")
    text = str(plan)
    assert text.startswith("mesh data:4 of 8xH100: ")
    assert "input: data,_\n" in text
    assert "6 all-reduce over data" in plan.table(0)
    assert "linear_1" not in plan.table(0)
    assert "<table>" in plan._repr_html_()
    assert len(plan) == 7 and set(dict(plan)) == set(plan.keys())
    assert "linear_0.w" in plan and "linear_9.w" not in plan
    with pytest.raises(KeyError):
        plan["linear_9.w"]
    assert sum(block.flops for block in plan.blocks[1:]) == pytest.approx(plan.blocks[0].flops)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mesh": None}, "a mesh is needed to divide the model over"),
        ({"mesh": 4}, "`device_mesh` is not a mesh"),
        ({"mesh": {"a b": 2}}, "`device_mesh` is not a mesh"),
        ({"machine": "8xH10"}, "there is no machine `8xH10`"),
        ({"memory": "much"}, "`memory` is not a size"),
        ({"optimizer_states": -1}, "`optimizer_states` is not a number of arrays"),
        ({"given": {"input": {"modl": 0}}}, "names an axis that the mesh does not have"),
        ({"given": {"linear_9.w": (0,)}}, "no param or input matches the pattern `linear_9.w`"),
        ({"given": {"linear_0.w": (2,)}}, "cannot divide an axis that the array does not have"),
        ({"given": {"linear_2.b": (None, 0)}, "mesh": (2, 3)}, "cannot divide an axis evenly"),
        ({"given": {"input": ("0",)}}, "has an entry that is not an axis"),
        ({"given": [1]}, "`given`"),
    ],
)
def test_wrong_plans_are_explained(given, message):
    with pytest.raises(ml.MithrilError, match=message):
        compiled(perceptron(), [64, 64]).propose_shardings(**{"mesh": (2, 2), **given})


def test_plans_need_the_operations_of_a_custom_block():
    text = "mithril 1\n\nfunc @same(%x: tensor<*b x float>) -> (y: tensor<*b x float>) {\n"
    text += "  %y = tanh(%x)\n  return %y\n}\n"
    known = ml.custom(name="same", mir=text, numpy="return np.tanh(x)")
    body = ml.custom(name="same", shape="(x: [*b]) -> (y: [*b])", numpy="return np.tanh(x)")
    with pytest.raises(ml.BackendError, match="the operations of same are not known") as caught:
        compiled(Sequential([Linear(4), body]), [8, 4], inference=True).propose_shardings((2,))
    assert "where: block `same`\n  got: bodies for numpy" in str(caught.value)
    assert "hint: give `custom` `mir=…` besides the bodies" in str(caught.value)
    plan = compiled(Sequential([Linear(4), known]), [8, 4]).explain_sharding((2,))
    assert [block.path for block in plan.blocks][1:] == ["linear", "same"]


def test_layouts_need_a_backend_with_a_mesh():
    with pytest.raises(ml.BackendError, match="computes on one device") as caught:
        compiled(perceptron(), [64, 64], shardings={"input": (0,)})
    assert "shardings=" in str(caught.value)


def test_constraints_have_no_effect_without_a_mesh():
    model = Sequential([Linear(4), ml.Shard((0, 1)), Relu()])
    given = {"input": np.ones((2, 3), "f4")}
    for backend in (ml.NumpyBackend(), ml.CpuBackend(), ml.CBackend()):
        own = ml.compile(model, backend, shapes={"input": [2, 3]})
        plain = ml.compile(Sequential([Linear(4), Relu()]), backend, shapes={"input": [2, 3]})
        assert "constrain" not in own.code
        params = plain.randomize_params(0)
        got, want = own.evaluate(params, given), plain.evaluate(params, given)
        np.testing.assert_array_equal(got["output"], want["output"])
