"""Random models on all backends: see `fuzz.py`."""

import fuzz
import pytest

BACKENDS = ["torch", "jax", "cpu", "c"]


@pytest.mark.parametrize("part", range(8))
def test_random_models_agree(part):
    failures = []
    for seed in range(25 * part, 25 * (part + 1)):
        wrong = fuzz.check(seed, ["numpy", BACKENDS[seed % len(BACKENDS)]])
        if wrong:
            failures.append(f"seed {seed}: {wrong}")
    assert not failures, "\n".join(failures)
