"""Every operation of Mithril on autograd, against Mithril's evaluator."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import mithril_autograd
import pytest

from mithril.backends.custom import definition

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.append(str(ROOT / "tests" / "python"))

import differential  # noqa: E402

# Operations whose gradients autograd computes from other operations, and which have no derivative
# at some of the points, or are not defined there.
KINKS = {"selu", "lgamma", "digamma", "erfinv", "logit", "xlogy"}
# `logit` of numbers outside of (0, 1).
GRADIENTS = {"logit"}
DIFFERENT = {"kinks": KINKS, "gradients": GRADIENTS}


@pytest.mark.parametrize("kind", ["forward", "corners", "gradients", "hard", "kinks", "models"])
def test_operations_agree_with_the_evaluator(kind, tmp_path):
    own = tmp_path / "autograd.json"
    own.write_text(definition(mithril_autograd.AutogradBackend))
    command = ["cargo", "run", "--release", "--quiet", "--package", "mithril-source"]
    command += ["--example", "differential", "--", str(own), kind]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    cases = json.loads(ran.stdout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts, failures = differential.outcomes("autograd", cases, shown=3)
    assert set(failures) == DIFFERENT.get(kind, set())
    assert differential.lint(cases, tmp_path) == ""
    assert not differential.differs(counts, len(cases), HERE / "records" / f"{kind}.json")
