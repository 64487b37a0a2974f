"""Products of matrices and vectors."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case

AXES = {"axes": ((1, 0), (0, 2))}

CASES = [
    Case("matmul", kernels.matmul, ((3, 4), (4, 2)), "torch.matmul"),
    Case("matmul batched", kernels.matmul, ((2, 1, 3, 4), (5, 4, 2)), "torch.matmul"),
    Case("matmul vectors", kernels.matmul, ((4,), (4,)), "torch.matmul"),
    Case("matmul vector on the left", kernels.matmul, ((4,), (2, 4, 3)), "torch.matmul"),
    Case("matmul vector on the right", kernels.matmul, ((2, 3, 4), (4,)), "torch.matmul"),
    Case("bmm", kernels.bmm, ((2, 3, 4), (2, 4, 2)), "torch.bmm"),
    Case("mm", kernels.mm, ((3, 2), (2, 4)), "torch.mm"),
    Case("mv", kernels.mv, ((3, 2), (2,)), "torch.mv"),
    Case("addmv", kernels.addmv, ((1,), (3, 2), (2,)), "lambda b, x, y: torch.addmv(b, x, y, beta=0.5)", None, {"beta": 0.5}),
    Case("addr", kernels.addr, ((4,), (3,), (4,)), "lambda b, x, y: torch.addr(b, x, y, alpha=2)", None, {"alpha": 2}),
    Case("addbmm", kernels.addbmm, ((3, 1), (2, 3, 2), (2, 2, 4)), "lambda b, x, y: torch.addbmm(b, x, y)"),
    Case(
        "addmm", kernels.addmm, ((4,), (3, 2), (2, 4)), "lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2)", None,
        {"beta": 0.5, "alpha": 2},
    ),
    Case("baddbmm", kernels.baddbmm, ((3, 1), (2, 3, 2), (2, 2, 4)), "lambda b, x, y: torch.baddbmm(b.expand(2, 3, 4), x, y)"),
    Case("linear", kernels.linear, ((2, 3, 4), (5, 4), (5,)), "F.linear"),
    Case("linear without bias", kernels.linear, ((3, 4), (5, 4), None), "F.linear"),
    Case("linear one output", kernels.linear, ((3, 4), (4,), ()), "lambda x, w, b: x @ w + b"),
    Case("bilinear", kernels.bilinear, ((2, 3), (2, 4), (5, 3, 4), (5,)), "F.bilinear"),
    Case("bilinear without bias", kernels.bilinear, ((2, 2, 3), (2, 2, 4), (2, 3, 4), None), "F.bilinear"),
    Case("dot", kernels.dot, ((5,), (5,)), "torch.dot"),
    Case("dot of matrices", kernels.dot, ((2, 3, 4), (5, 4, 2)), None, np.dot),
    Case("dot of a matrix and a vector", kernels.dot, ((2, 3), (3,)), None, np.dot),
    Case("dot with a number", kernels.dot, ((), (2, 3)), None, np.dot),
    Case("outer of matrices", kernels.outer, ((2, 2), (3,)), None, np.outer),
    Case("vdot", kernels.vdot, ((3, 4), (3, 4)), "lambda x, y: torch.vdot(x.flatten(), y.flatten())"),
    Case("vecdot", kernels.vecdot, ((2, 3, 4), (3, 1)), "lambda x, y: torch.linalg.vecdot(x, y, dim=1)", None, {"axis": 1}),
    Case("inner", kernels.inner, ((2, 3), (4, 2, 3)), "torch.inner"),
    Case("outer", kernels.outer, ((3,), (4,)), "torch.outer"),
    Case("tensordot", kernels.tensordot, ((2, 3, 4), (3, 4, 2)), "lambda x, y: torch.tensordot(x, y, 2)"),
    Case("tensordot axes", kernels.tensordot, ((2, 3, 4), (3, 5, 2)), "lambda x, y: torch.tensordot(x, y, ((1, 0), (0, 2)))", None, AXES),
    Case("tensordot of none", kernels.tensordot, ((2, 3), (2,)), "lambda x, y: torch.tensordot(x, y, 0)", None, {"axes": 0}),
    Case("kron", kernels.kron, ((2, 3), (3, 2)), "torch.kron"),
    Case("kron of a vector", kernels.kron, ((4,), (2, 3)), "torch.kron"),
    Case("cross", kernels.cross, ((4, 3), (1, 3)), "torch.linalg.cross"),
    Case("cross axis 0", kernels.cross, ((3, 2), (3, 2)), "lambda x, y: torch.linalg.cross(x, y, dim=0)", None, {"axis": 0}),
    *(
        Case(f"matrix_power {n}", kernels.matrix_power, ((2, 3, 3),), f"lambda x: torch.linalg.matrix_power(x, {n})", None, {"n": n})
        for n in (1, 2, 5)
    ),
    Case("multi_dot", kernels.multi_dot, (((2, 5), (5, 1), (1, 4), (4, 3)),), "lambda *x: torch.linalg.multi_dot(x)"),
    Case("multi_dot vectors", kernels.multi_dot, (((3,), (3, 4), (4,)),), "lambda *x: torch.linalg.multi_dot(x)"),
    Case("matvec", kernels.matvec, ((2, 3, 4), (2, 4)), "lambda x, y: torch.einsum('bij,bj->bi', x, y)"),
    Case("matvec broadcast", kernels.matvec, ((3, 4), (2, 4)), "lambda x, y: y @ x.T"),
    Case("vecmat", kernels.vecmat, ((2, 3), (2, 3, 4)), "lambda x, y: torch.einsum('bi,bij->bj', x, y)"),
    Case("vecmat of vectors", kernels.vecmat, ((3,), (3, 4)), "lambda x, y: x @ y"),
]  # fmt: skip
