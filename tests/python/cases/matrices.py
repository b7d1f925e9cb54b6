"""Products, factorisations and spectra."""

from __future__ import annotations

import torch

from .row import ALL, alone, row

ROWS = {
    "MatrixMultiply": row(torch.matmul, (2, 3, 4), (4, 5)),
    "Einsum": row(
        lambda x, y: torch.einsum("ij,jk->ik", x, y), (2, 3), (3, 4), equation="ij,jk->ik"
    ),
    "FFT": row(lambda x: torch.fft.fft(x).real),
    "InverseFFT": row(lambda x: torch.fft.ifft(x).real),
    "RealFFT": row(lambda x: torch.fft.rfft(x).real),
    "InverseRealFFT": row(torch.fft.irfft),
    "Cholesky": row(torch.linalg.cholesky, (2, 3, 3)).but(symmetric=ALL),
    "TriangularSolve": row(
        lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False), (4, 4), (2, 4, 3)
    ).but(symmetric=ALL),
    "Solve": row(torch.linalg.solve, (2, 3, 3), (2, 3, 4)).but(symmetric=ALL),
    "Inverse": row(torch.linalg.inv, (2, 3, 3)).but(symmetric=ALL),
    # Rounding errors of single precision grow with the matrices.
    "Det": row(torch.linalg.det, (2, 3, 3)).but(kept=3, symmetric=ALL),
    # Rounding errors of single precision grow with the matrices.
    "LogDet": row(torch.logdet, (2, 3, 3)).but(kept=3, symmetric=ALL),
    # Rounding errors of single precision grow with the matrices.
    "MatrixPower": row(lambda x: torch.linalg.matrix_power(x, -3), (2, 3, 3), n=-3).but(
        kept=3, symmetric=ALL
    ),
    # Rounding errors of single precision grow with the matrices.
    "QR": row(lambda x: tuple(torch.linalg.qr(x)), (2, 4, 3)).but(kept=3, several=True),
    # Signs of vectors are arbitrary: `test_orthogonal_factors.py` compares them.
    "Eigh": alone((2, 3, 3)).but(signed=True, several=True, symmetric=ALL),
    # Rounding errors of single precision grow with the matrices.
    "Eigvalsh": row(torch.linalg.eigvalsh, (2, 3, 3)).but(kept=3, symmetric=ALL),
    # Signs of vectors are arbitrary: `test_orthogonal_factors.py` compares them.
    "SVD": alone((2, 4, 3)).but(signed=True, several=True),
}
