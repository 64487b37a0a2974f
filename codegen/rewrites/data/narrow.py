"""The rewrite `narrow`: integers that are known to be small, kept in fewer bits.

    a: local(i64[8])                                        a: local(i32[8])
    for i in range(0, 8):                                   for i in range(0, 8):
        a[i] = maximum(i - 1, 0)                    -->         a[i] = i32(maximum(i - 1, 0))
    for i in range(0, 8):                                   for i in range(0, 8):
        y[i] = where(a[i] == i, x[i], 0.0)                      y[i] = where(a[i] == i32(i), x[i], 0.0)

Legal where every value that is stored is within the narrow type, by the ranges of indices at its place, and by what is stored in other
buffers; elements that are read are, for they were stored. What compares them is asked in the narrowest type that holds both: a vector of
positions is then no longer than one of the float32 values that they are positions of.
"""

from __future__ import annotations

import math

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import buffers_written
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import declared, touched
from tensorexpr.dtypes import DType
from tensorexpr.hints import suggestion
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, apply
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, negate, tensors_read

TYPES = {dtype.name: dtype for dtype in (dtypes.int8, dtypes.int16, dtypes.int32)}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def narrow(nest: LoopNest, buffer: str, dtype: str = "int32") -> LoopNest:
    """The nest with a buffer of int64 values, local or in the workspace, of another integer type. Of a buffer that has that type already
    only comparisons change.

    Raises `ScheduleError` where a value that is stored may be too large for it.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[8])
    ... y: parameter(f32[8], written)
    ... a: workspace(i64[8])
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, 8):
    ...         a[i] = maximum(i - 1, 0)
    ...     for i in range(0, 8):
    ...         y[i] = where(a[i] == i, x[i], 0.0)
    ... ''')
    >>> print(narrow(nest, "a"))
    main(x, y)
    x: parameter(f32[8])
    y: parameter(f32[8], written)
    a: workspace(i32[8])
    <BLANKLINE>
    def kernel_0() -> y:
        for i in range(0, 8):
            a[i] = i32(maximum(i - 1, 0))
        for i in range(0, 8):
            y[i] = where(a[i] == i32(i), x[i], 0.0)
    <BLANKLINE>
    """
    if dtype not in TYPES:
        raise refuse(f"expected a type among {', '.join(TYPES)}, got {dtype!r}", hint=suggestion(dtype, TYPES))
    own = [declared(nest, one) for one in touched(nest, buffer)]
    calls = (s.call for _, s in walk_nest(nest) if isinstance(s, For) and s.call is not None)
    taken = any(a.tensor == buffer for call in calls for a in call.operands)
    if taken or any(b.memory == "parameter" or b.dtype not in (dtypes.int64, TYPES[dtype]) for b in own):
        raise refuse(f"expected int64 values that only statements of {nest.name} need, got those of {buffer}")
    made = _Narrowed(buffer, TYPES[dtype], _Ranges(nest))
    kernels = tuple(replace(k, body=made.block(k.body, Facts(buffers_written(k.body), least=dict(nest.least)))) for k in nest.kernels)
    return replace(nest, kernels=kernels, workspace=tuple(map(made.declared, nest.workspace)))


