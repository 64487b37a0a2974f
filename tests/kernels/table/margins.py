"""Distances of vectors, and losses with margins."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

AB = ((4, 3), (4, 3))
ABC = ((4, 3), (4, 3), (4, 3))
SIGNS = Data((4,), np.array([1, -1, 1, -1]))


def row(name: str, op, inputs, torch: str, **static) -> Case:
    left_out = (None,) * (len(op.parameters) - len(inputs))
    return Case(name, op, (*inputs, *left_out), torch, None, static)


CASES = [
    row("pairwise_distance", kernels.pairwise_distance, AB, "F.pairwise_distance"),
    row(
        "pairwise_distance p=3 kept", kernels.pairwise_distance, ((2, 1, 3), (4, 3)),
        "lambda x, y: F.pairwise_distance(x, y, 3, 1e-3, True)", p=3, eps=1e-3, keepdims=True,
    ),
    row("cosine_similarity", kernels.cosine_similarity, AB, "F.cosine_similarity"),
    row("cosine_similarity broadcast", kernels.cosine_similarity, ((3, 1, 4), (2, 4)), "lambda x, y: F.cosine_similarity(x, y, 0)", axis=0),
    row(
        "cosine_embedding_loss", kernels.cosine_embedding_loss, (*AB, SIGNS),
        "lambda x, y, t: F.cosine_embedding_loss(x, y, t, -0.9)", margin=-0.9,
    ),
    row("hinge_embedding_loss", kernels.hinge_embedding_loss, (Data((4,)), SIGNS), "F.hinge_embedding_loss"),
    row(
        "margin_ranking_loss", kernels.margin_ranking_loss, (Data((4,)), Data((4,)), SIGNS),
        "lambda a, b, t: F.margin_ranking_loss(a, b, t, 0.3, reduction='none')", margin=0.3, reduction="none",
    ),
    row("triplet_margin_loss", kernels.triplet_margin_loss, ABC, "F.triplet_margin_loss"),
    row(
        "triplet_margin_loss swap", kernels.triplet_margin_loss, ABC,
        "lambda a, p, n: F.triplet_margin_loss(a, p, n, 2.0, 1, swap=True, reduction='none')", margin=2.0, p=1, swap=True, reduction="none",
    ),
]  # fmt: skip
