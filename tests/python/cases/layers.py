"""Layers, normalisations and dropout."""

from __future__ import annotations

import torch

from mithril import models

from .row import M, alone, row

F = torch.nn.functional

ROWS = {
    "Softmin": row(lambda x: F.softmin(x, -1)),
    "Glu": row(F.glu).but(kept=4),
    "PRelu": row(F.prelu, M),
    "RRelu": alone(M),
    "GumbelSoftmax": alone(M),
    "Linear": row(lambda x, w, b: F.linear(x, w.T, b), (2, 3, 4), dimension=5),
    "Embedding": row(F.embedding, (2, 3), num_embeddings=4, dimension=5),
    "EmbeddingBag": row(F.embedding_bag, (2, 3), num_embeddings=4, dimension=5).but(twice=False),
    "LayerNorm": row(lambda x, w, b: F.layer_norm(x, w.shape, w, b), M),
    "RMSNorm": row(lambda x, w: F.rms_norm(x, w.shape, w, 1e-5), M),
    "ElementWiseAffine": row(lambda x, w, b: torch.addcmul(b, x, w), M),
    "Softmax": row(lambda x: torch.softmax(x, -1)),
    "LogSoftmax": row(lambda x: torch.log_softmax(x, -1)),
    # torch gives NaN for statistics over no rows.
    "BatchNorm1d": row(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), M).but(
        least=1
    ),
    "BatchNorm2d": row(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (2, 7, 6, 5)
    ),
    "BatchNorm3d": row(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (2, 7, 5, 2, 5)
    ),
    "GroupNorm": row(lambda x, w, b: F.group_norm(x, 2, w, b), (2, 4, 6), groups=2).but(kept=4),
    "InstanceNorm": row(
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        (2, 3, 6),
        use_scale=True,
        use_bias=True,
    ),
    # A window over channels needs one.
    "LocalResponseNorm": row(
        lambda x: F.local_response_norm(x, 3, 2.0), (2, 3, 6), size=3, alpha=2.0
    ).but(least=1),
    "CosineSimilarity": row(F.cosine_similarity),
    "PairwiseDistance": row(F.pairwise_distance),
    # torch crashes in the gradient of no pairs.
    "Pdist": row(torch.pdist).but(kept=4, least=1),
    "Normalize": row(F.normalize),
    "Bilinear": row(F.bilinear, M, (3, 5), dimension=2),
    "ChannelShuffle": row(lambda x: F.channel_shuffle(x, 2), (2, 4, 3), groups=2).but(kept=4),
    "Unflatten": row(lambda x: x.unflatten(1, (2, -1)), M, axis=1, sizes=(2, -1)).but(kept=4),
    "Dropout1d": alone((2, 3, 6), rate=0.5),
    "Dropout2d": alone((2, 3, 6, 5), rate=0.5),
    "Dropout3d": alone((2, 3, 2, 3, 5), rate=0.5),
    "AlphaDropout": alone(M),
    "FeatureAlphaDropout": alone((2, 3, 5)),
    "Layer": row(
        lambda x, b, w: torch.relu(F.linear(x, w.T, b)), M, activation=models.Relu(), dimension=5
    ),
    "MLP": row(
        lambda x, c, v, d, w: F.linear(torch.tanh(F.linear(x, v.T, c)), w.T, d),
        M,
        activations=[models.Tanh(), None],
        dimensions=[5, 2],
    ),
    # The reference differentiates the norm itself; the block's vectors are constants, as in torch.
    "SpectralNorm": row(
        lambda x, b, w: x @ (w / torch.linalg.matrix_norm(w, 2)) + b,
        M,
        block=models.Linear(5),
        n_power_iterations=30,
    ).but(twice=False),
    "WeightNorm": row(
        lambda x, b, g, v: x @ (g * v / v.norm(dim=0, keepdim=True)) + b, M, block=models.Linear(5)
    ),
}
