"""Values with tensors of their own: what `te.let` names, and what is too large or too deep for one expression.

Sharing lives in names (`tensorexpr.ir`), so a value of a body that is to be there once becomes a definition over the indices that it
depends on, and is read in its place. From there on nothing is special about it: it is derived, printed, typeset, scheduled and stored or
computed in its reader's loops as a `te.compute` of the user's is. `outlined` finds such values when a body is complete:

- what `te.let` was called on, also where the same object stands elsewhere in the body;
- where an expression has more than `MOST_TERMS` terms, with a value used twice counted twice: values of `LEAST_SHARED` terms that are
  used several times, and as much as `MOST_TERMS` terms of anything;
- where it is deeper than `MOST_DEPTH`: what is that far from its leaves, again and again, so that loops of Python may nest ten thousand
  operations. Nothing here recurs.

A value is defined under the conditions of `where` that hold wherever it stands, and zero where they do not, so its accesses are proved
as they would be in its place. What has no box of its own stays where it is: in a reduction whose extents depend on others, in a combiner,
in an index, or where it reads data through data that is guarded otherwise elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Expr, Index, Param, Reduce, apply, conjunction, conjuncts
from tensorexpr.language.core.scalar import Scalar, strong
from tensorexpr.language.core.tensor import Tensor, identifier
from tensorexpr.records import record
from tensorexpr.traversal import children, map_children, negate

if TYPE_CHECKING:
    from typing import Any

MOST_TERMS = 2000
LEAST_SHARED = 8
MOST_DEPTH = 60
MOST_GUARDS = 32

Define = Callable[[tuple[Expr, ...], list[Index], Scalar, str | None], Tensor]


class Marks:
    """What `te.let` was called on in a body: expressions by identity, with their names; and what was made of them."""

    def __init__(self) -> None:
        self.names: dict[int, tuple[Expr, str | None]] = {}
        self.made: dict[int, tuple[Expr, Scalar]] = {}


_marks: ContextVar[Marks | None] = ContextVar("tensorexpr_lets", default=None)


@contextmanager
def letting() -> Iterator[Marks]:
    """The marks of a body that runs now."""
    marks = Marks()
    token = _marks.set(marks)
    try:
        yield marks
    finally:
        _marks.reset(token)


@checked()
def let(value: Any, name: str | None = None) -> Scalar:
    """The value, computed once wherever it is used in this body: a tensor over the indices that it depends on, called `name`.

    It is printed once, under its name, in the program and in gradients. An element, an index or a number is itself and stays so.
    Raises `DefinitionError` outside of the body of a `te.compute` or `te.scatter`, and for a name that is no identifier.

    >>> te.evaluate(te.compute((3,), lambda i: te.let(i * i, "square") + 1))
    array([1, 2, 5])
    """
    scalar = strong(value)
    if name is not None:
        identifier(name, "te.let")
    marks = _marks.get()
    if marks is None:
        raise DefinitionError(
            "te.let: expected a value in the body of a definition, got one outside of any",
            term=repr(scalar),
            location=user_location(),
            hint="outside, te.compute(shape, lambda i: ...) makes a tensor",
        )
    if isinstance(scalar.expr, Apply | Cast | Reduce):
        marks.names.setdefault(id(scalar.expr), (scalar.expr, name))
    return scalar


@record(frozen=False, eq=False)
class _Fact:
    """What is known of a node: the indices it depends on, terms and depth since the last cut, whether it reads data, and how; how often
    it is used, where the conditions around it are the same everywhere, and which hold everywhere."""

    free: frozenset[str]
    terms: int
    depth: int
    reads: bool
    by_data: bool
    bound: bool
    uses: int = 0
    indexing: bool = False
    guards: tuple[Expr, ...] | None = None
    alike: bool = True


def outlined(values: Sequence[Scalar], axes: Sequence[Axis], marks: Marks, define: Define, held: tuple[Expr, ...] = ()) -> list[Scalar]:
    """The values of a body over `axes` (unsettled names), where the conditions `held` hold, with reads of tensors, made by `define`, for
    what is to be there once."""
    order = _order([v.expr for v in values])
    facts, total, deepest = _surveyed(order)
    if not marks.names and total <= MOST_TERMS and deepest <= MOST_DEPTH:
        return list(values)
    _look_around([v.expr for v in values], order, facts, held)
    loops = {axis.index: axis for axis in axes}
    for node in order:
        if isinstance(node, Reduce):
            loops.update({axis.index: axis for axis in node.axes})
    large = total > MOST_TERMS
    done: dict[int, Expr] = {}  # what stands for a node
    sources = {key: tensor for v in values for key, tensor in v.sources.items()}

    def at(node: Expr) -> Expr:
        return done[id(node)]

    for node in order:
        fact = facts[id(node)]
        below = children(node)
        fact.terms = 1 + sum(facts[id(child)].terms for child in below)
        fact.depth = max((facts[id(child)].depth + 1 for child in below), default=0)
        known = marks.made.get(id(node))
        if known is not None:
            sources |= known[1].sources
            done[id(node)] = known[1].expr
            fact.terms, fact.depth = 1, 0
            continue
        new = map_children(node, at)
        hash(new)
        marked = id(node) in marks.names
        wanted = (
            marked or fact.depth >= MOST_DEPTH or (large and (fact.terms >= MOST_TERMS or (fact.uses > 1 and fact.terms >= LEAST_SHARED)))
        )
        if wanted and isinstance(node, Apply | Cast | Reduce) and not fact.bound and (marked or not fact.indexing):
            name = marks.names[id(node)][1] if marked else None
            made = _tensor(new, fact, loops, sources, name, define)
            if made is not None:
                marks.made[id(node)] = (node, made)
                sources |= made.sources
                new, fact.terms, fact.depth = made.expr, 1, 0
        done[id(node)] = new
    read = {node.tensor: sources[node.tensor] for node in _order([at(v.expr) for v in values]) if isinstance(node, Access)}
    return [Scalar(at(v.expr), read, v.weak) for v in values]


def _tensor(new: Expr, fact: _Fact, loops: dict[str, Axis], sources: dict[str, Tensor], name: str | None, define: Define) -> Scalar | None:
    """A read of a tensor that holds a value; None where it has no box, or reads data that is not there everywhere."""
    own = [axis for index, axis in loops.items() if index in fact.free]  # steps of scans stay free
    names = {axis.index for axis in own}
    if any(not names.isdisjoint(_indices(axis.stop)) or _indices(axis.stop) & loops.keys() for axis in own):
        return None
    if new.dtype.is_integer and not fact.reads:
        return None  # an index says more where it stands
    guards = fact.guards or ()
    kept = [g for g in guards if _indices(g) & loops.keys() <= names]
    if fact.by_data and not (fact.alike and len(kept) == len(guards)):
        return None
    value = new
    if fact.reads and kept:
        value = apply("where", conjunction(kept), new, Const(False if new.dtype.is_bool else 0, new.dtype))
    indices = [Index(axis.index) for axis in own]
    read_here = {node.tensor: sources[node.tensor] for node in _order([value]) if isinstance(node, Access)}
    try:
        made = define(tuple(axis.stop for axis in own), indices, Scalar(value, read_here), name)
    except DefinitionError:
        return None  # an access that is in bounds only where it stands
    read = Access(made.key, tuple(indices), new.dtype)
    hash(read)
    return Scalar(read, {made.key: made})


# ------------------------------------------------------------------------------------------------------- looks


def _order(roots: Sequence[Expr]) -> list[Expr]:
    """All nodes, each object once, children before parents."""
    seen: set[int] = set()
    order: list[Expr] = []
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(children(node)))
    return order


def _indices(expr: Expr) -> frozenset[str]:
    """The indices that occur in an expression and are not bound in it."""
    order = _order([expr])
    return _surveyed(order)[0][id(order[-1])].free


def _surveyed(order: Sequence[Expr]) -> tuple[dict[int, _Fact], int, int]:
    """The facts of nodes by identity; terms and depth of the largest, written out."""
    facts: dict[int, _Fact] = {}
    total = deepest = 0
    for node in order:
        below = [facts[id(child)] for child in children(node)]
        free = frozenset().union(*(fact.free for fact in below))
        if isinstance(node, Index):
            free = frozenset((node.name,))
        elif isinstance(node, Reduce):
            free -= {axis.index for axis in node.axes}
        reads = isinstance(node, Access)
        facts[id(node)] = made = _Fact(
            free,
            1 + sum(fact.terms for fact in below),
            max((fact.depth + 1 for fact in below), default=0),
            reads or any(fact.reads for fact in below),
            any(fact.by_data or (reads and fact.reads) for fact in below),
            isinstance(node, Param) or (any(fact.bound for fact in below) and not isinstance(node, Reduce)),
        )
        total, deepest = max(total, made.terms), max(deepest, made.depth)
    return facts, total, deepest


def _look_around(roots: Sequence[Expr], order: Sequence[Expr], facts: dict[int, _Fact], around: tuple[Expr, ...]) -> None:
    """Notes of each node how often it is used, whether in an index or a bound, and which conditions hold around it."""
    for root in roots:
        _met(facts[id(root)], around, False)
    for node in reversed(order):
        fact = facts[id(node)]
        held = fact.guards or ()
        match node:
            case Apply() if node.op.name == "where":
                condition, taken, otherwise = node.args
                _met(facts[id(condition)], held, fact.indexing)
                _met(facts[id(taken)], (*held, *conjuncts(condition)), fact.indexing)
                _met(facts[id(otherwise)], (*held, negate(condition)), fact.indexing)
            case Reduce():
                for axis in node.axes:
                    for bound in (axis.start, axis.stop):
                        _met(facts[id(bound)], held, True)
                inner = held
                if node.where is not None:
                    _met(facts[id(node.where)], held, fact.indexing)
                    inner = (*held, *conjuncts(node.where))
                for value in node.values:
                    _met(facts[id(value)], inner, fact.indexing)
            case _:
                for child in children(node):
                    _met(facts[id(child)], held, fact.indexing or isinstance(node, Access))


def _met(fact: _Fact, guards: tuple[Expr, ...], indexing: bool) -> None:
    fact.uses += 1
    fact.indexing = fact.indexing or indexing
    if len(guards) > MOST_GUARDS:
        fact.alike, guards = False, guards[-MOST_GUARDS:]
    if fact.guards is None:
        fact.guards = guards
    elif fact.guards != guards:
        fact.alike = False
        there = set(guards)
        fact.guards = tuple(g for g in fact.guards if g in there)
