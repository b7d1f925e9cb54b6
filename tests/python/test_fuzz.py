"""Random models on all backends. See `fuzz.py`."""

from pathlib import Path

import fuzz
import grower_library
import levels
import numpy as np
import pytest
from conftest import INSTALLED
from grower import Grower

import mithril as ml

# The results of frameworks do not depend on the level.
BACKENDS = ["cpu", "c"] if levels.OTHER else ["torch", "jax", "mlx", "cpu", "c"]
ALL = BACKENDS if levels.OTHER else [name for name in fuzz.BACKENDS if name != "tinygrad"]
# Seeds that differed once, or resemble one that did, each with a note.
KEPT = Path(__file__).with_name("records") / "fuzz.txt"


def kept() -> list[int]:
    lines = (line.split("#")[0].strip() for line in KEPT.read_text().splitlines())
    return [int(line) for line in lines if line]


@pytest.mark.parametrize("first", [0, fuzz.SIZED])
@pytest.mark.parametrize("part", range(8))
def test_random_models_agree(first, part):
    failures = []
    for seed in range(first + 25 * part, first + 25 * (part + 1)):
        wrong = fuzz.described(seed, ["numpy", BACKENDS[seed % len(BACKENDS)]])
        if wrong:
            failures.append(f"seed {seed}: {wrong}")
    assert not failures, "\n".join(failures)


@pytest.mark.skipif("tinygrad" not in INSTALLED, reason="tinygrad is not there")
@pytest.mark.parametrize("seed", [*kept(), *range(40)])
def test_random_models_agree_on_tinygrad(seed):
    assert fuzz.described(seed, ["numpy", "tinygrad"]) is None


@pytest.mark.parametrize("seed", kept())
def test_saved_fuzz_seeds_agree(seed):
    assert fuzz.described(seed, ALL) is None


@pytest.mark.parametrize("name", grower_library.names())
def test_every_block_can_be_drawn(name, monkeypatch):
    monkeypatch.setattr(grower_library, "chosen", lambda number: name)
    grower = Grower(5)
    grower.library()
    grower.model |= ml.Buffer()(input=grower.floats[-1].value, output="y")
    compiled = ml.compile(grower.model, ml.NumpyBackend(grower.dtype), shapes=grower.shapes)
    rng, dtype = np.random.default_rng(0), grower.dtype.name
    inputs = {n: rng.standard_normal(shape).astype(dtype) for n, shape in grower.shapes.items()}
    assert np.isfinite(compiled.evaluate(compiled.randomize_params(0), inputs)["y"]).all()


def test_fuzzing_reports_wrong_backends(monkeypatch, tmp_path, capsys):
    """Finds a wrong backend, keeps its seeds, and reports its errors without crashing."""

    class Wrong:
        def __init__(self, compiled):
            self.compiled, self.backend = compiled, compiled.backend

        def evaluate(self, *args, **options):
            outputs, gradients = self.compiled.evaluate(*args, **options)
            return {name: value * 1.001 for name, value in outputs.items()}, gradients

    whole = fuzz.Case.compiled
    monkeypatch.setattr(fuzz.Case, "compiled", lambda self, name: Wrong(whole(self, name)))
    file = tmp_path / "seeds.txt"
    arguments = ["fuzz.py", "6", "--backends", "numpy", "--keep", str(file)]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit, match="True"):
        fuzz.main()
    differing = [line for line in capsys.readouterr().out.splitlines() if line.startswith("seed")]
    assert len(differing) >= 4
    assert len(file.read_text().splitlines()) == len(differing)