class _Narrowed:
    def __init__(self, buffer: str, dtype: DType, ranges: _Ranges) -> None:
        self.buffer, self.dtype, self.ranges = buffer, dtype, ranges

    def declared(self, buffer: Buffer) -> Buffer:
        return replace(buffer, dtype=self.dtype) if buffer.name == self.buffer else buffer

    def block(self, block: Block, facts: Facts) -> Block:
        return tuple(self.statement(s, facts) for s in block)

    def statement(self, s: Stmt, facts: Facts) -> Stmt:
        match s:
            case For():
                start, stop = self.value(s.start, facts), self.value(s.stop, facts)
                return replace(s, start=start, stop=stop, body=self.block(s.body, facts.loop(s.index, s.start, s.stop)))
            case If():
                then = self.block(s.then, facts.under(s.condition))
                otherwise = self.block(s.otherwise, facts.under(negate(s.condition)))
                return replace(s, condition=self.value(s.condition, facts), then=then, otherwise=otherwise)
            case Alloc():
                return replace(s, buffer=self.declared(s.buffer), body=self.block(s.body, facts))
            case Check():
                return replace(s, index=self.value(s.index, facts), extent=self.value(s.extent, facts))
            case Store():
                made = replace(s, indices=tuple(self.value(e, facts) for e in s.indices), value=self.value(s.value, facts))
                if s.buffer != self.buffer:
                    return made
                if not self.is_within(made.value, facts):
                    raise refuse(f"expected values of {self.buffer} that are known to be within {self.dtype.name}", s)
                return replace(made, value=self.narrow(made.value, facts))
        return s

    def value(self, expr: Expr, facts: Facts) -> Expr:
        """An expression that reads the elements as they are now, and compares them as such."""
        if self.buffer not in tensors_read(expr):
            return expr

        def visit(node: Expr) -> Expr:
            if isinstance(node, Access) and node.tensor == self.buffer and node.dtype is dtypes.int64:
                return Cast(dtypes.int64, replace(node, dtype=self.dtype))
            if isinstance(node, Apply) and node.op.name in COMPARISONS and any(self.is_read(a) for a in node.args):
                for dtype in TYPES.values():
                    if dtype.itemsize >= self.dtype.itemsize and all(self.is_within(a, facts, dtype) for a in node.args):
                        return apply(node.op.name, *(self.narrow(a, facts, dtype) for a in node.args))
            return node

        return bottom_up(expr, visit)

    def is_read(self, expr: Expr) -> bool:
        """Whether a value is an element of narrow integers, or one of several."""
        found = _type_read(expr)
        return found is not None and found.itemsize <= self.dtype.itemsize

    def narrow(self, expr: Expr, facts: Facts, dtype: DType | None = None) -> Expr:
        """A value in the narrow type, or another one. Requires: it is within."""
        dtype = dtype or self.dtype
        if isinstance(expr, Const):
            return Const(expr.value, dtype)
        if isinstance(expr, Cast) and expr.arg.dtype.is_integer:
            if expr.dtype is dtype and expr.arg.dtype is dtypes.int64 and self.is_within(expr.arg, facts, dtype):
                return self.narrow(expr.arg, facts, dtype)
            return expr.arg if expr.arg.dtype is dtype else Cast(dtype, expr.arg)
        read = _type_read(expr)
        if isinstance(expr, Apply) and read is not None:
            values = expr.args[1:] if expr.op.name == "where" else expr.args
            wide = read if read.itemsize > dtype.itemsize else dtype
            if all(self.is_within(a, facts, wide) for a in values):
                made = apply(expr.op.name, *expr.args[: -len(values)], *(self.narrow(a, facts, wide) for a in values))
                return made if wide is dtype else Cast(dtype, made)
        return Cast(dtype, expr)

    def is_within(self, expr: Expr, facts: Facts, dtype: DType | None = None) -> bool:
        dtype = dtype or self.dtype
        low, high = self.ranges.of(expr, facts)
        return low >= dtype.least and high <= dtype.greatest


def _type_read(expr: Expr) -> DType | None:
    """The type of the narrow integers of which a value is an element, or one of several, the widest of these; None where it is none."""
    if isinstance(expr, Cast):
        narrow = isinstance(expr.arg, Access) and expr.arg.dtype.name in TYPES
        return expr.arg.dtype if narrow else None
    if isinstance(expr, Apply) and expr.op.name in ("where", "minimum", "maximum"):
        values = expr.args[1:] if expr.op.name == "where" else expr.args
        return max((found for a in values if (found := _type_read(a))), key=lambda dtype: dtype.itemsize, default=None)
    return None


class _Ranges:
    """The least and greatest values that integers of a nest may have."""

    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.made = {b.name for b in nest.workspace} | {s.buffer.name for _, s in walk_nest(nest) if isinstance(s, Alloc)}
        self.known: dict[str, tuple[float, float]] = {}
        self.asked: list[str] = []

    def of(self, expr: Expr, facts: Facts) -> tuple[float, float]:
        """Those of a value at a place."""
        match expr:
            case Cast() if expr.arg.dtype.is_bool:
                return 0, 1
            case Cast() if expr.arg.dtype.is_integer:
                low, high = self.of(expr.arg, facts)
                low, high = max(low, int(expr.arg.dtype.least)), min(high, int(expr.arg.dtype.greatest))
                least, greatest = int(expr.dtype.least), int(expr.dtype.greatest)
                return (low, high) if least <= low and high <= greatest else (least, greatest)
            case Apply() if expr.op.name in ("where", "minimum", "maximum"):
                (a, b), (c, d) = (self.of(arg, facts) for arg in expr.args[-2:])
                choose = {"where": (min, max), "minimum": (min, min), "maximum": (max, max)}[expr.op.name]
                return choose[0](a, c), choose[1](b, d)
            case Access() if expr.tensor in self.made:
                return self.stored(expr.tensor)
        if not expr.dtype.is_integer or tensors_read(expr):
            return -math.inf, math.inf
        low = max((min(facts.interval(f)[0] for f in bound) for bound in facts.bounds(expr, False)), default=-math.inf)
        high = min((max(facts.interval(f)[1] for f in bound) for bound in facts.bounds(expr, True)), default=math.inf)
        return low, high

    def stored(self, buffer: str) -> tuple[float, float]:
        """Those of what is stored in a buffer: choices of its own elements are none beside the others."""
        if buffer in self.known:
            return self.known[buffer]
        if buffer in self.asked:
            return math.inf, -math.inf
        self.asked.append(buffer)
        found = [
            self.of(s.value, Facts.at(self.nest, path)) for path, s in walk_nest(self.nest) if isinstance(s, Store) and s.buffer == buffer
        ]
        self.asked.pop()
        low, high = min((low for low, _ in found), default=math.inf), max((high for _, high in found), default=-math.inf)
        if not self.asked:
            self.known[buffer] = low, high
        return low, high
