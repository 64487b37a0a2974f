"""The rewrite `keep`: a term that a loop computes and statements behind it compute again, kept for them.

                                                        e: local(f32[64])
    for k in range(0, 64):                              for k in range(0, 64):
        s[()] = s[()] + exp(x[i, k] - m[()])                e[k] = exp(x[i, k] - m[()])
    for j in range(0, 64):                   -->            s[()] = s[()] + e[k]
        y[i, j] = exp(x[i, j] - m[()]) / s[()]          for j in range(0, 64):
                                                            y[i, j] = e[j] / s[()]

The term is kept for each iteration of the loop and of those inside whose indices it mentions, axes in the order of what it reads. It
stands for every term behind, up to the end of what the loop is in, that is the same at other indices. Sizes may say how many there are
(`in_memory` has room for them then). Legal where `reaching` finds the term
again as the value of each load, and the loop has gone through the element. Copies of the loop that have the term at other indices (a rest)
keep theirs; one where that is not legal stays. Values keep their bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorexpr.codegen.dependence import dependences
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_of, inside, map_expressions, stores_in
from tensorexpr.codegen.rewrites.data.hoist import axes_of, length_of, places_of
from tensorexpr.codegen.rewrites.expressions import substituted_in
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, put, statement
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import apart, touched
from tensorexpr.codegen.rewrites.touched.reaching import Values
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, const, counted
from tensorexpr.records import replace
from tensorexpr.regions import affine_of
from tensorexpr.text import print_expr
from tensorexpr.traversal import free_names, map_children, put_term, tensors_read, walk


def keep(nest: LoopNest, loop: str, term: Expr, name: str | None = None) -> LoopNest:
    """The nest with a term, as it is written in the body of a loop, kept for statements behind the loop that have it at other indices.

    The term is kept in a local buffer, `name`, or a name that follows from what it reads. Raises `ScheduleError` where no copy of the loop
    has the term, nothing behind has it, or the term is another one there.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> from tensorexpr.parse import parse_expr
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[8])
    ... y: parameter(f32[8], written)
    ...
    ... def kernel_0() -> y:
    ...     s: local(f32[()])
    ...     s[()] = 0.0
    ...     for k in range(0, 8):
    ...         s[()] = s[()] + exp(x[k])
    ...     for j in range(0, 8):
    ...         y[j] = exp(x[j]) / s[()]
    ... ''')
    >>> print(keep(nest, "k", nest.kernels[0].body[0].body[1].body[0].value.args[1], "e"))
    main(x, y)
    x: parameter(f32[8])
    y: parameter(f32[8], written)
    <BLANKLINE>
    def kernel_0() -> y:
        e: local(f32[8])
        s: local(f32[()])
        s[()] = 0.0
        for k in range(0, 8):
            e[k] = exp(x[k])
            s[()] = s[()] + e[k]
        for j in range(0, 8):
            y[j] = e[j] / s[()]
    <BLANKLINE>
    """
    terms = {path: _term_of(loop_at(nest, path), term) for path in loop_paths(nest, loop)}
    found = {path: own for path, own in terms.items() if own is not None}
    if not any(own == term for own in found.values()):
        raise refuse(f"expected a term of the body of {loop}, got {print_expr(term)}", loop_at(nest, loop_paths(nest, loop)[0]), loop)
    read = next(iter(tensors_read(term)), "term")
    name = name or fresh(nest, f"{read}_kept")[0]
    made, reasons = nest, []
    for path, own in reversed(found.items()):
        try:
            made = _Kept(made, path, own, name).made()
        except ScheduleError as error:
            reasons.append(error)
    if made is nest:
        raise reasons[-1]
    return apart(made)


def _term_of(loop: For, term: Expr) -> Expr | None:
    """The term in a copy of a loop, where it may read at other indices."""
    if any(True for _ in places_of(loop.body, term)):
        return term
    shape = shape_of(term)
    every = (n for s in stores_in(loop.body) for n in walk(s.value) if isinstance(n, Apply | Access | Cast))
    return next((n for n in every if shape_of(n) == shape), None)


def shape_of(term: Expr) -> object:
    """A term without the indices at which it reads: equal for terms that may be the same elsewhere."""
    match term:
        case Access():
            return term.tensor
        case Apply():
            return (term.op.name, *map(shape_of, term.args))
        case Cast():
            return (term.dtype.name, shape_of(term.arg))
    return term


class _Kept:
    def __init__(self, nest: LoopNest, path: Path, term: Expr, name: str) -> None:
        self.nest, self.path, self.term, self.name = nest, path, term, name
        self.loop = loop_at(nest, path)
        self.facts = Facts.at(nest, path)
        places = list(places_of((self.loop,), term))
        names = {*free_names(term), self.loop.index}
        self.axes = [_exact(places, axis) for axis in axes_of(places, names, self.facts, self.refused, sizes=True)]
        self.axes.sort(key=lambda axis: _place_of(term, axis[0]))
        self.indices = {index: sub(Index(index), start) for index, start, _ in self.axes}
        end = len(path)
        while end > 2 and isinstance(statement(nest, path[: end - 1]), Alloc):
            end -= 1
        self.home = path[:end]
        self.loads: dict[Access, Expr] = {}

    def refused(self, why: str) -> Exception:
        text = print_expr(self.term)
        return refuse(f"expected a term of {self.loop.index} that stays the same, got {text}: {why}", self.loop, self.loop.index)

    def made(self) -> LoopNest:
        """The nest with the term of one copy of the loop kept."""
        own = self.element({index: Index(index) for index in self.indices})
        stored = self.storing(self.loop.body, own)
        if stored == self.loop.body:
            raise self.refused("it is computed under a condition")
        home = put(self.nest, self.path, (replace(self.loop, body=stored),))
        block = _behind(home, self.home)
        block = tuple(self.reading(s, self.path[len(self.home) :] if at == 0 else None) for at, s in enumerate(block))
        if not self.loads:
            raise self.refused("nothing behind computes it again")
        shape = tuple(_extent(start, stop) for _, start, stop in self.axes)
        made = _from(home, self.home, (Alloc(Buffer(self.name, self.term.dtype, shape, "local"), block),))
        self.check(made)
        return made

    def element(self, at: Mapping[str, Expr]) -> Access:
        return Access(self.name, tuple(substituted_in(e, at) for e in self.indices.values()), self.term.dtype)

    def storing(self, block: Block, own: Access) -> Block:
        """A block of the loop with the term stored in front of the first statement that has it, and read from there on."""
        found: list[Stmt] = []
        done = False
        for s in block:
            if isinstance(s, For | Alloc):
                body = self.storing(s.body, own)
                found.append(s if body is s.body else replace(s, body=body))
            elif isinstance(s, Store) and any(n == self.term for e in expressions_of(s) for n in walk(e)):
                if not done:
                    found.append(Store(self.name, own.indices, self.term))
                done = True
                found += map_expressions((s,), lambda e: put_term(e, self.term, own))
            else:
                found.append(s)
        return block if len(found) == len(block) and all(a is b for a, b in zip(found, block, strict=True)) else tuple(found)

    def reading(self, s: Stmt, skipped: Path | None) -> Stmt:
        """A statement with terms that are the same at other indices read; without what stands up to the loop, and the loop."""
        if skipped is None:
            return map_expressions((s,), self.with_loads)[0]
        if not skipped:
            return s
        assert isinstance(s, Alloc)
        body = tuple(
            x if at < skipped[0] else self.reading(x, skipped[1:]) if at == skipped[0] else self.reading(x, None)
            for at, x in enumerate(s.body)
        )
        return replace(s, body=body)

    def with_loads(self, expr: Expr) -> Expr:
        at = _matched(self.term, expr, set(self.indices), {})
        if at is not None and len(at) == len(self.indices):
            found = self.element(at)
            self.loads[found] = expr
            return found
        return map_children(expr, self.with_loads)

    def check(self, made: LoopNest) -> None:
        """That each load behind the loop has the value of the term there."""
        (one,) = [t for t in touched(made, self.name) if t.home == self.home]
        values = Values(made, one, dependences(made))
        for path in one.reads:
            s = statement(made, path)
            for access in dict.fromkeys(n for e in expressions_of(s) for n in walk(e) if isinstance(n, Access) and n.tensor == self.name):
                wanted = self.loads.get(access)
                (store,) = [p for p in one.stores if p < path][-1:]
                value, where = values.value(store, path, access)
                if wanted is not None and value != substituted_in(wanted, {}) and value != wanted:
                    raise self.refused(f"it is {print_expr(value)} where {print_expr(wanted)} is wanted")
                if where is not None and path[: len(store) - 1] != store[:-1] and Facts.at(made, path).holds(where) is not True:
                    raise self.refused(f"not all elements that are wanted are gone through: {print_expr(where)}")


def _exact(places: Iterable[tuple[For, ...]], axis: tuple[str, Expr, Expr]) -> tuple[str, Expr, Expr]:
    """The range of a loop's index, from where the loop itself begins if that is the same for all that is kept and its length constant."""
    index, start, stop = axis
    inner = {s.index for loops in places for s in loops}
    ranges = {(s.start, s.stop) for loops in places for s in loops if s.index == index}
    if len(ranges) == 1:
        first, last = next(iter(ranges))
        if constant(sub(last, first)) is not None and inner.isdisjoint((*free_names(first), *free_names(last))):
            return index, first, last
    return index, start, stop


def _extent(start: Expr, stop: Expr) -> Expr:
    """How many elements are kept along an axis."""
    length = sub(stop, start)
    return counted(length) if constant(length) is None else const(length_of(start, stop))


def _place_of(term: Expr, index: str) -> int:
    """The last axis of an element in a term that an index moves: what lies side by side there, does when it is kept."""
    accesses = (n for n in walk(term) if isinstance(n, Access))
    return max((at for a in accesses for at, e in enumerate(a.indices) if index in free_names(e)), default=-1)


def _behind(nest: LoopNest, path: Path) -> Block:
    """A statement and those behind it in its block."""
    return inside(nest.kernels[path[0]] if len(path) == 2 else statement(nest, path[:-1]))[path[-1] :]


def _from(nest: LoopNest, path: Path, block: Block) -> LoopNest:
    """The nest with a statement and those behind it in its block replaced."""
    count = len(_behind(nest, path))
    for at in reversed(range(path[-1] + 1, path[-1] + count)):
        nest = put(nest, (*path[:-1], at), ())
    return put(nest, path, block)


def _matched(term: Expr, expr: Expr, names: set[str], found: dict[str, Expr]) -> dict[str, Expr] | None:
    """What indices are to be for a term to be an expression; None where it is none at any."""
    if term.dtype is not expr.dtype:
        return None
    if not names & set(free_names(term)):
        return found if term == expr else None
    if isinstance(term, Access):
        if not isinstance(expr, Access) or term.tensor != expr.tensor or len(term.indices) != len(expr.indices):
            return None
        for one, other in zip(term.indices, expr.indices, strict=True):
            at = _index_matched(one, other, names, found)
            if at is None:
                return None
            found = at
        return found
    if isinstance(term, Apply) and isinstance(expr, Apply) and term.op is expr.op:
        return _all_matched(term.args, expr.args, names, found)
    if isinstance(term, Cast) and isinstance(expr, Cast):
        return _matched(term.arg, expr.arg, names, found)
    return None


def _all_matched(terms: Iterable[Expr], others: Iterable[Expr], names: set[str], found: dict[str, Expr]) -> dict[str, Expr] | None:
    for one, other in zip(terms, others, strict=True):
        at = _matched(one, other, names, found)
        if at is None:
            return None
        found = at
    return found


def _index_matched(index: Expr, other: Expr, names: set[str], found: dict[str, Expr]) -> dict[str, Expr] | None:
    """An index of one loop, and what does not change with any: the loop's index is what the other is more."""
    own = names & set(free_names(index))
    if not own:
        return found if index == other or sub(index, other) == Const(0, index.dtype) else None
    form = affine_of(index)
    if form is None or len(own) > 1 or form.coefficient(name := next(iter(own))) != 1:
        return None
    value = sub(other, substituted_in(index, {name: const(0)}))
    if name in found and sub(found[name], value) != Const(0, index.dtype):
        return None
    return {**found, name: value}
