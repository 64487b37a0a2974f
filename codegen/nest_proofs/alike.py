"""Elements that two iterations both write, with equal values: blocks of a loop that are shifted inwards at its end.

    for b in parallel: for v in range(0, 8): Y[minimum(8 * b, n - 8) + v] = f(minimum(8 * b, n - 8) + v)

The last two blocks overlap. That is harmless where what is written depends on the element alone, not on the block that it is reached
from. It does where, in the body of the loop,

1. in the statements that the value depends on, the variables of such a window (v, and what else its base is made of) stand in the
   window as a whole alone, `c * (base + v) + rest`, or by themselves as an index of a local buffer, the same one in each access of it:
   then the buffer holds one value for each v;
2. a statement in loops over v writes local buffers that are made inside of these loops or hold one value for each v;
3. all loops over v have the same bounds;
4. conditions are made of the same, or hold where the element is written; everything else that depends on the iteration, and every other
   variable in the indices of the element, is equal where two meet;
5. where two statements write it, each under its condition, they are the same but for tests that the condition decides;
   A condition of the whole block is none of those, but does no harm where it decides nothing: the branches are the same statements but
   for tests that it decides, or what its branch leaves in local buffers is read where it holds alone;
6. nothing is read that other iterations write, but the element that the same iteration has just written; elsewhere in a buffer that the
   loop writes, where it is shown that no iteration meets another there (a step of a scan reads the step before it).

So both iterations make the same computation, operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tensorexpr import dtypes
from tensorexpr.codegen.facts.places import Home, Loop, Touch
from tensorexpr.codegen.facts.scope import Scope, mentioned, negation
from tensorexpr.codegen.nest import Alloc, Block, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import blocks_of, expressions_of
from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Apply, Expr, Index, apply, conjuncts
from tensorexpr.records import replace
from tensorexpr.regions import Opaque, affine_of, expression_of
from tensorexpr.traversal import bottom_up, children, tensors_read, walk

Holds = Callable[[Expr, Scope], bool]
"""Whether a condition is known to hold at a place."""


class _Differs(Exception):
    """Something depends on the block from which an element is reached."""


def equal_where_alike(loop: Loop, touch: Touch, apart: Callable[[Touch, Touch], bool], holds: Holds) -> list[Expr] | None:
    """Expressions over the indices of a loop and of those inside it of which this holds: where they are equal in two iterations that write
    one element by the statement of `touch`, the values are equal. None where that cannot be said. `apart` says of a write and a read that
    they never meet in different iterations."""
    try:
        return _Alike(loop, touch, apart, holds).compared()
    except _Differs:
        return None


def may_be_alike(loop: Loop, first: Touch, second: Touch) -> bool:
    """Whether two touches are stores of blocks that may be shifted inwards, or such a store and what reads it right behind."""
    if first.write and second.write:
        return _is_shifted(loop, first) and _is_shifted(loop, second)
    if not first.write or first.indices != second.indices or not _is_shifted(loop, first):
        return False
    return is_own(loop, Access(first.home.buffer.name, first.indices, first.home.buffer.dtype))


def same_value(first: Touch, second: Touch, holds: tuple[Callable[[Expr], bool], Callable[[Expr], bool]]) -> bool:
    """Whether two statements store the same expression, once tests are left out that hold wherever both write one element."""
    if first.value is None or second.value is None or first.value == second.value:
        return first.value == second.value
    return _decided(first.value, holds[0]) == _decided(second.value, holds[1])


def _decided(value: Expr, holds: Callable[[Expr], bool]) -> Expr:
    """A value without the parts of its conditions that hold."""

    def visit(node: Expr) -> Expr:
        if not isinstance(node, Apply) or node.op.name != "where":
            return node
        left = [part for part in conjuncts(node.args[0]) if not holds(part)]
        if not left:
            return node.args[1]
        condition = left[0]
        for part in left[1:]:
            condition = apply("and", condition, part)
        return replace(node, args=(condition, *node.args[1:]))

    return bottom_up(value, visit)


def _is_shifted(loop: Loop, touch: Touch) -> bool:
    """Whether a store of a block that may be shifted inwards does not build on what the element was."""
    own = Access(touch.home.buffer.name, touch.indices, touch.home.buffer.dtype)
    if any(n == own for e in expressions_of(touch.statement) for n in walk(e)):
        return False
    inner = {other.statement.index for other in touch.loops[touch.loops.index(loop) :]}
    return any(
        isinstance(n, Apply) and n.op.name == "minimum" and any(isinstance(e, Index) and e.name in inner for e in walk(n))
        for index in touch.indices
        for n in walk(index)
    )


def is_own(loop: Loop, access: Access) -> bool:
    """Whether an iteration reads what it has written itself right before: the element of one store in front of each such read."""
    touches = [t for t in loop.touches if t.home.buffer.name == access.tensor]
    writes = [t for t in touches if t.write]
    return all(
        any(
            w.indices == t.indices and w.loops == t.loops and w.number < t.number and set(w.scope.facts) <= set(t.scope.facts)
            for w in writes
        )
        for t in touches
        if not t.write
    ) and all(w.indices == access.indices for w in writes)


Trail = tuple[For | Expr | If, ...]
"""Loops and conditions around something in the body, and the statements whose condition is left out."""
Locals = dict[str, tuple[Home, tuple[str, ...]]]
"""The local buffers that are made inside of the loop, with the loops over a window around them."""


class _Alike:
    def __init__(self, loop: Loop, touch: Touch, apart: Callable[[Touch, Touch], bool], holds: Holds) -> None:
        self.loop, self.touch, self.apart, self.holds = loop, touch, apart, holds
        self.inside = {other.statement.index for other in touch.loops[touch.loops.index(loop) + 1 :]}
        self.bound = {loop.statement.index}
        self.bases: dict[Expr, str] = {}
        self.windows: list[Affine] = []
        self.variables: set[str] = set()
        self.others: dict[Expr, None] = {}
        self.ties: dict[tuple[Home, int], str] = {}
        self.ranges: dict[str, tuple[Expr, Expr]] = {}
        self.needed: set[int] = set()
        self.opaque = Opaque()
        self.held = {fact.condition for fact in touch.scope.facts}
        self.trail: Trail = ()
        self.reads: dict[str, list[Trail]] = {}
        self.made: dict[str, Trail] = {}
        self.skipped: list[tuple[If, set[str]]] = []

    def compared(self) -> list[Expr]:
        """The expressions, once everything in the body has been looked at."""
        for index in self.touch.indices:
            self._window(index)
        if not self.windows:
            raise _Differs
        for other in self.touch.loops[self.touch.loops.index(self.loop) + 1 :]:
            if other.statement.index not in self.variables:
                names = {n.name for i in self.touch.indices for n in walk(i) if isinstance(n, Index)}
                if other.statement.index in names:
                    self.others.setdefault(Index(other.statement.index))
        private = self._private()
        self.needed = self._slice()
        self._block(self.loop.statement.body, {}, private, ())
        if not all(self._is_read_where_it_holds(*each) for each in self.skipped):
            raise _Differs
        return list(self.others)

    def _slice(self) -> set[int]:
        """The statements that the value depends on, and those around them."""
        stores: dict[str, list[Store]] = {}
        around: dict[int, list[Stmt]] = {}

        def find(block: Block, path: list[Stmt]) -> None:
            for s in block:
                if isinstance(s, Store):
                    stores.setdefault(s.buffer, []).append(s)
                    around[id(s)] = path
                for inner in blocks_of(s):
                    find(inner, [*path, s])

        find(self.loop.statement.body, [])
        needed: set[int] = set()
        todo: list[Stmt] = [self.touch.statement]
        while todo:
            s = todo.pop()
            if id(s) in needed:
                continue
            needed.add(id(s))
            todo += around.get(id(s), ())
            for expr in expressions_of(s):
                for node in walk(expr):
                    if isinstance(node, Access):
                        todo += stores.get(node.tensor, ())
        return needed

    def _window(self, index: Expr) -> None:
        """Takes an index that is a window apart."""
        found = [n for n in walk(index) if isinstance(n, Apply) and n.op.name in ("minimum", "maximum") and n.dtype is dtypes.int64]
        own = [n for n in found if any(isinstance(e, Index) and e.name in self.inside | self.bound for e in walk(n))]
        if not own:
            return
        base = own[0]
        self.bases.setdefault(base, f"?base {len(self.bases)}")
        form = self._form(index)
        factor = 0 if form is None else form.coefficient(self.bases[base])
        if form is None or not factor or any(other % factor for _, other in form.terms):
            raise _Differs
        self.windows.append(Affine([(atom, other // factor) for atom, other in form.terms]))
        names = {n.name for n in walk(index) if isinstance(n, Index)}
        self.variables |= names & self.inside

    def _form(self, expr: Expr) -> Affine | None:
        """The affine form over indices and bases."""
        if expr in self.bases:
            return Affine.of(self.bases[expr])
        if isinstance(expr, Apply) and expr.dtype is dtypes.int64 and any(base in walk(expr) for base in self.bases):
            name, args = expr.op.name, expr.args
            if name == "neg":
                inner = self._form(args[0])
                return None if inner is None else -inner
            if name in ("add", "sub"):
                left, right = self._form(args[0]), self._form(args[1])
                return None if left is None or right is None else left + right if name == "add" else left - right
            if name == "mul":
                left, right = self._form(args[0]), self._form(args[1])
                if left is not None and right is not None and right.is_constant:
                    return left * right.constant
                if left is not None and right is not None and left.is_constant:
                    return right * left.constant
            return None
        found = affine_of(expr)
        if found is None and expr.dtype is dtypes.int64 and {n.name for n in walk(expr) if isinstance(n, Index)}.isdisjoint(self.changing):
            if not tensors_read(expr):
                return Affine.of(self.opaque.name_of(expr))
        return found

    @property
    def changing(self) -> set[str]:
        """The indices that differ between two iterations: of the loop itself and of the windows."""
        return self.bound | self.variables

    def _private(self) -> set[Home]:
        """Buffers that belong to one iteration: one dimension is the iteration's own."""
        found = set()
        index = Index(self.loop.statement.index)
        for home in dict.fromkeys(t.home for t in self.loop.touches):
            touches = [t for t in self.loop.touches if t.home is home]
            rank = min(len(t.indices) for t in touches)
            if any(all(len(t.indices) == rank and t.indices[d] == index for t in touches) for d in range(rank)):
                found.add(home)
        return found

    # ------------------------------------------------------------------------------------------------------------- the body

    def _block(self, block: Block, locals_: Locals, private: set[Home], path: tuple[str, ...]) -> None:
        """`locals_`: the buffers made inside, with the window loops around them; `path`: the window loops around."""
        for s in block:
            if id(s) not in self.needed:
                continue
            match s:
                case For():
                    if s.call is not None:
                        raise _Differs
                    own = path
                    if s.index in self.variables:
                        if self.ranges.setdefault(s.index, (s.start, s.stop)) != (s.start, s.stop):
                            raise _Differs
                        own = (*path, s.index)
                    self._expr(s.start, locals_, private)
                    self._expr(s.stop, locals_, private)
                    self._inside(s, own, locals_, private)
                case If():
                    self._branches(s, locals_, private, path)
                case Alloc():
                    self.made[s.buffer.name] = self.trail
                    self._block(s.body, {**locals_, s.buffer.name: (Home(s.buffer, 0), path)}, private, path)
                case Store():
                    self._expr(s.value, locals_, private)
                    self._element(s.buffer, s.indices, locals_, private)
                    self._kept(s, locals_, path)

    # ----------------------------------------------------------------------------------------------- conditions of a block

    def _under(self, what: For | Expr | If, look: Callable[[], None]) -> None:
        """Looks at something with one more loop or condition around."""
        outer, self.trail = self.trail, (*self.trail, what)
        try:
            look()
        finally:
            self.trail = outer

    def _inside(self, s: For, path: tuple[str, ...], locals_: Locals, private: set[Home]) -> None:
        """The body of a loop."""
        self._under(s, lambda: self._block(s.body, locals_, private, path))

    def _branches(self, s: If, locals_: Locals, private: set[Home], path: tuple[str, ...]) -> None:
        """The branches of a condition that is the same wherever the element is reached from, or that decides nothing."""
        around: For | Expr | If = s.condition
        if s.condition not in self.held and negation(s.condition) not in self.held and not self._is_alike(s.condition, locals_, private):
            written = _written(s.then)
            if s.otherwise and self._simpler(s.otherwise, (*self.trail, s.condition)) == self._simpler(s.then, (*self.trail, s.condition)):
                self._block(s.otherwise, locals_, private, path)
                return
            names, reads = mentioned((s.condition,))
            own = [one for one in self.trail if isinstance(one, For) and one.index in names]
            if s.otherwise or reads or not all(name in locals_ and all(loop in self.made[name] for loop in own) for name in written):
                raise _Differs  # else what one round of a loop leaves could be read in another, where the condition differs
            self.skipped.append((s, written))
            around = s
        self._under(around, lambda: self._block(s.then, locals_, private, path))
        self._under(negation(s.condition), lambda: self._block(s.otherwise, locals_, private, path))

    def _is_alike(self, condition: Expr, locals_: Locals, private: set[Home]) -> bool:
        """Whether a condition is made of the same wherever the element is reached from."""
        before = dict(self.others)
        try:
            self._expr(condition, locals_, private)
        except _Differs:
            self.others = before
            return False
        if Index(self.loop.statement.index) in self.others and Index(self.loop.statement.index) not in before:
            self.others = before
            return False
        return True

    def _is_read_where_it_holds(self, s: If, written: set[str]) -> bool:
        """Whether what a branch leaves in local buffers is read where its condition holds alone."""
        reads = [read for name in written for read in self.reads.get(name, ()) if all(one is not s for one in read)]
        return all(self.holds(s.condition, self._scope(read)) for read in reads)

    def _scope(self, trail: Trail) -> Scope:
        """What is known behind loops and conditions in the body, but of what the loop writes."""
        scope = self.loop.scope
        for one in trail:
            if isinstance(one, For):
                scope = scope.loop(one.index, one.start, one.stop)
            else:
                scope = scope.where(one.condition if isinstance(one, If) else one)
        return scope.without(self.loop.writes)

    def _holds_at(self, scope: Scope, condition: Expr) -> bool:
        return self.holds(condition, scope)

    def _simpler(self, block: Block, trail: Trail) -> Block:
        """Statements without the tests that hold."""
        found: list[Stmt] = []
        for s in block:
            match s:
                case For():
                    found.append(replace(s, body=self._simpler(s.body, (*trail, s))))
                case If() if not s.otherwise and self.holds(s.condition, self._scope(trail)):
                    found += self._simpler(s.then, trail)
                case If():
                    then, otherwise = (*trail, s.condition), (*trail, negation(s.condition))
                    found.append(replace(s, then=self._simpler(s.then, then), otherwise=self._simpler(s.otherwise, otherwise)))
                case Alloc():
                    found.append(replace(s, body=self._simpler(s.body, trail)))
                case Store():
                    found.append(replace(s, value=_decided(s.value, partial(self._holds_at, self._scope(trail)))))
                case _:
                    found.append(s)
        return tuple(found)

    def _kept(self, s: Store, locals_: Locals, path: tuple[str, ...]) -> None:
        """What is written in loops over a window belongs to its places."""
        if s.buffer not in locals_:
            return
        _, around = locals_[s.buffer]
        tied = {index.name for index in s.indices if isinstance(index, Index)}
        if any(name not in around and name not in tied for name in path):
            raise _Differs

    def _element(self, name: str, indices: tuple[Expr, ...], locals_: Locals, private: set[Home]) -> None:
        if name in locals_:
            home = locals_[name][0]
            for dim, index in enumerate(indices):
                variable = index.name if isinstance(index, Index) and index.name in self.variables else ""
                if self.ties.setdefault((home, dim), variable) != variable:
                    raise _Differs
                if not variable:
                    self._expr(index, locals_, private)
            return
        own = Index(self.loop.statement.index) if any(h.buffer.name == name for h in private) else None
        for index in indices:
            if index != own:
                self._expr(index, locals_, private)

    def _expr(self, expr: Expr, locals_: Locals, private: set[Home]) -> None:
        if isinstance(expr, Access):
            self.reads.setdefault(expr.tensor, []).append(self.trail)
            if expr.tensor not in locals_ and expr.tensor in self.loop.writes and not any(h.buffer.name == expr.tensor for h in private):
                if not is_own(self.loop, expr) and not self._is_kept(expr):
                    raise _Differs
            self._element(expr.tensor, expr.indices, locals_, private)
            return
        if expr.dtype is dtypes.int64 and isinstance(expr, Apply | Index):
            form = self._form(expr)
            if form is not None and self._passes(form, expr):
                return
            if isinstance(expr, Index):
                raise _Differs
        if isinstance(expr, Apply) and expr.op.name == "where":
            condition, taken, otherwise = expr.args
            self._expr(condition, locals_, private)
            self._under(condition, lambda: self._expr(taken, locals_, private))
            self._under(negation(condition), lambda: self._expr(otherwise, locals_, private))
            return
        for child in children(expr):
            self._expr(child, locals_, private)

    def _is_kept(self, access: Access) -> bool:
        """Whether no other iteration writes what is read."""
        touches = [t for t in self.loop.touches if t.home.buffer.name == access.tensor]
        reads = [t for t in touches if not t.write and t.indices == access.indices]
        return bool(reads) and all(self.apart(write, read) for write in touches if write.write for read in reads)

    def _passes(self, form: Affine, expr: Expr) -> bool:
        """Whether an integer is the same wherever its element is reached from, as far as the window goes; notes what else it is made of."""
        for window in self.windows:
            name = next(n for n in window.names() if n in self.bases.values())
            if name in form.names():
                factor = form.coefficient(name) * window.coefficient(name)
                form = form - window * factor
        names = set(form.names())
        if names & (self.variables | set(self.bases.values())):
            return False
        if self.loop.statement.index in names:
            self._dependent(form, expr)
        return True

    def _dependent(self, form: Affine, expr: Expr) -> None:
        """Notes the terms that depend on the iteration itself."""
        own = self.loop.statement.index
        for atom, _ in form.terms:
            names = {atom} if isinstance(atom, str) else set(atom.numerator.names())
            if own in names:
                if not isinstance(atom, str) and names - {own}:
                    raise _Differs
                self.others.setdefault(expression_of(Affine.of(atom)))


def _written(block: Block) -> set[str]:
    """The buffers that statements write, but for those that they make themselves."""
    found: set[str] = set()
    for s in block:
        if isinstance(s, Store):
            found.add(s.buffer)
        for inner in blocks_of(s):
            found |= _written(inner) - ({s.buffer.name} if isinstance(s, Alloc) else set())
    return found
