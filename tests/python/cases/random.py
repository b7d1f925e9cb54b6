"""Random numbers."""

from __future__ import annotations

from .row import M, alone

ROWS = {
    # Normally distributed draws have the rounding errors of the inverse error function.
    "Randn": alone(shape=(2, 3)).but(tolerance=1e-11),
    "RandUniform": alone(shape=(2, 3)),
    "RandInt": alone(shape=(2, 3), low=0, high=9),
    "Bernoulli": alone(M),
    # Rounding at each step changes which number is the largest.
    "Categorical": alone(M).but(halves=False),
}
