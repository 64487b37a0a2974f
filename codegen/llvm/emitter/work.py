"""How much work an iteration of a parallel loop is, roughly: an expression over the loop bounds, emitted beside the loop.

The pool cuts a loop into chunks that are worth the hand-over. Units are those of `Op.cost` (one addition). Bounds that
depend on outer indices are taken at the middle of their range, those that depend on data count as a fixed number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorexpr.codegen.llvm.text.values import Value, literal
from tensorexpr.codegen.nest import Alloc, Block, Check, For, If, Store
from tensorexpr.ir import Access, Apply, Expr
from tensorexpr.traversal import children

if TYPE_CHECKING:
    from tensorexpr.codegen.llvm.emitter.statements import Statements

_UNKNOWN_TRIPS = 16
_VECTOR_GAIN = 8

Work = Value | float  # a double, or a number where it is known


def iteration(emitter: Statements, s: For, start: Value, stop: Value) -> Work:
    """The cost of one iteration of `s`, at the middle of its range."""
    with emitter.bound(s.index, _middle(emitter, start, stop)):
        return _block(emitter, s.body)


def _middle(emitter: Statements, start: Value, stop: Value) -> Value:
    b = emitter.b
    total = b.add(start, stop)
    return literal(int(total.const) // 2, "i64") if total.const is not None else b.op("ashr", total, 1)


def _block(emitter: Statements, body: Block) -> Work:
    total: Work = 0.0
    for s in body:
        match s:
            case Store():
                total = _sum(emitter, total, _expression(s.value) + sum(_expression(i) for i in s.indices) + 1.0)
            case Check():
                total = _sum(emitter, total, 2.0)
            case Alloc():
                total = _sum(emitter, total, _block(emitter, s.body))
            case If():
                total = _sum(emitter, total, _block(emitter, s.then))
                total = _sum(emitter, total, _block(emitter, s.otherwise))
            case For():
                total = _sum(emitter, total, _loop(emitter, s))
    return total


def _loop(emitter: Statements, s: For) -> Work:
    b = emitter.b
    if emitter.reads(s.start) or emitter.reads(s.stop):
        trips: Work = float(_UNKNOWN_TRIPS)
        middle = literal(0, "i64")
    else:
        start, stop = emitter.expr(s.start), emitter.expr(s.stop)
        middle = _middle(emitter, start, stop)
        count = b.sub(stop, start)
        if count.const is not None:
            trips = float(max(0, int(count.const)))
        else:
            trips = b.convert("sitofp", b.intrinsic("smax", count, 0), "double")
    if s.kind == "vectorize" and isinstance(trips, float):
        trips = max(1.0, trips / _VECTOR_GAIN)
    with emitter.bound(s.index, middle):
        inner = _block(emitter, s.body)
    if isinstance(trips, float) and isinstance(inner, float):
        return trips * inner
    return b.op("fmul", _double(trips), _double(inner))


def _double(work: Work) -> Value:
    return work if isinstance(work, Value) else literal(work, "double")


def _sum(emitter: Statements, a: Work, c: Work) -> Work:
    if isinstance(a, float) and isinstance(c, float):
        return a + c
    return emitter.b.op("fadd", _double(a), _double(c))


def _expression(e: Expr) -> float:
    # Equal subexpressions are emitted once, so they count once.
    return float(sum(node.op.cost if isinstance(node, Apply) else isinstance(node, Access) for node in _distinct(e)))


def _distinct(e: Expr) -> dict[Expr, None]:
    found: dict[Expr, None] = {}
    stack = [e]
    while stack:
        node = stack.pop()
        if node not in found:
            found[node] = None
            stack.extend(children(node))
    return found
