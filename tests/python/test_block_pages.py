"""Docs of blocks: formulas agree with what blocks compute, and `help` is short."""

import pydoc
import re
from typing import Any

import numpy as np
import pytest
import scipy.special
from block_cases import array, build, variants

import mithril as ml
from mithril import _core, models


@pytest.mark.parametrize("name", [n for n in _core.block_names() if _core.block_info(n).formula])
def test_documented_formulas_match_blocks(name):
    """Evaluates the formula by NumPy and SciPy in float64, on the block's arrays and settings. A
    formula says nothing of settings that it does not name."""
    info = _core.block_info(name)
    optional = {p for p, _, text in info.parameters if text} - set(re.findall(r"\w+", info.formula))
    cases = [case for case in variants(name) if not optional & case.settings.keys()]
    assert cases
    for case in cases:
        model, shapes = build(name, case)
        compiled = ml.compile(model, ml.NumpyBackend(dtype=ml.float64), shapes=shapes)
        rng = np.random.default_rng(11)
        values: dict[str, Any] = {}
        for argument in compiled._program.arguments:
            if argument.role in ("param", "data"):
                dims = tuple(int(d) for d in argument.dims)
                values[argument.name] = array(rng, name, argument, dims)
        params = {n: values[n] for n in compiled.params}
        outputs = compiled.evaluate(params, {n: values[n] for n in compiled.inputs})
        terms = {**vars(np), **vars(scipy.special)}
        terms |= {p: default(text) for p, _, text in info.parameters if text}
        terms |= {p: settled(value) for p, value in case.settings.items()}
        terms |= {n.rsplit(".", 1)[-1]: value for n, value in values.items()}
        terms["inputs"] = [value for n, value in values.items() if n.startswith("input_")]
        expected = eval(info.formula, terms)
        expected = expected if isinstance(expected, list) else [expected]
        for output, other in zip(outputs.values(), expected, strict=True):
            np.testing.assert_allclose(output, other, rtol=1e-9, atol=1e-12, err_msg=f"{case}")


def default(text: str) -> Any:
    return settled(eval(text))


def settled(value: Any) -> Any:
    """A setting's value for NumPy."""
    return value.name if isinstance(value, ml.DType) else value


def test_help_of_the_library_is_an_index():
    text = pydoc.plain(pydoc.render_doc(models))
    assert len(text.splitlines()) < 120
    for name in _core.block_names():
        assert f" {name}" in text, name


def test_help_of_a_block_is_its_page():
    text = pydoc.plain(pydoc.render_doc(ml.Linear))
    assert len(text.splitlines()) < 40
    for part in (
        "Linear(dimension: 'int', use_bias: 'bool' = True",
        "formula: `input @ w + b`",
        "argument `dimension`: the width of the output; an integer of at least 1",
        "param `w`: (last dim of `input`, dimension)",
        "[[1.5 2.  8. ]]",
    ):
        assert part in text, part
    assert "to_json" not in text


def test_star_imports_and_completion_list_every_block():
    names: dict[str, Any] = {}
    exec("from mithril.models import *", names)
    assert set(_core.block_names()) <= set(names)
    assert set(_core.block_names()) <= set(dir(models))
    assert "connect" in dir(ml.Linear(2))


def test_dir_of_a_subclass_lists_its_methods():
    class Wide(ml.Linear):
        def double(self) -> None:
            """Twice."""

    assert "double" in dir(Wide)
    assert "Twice." in pydoc.plain(pydoc.render_doc(Wide))
