"""Losses and regularizers."""

from __future__ import annotations

from typing import Any

import torch

from .row import LABELS, M, row

F = torch.nn.functional


def focal(x: Any, y: Any, alpha: float = 0.25, gamma: float = 2) -> Any:
    """torchvision's `sigmoid_focal_loss`."""
    p = torch.sigmoid(x)
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    loss = loss * (1 - (p * y + (1 - p) * (1 - y))) ** gamma
    return loss if alpha < 0 else (alpha * y + (1 - alpha) * (1 - y)) * loss


def ctc(x: Any, y: Any) -> Any:
    """The loss of whole sequences; the blank is class 3. torch's own function, with which another
    test compares, is not accurate to 1e-12 for 1000 steps."""
    never, labels = -1e30, y.shape[1]
    states = torch.full((len(y), 2 * labels + 1), 3)
    states[:, 1::2] = y
    skips = torch.zeros_like(states, dtype=torch.bool)
    skips[:, 2:] = (states[:, 2:] != 3) & (states[:, 2:] != states[:, :-2])
    old = torch.full(states.shape, never, dtype=x.dtype)
    old[:, 0] = 0
    total = x.new_zeros(len(y))
    for scores in torch.log_softmax(x, -1).unbind(1):
        one = F.pad(old, (1, 0), value=never)[:, :-1]
        two = torch.where(skips, F.pad(old, (2, 0), value=never)[:, :-2], never)
        new = torch.stack([old, one, two]).logsumexp(0) + scores.gather(1, states)
        greatest = new.detach().amax(1, keepdim=True)
        old, total = new - greatest, total + greatest[:, 0]
    total = total + old[:, -2:].logsumexp(1)
    return torch.where(total < never / 2, 0.0, -total)


def adaptive(x: Any, y: Any, *weights: Any) -> Any:
    """The loss of six classes, of which the second one and the last four are clusters."""
    w_head, first, second, w_out_0, w_out_1 = weights
    head = torch.log_softmax(x @ w_head, -1)
    tails = [torch.log_softmax(x @ a @ b, -1) for a, b in [(first, w_out_0), (second, w_out_1)]]
    parts = [head[:, :1], *(head[:, 1 + i, None] + tail for i, tail in enumerate(tails))]
    return -torch.cat(parts, -1).gather(-1, y[:, None])[:, 0]


ROWS = {
    "SquaredError": row(lambda x, y: F.mse_loss(x, y, reduction="none")),
    "AbsoluteError": row(lambda x, y: F.l1_loss(x, y, reduction="none")),
    "LogCosh": row(lambda x, y: torch.log(torch.cosh(x - y))),
    "Huber": row(lambda x, y: F.huber_loss(x, y, reduction="none")),
    "HingeLoss": row(lambda x, y: torch.relu(1 - x * y)),
    "QuadHingeLoss": row(lambda x, y: torch.relu(1 - x * y) ** 2),
    "QuantileLoss": row(lambda x, y: torch.maximum(0.3 * (y - x), 0.7 * (x - y)), M, M, q=0.3),
    "CrossEntropy": row(lambda x, y: F.cross_entropy(x, y, reduction="none"), M, (3,)).but(
        axes=(1,), front={"input": (3, 4, 2), "target": (3, 2)}
    ),
    "BinaryCrossEntropy": row(
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none")
    ),
    "KLDivergence": row(lambda x, y: F.kl_div(x.log(), y, reduction="none")),
    "CosineEmbedding": row(
        lambda x, y: F.cosine_embedding_loss(x, y, torch.ones(len(x)), reduction="none")
    ).but(kept=4),
    "NegativeLogLikelihood": row(lambda x, y: F.nll_loss(x, y, reduction="none"), M, (3,)),
    "PoissonNLL": row(lambda x, y: F.poisson_nll_loss(x, y, reduction="none")),
    "GaussianNLL": row(lambda x, y, v: F.gaussian_nll_loss(x, y, v, reduction="none")),
    "SoftMargin": row(lambda x, y: F.softplus(-x * y)),
    "MarginRanking": row(lambda x, y, t: F.margin_ranking_loss(x, y, t, reduction="none")),
    "TripletMargin": row(lambda x, y, z: F.triplet_margin_loss(x, y, z, reduction="none")),
    "FocalLoss": row(focal),
    "Dice": row(lambda x, y: 1 - (2 * (x * y).sum(-1) + 1) / ((x + y).sum(-1) + 1)),
    # torch gives the target no gradient, where zeros are meant.
    "HingeEmbedding": row(lambda x, y: F.hinge_embedding_loss(x, y, reduction="none") + 0 * y),
    "MultiMargin": row(
        lambda x, y: F.multi_margin_loss(x, y, reduction="none"), M, (3,), dtypes=LABELS
    ).but(twice=False),
    "MultiLabelSoftMargin": row(lambda x, y: F.multilabel_soft_margin_loss(x, y, reduction="none")),
    # With hundreds of labels, a gradient is a difference of large sums.
    "MultiLabelMargin": row(
        lambda x, y: F.multilabel_margin_loss(x, y, reduction="none"), M, M, dtypes=LABELS
    ).but(kept=4, twice=False),
    # Logits of hundreds of features have rounding errors beyond those of the loss.
    "LinearCrossEntropy": row(
        lambda x, y, w: F.cross_entropy(x @ w, y, reduction="none"),
        M,
        (3,),
        dtypes=LABELS,
        classes=3,
    ).but(kept=4),
    # The weights of the clusters depend on the width.
    "AdaptiveLogSoftmax": row(
        adaptive, (3, 16), (3,), dtypes=LABELS, classes=6, cutoffs=[1, 2]
    ).but(kept=16),
    "TripletMarginWithDistance": row(
        lambda x, y, z: F.triplet_margin_with_distance_loss(x, y, z, reduction="none")
    ),
    "CTC": row(ctc, (2, 6, 4), (2, 2), blank=3, zero_infinity=True).but(kept=4),
    "L1": row(lambda x: torch.linalg.vector_norm(x, 1)),
    "L2": row(lambda x: F.mse_loss(x, torch.zeros_like(x), reduction="sum") / 2),
    "QuadraticForm": row(lambda x, w: torch.einsum("bi,ij,bj->", x, w, x) / 2, (3, 4), (4, 4)),
}
