"""Joining and parting: what comes of several tensors, and what of one."""

from tensorexpr import kernels
from tests.kernels.case import Case

CASES = [
    Case("concatenate", kernels.concatenate, (((2, 3), (2, 1), (2, 2)),), "lambda *t: torch.cat(t, 1)", None, {"axis": 1}),
    Case("concatenate five", kernels.concatenate, (((2,), (1,), (3,), (2,), (2,)),), "lambda *t: torch.cat(t)"),
    Case("stack", kernels.stack, (((2, 3), (2, 3), (2, 3)),), "lambda *t: torch.stack(t, 1)", None, {"axis": 1}),
    Case("narrow", kernels.narrow, ((3, 6),), "lambda x: x.narrow(1, 2, 3)", None, {"axis": 1, "start": 2, "length": 3}),
    Case("slice_axis step", kernels.slice_axis, ((2, 9),), "lambda x: x[:, 1:8:3]", None, {"axis": 1, "start": 1, "stop": 8, "step": 3}),
    Case(
        "slice_axis back", kernels.slice_axis, ((2, 9),), None, lambda x: x[:, -2:0:-2], {"axis": 1, "start": -2, "stop": 0, "step": -2}
    ),
    Case("split", kernels.split, ((7, 2),), "lambda x: torch.split(x, 3)", None, {"sizes": 3}),
    Case("split sections", kernels.split, ((2, 7),), "lambda x: torch.split(x, (1, 4, 2), 1)", None, {"sizes": (1, 4, 2), "axis": 1}),
    Case("chunk", kernels.chunk, ((7, 2),), "lambda x: torch.chunk(x, 3)", None, {"chunks": 3}),
    Case("cat", kernels.cat, (((2, 3), (0,), (1, 3)),), "lambda *t: torch.cat(t)"),
    Case("hstack", kernels.hstack, (((2, 3), (2, 1)),), "lambda *t: torch.hstack(t)"),
    Case("hstack of vectors and a number", kernels.hstack, (((3,), (), (2,)),), "lambda *t: torch.hstack(t)"),
    Case("vstack", kernels.vstack, (((3,), (2, 3)),), "lambda *t: torch.vstack(t)"),
    Case("dstack", kernels.dstack, (((3,), (1, 3), (1, 3, 2)),), "lambda *t: torch.dstack(t)"),
    Case("column_stack", kernels.column_stack, (((3,), (3, 2)),), "lambda *t: torch.column_stack(t)"),
    Case("tensor_split", kernels.tensor_split, ((7, 2),), "lambda x: torch.tensor_split(x, 3)", None, {"sections": 3}),
    Case(
        "tensor_split at places", kernels.tensor_split, ((2, 7),), "lambda x: torch.tensor_split(x, (2, 5), 1)", None,
        {"sections": (2, 5), "axis": 1},
    ),
    Case("narrow from the end", kernels.narrow, ((3, 6),), "lambda x: x.narrow(1, -4, 3)", None, {"axis": 1, "start": -4, "length": 3}),
    Case("select", kernels.select, ((3, 4),), "lambda x: x.select(1, -2)", None, {"axis": 1, "index": -2}),
    Case("unbind", kernels.unbind, ((3, 2),), "lambda x: x.unbind(1)", None, {"axis": 1}),
    Case(
        "select_scatter", kernels.select_scatter, ((3, 4), (3,)), "lambda x, y: torch.select_scatter(x, y, 1, -1)", None,
        {"axis": 1, "index": -1},
    ),
    Case(
        "slice_scatter", kernels.slice_scatter, ((2, 7), (2, 2)), "lambda x, y: torch.slice_scatter(x, y, 1, 1, -1, 3)", None,
        {"axis": 1, "start": 1, "stop": -1, "step": 3},
    ),
    Case("hsplit", kernels.hsplit, ((2, 4),), "lambda x: torch.hsplit(x, 2)", None, {"sections": 2}),
    Case("vsplit", kernels.vsplit, ((4, 2),), "lambda x: torch.vsplit(x, (1, 3))", None, {"sections": (1, 3)}),
    Case("dsplit", kernels.dsplit, ((1, 2, 4),), "lambda x: torch.dsplit(x, 2)", None, {"sections": 2}),
    Case("atleast_1d", kernels.atleast_1d, (((), (2,)),), "lambda *t: torch.atleast_1d(*t)"),
    Case("atleast_2d", kernels.atleast_2d, ((3,),), "torch.atleast_2d"),
    Case("atleast_3d", kernels.atleast_3d, (((), (3,), (2, 3)),), "lambda *t: torch.atleast_3d(*t)"),
    Case("block_diag", kernels.block_diag, (((2, 1), (3,), ()),), "lambda *t: torch.block_diag(*t)"),
]  # fmt: skip
