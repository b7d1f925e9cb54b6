"""Every operation of Mithril on autograd, against Mithril's evaluator."""

import json
import os
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


class Autograd(differential.Numpy):
    """Makes and reads arrays as the backend does, and computes gradients by its `vjp`."""

    def __init__(self):
        self.backend = mithril_autograd.AutogradBackend("float64")

    def into(self, x):
        return self.backend.from_numpy(x.copy())

    def back(self, x):
        return self.backend.to_numpy(x)

    def gradients(self, outputs, params, seeds):
        found, pullback = self.backend.vjp(outputs, params)
        zeros = {name: self.backend.zeros_like(value) for name, value in found.items()}
        return pullback({**zeros, **seeds})


def cases_of(kind, folder):
    """The cases, with the source that Mithril generates for the backend."""
    own = folder / "autograd.json"
    own.write_text(definition(mithril_autograd.AutogradBackend))
    command = ["cargo", "run", "--release", "--quiet", "--package", "mithril-source"]
    command += ["--example", "differential", "--", str(own), kind]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


@pytest.mark.parametrize("kind", ["forward", "corners", "gradients", "hard", "kinks", "models"])
def test_operations_agree_with_the_evaluator(kind, tmp_path):
    cases = cases_of(kind, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts, failures = differential.outcomes("numpy", cases, 3, Autograd())
    # What the backend lacks is told: an operation, a dtype, or a gradient.
    told = differential.REFUSALS.match
    wrong = {name for name, failed in failures.items() if not all(told(why) for why, _ in failed)}
    assert wrong == DIFFERENT.get(kind, set())
    assert differential.lint(cases, tmp_path) == ""
    record = HERE / "records" / f"{kind}.json"
    found = json.dumps({"cases": len(cases), "differ": counts}, indent=1, sort_keys=True) + "\n"
    if os.environ.get("BLESS") == "1":
        record.write_text(found)
    assert found == record.read_text()
