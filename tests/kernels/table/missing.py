"""Reductions over what is no NaN: rows with some, with all, with none; integers."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

NAN = np.nan
HOLES = (Data((2, 3), np.array([[1.0, NAN, 2.0], [NAN, -3.0, 0.5]])),)
ALL = (Data((3, 2), np.array([[NAN, NAN], [1.0, NAN], [2.0, 4.0]])),)
ROWS = (Data((3, 5), np.array([[1.0, NAN, 2.0, -0.5, 7.0], [NAN, 3.0, NAN, 1.5, NAN], [0.3, 0.9, -0.4, 0.1, 2.5]])),)
NUMBERS = (Data((3, 4), (-4, 5)),)
SAME = ("nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd")


def row(name, inputs, kinks=True, differentiable=True, **static) -> Case:
    reference = getattr(np, name)
    given = {k.replace("correction", "ddof"): v for k, v in static.items()}
    texts = " ".join(f"{k}={v}" for k, v in static.items())
    return Case(
        f"{name} {texts}".strip(), getattr(kernels, name), inputs, None, lambda x: reference(x, **given), static, kinks=kinks,
        differentiable=differentiable, float32=None,
    )  # fmt: skip


CASES = [
    *(row(name, HOLES, axis=1) for name in (*SAME, "nancumsum", "nancumprod")),
    *(row(name, HOLES, keepdims=True) for name in SAME),
    Case("nansum in PyTorch", kernels.nansum, HOLES, "lambda x: torch.nansum(x, 1)", None, {"axis": 1}, kinks=True),
    Case("nanmean in PyTorch", kernels.nanmean, HOLES, "lambda x: torch.nanmean(x, 1)", None, {"axis": 1}, kinks=True),
    row("nanvar", HOLES, axis=1, correction=1),
    *(row(name, HOLES, axis=1, differentiable=False) for name in ("nanargmax", "nanargmin")),
    row("nanargmax", HOLES, keepdims=True, differentiable=False),
    Case("nanargmin of the greatest", kernels.nanargmin, (Data((3,), np.array([NAN, np.inf, np.inf])),), None, lambda x: np.array(1),
         differentiable=False, float32=None),
    *(
        Case(
            f"{name} of integers", getattr(kernels, name), NUMBERS, None, lambda x, name=name: getattr(np, name)(x, axis=0), {"axis": 0},
            differentiable=False, float32=None,
        )
        for name in (*SAME, "nancumsum", "nancumprod")
    ),
    *(
        Case(
            f"{name} of nothing", getattr(kernels, name), ALL, None, lambda x, value=value: np.array(value), {"axis": 1},
            differentiable=False, float32=None,
        )
        for name, value in (
            ("nanmax", [NAN, 1, 4]), ("nanmin", [NAN, 1, 2]), ("nanmean", [NAN, 1, 3]), ("nanvar", [NAN, 0, 1]), ("nansum", [0, 1, 6]),
        )
    ),
    Case("nanmedian", kernels.nanmedian, ROWS, "lambda x: torch.nanmedian(x, 1)", None, {"axis": 1}, kinks=True, scatters=True),
    Case("nanmedian of all", kernels.nanmedian, ROWS, "torch.nanmedian", kinks=True, scatters=True),
    *(
        Case(f"nanquantile {way}", kernels.nanquantile, ROWS, f"lambda x: torch.nanquantile(x, 0.3, 1, interpolation='{way}')", None,
             {"q": 0.3, "axis": 1, "interpolation": way}, kinks=True, scatters=True)
        for way in ("linear", "lower", "higher", "midpoint", "nearest")
    ),
    Case("nanpercentile", kernels.nanpercentile, ROWS, None, lambda x: np.nanpercentile(x, [20, 50], keepdims=True),
         {"q": (20, 50), "keepdims": True}, kinks=True, scatters=True),
    Case("nanpercentile of rows", kernels.nanpercentile, ROWS, None, lambda x: np.nanpercentile(x, 40, 1), {"q": 40, "axis": 1}, kinks=True,
         scatters=True),
    Case("nanmedian of nothing", kernels.nanmedian, ALL, None, lambda x: (np.array([NAN, 1.0, 2.0]), np.array([0, 0, 0])), {"axis": 1},
         differentiable=False, float32=None),
]  # fmt: skip
