"""Arrays that a caller placed stay where they are: results lie on the device of the arguments,
unless a block, a param or the backend has a device of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

import mithril as ml
from mithril.models import Linear, Relu

# What the scripts share. JAX has two devices. The arguments lie on the second one, and params may
# be where JAX puts them.
START = """
    import jax, numpy as np, mithril as ml
    from mithril.models import *
    first, second = jax.devices()
    SHAPES, PLACES = {"input": [2, 5]}, {"a.*": "cpu:0"}

    def layers(device=None):
        own = [Linear(4, name="a"), BatchNorm1d(name="norm"), Relu(), Dropout(0.5, name="drop")]
        return Sequential([*own, Linear(3, name="b", device=device)])

    def put(arrays, device=second):
        return {n: jax.device_put(np.asarray(a), device) for n, a in arrays.items()}

    def homes(arrays):
        return {d for a in arrays.values() for d in a.devices()}

    def arguments(compiled):
        key = next(n for n in compiled.inputs if n != "input")
        numbers = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
        return put({"input": numbers, key: np.array([1, 2], np.uint32)})

    seeds = put({"output": np.ones((2, 3), np.float32)})
"""
SCRIPTS = {
    "placed": """
        backend = ml.JaxBackend()
        for options in (
            {"jit": True},
            {"jit": False},
            {"autodiff": "mithril"},
            {"shapes": {"input": [None, 5]}},
        ):
            compiled = ml.compile(layers(), backend, **{"shapes": SHAPES, **options})
            params, given = compiled.randomize_params(seed=0), arguments(compiled)
            asked = {"output": lambda y: y * 0 + 1} if "autodiff" in options else seeds
            for own in (params, put(params)):
                found = compiled.evaluate(own, given, output_gradients=asked)
                assert [homes(part) for part in found] == [{second}] * 2, options
                assert homes(compiled.evaluate(own, given)) == {second}, options
                assert homes(compiled.state) == {second}, options
            twin = compiled.for_inference()
            assert homes(twin.evaluate(params, {"input": given["input"]})) == {second}, options
            bound = compiled.bind(put(params))
            assert homes(bound.evaluate({}, given)) == {second}, options
            assert homes(given) == homes(seeds) == {second}
            assert "device_put" not in compiled.code and "transfer" not in compiled.report()
    """,
    "asked": """
        backend = ml.JaxBackend(device="cpu:1")
        others = {
            "block": (layers("cpu:0"), {}, {"b.w", "b.b"}, {"drop", "output"}),
            "params": (layers(), PLACES, {"a.w", "a.b"}, {"a.w", "a.b"}),
        }
        for model, devices, away, moved in others.values():
            compiled = ml.compile(model, backend, shapes=SHAPES, devices=devices)
            params, given = compiled.randomize_params(seed=0), arguments(compiled)
            outputs, gradients = compiled.evaluate(params, given, output_gradients=seeds)
            for arrays in (params, gradients):
                assert {n for n, a in arrays.items() if a.devices() == {first}} == away
            assert homes(outputs) == homes(compiled.state) == {second}
            lines = compiled.report().splitlines()
            found = {line.split()[2].rstrip(":") for line in lines if "transfer of" in line}
            assert found == moved, found
            for name in moved:
                variable = f'params["{name}"]' if "." in name else name
                assert f"jax.device_put({variable}, jax.devices(" in compiled.code

        # Arguments that lie elsewhere are not moved.
        for backend, devices in ((ml.JaxBackend(device="cpu:0"), {}), (ml.JaxBackend(), PLACES)):
            compiled = ml.compile(layers(), backend, shapes=SHAPES, devices=devices)
            params, given = compiled.randomize_params(seed=0), arguments(compiled)
            assert homes(params) == {first}
            try:
                compiled.evaluate(put(params), given)
            except ml.BackendError as error:
                assert "expected: cpu:0" in str(error) and "on cpu:1" in str(error)
            else:
                raise AssertionError("arguments on another device were moved")
    """,
    "stated": """
        inner = ml.Model()
        table = ml.IOKey("table", device="cpu:0")
        inner |= Linear(4)(input="input", w=table, output=ml.IOKey("hidden"))
        model = ml.Model()
        model |= inner(input="input", table="table", hidden="hidden")
        model |= Linear(3, name="b")(input="hidden", output=ml.IOKey("output"))
        backend = ml.JaxBackend(device="cpu:1")
        given = put({"input": np.ones((2, 5), np.float32)})
        for own in (model, ml.Model.from_json(model.to_json()), model.copy()):
            for devices, away in (({}, {"table"}), ({"table": "cpu:1", "b.b": "cpu:0"}, {"b.b"})):
                compiled = ml.compile(own, backend, shapes=SHAPES, devices=devices)
                params = compiled.randomize_params(seed=0)
                outputs, gradients = compiled.evaluate(params, given, output_gradients=seeds)
                for arrays in (params, gradients):
                    assert {n for n, a in arrays.items() if a.devices() == {first}} == away
                assert homes(outputs) == {second}
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_arrays_on_a_second_device_of_jax(name: str) -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    script = "\n".join(textwrap.dedent(text) for text in (START, SCRIPTS[name]))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def of_params(device: str = "cpu") -> ml.IOKey:
    return ml.IOKey("own", device=device)


def test_devices_of_what_is_no_param() -> None:
    model = ml.Model()
    with pytest.raises(ml.MithrilError, match="`device` of an IOKey is for params"):
        model |= Linear(3)(input="x", output=of_params())
    model |= Linear(3)(input="x", w=of_params())
    with pytest.raises(ml.MithrilError, match='got: device="cpu" for a value of `Relu`'):
        model |= Relu()(input="x", output="own")
    with pytest.raises(ml.MithrilError, match="`device` must be a name"):
        of_params(device="")
    model = ml.Model()
    model |= Linear(3)(input=of_params(), output=ml.IOKey("y"))
    with pytest.raises(ml.UsageError, match="got: the data input `own`"):
        ml.compile(model, ml.NumpyBackend(), shapes={"own": [2, 5]})
    compiled = ml.compile(model, ml.NumpyBackend(), shapes={"own": [2, 5]}, trainable_keys=["own"])
    assert "own" in compiled.params


@pytest.mark.parametrize("kind", ["jax", "torch"])
def test_params_and_blocks_of_a_mesh_have_no_devices(kind: str) -> None:
    pytest.importorskip(kind)
    backend = {"jax": ml.JaxBackend, "torch": ml.TorchBackend}[kind](device_mesh=(1,))
    of_param, of_block = ml.Model(), ml.Model()
    of_param |= Linear(3)(input="x", w=of_params(), output="y")
    of_block |= Linear(3, name="first", device="cpu")(input="x", output="y")
    cases: list[tuple[ml.Model, dict[str, str], str]] = [
        (of_param, {}, "`own`"),
        (of_block, {}, "block `first`"),
        (of_param, {"linear.b": "cpu"}, "`linear.b`"),
    ]
    for model, devices, owner in cases:
        with pytest.raises(ml.UsageError) as raised:
            ml.compile(model, backend, shapes={"x": [2, 3]}, devices=devices)
        text = str(raised.value)
        assert f"got: device='cpu' for {owner}, and {backend!r}" in text
        assert "hint: `shardings=` of `ml.compile`" in text
    if kind == "torch":
        backend.close()
