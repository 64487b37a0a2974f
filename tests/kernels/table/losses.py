"""Losses between numbers and between distributions."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

AB = ((3, 4), (3, 4))
UNIT = (Data((3, 4), "unit"), Data((3, 4), "unit"))
POSITIVE = (Data((3, 4)), Data((3, 4), "positive"))
FAR = (Data((4,), np.array([800.0, -800.0, 30.0, 0.0])), Data((4,), np.array([0.0, 1.0, 1.0, 0.5])), None, None)
COUNTS = Data((3, 4), np.linspace(0.2, 4.1, 12).reshape(3, 4))
SIGNS = Data((3, 4), np.array([[1, -1, 1, -1]] * 3))


def row(name: str, op, inputs, torch: str, **static) -> Case:
    left_out = (None,) * (len(op.parameters) - len(inputs))
    return Case(name, op, (*inputs, *left_out), torch, None, static)


def focal(alpha: str, gamma: float) -> str:
    """Torchvision's formula."""
    return (
        "lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction='none')"
        f" * (1 - (x.sigmoid() * t + (1 - x.sigmoid()) * (1 - t))) ** {gamma} * ({alpha})"
    )


CASES = [
    row("mse_loss", kernels.mse_loss, AB, "F.mse_loss"),
    row("mse_loss sum", kernels.mse_loss, AB, "lambda x, y: F.mse_loss(x, y, reduction='sum')", reduction="sum"),
    row("mse_loss none", kernels.mse_loss, AB, "lambda x, y: F.mse_loss(x, y, reduction='none')", reduction="none"),
    row("mse_loss broadcast", kernels.mse_loss, ((3, 1), (4,)), "lambda x, y: ((x - y) ** 2).mean()"),
    row("l1_loss", kernels.l1_loss, AB, "F.l1_loss"),
    row("smooth_l1_loss", kernels.smooth_l1_loss, AB, "lambda x, y: F.smooth_l1_loss(x, y, beta=0.8)", beta=0.8),
    row("smooth_l1_loss beta 0", kernels.smooth_l1_loss, AB, "lambda x, y: F.smooth_l1_loss(x, y, beta=0.0)", beta=0.0),
    row("huber_loss", kernels.huber_loss, AB, "lambda x, y: F.huber_loss(x, y, delta=0.7)", delta=0.7),
    row("binary_cross_entropy", kernels.binary_cross_entropy, UNIT, "F.binary_cross_entropy"),
    row(
        "binary_cross_entropy weight", kernels.binary_cross_entropy, (*UNIT, Data((4,), "positive")),
        "lambda x, t, w: (w * F.binary_cross_entropy(x, t, reduction='none')).sum()", reduction="sum",
    ),
    Case(
        "binary_cross_entropy limits", kernels.binary_cross_entropy,
        (Data((4,), np.array([0.0, 1.0, 0.0, 1.0])), Data((4,), np.array([0.0, 1.0, 1.0, 0.0]))),
        None, lambda x, t: np.array([0.0, 0.0, 100.0, 100.0]), {"reduction": "none"}, differentiable=False, float32=None,
    ),
    row(
        "binary_cross_entropy_with_logits", kernels.binary_cross_entropy_with_logits, (Data((3, 4)), Data((3, 4), "unit")),
        "F.binary_cross_entropy_with_logits",
    ),
    row(
        "binary_cross_entropy_with_logits weights", kernels.binary_cross_entropy_with_logits,
        (Data((3, 4)), Data((3, 4), "unit"), Data((3, 1), "positive"), Data((4,), "positive")),
        "lambda x, t, w, p: -(w * (p * t * F.logsigmoid(x) + (1 - t) * F.logsigmoid(-x))).mean()",
    ),
    Case(
        "binary_cross_entropy_with_logits far", kernels.binary_cross_entropy_with_logits, FAR,
        "lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction='none')", None, {"reduction": "none"}, float32=None,
    ),
    row(
        "sigmoid_focal_loss", kernels.sigmoid_focal_loss, (Data((3, 4)), Data((3, 4), "unit")),
        focal("0.25 * t + 0.75 * (1 - t)", 2),
    ),
    row(
        "sigmoid_focal_loss gamma", kernels.sigmoid_focal_loss, (Data((3, 4)), Data((3, 4), "unit")), focal("1", 1.5),
        alpha=None, gamma=1.5,
    ),
    row("soft_margin_loss", kernels.soft_margin_loss, (Data((3, 4)), SIGNS), "F.soft_margin_loss"),
    row("kl_div", kernels.kl_div, POSITIVE, "F.kl_div"),
    row("kl_div log target", kernels.kl_div, AB, "lambda x, t: F.kl_div(x, t, log_target=True)", log_target=True),
    row("kl_div batchmean", kernels.kl_div, POSITIVE, "lambda x, t: F.kl_div(x, t, reduction='batchmean')", reduction="batchmean"),
    Case(
        "kl_div of 0", kernels.kl_div, (Data((3,)), Data((3,), np.array([0.0, 0.4, 0.6]))),
        "lambda x, t: F.kl_div(x, t, reduction='none')", None, {"reduction": "none"}, differentiable=False,
    ),
    row("poisson_nll_loss", kernels.poisson_nll_loss, POSITIVE, "F.poisson_nll_loss"),
    row(
        "poisson_nll_loss full", kernels.poisson_nll_loss, (Data((3, 4), "positive"), COUNTS),
        "lambda x, t: x - t * torch.log(x + 1e-3) + torch.where(t > 1, t * t.log() - t + 0.5 * torch.log(2 * math.pi * t), 0)",
        log_input=False, full=True, eps=1e-3, reduction="none",
    ),
    row("gaussian_nll_loss", kernels.gaussian_nll_loss, (*AB, Data((3, 4), "positive")), "F.gaussian_nll_loss"),
    row(
        "gaussian_nll_loss one variance per row", kernels.gaussian_nll_loss, (*AB, Data((3,), "positive")),
        "lambda x, t, v: F.gaussian_nll_loss(x, t, v, full=True)", full=True,
    ),
]  # fmt: skip
