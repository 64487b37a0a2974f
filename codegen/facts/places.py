"""The walk over a nest: every place at which a buffer is touched, with what is known there, and the first obligation: it is inside.

Statements are gone through in the order in which they run. A condition holds in its branch, a `Check` from where it stands to the end of
the block and in later kernels (where one fails, nothing further runs; kernels that are launched one by one do, so each of them begins
anew), each until something that it reads is written; a loop that writes it forgets it from its begin.
`where` is the only operation of which one branch is evaluated: all operands of `and` and `or` are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tensorexpr.codegen.facts.scope import Checked, Scope, mentioned_in, negation
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import inside
from tensorexpr.ir import Access, Apply, Cast, Expr, apply, const, product
from tensorexpr.records import record

ZERO = const(0)


@record(eq=False, frozen=False)
class Loop:
    """A loop around a place: its statement, how many are around it, and what is touched in it, of buffers that are made outside."""

    statement: For
    scope: Scope
    """What is known inside of it, before its first statement."""
    touches: list[Touch]
    writes: frozenset[str]
    around: tuple[Loop, ...]


@record(eq=False)
class Home:
    """A buffer as it is declared: `depth` is how many loops are around its `Alloc` (0 for one of the head)."""

    buffer: Buffer
    depth: int


@record(eq=False)
class Touch:
    """An element that is read or written at a place: of which buffer, at which indices, in which loops (outermost first)."""

    home: Home
    indices: tuple[Expr, ...]
    write: bool
    loops: tuple[Loop, ...]
    scope: Scope
    statement: Stmt
    number: int
    kernel: int
    value: Expr | None = None

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The extents that the indices stay below: of the axes, or all elements."""
        shape = self.home.buffer.shape
        return shape if len(shape) == len(self.indices) else (product(shape),)


Seen = Callable[[Touch], None]


