"""Losses: between numbers, over classes, with margins, over sequences."""

from tensorexpr.kernels.losses.classification import (
    cross_entropy,
    dice_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    nll_loss,
)
from tensorexpr.kernels.losses.ctc import ctc_loss
from tensorexpr.kernels.losses.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    gaussian_nll_loss,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    poisson_nll_loss,
    sigmoid_focal_loss,
    smooth_l1_loss,
    soft_margin_loss,
)
from tensorexpr.kernels.losses.margins import (
    cosine_embedding_loss,
    cosine_similarity,
    hinge_embedding_loss,
    margin_ranking_loss,
    pairwise_distance,
    triplet_margin_loss,
)

__all__ = [
    # classification
    "cross_entropy", "dice_loss", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss",
    # ctc
    "ctc_loss",
    # losses
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "gaussian_nll_loss", "huber_loss", "kl_div", "l1_loss", "mse_loss",
    "poisson_nll_loss", "sigmoid_focal_loss", "smooth_l1_loss", "soft_margin_loss",
    # margins
    "cosine_embedding_loss", "cosine_similarity", "hinge_embedding_loss", "margin_ranking_loss", "pairwise_distance",
    "triplet_margin_loss",
]  # fmt: skip
