"""Models without `shapes=` whose blocks need ranks compile at the first call."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from block_cases import array, build, close, variants
from cases import ROWS
from conftest import INSTALLED, MAKERS

import mithril as ml
from mithril import _core
from mithril.models import (
    Add,
    BatchNorm1d,
    Concat,
    Cumsum,
    Dropout,
    Flatten,
    IOKey,
    Linear,
    LogicalAnd,
    Mean,
    Model,
    Relu,
    Softmax,
    Transpose,
)

AXES = {"axis", "first", "second", "permutation", "pad_width", "reps", "start", "end"}
"""The parameters that say which axes a block works on."""
# In these blocks `start` is a number or an element, not an axis.
NOT_AXES = {"Arange": {"start"}, "Linspace": {"start"}, "Slice": {"start"}}


def axis_cases() -> list[Any]:
    """Every block with axes, with axes counted from the front, and with several values."""
    cases = []
    for name in _core.block_names():
        info = _core.block_info(name)
        kinds = {p: kind for p, kind, _ in info.parameters}
        named = AXES & set(kinds) - NOT_AXES.get(name, set())
        if not named and name not in ("Transpose", "Indexer", "Diagonal", "Tril", "Triu"):
            continue
        (own, *_) = variants(name)
        if "axis" not in named:
            cases.append(pytest.param(name, own, id=name))
            continue
        several = ((0, 1),) if "Sequence" in kinds["axis"] else ()
        for axis in ROWS[name].axes or (1, *several):
            shapes = ROWS[name].front or own.shapes
            case = replace(own, settings={**own.settings, "axis": axis}, shapes=shapes)
            cases.append(pytest.param(name, case, id=f"{name}-{axis}"))
    return cases


CASES = axis_cases()


def made(kind: str) -> Any:
    return getattr(ml, MAKERS[kind])()


def x(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.fixture(params=INSTALLED)
def any_backend(request):
    return made(request.param)


def test_the_table_names_axes_in_many_blocks():
    assert len({case.values[0] for case in CASES}) >= 20
    assert len(CASES) >= 40


def arrays_for(name: str, compiled: Any, shapes: Any) -> dict[str, Any]:
    arguments = {a.name: a for a in compiled._program.arguments}
    rng = np.random.default_rng(0)
    return {n: array(rng, name, arguments[n], shape) for n, shape in shapes.items()}


@pytest.mark.parametrize("kind", INSTALLED)
@pytest.mark.parametrize(("name", "case"), CASES)
def test_blocks_that_name_axes_need_no_shapes(kind, name, case):
    model, shapes = build(name, case)
    backend = made(kind)
    learned = [n for n in shapes if not case.dtypes and name != "OneHot"]
    probe = ml.compile(model, ml.NumpyBackend(), shapes=shapes)
    floats = {a.name for a in probe._program.arguments if a.dtype.name.startswith("float")}
    options = {"trainable_keys": [n for n in learned if n in floats]}
    shaped = ml.compile(model, backend, shapes=shapes, **options)
    opened = ml.compile(model, backend, **options)
    assert opened.outputs == shaped.outputs
    assert set(opened.params) == set(shaped.params)
    assert set(opened.inputs) == set(shaped.inputs)
    own = arrays_for(name, shaped, shapes)
    given = {n: backend.from_numpy(v.copy()) for n, v in own.items()}
    params = shaped.randomize_params(seed=0)
    params.update({n: v for n, v in given.items() if n in shaped.params})
    inputs = {n: v for n, v in given.items() if n not in params}
    if "key" in shaped.inputs:
        inputs["key"] = backend.from_numpy(np.array([1, 2], np.uint32))
    plain = lambda found: {n: backend.to_numpy(v) for n, v in found.items()}  # noqa: E731
    expected = plain(shaped.evaluate(params, inputs))
    for _ in range(2):
        close(plain(opened.evaluate(params, inputs)), expected, "outputs", 1e-6)
    ones = {n: np.ones_like(v) for n, v in expected.items() if v.dtype.kind == "f"}
    if ones and shaped.params:
        seeds = {n: backend.from_numpy(v) for n, v in ones.items()}
        want = plain(shaped.evaluate_gradients(params, inputs, seeds))
        close(plain(opened.evaluate_gradients(params, inputs, seeds)), want, "gradients", 1e-5)


def layered() -> Model:
    """A model with params before and after a block that needs a rank."""
    model = Model()
    model += Linear(4, name="before")(input=IOKey("input"))
    model += Softmax(axis=1)
    model += Linear(3, name="after")(output="output")
    return model


def by_hand(params: Any, value: Any) -> Any:
    hidden = np.exp(value @ params["before.w"] + params["before.b"])
    return hidden / hidden.sum(1, keepdims=True) @ params["after.w"] + params["after.b"]


def records(caplog: Any) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "mithril"]


def test_one_compilation_for_each_set_of_ranks(any_backend, caplog):
    compiled = ml.compile(layered(), any_backend)
    params = compiled.randomize_params(seed=0)
    with pytest.raises(ml.MithrilError, match="shapes="):
        np.asarray(params["after.w"])
    with caplog.at_level(logging.INFO, logger="mithril"):
        for shape in [(5, 6), (2, 5, 6), (7, 6), (2, 5, 6), (1, 6), (4, 2, 6)]:
            given = {"input": any_backend.array(x(*shape))}
            got = any_backend.to_numpy(compiled.evaluate(params, given)["output"])
            known = {n: any_backend.to_numpy(v) for n, v in params.items()}
            np.testing.assert_allclose(got, by_hand(known, x(*shape)), rtol=1e-4, atol=1e-5)
            assert known["after.w"].shape == (4, 3)
    found = records(caplog)
    assert len(found) == 2, found
    assert "input of rank 2" in found[0]
    assert "input of rank 3" in found[1]


def test_the_code_is_that_of_the_last_ranks(any_backend):
    compiled = ml.compile(layered(), any_backend)
    for asked in ("code", "module"):
        with pytest.raises(ml.MithrilError, match=r"known ranks(.|\n)*`input`(.|\n)*shapes="):
            getattr(compiled, asked)
    with pytest.raises(ml.MithrilError, match="`input`"):
        compiled.explain()
    assert "input" in compiled.report()
    params = compiled.randomize_params(seed=0)
    code = []
    for shape in [(5, 6), (2, 5, 6), (5, 6)]:
        compiled.evaluate(params, {"input": any_backend.array(x(*shape))})
        code.append(compiled.code)
        assert compiled.module
    assert code[0] == code[2]
    assert code[0] != code[1]
    assert "softmax" in str(compiled.explain()) or compiled.explain().rules is not None


@pytest.mark.parametrize("kind", [k for k in INSTALLED if k != "cpu"])
def test_a_file_needs_ranks(kind, tmp_path):
    path = tmp_path / ("model.c" if kind == "c" else "model.py")
    with pytest.raises(ml.MithrilError, match=r"known ranks(.|\n)*`input`(.|\n)*shapes="):
        ml.compile(layered(), made(kind), file_path=path)
    assert not path.exists()
    ml.compile(layered(), made(kind), file_path=path, shapes={"input": [None, None, 6]})
    assert path.exists()


def test_gradients_in_every_form(any_backend):
    compiled = ml.compile(layered(), any_backend)
    shaped = ml.compile(layered(), any_backend, shapes={"input": [None, 6]})
    params = shaped.randomize_params(seed=0)
    given = {"input": any_backend.array(x(5, 6))}
    own = any_backend.array(x(5, 3))
    plain = lambda found: {n: any_backend.to_numpy(v) for n, v in found.items()}  # noqa: E731
    want = plain(shaped.evaluate_gradients(params, given, own))
    for seeds in (own, {"output": own}, {"output": lambda _: own}, lambda _: {"output": own}):
        for _ in range(2):
            close(plain(compiled.evaluate_gradients(params, given, seeds)), want, "form", 1e-5)
        fresh = ml.compile(layered(), any_backend)
        late = fresh.randomize_params(seed=0)
        _, gradients = fresh.evaluate(late, given, output_gradients=seeds)
        assert set(gradients) == set(late)
        assert all(tuple(gradients[n].shape) == tuple(late[n].shape) for n in late)


def test_training_needs_no_shapes(any_backend):
    inner = Model()
    inner += Linear(4)(input=IOKey("input"))
    inner += Mean(axis=1)(output="output")
    model = ml.TrainModel(inner)
    model.add_loss(ml.SquaredError(), input="output", target="target")
    compiled = ml.compile(model, any_backend)
    params = compiled.randomize_params(seed=0)
    given = {"input": any_backend.array(x(5, 3, 6)), "target": any_backend.array(x(5, 4))}
    losses = []
    for _ in range(3):
        outputs, gradients = compiled.evaluate(params, given, output_gradients=True)
        losses.append(float(any_backend.to_numpy(outputs["final_cost"])))
        params = {n: v - 0.1 * gradients[n] for n, v in params.items()}
    assert losses[-1] < losses[0]


def test_state_is_held_across_ranks(any_backend):
    model = Model()
    model += BatchNorm1d(name="norm")(input=IOKey("input"))
    model += Mean(axis=1)(output="output")
    compiled = ml.compile(model, any_backend)
    assert compiled.states == ("norm.running_mean", "norm.running_var")
    with pytest.raises(ml.MithrilError, match="not known"):
        compiled.initial_state()
    shaped = ml.compile(model, any_backend, shapes={"input": [None, 6]})
    params = shaped.randomize_params(seed=0)
    given = {"input": any_backend.array(x(5, 6))}
    for _ in range(2):
        compiled.evaluate(params, given)
        shaped.evaluate(params, given)
    for name, value in shaped.state.items():
        got = any_backend.to_numpy(compiled.state[name])
        np.testing.assert_allclose(got, any_backend.to_numpy(value), rtol=1e-5)
    passed = compiled.initial_state(params, given)
    _, following = compiled.evaluate(params, given, state=passed)
    assert set(following) == set(passed)


def test_keys_hooks_debug_and_keep(any_backend, capsys):
    model = Model()
    model += Dropout(0.5)(input=IOKey("input"))
    model += Softmax(axis=1, name="soft")
    model += Relu()(output="output")
    compiled = ml.compile(model, any_backend, keep=["soft"], debug=True, verbose=True)
    assert compiled.outputs == ("output", "soft")
    seen = []
    compiled.register_hook("output", lambda value: seen.append(tuple(value.shape)))
    for shape in [(3, 4), (2, 3, 4)]:
        outputs = compiled.evaluate({}, {"input": any_backend.array(x(*shape))})
        assert tuple(outputs["soft"].shape) == shape
    assert seen == [(3, 4), (2, 3, 4)]
    assert "soft: float32[2, 3, 4]" in capsys.readouterr().out
    with pytest.raises(ml.TerminalError, match="sof"):
        ml.compile(model, any_backend, keep=["sof"])
    with pytest.raises(ml.TerminalError):
        compiled.register_hook("nothing", print)


def test_params_are_bound(any_backend):
    compiled = ml.compile(layered(), any_backend)
    params = compiled.randomize_params(seed=0)
    given = {"input": any_backend.array(x(5, 6))}
    with pytest.raises(ml.MithrilError, match="shapes="):
        compiled.bind(params)
    want = any_backend.to_numpy(compiled.evaluate(params, given)["output"])
    bound = compiled.bind(params)
    for shape in [(5, 6), (2, 5, 6)]:
        got = bound.evaluate({}, {"input": any_backend.array(x(*shape))})["output"]
        if shape == (5, 6):
            np.testing.assert_allclose(any_backend.to_numpy(got), want, rtol=1e-5, atol=1e-6)


def test_params_that_need_no_rank_have_values_at_once(any_backend):
    model = Model()
    model |= Linear(4, name="known")(input="a", output="u")
    model |= Mean(axis=1, name="mean")(input="b", output="m")
    model |= Linear(3, name="late")(input="m", output="v")
    compiled = ml.compile(model, any_backend, shapes={"a": [None, 6]})
    params = compiled.randomize_params(seed=0)
    assert tuple(params["known.w"].shape) == (6, 4)
    with pytest.raises(ml.MithrilError, match="shapes="):
        float(params["late.w"])
    given = {"a": any_backend.array(x(2, 6)), "b": any_backend.array(x(2, 3, 5))}
    outputs = compiled.evaluate(params, given)
    assert tuple(outputs["v"].shape) == (2, 3)
    assert tuple(params["late.w"].shape) == (5, 3)


def test_new_broadcasts_compile_a_variant(any_backend, caplog):
    model = Model()
    model |= Transpose()(input="a", output="t")
    model |= Transpose()(input="b", output="u")
    model |= Add()(left="t", right="u", output="output")
    compiled = ml.compile(model, any_backend, inference=True)
    with caplog.at_level(logging.INFO, logger="mithril"):
        for a, b in [((3, 4), (3, 4)), ((3, 1), (3, 4)), ((5, 1), (5, 2)), ((1, 4), (3, 4))]:
            given = {"a": any_backend.array(x(*a)), "b": any_backend.array(x(*b))}
            got = any_backend.to_numpy(compiled.evaluate({}, given)["output"])
            np.testing.assert_allclose(got, (x(*a) + x(*b)).T, rtol=1e-6)
    assert len(records(caplog)) == 3


def wrong_dtypes() -> Model:
    model = Model()
    model += Mean(axis=1)(input=IOKey("input"))
    model |= LogicalAnd(name="both")(left="other", right="third", output="and")
    model |= Relu(name="relu")(input="and", output="wrong")
    return model


def wrong_dims() -> Model:
    model = Model()
    model |= Softmax(axis=1)(input="input", output="soft")
    model |= Linear(3, name="left")(input="b", output="u")
    model |= Linear(4, name="right")(input="b", output="v")
    model |= Add(name="sum")(left="u", right="v", output="output")
    return model


def wrong_after() -> Model:
    """Shapes that do not fit, for any rank of the softmax's input."""
    model = Model()
    model |= Linear(3, name="left")(input="b", output="u")
    model |= Linear(4, name="right")(input="b", output="v")
    model |= Softmax(axis=1)(input="u", output="s")
    model |= Softmax(axis=1)(input="v", output="t")
    model |= Concat(axis=0, name="both")(inputs=["s", "t"], output="output")
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [(wrong_dtypes, "`relu`"), (wrong_dims, "block `sum`"), (wrong_after, "block `both`")],
)
def test_errors_that_need_no_ranks_come_at_once(any_backend, model, message):
    with pytest.raises(ml.MithrilError, match=message):
        ml.compile(model(), any_backend)