class Places:
    """Goes through a nest and hands each touch to `seen`; `launched`: see `prove`. `checks` are those behind which it is, each with its
    place, `all_checks` those of the whole nest."""

    def __init__(self, nest: LoopNest, held: Mapping[str, tuple[float, float]], seen: Seen, launched: bool = False) -> None:
        self.nest = nest
        self.seen = seen
        self.checks: list[Checked] = []
        self.all_checks: list[Checked] = []
        self.homes: dict[str, Home] = {}
        constants = (Buffer(c.name, c.type.dtype, c.type.shape, "constant") for c in nest.constants)
        for buffer in (*nest.parameters, *constants, *nest.workspace):
            self.homes[buffer.name] = Home(buffer, 0)
        self.loops: tuple[Loop, ...] = ()
        self.all_loops: list[Loop] = []
        self.number = 0
        self.kernel = 0
        extents = (e for b in nest.parameters for e in b.shape if isinstance(e, Apply))
        self.launched = launched
        self.start = Scope((), {}, dict(held)).where(*(apply("ge", e, ZERO) for e in dict.fromkeys(extents)), sure=True)  # arrays are there
        self._reads: dict[int, bool] = {}
        self._written: dict[int, frozenset[str]] = {}

    def run(self) -> None:
        """Goes through all kernels."""
        scope = self.start
        for number, kernel in enumerate(self.nest.kernels):
            self.kernel = number
            if self.launched:
                self.checks.clear()
            behind = self.kernel_(kernel, scope)
            if not self.launched:
                scope = behind

    def kernel_(self, kernel: Kernel, scope: Scope) -> Scope:
        """A kernel; of loops that run together each sees what is known before all of them."""
        if not kernel.together:
            return self.block(kernel.body, scope)
        written = self.written(kernel.body)
        for loop in kernel.body:
            self.block((loop,), scope.without(written))
        return scope.without(written)

    def block(self, block: Block, scope: Scope) -> Scope:
        """Statements one after the other; gives what is known behind them."""
        for statement in block:
            self.number += 1
            scope = self.statement(statement, scope)
        return scope

    def statement(self, s: Stmt, scope: Scope) -> Scope:
        match s:
            case For():
                self.expr(s.start, scope, s)
                self.expr(s.stop, scope, s)
                written = self.written(s.body)
                inside = scope.loop(s.index, s.start, s.stop).without(written)
                around = self.loops
                loop = Loop(s, inside, [], written, around)
                self.loops = (*around, loop)
                self.all_loops.append(loop)
                if s.call is not None:
                    for operand in s.call.operands:
                        self.access(operand, scope, s)
                self.block(s.body, inside)
                self.loops = around
                return scope.without(written)
            case If():
                self.expr(s.condition, scope, s)
                self.block(s.then, scope.where(s.condition))
                if s.otherwise:
                    self.block(s.otherwise, scope.where(negation(s.condition)))
                written = self.written((s,))
                scope = scope.without(written)
                return scope.where(*(c for c in _checked(s) if mentioned_in(c)[1].isdisjoint(written)), sure=True)
            case Store():
                for index in s.indices:
                    self.expr(index, scope, s)
                self.expr(s.value, scope, s)
                self.touch(s.buffer, s.indices, True, scope, s, s.value)
                return scope.without(frozenset((s.buffer,)))
            case Alloc():
                outer = self.homes.get(s.buffer.name)
                self.homes[s.buffer.name] = Home(s.buffer, len(self.loops))
                scope = self.block(s.body, scope).without(frozenset((s.buffer.name,)))
                del self.homes[s.buffer.name]
                if outer is not None:
                    self.homes[s.buffer.name] = outer
                return scope
            case Check():
                self.expr(s.index, scope, s)
                self.expr(s.extent, scope, s)
                self.checks.append((s, scope))
                self.all_checks.append((s, scope))
                return scope.where(*_passed(s), sure=True)
        raise AssertionError(type(s))

    # --------------------------------------------------------------------------------------------------------- expressions

    def expr(self, expr: Expr, scope: Scope, s: Stmt) -> None:
        """What an expression reads."""
        if type(expr) is Access:
            for index in expr.indices:
                self.expr(index, scope, s)
            self.access(expr, scope, s)
        elif type(expr) is Cast:
            self.expr(expr.arg, scope, s)
        elif type(expr) is Apply and self.reads(expr):
            if expr.op.name == "where":
                condition, taken, otherwise = expr.args
                self.expr(condition, scope, s)
                if self.reads(taken):
                    self.expr(taken, scope.where(condition), s)
                if self.reads(otherwise):
                    self.expr(otherwise, scope.where(negation(condition)), s)
            else:
                for arg in expr.args:
                    self.expr(arg, scope, s)

    def access(self, access: Access, scope: Scope, s: Stmt) -> None:
        self.touch(access.tensor, access.indices, False, scope, s)

    def touch(self, name: str, indices: tuple[Expr, ...], write: bool, scope: Scope, s: Stmt, value: Expr | None = None) -> None:
        home = self.homes[name]
        touch = Touch(home, indices, write, self.loops, scope, s, self.number, self.kernel, value)
        for loop in self.loops[home.depth :]:
            loop.touches.append(touch)
        self.seen(touch)

    def reads(self, expr: Expr) -> bool:
        """Whether an expression reads a buffer."""
        if type(expr) is not Apply:
            return type(expr) is Access or (type(expr) is Cast and self.reads(expr.arg))
        found = self._reads.get(id(expr))  # of the nest, which keeps it
        if found is None:
            found = self._reads[id(expr)] = any(map(self.reads, expr.args))
        return found

    def written(self, block: Iterable[Stmt]) -> frozenset[str]:
        """The buffers that statements write."""
        found: set[str] = set()
        for s in block:
            known = self._written.get(id(s))
            if known is None:
                known = frozenset((s.buffer,)) if isinstance(s, Store) else self.written(inside(s))
                self._written[id(s)] = known
            found |= known
        return frozenset(found)


def _passed(check: Check) -> tuple[Expr, Expr]:
    """What holds behind a check."""
    return apply("ge", check.index, ZERO), apply("lt", check.index, check.extent)


def _checked(statement: If) -> list[Expr]:
    """What holds behind a condition under which something is checked."""
    found: list[Expr] = []
    for holds, block in ((True, statement.then), (False, statement.otherwise)):
        for s in block:
            held = _passed(s) if type(s) is Check else _checked(s) if type(s) is If else ()
            if held:
                condition = statement.condition if holds else negation(statement.condition)
                found += [apply("or", negation(condition), one) for one in held]
    return found
