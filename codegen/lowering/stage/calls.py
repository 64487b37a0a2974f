"""Loops that an instruction stands for: what its operands are, where the nest is a whole block of it."""

from __future__ import annotations

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, constant, substituted
from tensorexpr.codegen.nest import Call, For, Store
from tensorexpr.codegen.schedule.legal.intrinsics import Intrinsic, choices
from tensorexpr.ir import Access, Apply, Expr, Index


def call_of(found: Intrinsic, choice: int, nest: For) -> Call | None:
    """The instruction, with the operands of a choice, for a nest whose loops and operations are known to be its own.

    None where they are not all there: where accumulators are started, in a rest.
    """
    extents, body = [], nest
    while isinstance(body, For):
        start, stop = constant(body.start), constant(body.stop)
        if start != 0 or stop is None or len(body.body) != 1:
            return None
        extents.append((body.index, stop))
        (body,) = body.body  # type: ignore[assignment]
    if not isinstance(body, Store) or sorted(n for _, n in extents) != sorted(found.extents.values()):
        return None
    target, value = Access(body.buffer, body.indices, body.value.dtype), body.value
    if found.adds:
        if not isinstance(value, Apply) or value.op.name != "add" or value.args[0] != target:
            return None
        value = value.args[1]
    options = choices(found, value)
    if isinstance(options, str):
        return None
    operands = (options[choice][i.name] for i in found.program.inputs)
    zeros: dict[str, Expr] = {index: ZERO for index, _ in extents}

    def first(access: Access) -> Access:
        indices = (substituted(i, lambda n: zeros.get(n, Index(n)), lambda p: p, lambda a: a) for i in access.indices)
        return Access(access.tensor, tuple(indices), access.dtype)

    return Call(found.name, found.operands, (first(target), *map(first, operands)), found.body, found.declarations)