def test_errors_for_any_rank_are_raised_at_compile_time(any_backend):
    with pytest.raises(ml.MithrilError, match="axis 70 is out of range"):
        ml.compile(Mean(axis=70), any_backend)
    with pytest.raises(ml.TerminalError, match="trainable_keys"):
        ml.compile(Mean(axis=1), any_backend, trainable_keys=["nothing"])
    with pytest.raises(ml.TerminalError, match="differentiate"):
        ml.compile(layered(), any_backend, differentiate="nothing")


def test_a_wrong_call_leaves_the_model_usable(any_backend):
    compiled = ml.compile(layered(), any_backend)
    params = compiled.randomize_params(seed=0)
    array = any_backend.array
    wrong: list[tuple[Any, str]] = [
        ({"input": array(x(6))}, "axis 1 is out of range"),
        ({}, "missing"),
        ({"other": array(x(5, 6))}, "other"),
        ({"input": [[1.0, 2.0]]}, "not an array"),
        ({"input": 1.0}, "not an array"),
        (None, "dict"),
    ]
    for _ in range(2):
        for inputs, message in wrong:
            with pytest.raises(ml.MithrilError, match=message) as raised:
                compiled.evaluate(params, inputs)
            assert "during compilation" not in str(raised.value)
        assert tuple(compiled.evaluate(params, {"input": array(x(5, 6))})["output"].shape) == (5, 3)
    with pytest.raises(ml.ShapeError, match="the wrong shape"):
        compiled.evaluate(params, {"input": array(x(5, 7))})


