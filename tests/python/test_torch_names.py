"""Whether the library and `docs/guide/from-pytorch.md` have an answer to every name of `torch.nn`
and `torch.nn.functional`, and to every setting of its modules."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch.nn.functional as F
from torch import nn

import mithril as ml
from mithril import _core, models

# Functions and classes that a module of PyTorch needs for itself.
INNER = re.compile(r"has_torch_function|handle_torch_function|boolean_dispatch|assert_int_or_pair")
CLASSES = sorted(n for n, value in vars(nn).items() if inspect.isclass(value))
FUNCTIONS = sorted(
    n
    for n, value in vars(F).items()
    if callable(value) and not inspect.isclass(value) and n.islower() and not n.startswith("_")
)
# Params that have no values yet, and a choice of kernels.
VARIANTS = {
    "UninitializedBuffer": "Linear",
    "UninitializedParameter": "Linear",
    "LinearCrossEntropyOptions": "LinearCrossEntropy",
}


def answer(name: str) -> str:
    """The block that PyTorch's name stands for, or the hint that a user gets for it."""
    name = VARIANTS.get(name, name)
    try:
        getattr(models, name)
    except AttributeError as error:
        return str(error).partition("`: ")[2]
    return name


@pytest.mark.parametrize("name", [n for n in (*CLASSES, *FUNCTIONS) if not INNER.search(n)])
def test_every_name_has_an_answer(name: str) -> None:
    assert answer(name)


def settings_of_guide() -> set[str]:
    guide = Path(__file__).parents[2] / "docs/guide/from-pytorch.md"
    table = guide.read_text().partition("### Settings")[2].partition("```python")[0]
    rows = (line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def block_of(name: str) -> Any:
    words = re.findall(r"[A-Z]\w+", answer(name))
    return next((getattr(models, word) for word in words if hasattr(models, word)), None)


MODULES = [n for n in CLASSES if issubclass(getattr(nn, n), nn.Module) and not n.startswith("Lazy")]


@pytest.mark.parametrize("name", MODULES)
def test_every_setting_has_an_answer(name: str) -> None:
    block = block_of(name)
    if block is None or block.__name__ not in _core.block_names():
        return
    own = set(inspect.signature(block).parameters)
    theirs = set(inspect.signature(getattr(nn, name)).parameters) - {"args", "kwargs"}
    for setting in theirs - own - settings_of_guide():
        with pytest.raises(ml.MithrilError) as error:
            block(**{setting: 1})
        assert "hint:" in str(error.value), f"{name} has a setting `{setting}`"
