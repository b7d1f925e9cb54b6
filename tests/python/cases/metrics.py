"""Metrics of classifiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sklearn import metrics

from .row import LABELS, M, row


def score(function: Callable[..., Any]) -> Callable[..., Any]:
    """A scikit-learn metric in which all classes have equal weights."""
    return lambda x, y: torch.tensor(
        function(y, x.detach().argmax(-1), average="macro", zero_division=0), dtype=x.dtype
    )


ROWS = {
    "Accuracy": row(lambda x, y: (x.argmax(-1) == y).double().mean(), M, (3,), dtypes=LABELS),
    "Precision": row(score(metrics.precision_score), M, (3,), dtypes=LABELS),
    "Recall": row(score(metrics.recall_score), M, (3,), dtypes=LABELS),
    "F1": row(score(metrics.f1_score), M, (3,), dtypes=LABELS),
    "AUC": row(
        lambda x, y: torch.tensor(metrics.roc_auc_score(y, x.detach()), dtype=torch.float64),
        (6,),
        (6,),
        dtypes=LABELS,
        average="binary",
    ).but(twice=False, labels=2),
}