def test_errors_ask_only_for_the_needed_ranks(any_backend, caplog):
    model = Model()
    model |= Flatten(1)(input="a", output="flat")
    model |= Relu()(input="b", output="same")
    with pytest.raises(ml.MithrilError, match="`a`") as raised:
        _ = ml.compile(model, any_backend).code
    assert ("`b`" in str(raised.value)) == (any_backend.kind in ("cpu", "c"))
    compiled = ml.compile(model, any_backend, shapes={"b": ["n", 3]})
    given = {"a": any_backend.array(x(2, 3, 4)), "b": any_backend.array(x(2, 3))}
    assert tuple(compiled.evaluate({}, given)["flat"].shape) == (2, 12)
    with pytest.raises(ml.ShapeError):
        compiled.evaluate({}, {**given, "b": any_backend.array(x(2, 4))})


def test_inputs_may_have_different_ranks(any_backend):
    loss = ml.models.CrossEntropy(axis=1)
    model = Model()
    model |= loss(input="scores", target=IOKey("labels", dtype=ml.int64), output="output")
    compiled = ml.compile(model, any_backend, inference=True)
    labels = np.array([[0, 1], [3, 2], [1, 1]])
    given = {"scores": any_backend.array(x(3, 4, 2)), "labels": any_backend.array(labels)}
    assert tuple(compiled.evaluate({}, given)["output"].shape) == (3, 2)


