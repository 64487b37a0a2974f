"""Padding: values beyond the edge."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case

PADS = (2, 1, 0, 2)


def repeating(mode: str, numpy: str) -> Case:
    return Case(
        f"pad {mode}", kernels.pad, ((2, 3, 4),), f"lambda x: F.pad(x, {PADS}, '{mode}')",
        lambda x: np.pad(x, ((0, 0), (0, 2), (2, 1)), numpy), {"pads": PADS, "mode": mode},
    )  # fmt: skip


CASES = [
    Case("pad", kernels.pad, ((2, 3),), "lambda x: F.pad(x, (1, 2, 3, 0), value=0.5)", None, {"pads": (1, 2, 3, 0), "value": 0.5}),
    Case("pad crop", kernels.pad, ((5, 6),), "lambda x: F.pad(x, (-2, 1, 1, -3))", None, {"pads": (-2, 1, 1, -3)}),
    repeating("reflect", "reflect"),
    repeating("replicate", "edge"),
    repeating("circular", "wrap"),
    Case(
        "pad symmetric", kernels.pad, ((3, 4),), None, lambda x: np.pad(x, ((3, 1), (2, 4)), "symmetric"),
        {"pads": (2, 4, 3, 1), "mode": "symmetric"},
    ),
    Case(
        "pad reflect far", kernels.pad, ((4,),), None, lambda x: np.pad(x, (9, 7), "reflect"), {"pads": (9, 7), "mode": "reflect"},
    ),
    Case("pad wrap far", kernels.pad, ((3,),), None, lambda x: np.pad(x, (7, 5), "wrap"), {"pads": (7, 5), "mode": "wrap"}),
    Case(
        "pad edge and crop", kernels.pad, ((6,),), None, lambda x: np.pad(x, (0, 2), "edge")[2:], {"pads": (-2, 2), "mode": "edge"},
    ),
]  # fmt: skip
