"""Rearranging: every element comes from somewhere."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case

A = ((3, 4),)
B = ((2, 3, 4),)

CASES = [
    Case("flip all", kernels.flip, B, "lambda x: torch.flip(x, (0, 1, 2))", np.flip),
    Case("flip one", kernels.flip, B, "lambda x: torch.flip(x, (-1,))", None, {"axes": -1}),
    Case("fliplr", kernels.fliplr, B, "torch.fliplr"),
    Case("flipud", kernels.flipud, B, "torch.flipud"),
    Case("roll flattened", kernels.roll, A, "lambda x: torch.roll(x, 5)", lambda x: np.roll(x, 5), {"shifts": 5}),
    Case("roll two axes", kernels.roll, B, "lambda x: torch.roll(x, (1, -2), (0, 2))", None, {"shifts": (1, -2), "axes": (0, 2)}),
    Case("roll far", kernels.roll, A, "lambda x: torch.roll(x, 11, 1)", None, {"shifts": 11, "axes": 1}),
    *(
        Case(f"rot90 k={k}", kernels.rot90, B, f"lambda x: torch.rot90(x, {k}, (1, 2))", None, {"k": k, "axes": (1, 2)})
        for k in (0, 1, 2, -1)
    ),
    Case("permute", kernels.permute, B, "lambda x: x.permute(2, 0, 1)", None, {"axes": (2, 0, 1)}),
    Case("transpose", kernels.transpose, B, "lambda x: x.transpose(-2, -1)"),
    Case(
        "moveaxis", kernels.moveaxis, ((2, 3, 4, 2),), "lambda x: x.movedim((0, 3), (2, 1))", None,
        {"source": (0, 3), "destination": (2, 1)},
    ),
    Case("movedim", kernels.movedim, B, "lambda x: x.movedim(2, 0)", None, {"source": 2, "destination": 0}),
    Case("tile", kernels.tile, A, "lambda x: torch.tile(x, (2, 3))", lambda x: np.tile(x, (2, 3)), {"repeats": (2, 3)}),
    Case("tile more axes", kernels.tile, A, "lambda x: torch.tile(x, (2, 1, 2))", None, {"repeats": (2, 1, 2)}),
    Case("repeat", kernels.repeat, A, "lambda x: x.repeat(2, 1, 3)", None, {"sizes": (2, 1, 3)}),
    Case("repeat_interleave", kernels.repeat_interleave, A, "lambda x: x.repeat_interleave(3, 1)", None, {"repeats": 3, "axis": 1}),
    Case("repeat_interleave flattened", kernels.repeat_interleave, A, "lambda x: x.repeat_interleave(2)", None, {"repeats": 2}),
    Case(
        "repeat_interleave by numbers", kernels.repeat_interleave, A, "lambda x: x.repeat_interleave(torch.tensor([2, 0, 3]), 0)", None,
        {"repeats": (2, 0, 3), "axis": 0},
    ),
    Case(
        "broadcast_to", kernels.broadcast_to, ((3, 1, 2),), "lambda x: x.expand(2, -1, 4, 2)",
        lambda x: np.broadcast_to(x, (2, 3, 4, 2)), {"shape": (2, -1, 4, 2)},
    ),
    Case("expand", kernels.expand, ((3, 1),), "lambda x: x.expand(2, -1, 4)", None, {"shape": (2, -1, 4)}),
    Case("meshgrid ij", kernels.meshgrid, (((3,), (2,), (4,)),), "lambda *t: torch.meshgrid(*t, indexing='ij')"),
    Case("meshgrid xy", kernels.meshgrid, (((3,), (2,), (4,)),), "lambda *t: torch.meshgrid(*t, indexing='xy')", None, {"indexing": "xy"}),
    Case("reshape digits", kernels.reshape, ((4, 6),), "lambda x: x.reshape(4, 2, 3)", None, {"shape": (4, 2, -1)}),
    Case("reshape mixed", kernels.reshape, ((4, 6, 3),), "lambda x: x.reshape(3, 8, 3)", None, {"shape": (3, 8, 3)}),
    Case("reshape flat", kernels.reshape, B, "lambda x: x.reshape(-1)", None, {"shape": -1}),
    Case("reshape of ones", kernels.reshape, ((1, 6, 1),), "lambda x: x.reshape(2, 1, 3)", None, {"shape": (2, 1, 3)}),
    Case("ravel", kernels.ravel, B, "torch.ravel"),
    Case("flatten", kernels.flatten, ((2, 3, 2, 4),), "lambda x: torch.flatten(x, 1, 2)", None, {"start_axis": 1, "end_axis": 2}),
    Case("unflatten", kernels.unflatten, ((2, 12),), "lambda x: torch.unflatten(x, 1, (2, 3, 2))", None, {"axis": 1, "sizes": (2, -1, 2)}),
    Case("squeeze", kernels.squeeze, ((1, 3, 1, 2),), "lambda x: torch.squeeze(x)"),
    Case("squeeze axis", kernels.squeeze, ((1, 3, 1, 2),), "lambda x: torch.squeeze(x, 2)", None, {"axis": 2}),
    Case("unsqueeze", kernels.unsqueeze, A, "lambda x: x.unsqueeze(-2)", None, {"axis": -2}),
    Case("unsqueeze axes", kernels.unsqueeze, A, "lambda x: x.unsqueeze(0).unsqueeze(-1)", None, {"axis": (0, -1)}),
    Case("append", kernels.append, ((2, 3), (2, 1)), "lambda x, y: torch.cat((x.ravel(), y.ravel()))"),
    Case("append axis", kernels.append, ((2, 3), (2, 1)), "lambda x, y: torch.cat((x, y), 1)", None, {"axis": -1}),
]  # fmt: skip
