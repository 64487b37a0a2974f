"""Rows of open number that need no others but in sums over all of them: which definitions have them, and the program of some of them.

Of an attention and its gradient, scores, weights and their adjoints have the rows of queries along an axis, and so have the queries'
gradients; those of keys and values are sums over rows. What is read from outside is the same for all rows, or has a line for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tensorexpr.codegen.lowering.context.arithmetic import add, maximum, minimum, normal, sub
from tensorexpr.codegen.pieces.cut import Piece, piece_of, wanted
from tensorexpr.dtypes import accumulator
from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Input, Program, Reduce, Size, TensorType, const
from tensorexpr.language.core.renaming import index_names
from tensorexpr.records import record, replace
from tensorexpr.traversal import (
    children,
    expressions,
    free_names,
    fresh_name,
    map_children,
    reads,
    size_names,
    substitute,
    tensors_read,
    walk,
)


@record
class Rows:
    """A program over rows, of which there are `count`, and that of some of them, whose number is the size `rows` and the first of which is
    the size `first` where that matters. `tensors` says which of the latter have rows of which of the former, and along which axis; `sums`
    are results that are sums over rows."""

    whole: Program
    program: Program
    count: Expr
    rows: str
    first: str
    tensors: Mapping[str, tuple[str, int]]
    sums: frozenset[str]


class _OthersNeededError(Exception):
    """Rows need others, or are none."""


def rows_of(program: Program) -> Rows | None:
    """The rows of a program that makes tensors over more open axes than its results have, of each element of a batch, and sums them up over
    rows as well. (Where it does not, what leads to rows runs in blocks of them: `planners.programs.rows`.)"""
    definitions = {d.name: d for d in program.definitions if isinstance(d, Define)}
    large = _large(program)
    if not large or len(definitions) < len(program.definitions) or not set(program.outputs) <= definitions.keys():
        return None
    if len(large[0].axes) < 3:  # a batch, rows and columns
        return None
    found = []
    for place, axis in enumerate(large[0].axes):
        try:
            found.append((axis, _Places(definitions, large[0], place)))
        except _OthersNeededError:
            continue
    if all(places.sums for _, places in found):
        return None
    for axis, places in found:
        if places.sums and not isinstance(axis.stop, Const):
            try:
                return _Cut(program, places).rows()
            except _OthersNeededError:
                continue
    return None


def pieces_of_rows(program: Program) -> tuple[Piece, ...]:
    """The pieces of a program of which some have rows, and the others stand between these; none where there is nothing beside them."""
    computed = {name for d in program.definitions for name, _ in d.results}
    groups = _groups(program)
    if not groups or len(computed.intersection(program.outputs)) < len(program.outputs):
        return ()  # a result that is an input, or is there twice, is a copy that no piece makes
    of = {name: number for number, group in enumerate(groups, 1) for d in group for name, _ in d.results}
    waiting: list[tuple[Definition, ...]] = [*groups, *((d,) for d in program.definitions if d.results[0][0] not in of)]
    at, stages = dict[str, tuple[int, int]](), dict[tuple[int, int], list[Definition]]()
    while waiting:
        own = [{name for d in unit for name, _ in d.results} for unit in waiting]
        outside = [{n for d in unit for n in reads(d) if n in computed} - made for unit, made in zip(waiting, own, strict=True)]
        able = [k for k, needed in enumerate(outside) if needed <= at.keys()]
        if not able:
            return ()
        for k in able:
            stage = max((at[n][0] + (at[n][1] > 0) for n in outside[k]), default=0), max(of.get(name, 0) for name in own[k])
            at |= dict.fromkeys(own[k], stage)
            stages.setdefault(stage, []).extend(waiting[k])
        waiting = [unit for k, unit in enumerate(waiting) if k not in able]
    parts = [stages[key] for key in sorted(stages)]
    found = [piece_of(program, part, outputs) for part, outputs in zip(parts, wanted(program, parts), strict=True)]
    alone = len(parts) < 2 or any(rows_of(piece.program) is None for piece, key in zip(found, sorted(stages), strict=True) if key[1])
    return () if alone else tuple(found)


def _open_axes(d: Definition) -> int:
    return sum(not isinstance(a.stop, Const) for a in d.axes) if isinstance(d, Define) else 0


def _large(program: Program) -> list[Define]:
    """Definitions over more open axes than any result has."""
    least = max((_open_axes(d) for d in program.definitions if d.results[0][0] in program.outputs), default=0)
    return [d for d in program.definitions if isinstance(d, Define) and _open_axes(d) > max(least, 1)] if program.sizes else []


def _groups(program: Program) -> list[tuple[Definition, ...]]:
    """Large definitions that read each other, with those that read them and what lies between, in order; none where two have some in
    common."""
    large, groups = {d.name: d for d in _large(program)}, list[set[str]]()
    for name, d in large.items():
        read = {name, *reads(d)} & large.keys()
        joined = [g for g in groups if not g.isdisjoint(read)]
        groups = [*(g for g in groups if g.isdisjoint(read)), read.union(*joined)]
    found = []
    for group in groups:
        made = [(d, {name for name, _ in d.results}, set(reads(d))) for d in program.definitions]
        behind = group.union(*(names for _, names, read in made if not group.isdisjoint(read)))
        front = set(behind)
        for _, names, read in made:
            behind |= set() if behind.isdisjoint(read) else names
        for _, names, read in reversed(made):
            front |= set() if front.isdisjoint(names) else read
        found.append(tuple(d for d, names, _ in made if not names.isdisjoint(behind & front)))
    return found if len({d.results[0][0] for g in found for d in g}) == sum(map(len, found)) else []


class _Places:
    """Where definitions have the rows that one of them has along an axis: along an axis of theirs, or in `sums` over all of them.
    Raises `_OthersNeededError` where some do not, or need other rows."""

    def __init__(self, definitions: Mapping[str, Define], seed: Define, place: int) -> None:
        self.definitions, self.count = definitions, seed.axes[place].stop
        self.places: dict[str, int] = {}
        self.sums: set[str] = set()
        todo = [(seed.name, place)]
        while todo:
            name, place = todo.pop()
            if self.places.setdefault(name, place) != place or definitions[name].axes[place].stop != self.count:
                raise _OthersNeededError
            todo += [(n, at) for n, at in self._beside(name, place) if self.places.get(n) != at]
        if self.places.keys() | self.sums != definitions.keys() or self.sums & {n for d in definitions.values() for n in reads(d)}:
            raise _OthersNeededError

    def _beside(self, name: str, place: int) -> Iterator[tuple[str, int]]:
        """The definitions that read rows of one, or of which it reads rows, with the place of each among its axes."""
        for reader in self.definitions.values():
            for access, bound in _accesses(reader.value, {}):
                if access.tensor == name:
                    own = [k for k, a in enumerate(reader.axes) if access.indices[place] == Index(a.index)]
                    if own:
                        yield reader.name, own[0]
                    elif isinstance(index := access.indices[place], Index) and index.name in bound:
                        self.sums.add(reader.name)
                    else:
                        raise _OthersNeededError
        row = Index(self.definitions[name].axes[place].index)
        for access, _ in _accesses(self.definitions[name].value, {}):
            if access.tensor in self.definitions and row in access.indices:
                yield access.tensor, access.indices.index(row)

    def over_rows(self, d: Define) -> set[str]:
        """The indices of rows in a definition: that of its axis, or those of its sums over rows."""
        if d.name in self.places:
            return {d.axes[self.places[d.name]].index}
        read = (access for access, _ in _accesses(d.value, {}) if access.tensor in self.places)
        return {name for access in read for name in free_names(access.indices[self.places[access.tensor]])}


class _Cut:
    """The program of some rows."""

    def __init__(self, whole: Program, places: _Places) -> None:
        self.whole, self.of = whole, places
        taken = {*whole.types, *whole.sizes, *(i for d in whole.definitions for i in index_names(d))}
        self.rows_, self.first, self.taken = Size(fresh_name("rows", taken)), Size(fresh_name("first", taken)), taken
        self.tensors: dict[tuple[str, int | None], str] = {}

    def rows(self) -> Rows:
        definitions = tuple(map(self._definition, self.of.definitions.values()))
        constants = {c.name: c for c in self.whole.constants}
        inputs = tuple(Input(called, self._type(*key)) for key, called in self.tensors.items() if key[0] not in constants)
        used = tuple(c for name, c in constants.items() if (name, None) in self.tensors)
        sizes = {s for d in definitions for e in expressions(d) for s in size_names(e)}
        sizes |= {s for d in definitions for _, type_ in d.results for e in type_.shape for s in size_names(e)}
        sizes |= {s for i in inputs for e in i.type.shape for s in size_names(e)}
        known = (*self.whole.sizes, self.rows_.name, self.first.name)
        program = Program(inputs, used, definitions, self.whole.outputs, tuple(s for s in known if s in sizes))
        tensors = {called: (name, place) for (name, place), called in self.tensors.items() if place is not None}
        tensors |= {name: (name, place) for name, place in self.of.places.items()}
        return Rows(self.whole, program, self.of.count, self.rows_.name, self.first.name, tensors, frozenset(self.of.sums))

    def _type(self, name: str, place: int | None) -> TensorType:
        type_ = self.whole.types[name]
        if place is None:
            return type_
        if type_.shape[place] != self.of.count or name in {c.name for c in self.whole.constants}:
            raise _OthersNeededError
        return replace(type_, shape=(*type_.shape[:place], self.rows_, *type_.shape[place + 1 :]))

    def _definition(self, d: Define) -> Define:
        rows, place = self.of.over_rows(d), self.of.places.get(d.name)
        if place is None and (accumulator(d.value.dtype) is not d.value.dtype or not _is_linear(d.value, rows)):
            raise _OthersNeededError
        axes = tuple(replace(a, stop=self.rows_) if k == place else a for k, a in enumerate(d.axes))
        return replace(d, axes=axes, value=self._value(d.value, frozenset(rows if place is not None else ()), rows))

    def _value(self, e: Expr, rows: frozenset[str], over: set[str]) -> Expr:
        """An expression of some rows, whose indices `rows` are around it, and are those of reductions `over` rows inside of these."""
        match e:
            case Access():
                at = [k for k, index in enumerate(e.indices) if not rows.isdisjoint(free_names(index))]
                if len(at) > 1 or any(not isinstance(e.indices[k], Index) for k in at) or any(map(tensors_read, e.indices)):
                    raise _OthersNeededError
                place = at[0] if at else None
                if e.tensor in self.of.places:
                    if place != self.of.places[e.tensor]:
                        raise _OthersNeededError
                    return e
                key = e.tensor, place
                if key not in self.tensors:
                    self.tensors[key] = e.tensor if place is None else fresh_name(f"{e.tensor}_rows", self.taken)
                return replace(e, tensor=self.tensors[key])
            case Index() if e.name in rows:
                return add(e, self.first)
            case Reduce():
                inside = rows | {a.index for a in e.axes if a.index in over}
                if any(not (inside - rows).isdisjoint(free_names(x)) for a in e.axes for x in (a.start, a.stop)):
                    raise _OthersNeededError
                axes = tuple(self._some_rows(a) if a.index in over - rows else self._at_row(a, rows) for a in e.axes)
                where = None if e.where is None else self._value(e.where, inside, over)
                return replace(e, axes=axes, values=tuple(self._value(v, inside, over) for v in e.values), where=where)
        changed: Expr = map_children(e, lambda child: self._value(child, rows, over))
        return changed

    def _some_rows(self, axis: Axis) -> Axis:
        """The part of a sum over rows that is over some of them."""

        def inside(e: Expr) -> Expr:
            return e if e == const(0) else self.rows_ if e == self.of.count else minimum(maximum(sub(e, self.first), const(0)), self.rows_)

        return replace(axis, start=inside(axis.start), stop=inside(axis.stop))

    def _at_row(self, axis: Axis, rows: frozenset[str]) -> Axis:
        """The axis of a sum that ends where the row says: no further on than for the last row, as is known of that."""
        names = rows.intersection(free_names(axis.stop))
        if rows.intersection(free_names(axis.start)) or not all(_grows(axis.stop, name) for name in names):
            raise _OthersNeededError
        if not names:
            return axis
        here = substitute(axis.stop, {name: add(Index(name), self.first) for name in names})
        last = substitute(axis.stop, dict.fromkeys(names, sub(self.of.count, const(1))))
        return replace(axis, stop=minimum(normal(here), normal(last)))


def _grows(e: Expr, name: str) -> bool:
    """Whether an expression becomes no smaller where an index becomes larger."""
    if name not in free_names(e):
        return True
    match e:
        case Index():
            return True
        case Apply() if e.op.name in ("add", "minimum", "maximum"):
            return all(_grows(a, name) for a in e.args)
        case Apply() if e.op.name == "sub":
            return _grows(e.args[0], name) and name not in free_names(e.args[1])
    return False


def _accesses(e: Expr, bound: Mapping[str, Axis]) -> Sequence[tuple[Access, Mapping[str, Axis]]]:
    """What an expression reads, each element with the axes of the reductions around it."""
    found: list[tuple[Access, Mapping[str, Axis]]] = [(e, bound)] if isinstance(e, Access) else []
    inside = {**bound, **{a.index: a for a in e.axes}} if isinstance(e, Reduce) else bound
    for child in children(e):
        found.extend(_accesses(child, inside))
    return found


def _is_linear(e: Expr, over: set[str]) -> bool:
    """Whether an expression is a sum over rows, or one times what has none: that of all rows is what those of some add up to."""
    match e:
        case Reduce():
            return e.combiner.name == "sum" and any(a.index in over for a in e.axes)
        case Apply() if e.op.name in ("add", "sub", "neg"):
            return all(_is_linear(a, over) for a in e.args)
        case Apply() if e.op.name in ("mul", "div"):
            sums = [any(isinstance(n, Reduce) for n in walk(a)) for a in e.args]
            return sum(sums) == 1 and (e.op.name == "mul" or sums[0]) and _is_linear(e.args[sums.index(True)], over)
    return False
