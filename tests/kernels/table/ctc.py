"""Connectionist temporal classification, against the sum over all alignments and against PyTorch behind a log_softmax."""

from itertools import product

import numpy as np

import tensorexpr as te
from tensorexpr import kernels
from tests.kernels.case import Case, Data

TARGETS = Data((3, 2), np.array([[1, 2], [2, 2], [3, -7]]))
STEPS = Data((3,), np.array([4, 3, 2]))
LENGTHS = Data((3,), np.array([2, 2, 1]))
SHORT = Data((3,), np.array([4, 2, 2]))
NONE = Data((3,), np.array([2, 2, 0]))


def enumerated(log_probs: np.ndarray, targets: np.ndarray, steps: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Minus the log of the summed probabilities of all sequences of classes that collapse to the target (blank 0)."""
    losses = []
    for n, (length, count) in enumerate(zip(lengths, steps, strict=True)):
        total = 0.0
        for path in product(range(log_probs.shape[2]), repeat=int(count)):
            collapsed = [c for k, c in enumerate(path) if c != 0 and (k == 0 or path[k - 1] != c)]
            if collapsed == list(targets[n, :length]):
                total += np.exp(sum(log_probs[t, n, c] for t, c in enumerate(path)))
        losses.append(-np.log(total))
    return np.array(losses)


@te.op
def ctc_of_scores(scores, targets, input_lengths, target_lengths, *, reduction="mean", zero_infinity=False, blank=0):
    """`ctc_loss` of the log_softmax of scores."""
    log_probs = kernels.log_softmax(scores)
    return kernels.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, reduction=reduction, zero_infinity=zero_infinity, blank=blank
    )


def row(name: str, steps: Data, lengths: Data, options: str = "", **static) -> Case:
    torch = f"lambda x, t, i, l: F.ctc_loss(x.log_softmax(2), t.abs(), i, l{options})"
    return Case(f"ctc_loss {name}", ctc_of_scores, (Data((4, 3, 4)), TARGETS, steps, lengths), torch, None, static, scatters=True)


CASES = [
    Case("ctc_loss", kernels.ctc_loss, (Data((4, 3, 4)), TARGETS, STEPS, LENGTHS), None, enumerated, {"reduction": "none"}, scatters=True),
    row("mean", STEPS, NONE),
    row("zero_infinity", SHORT, LENGTHS, ", reduction='none', zero_infinity=True", reduction="none", zero_infinity=True),
]
