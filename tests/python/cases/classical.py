"""Classical learning: kernels, distances, embeddings and Gaussian processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import optimize, special

from mithril import models

from .row import M, row


def products(x: Any) -> Any:
    """The features, and the products of two of them."""
    rows, columns = torch.triu_indices(x.shape[-1], x.shape[-1])
    return torch.cat([x, x[..., rows] * x[..., columns]], -1)


def stress(x: Any, y: Any) -> Any:
    return torch.linalg.norm(x - y) / torch.linalg.norm(x)


def distances(x: Any, y: Any) -> Any:
    """The distances of rows, not by a product of matrices, which loses digits."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def embedded(given: Any, coords: Any) -> Any:
    return stress(given, distances(coords, coords))


def norms(x: Any, norm: Any) -> Any:
    """The distances of rows by a norm, which is reflected at 1 and 5."""
    p = 5 - ((norm - 1) % 8 - 4).abs()
    parts = (x[:, None] - x).abs()
    # The distance of a row from itself has no gradient.
    same = torch.eye(len(x), dtype=torch.bool)
    powers = torch.where(same[..., None], 1.0, parts) ** p
    return torch.where(same, 0.0, powers.sum(-1) ** (1 / p))


def neighbours(row: Any, perplexity: float) -> Any:
    """The probabilities of neighbours at these squared distances, with this perplexity."""

    def chances(precision: float) -> Any:
        weights = np.exp(-precision * (row - row.min()))
        return weights / weights.sum()

    def excess(exponent: float) -> Any:
        p = chances(np.exp(exponent))
        return np.log(perplexity) + special.xlogy(p, p).sum()

    # More neighbours than the perplexity may be equally near: then they alone count.
    if excess(60) < 0:
        return chances(np.exp(60))
    return chances(np.exp(optimize.brentq(excess, -30, 60, xtol=1e-14)))


def divergence(given: Any, embedded: Any) -> Any:
    """t-SNE's loss of distances, for a perplexity of 1.5."""
    squares, n = given.detach().numpy() ** 2, len(given)
    chances = np.zeros((n, n))
    for i, own in enumerate(squares):
        others = np.arange(n) != i
        chances[i, others] = neighbours(own[others], 1.5)
    both = torch.tensor((chances + chances.T) / (2 * n))
    pairs = ~torch.eye(n, dtype=torch.bool)
    student = 1 / (1 + embedded[pairs] ** 2)
    entropies = torch.xlogy(both, both)[pairs]
    # The gradient of the given distances is 0.
    return (entropies - both[pairs] * (student / student.sum()).log()).sum() + 0 * given.sum()


def likelihood(covariance: Any, label: Any) -> Any:
    """The negative logarithm of the likelihood of labels."""
    own = torch.distributions.MultivariateNormal(torch.zeros_like(label), covariance)
    return -own.log_prob(label)


def predict(kernel: Any, cross: Any, own: Any, label: Any, noise: Any) -> Any:
    """The mean, the variance and the loss of a Gaussian process."""
    covariance = kernel + noise**2 * torch.eye(len(kernel), dtype=kernel.dtype)
    # Its gradient is symmetric.
    factor = torch.linalg.cholesky(covariance)
    explained = cross @ torch.cholesky_solve(cross.T, factor)
    variance = (own - explained).diagonal().clamp(min=0)
    mean = cross @ torch.cholesky_solve(label[:, None], factor)[:, 0]
    return mean, variance, likelihood(covariance, label)


def regress(x: Any, samples: Any, label: Any, *params: Any) -> Any:
    """A Gaussian process with a kernel of radial basis functions."""
    noise, length, sigma = params

    def kernel(x: Any, y: Any) -> Any:
        return sigma**2 * torch.exp(-((x[:, None] - y) ** 2).sum(-1) / (2 * length**2))

    return predict(kernel(samples, samples), kernel(x, samples), kernel(x, x), label, noise)


ROWS = {
    "CartesianDifference": row(lambda x, y: x[:, None] - y, (3, 4), (2, 4)),
    "DistanceMatrix": row(distances, (3, 4), (2, 4)),
    # More features would take gigabytes.
    "EncoderDistanceMatrix": row(norms, (5, 4)).but(kept=4),
    "NormModifier": row(lambda x: 5 - ((x - 1) % 8 - 4).abs()),
    "TransposedDiagonal": row(lambda x: torch.diagonal(x)[:, None], (4, 4)),
    "EyeComplement": row(lambda: 1 - torch.eye(3, dtype=torch.float64), n=3),
    "RBFKernel": row(
        lambda x, y, width, s: s**2 * torch.exp(-(distances(x, y) ** 2) / 2 / width**2),
        (3, 4),
        (2, 4),
    ),
    "PolynomialKernel": row(lambda x, y, c: (x @ y.T + c) ** 3, (3, 4), (2, 4)),
    "KernelizedSVM": row(
        lambda x, y, b, w, c: ((x @ y.T + c) ** 2) @ w + b,
        (3, 4),
        (2, 4),
        kernel=models.PolynomialKernel(2),
    ),
    "LinearSVM": row(lambda x, b, w: x @ w + b),
    "LogisticRegression": row(lambda x, b, w: x @ w + b),
    # More features would take gigabytes.
    "PolynomialFeatures": row(products, M, degree=2).but(kept=4),
    # More features would take gigabytes.
    "PolynomialRegression": row(lambda x, b, w: products(x) @ w + b, M, degree=2).but(kept=4),
    "GaussianProcessCore": row(predict, (3, 3), (2, 3), (2, 2), (3,)).but(
        several=True, symmetric=("kernel",)
    ),
    # Rounded values of the kernel change the solution of a system of equations.
    # The noise of labels keeps the system of equations far from singular.
    "GaussianProcessRegression": row(regress, (2, 4), (3, 4), (3,), kernel=models.RBFKernel()).but(
        kept=3, halves=False, several=True, range=(0.4, 0.9)
    ),
    "MDSCore": row(stress, (3, 3), (3, 3)),
    "MDS": row(embedded, (3, 3), prediction_dim=2).but(least=2),
    "TSNECore": row(divergence, (3, 3), (3, 3), perplexity=1.5).but(least=2),
    "TSNE": row(
        lambda x, y: divergence(x, distances(y, y)), (3, 3), prediction_dim=2, perplexity=1.5
    ).but(least=2),
    "GaussianProcessLoss": row(likelihood, (3, 3), (3,)).but(symmetric=("input",)),
}
