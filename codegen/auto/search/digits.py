"""Axes that are several in one, in a loop for each of their digits.

    for p in range(0, 389760):                                  for p_o in range(0, 560):
        y[p] = x[maximum(p//696 - 1, 0)*696 + p % 696]   -->        for p_i in range(0, 696):
                                                                        y[p_i + p_o*696] = x[maximum(p_o - 1, 0)*696 + p_i]

Quotients and remainders of one index by one number are rows and columns: loops over these read in vectors, share rows with loops of other
kernels, and are cut at borders.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, constant
from tensorexpr.codegen.nest import For, Kernel
from tensorexpr.codegen.nest.walks import buffers_written, expressions_in
from tensorexpr.codegen.rewrites.paths import walk_block
from tensorexpr.ir import Apply, Const, Expr
from tensorexpr.regions import affine_of
from tensorexpr.traversal import walk

LEAST = 8
"""Elements of a row, half a vector of the widest machines, as in blocks of pixels: shorter ones are residue classes, whose lanes lie
apart."""


def in_digits(candidate: Candidate) -> Candidate:
    """The candidate with each loop of constant length split by the numbers that divide it and by which its index is divided, the largest
    first."""
    while True:
        found = next((found for kernel in candidate.nest.kernels if (found := _digits(kernel)) is not None), None)
        if found is None:
            return candidate
        loop, modulus, stored = found
        candidate = candidate.then("split", loop, modulus).then("simplify", *stored)


def _digits(kernel: Kernel) -> tuple[str, int, tuple[str, ...]] | None:
    """A loop of a kernel, the largest number to split it by, and the buffers that the kernel stores to."""
    for _, s in walk_block(kernel.body):
        if isinstance(s, For) and s.kind == "serial" and s.start == ZERO:
            length = constant(s.stop)
            moduli = [] if length is None else [m for m in _moduli(s) if m < length and length % m == 0]
            if moduli:
                return s.index, max(moduli), tuple(sorted(buffers_written(kernel.body)))
    return None


def _moduli(s: For) -> Iterator[int]:
    """The numbers by which the index of a loop is divided, with nothing beside it but what they divide."""
    nodes: set[Expr] = {node for e in expressions_in(s.body) for node in walk(e)}
    for node in nodes:
        if not isinstance(node, Apply) or node.op.name not in ("floordiv", "mod") or not node.dtype.is_integer:
            continue
        if isinstance(node.args[1], Const):
            form, modulus = affine_of(node.args[0]), int(node.args[1].value)
            if form is None or modulus < LEAST or form.coefficient(s.index) != 1:  # in an empty tensor it may be 0
                continue
            if all(a == s.index or n % modulus == 0 for a, n in form.terms):
                yield modulus
