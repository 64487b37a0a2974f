"""Losses over classes."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

X = Data((4, 5))
T = Data((4,), (0, 5))
W = Data((5,), "positive")
IMAGE = Data((2, 3, 2, 2))
LABELS = Data((2, 2, 2), (0, 3))
HOLES = Data((4,), np.array([1, -100, 4, 1]))
SHARES = Data((4, 5), "unit")
FAR = Data((3, 3), np.array([[1e4, 0.0, -1e4], [800.0, 801.0, 0.0], [-1e5, -1e5, -1e5]]))
SETS = Data((3, 4), np.array([[3, 0, -1, 1], [2, -1, -1, -1], [0, 1, 2, 3]]))
ONES = Data((3, 4), np.array([[0.0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]]))


def row(name: str, op, inputs, torch: str, **static) -> Case:
    """A row, whose reads depend on data where the target is one of classes."""
    left_out = (None,) * (len(op.parameters) - len(inputs))
    return Case(name, op, (*inputs, *left_out), torch, None, static, scatters=inputs[1].draw(np.random.default_rng(0)).dtype.kind == "i")


# PyTorch has no gradient by the weights of classes: there its losses are written out.
SMOOTH = (
    "lambda x, t, w: (0.9 * (-w[t] * x.log_softmax(1)[torch.arange(4), t]).sum() - 0.1 / 5 * (w * x.log_softmax(1)).sum()) / w[t].sum()"
)

CASES = [
    row("nll_loss", kernels.nll_loss, (X, T), "F.nll_loss"),
    row("nll_loss of one", kernels.nll_loss, (Data((5,)), Data((), np.array(3))), "F.nll_loss"),
    row("nll_loss of an image", kernels.nll_loss, (IMAGE, LABELS), "lambda x, t: F.nll_loss(x, t, reduction='none')", reduction="none"),
    row("nll_loss ignored", kernels.nll_loss, (X, HOLES), "F.nll_loss"),
    row("nll_loss weight", kernels.nll_loss, (X, T, W), "lambda x, t, w: -(w[t] * x[torch.arange(4), t]).sum() / w[t].sum()"),
    row("cross_entropy", kernels.cross_entropy, (X, T), "F.cross_entropy"),
    row("cross_entropy sum", kernels.cross_entropy, (X, T), "lambda x, t: F.cross_entropy(x, t, reduction='sum')", reduction="sum"),
    row("cross_entropy of one", kernels.cross_entropy, (Data((5,)), Data((), np.array(3))), "F.cross_entropy"),
    row(
        "cross_entropy of an image", kernels.cross_entropy, (IMAGE, LABELS), "lambda x, t: F.cross_entropy(x, t, reduction='none')",
        reduction="none",
    ),
    row("cross_entropy ignored", kernels.cross_entropy, (X, HOLES), "F.cross_entropy"),
    row(
        "cross_entropy ignored class", kernels.cross_entropy, (X, Data((4,), np.array([1, 0, 4, 1]))),
        "lambda x, t: F.cross_entropy(x, t, ignore_index=1, label_smoothing=0.2)", ignore_index=1, label_smoothing=0.2,
    ),
    row("cross_entropy weight", kernels.cross_entropy, (X, T, W), SMOOTH, label_smoothing=0.1),
    row("cross_entropy probabilities", kernels.cross_entropy, (X, SHARES), "F.cross_entropy"),
    row(
        "cross_entropy probabilities weight", kernels.cross_entropy, (X, SHARES, W),
        "lambda x, t, w: -(w * (0.7 * t + 0.3 / 5) * x.log_softmax(1)).sum() / 4", label_smoothing=0.3,
    ),
    Case(
        "cross_entropy far", kernels.cross_entropy, (FAR, Data((3,), np.array([2, 0, 1])), None),
        "lambda x, t: F.cross_entropy(x, t, reduction='none')", None, {"reduction": "none"}, float32=None,
        scatters=True,
    ),
    row("multi_margin_loss", kernels.multi_margin_loss, (X, T), "F.multi_margin_loss"),
    row(
        "multi_margin_loss p=2", kernels.multi_margin_loss, (X, T, W),
        "lambda x, t, w: (F.relu(0.8 - x.gather(1, t[:, None]) + x) ** 2 * w[t][:, None]"
        " * (torch.arange(5) != t[:, None])).sum(1) / 5", p=2, margin=0.8, reduction="none",
    ),
    row("multi_margin_loss of one", kernels.multi_margin_loss, (Data((5,)), Data((), np.array(3))), "F.multi_margin_loss"),
    row("multilabel_margin_loss", kernels.multilabel_margin_loss, (Data((3, 4)), SETS), "F.multilabel_margin_loss"),
    row(
        "multilabel_soft_margin_loss", kernels.multilabel_soft_margin_loss, (Data((3, 4)), ONES), "F.multilabel_soft_margin_loss"
    ),
    row(
        "multilabel_soft_margin_loss weight", kernels.multilabel_soft_margin_loss, (Data((3, 4)), ONES, Data((4,), "positive")),
        "lambda x, t, w: F.multilabel_soft_margin_loss(x, t, w, reduction='none')", reduction="none",
    ),
    row(
        "dice_loss", kernels.dice_loss, (Data((2, 2, 3), "unit"), Data((2, 2, 3), "unit")),
        "lambda x, t: (1 - (2 * (x * t).sum((1, 2)) + 0.5) / (x.sum((1, 2)) + t.sum((1, 2)) + 0.5)).mean()", smooth=0.5,
    ),
]  # fmt: skip
