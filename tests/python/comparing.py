"""Helpers for comparisons: chains of blocks, random numbers, and tolerances."""

import numpy as np

from mithril.models import Model


def chain(*blocks):
    model = Model()
    for block in blocks:
        model += block
    return model


def random(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def near(got, want, tolerance=1e-5):
    want = want.detach().numpy() if hasattr(want, "detach") else want
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    scale = max(1.0, float(np.max(np.abs(want), initial=0)))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def near_in_double(got, want, tolerance):
    """Compares arrays of any float dtypes as float64."""
    want = want.detach().double().numpy() if hasattr(want, "detach") else want
    got = np.asarray(got).astype(np.float64)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, tolerance, tolerance)