def test_two_first_calls_at_once_compile_once(any_backend, caplog):
    compiled = ml.compile(layered(), any_backend)
    params = compiled.randomize_params(seed=0)
    given = {"input": any_backend.array(x(5, 6))}
    barrier, found = threading.Barrier(4), []

    def call() -> None:
        barrier.wait()
        found.append(any_backend.to_numpy(compiled.evaluate(params, given)["output"]))

    threads = [threading.Thread(target=call) for _ in range(4)]
    with caplog.at_level(logging.INFO, logger="mithril"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 4
    assert len(records(caplog)) == 1
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_numpys_arrays_are_converted(any_backend):
    compiled = ml.compile(layered(), any_backend)
    params = compiled.randomize_params(seed=0)
    for shape in [(5, 6), (2, 5, 6)]:
        got = compiled.evaluate(params, {"input": x(*shape)})["output"]
        assert tuple(got.shape) == (*shape[:-1], 3)


@pytest.mark.skipif("jax" not in INSTALLED, reason="JAX is not installed")
def test_calls_may_be_traced():
    import jax  # noqa: PLC0415

    compiled = ml.compile(layered(), ml.JaxBackend())
    shaped = ml.compile(layered(), ml.JaxBackend(), shapes={"input": [None, None, 6]})
    params = shaped.randomize_params(seed=0)
    value = jax.numpy.asarray(x(2, 5, 6))
    traced = jax.jit(lambda p, v: compiled.evaluate(p, {"input": v})["output"])
    want = shaped.evaluate(params, {"input": value})["output"]
    np.testing.assert_allclose(traced(params, value), want, rtol=1e-5)
    gradient = jax.grad(lambda p: traced(p, value).sum())(params)
    assert gradient["after.w"].shape == (4, 3)


@pytest.mark.parametrize("kind", [k for k in INSTALLED if k in ("torch", "jax", "mlx")])
def test_new_ranks_compile_once(kind):
    backend = made(kind)
    compiled = ml.compile(layered(), backend, jit=True)
    params = compiled.randomize_params(seed=0)
    for shape in [(5, 6), (2, 5, 6)]:
        got = compiled.evaluate(params, {"input": backend.array(x(*shape))})["output"]
        known = {n: backend.to_numpy(v) for n, v in params.items()}
        want = by_hand(known, x(*shape))
        np.testing.assert_allclose(backend.to_numpy(got), want, rtol=1e-4, atol=1e-5)


def test_libraries_need_ranks(tmp_path):
    compiled = ml.compile(layered(), ml.CpuBackend())
    with pytest.raises(ml.MithrilError, match=r"`input`(.|\n)*shapes="):
        compiled.export(tmp_path)
    with pytest.raises(ml.MithrilError, match=r"known ranks(.|\n)*`input`"):
        compiled.memory()
    compiled.evaluate(compiled.randomize_params(seed=0), {"input": x(5, 6)})
    assert compiled.memory(input_0=5)["total"] > 0
    assert compiled.export(tmp_path)["library"].exists()


def test_backends_are_compared_without_shapes():
    found = ml.diff(layered(), inputs={"input": x(2, 5, 6)}, gradients=True)
    assert found.agrees
    with pytest.raises(ml.MithrilError, match="`input`"):
        ml.diff(layered())


def test_the_same_ranks_with_other_sizes_of_params():
    """Native code contains the sizes of params, but a rank is lowered only once."""
    compiled = ml.compile(layered(), ml.CpuBackend())
    for width in (6, 8, 6):
        params = compiled.randomize_params(seed=0)
        assert compiled.evaluate(params, {"input": x(5, width)})["output"].shape == (5, 3)


def test_axes_from_the_front_and_cumulative_sums_of_one_input(any_backend):
    model = Model()
    model |= Cumsum(axis=1)(input="input", output="sums")
    model |= Transpose()(input="sums", output="turned")
    model |= Concat(axis=1)(inputs=["sums", "input"], output="both")
    compiled = ml.compile(model, any_backend, inference=True)
    for shape in [(2, 3), (2, 3, 4)]:
        got = compiled.evaluate({}, {"input": any_backend.array(x(*shape))})
        plain = {n: any_backend.to_numpy(v) for n, v in got.items()}
        np.testing.assert_allclose(plain["turned"], x(*shape).cumsum(1).T, rtol=1e-5)
        assert plain["both"].shape == (2, 6, *shape[2:])
