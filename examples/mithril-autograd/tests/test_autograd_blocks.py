"""Every block of Mithril on autograd, forward and gradient, compared with NumPy."""

import sys
import warnings
from functools import partial
from pathlib import Path

import mithril_autograd
import numpy as np
import pytest

import mithril as ml
from mithril import _core

sys.path.append(str(Path(__file__).parents[3] / "tests" / "python"))

from block_cases import close, variants
from test_blocks import results

UNSUPPORTED = "Backend does not support operation"
# What the backend and autograd lack, and how that is told.
LACKING = {
    "FFT": (ml.BackendError, f"{UNSUPPORTED} fft"),
    "InverseFFT": (ml.BackendError, f"{UNSUPPORTED} inverse_fft"),
    "RealFFT": (ml.BackendError, f"{UNSUPPORTED} real_fft"),
    "InverseRealFFT": (ml.BackendError, f"{UNSUPPORTED} inverse_real_fft"),
    "SegmentMax": (ml.BackendError, f"{UNSUPPORTED} scatter_max_along"),
    "Cumprod": (NotImplementedError, "VJP of cumprod"),
    "QR": (NotImplementedError, "VJP of qr"),
    "Eigvalsh": (NotImplementedError, "VJP of eigvalsh"),
}


def symmetric(x):
    return (x + np.swapaxes(x, -2, -1)) / 2


@pytest.mark.parametrize("autodiff", ["framework", "mithril"])
@pytest.mark.parametrize("name", _core.block_names())
def test_blocks_agree_with_numpy(name, autodiff, monkeypatch):
    monkeypatch.setattr(ml, "compile", partial(ml.compile, autodiff=autodiff))
    backend = mithril_autograd.AutogradBackend(dtype=ml.float64)
    error, message = LACKING.get(name, (None, ""))
    with warnings.catch_warnings():
        # Autograd divides by zero where it then chooses another value.
        warnings.simplefilter("ignore")
        if error is ml.BackendError or (error is not None and autodiff == "framework"):
            with pytest.raises(error, match=message):
                results(name, variants(name)[0], backend)
            return
        for case in variants(name):
            found = results(name, case, backend)
            expected = results(name, case, ml.NumpyBackend(dtype=ml.float64))
            gradients = found[1]
            if name == "Eigh":
                # Autograd's gradient is that of the triangle that is read.
                gradients = {n: symmetric(x) for n, x in gradients.items()}
            close(found[0], expected[0], f"{case}: output", 1e-12)
            close(gradients, expected[1], f"{case}: gradient of", 1e-9)
