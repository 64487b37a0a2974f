"""Writing a definition down: fresh indices, the names of a body's parameters, settling names when the body is complete.

While a body runs, its indices have names that are unique in the process (`i#12`). An index that escapes from its
definition or its reduction is thereby noticed instead of captured by another one of the same name. `settle` then gives
every index the name its lambda had, made unique within the definition and different from the sizes.

The bodies of scans being written are kept per thread (`active_frames`): in them the step and the states have a meaning.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tensorexpr.errors import DefinitionError, failure_location, user_location
from tensorexpr.ir import Axis, Expr, Index, Reduce, Size, const
from tensorexpr.language.core.printing import describe
from tensorexpr.language.core.scalar import NO_SOURCES, Scalar, Sources
from tensorexpr.records import record
from tensorexpr.traversal import children, fresh_name, map_children

if TYPE_CHECKING:
    from tensorexpr.language.core.tensor import Tensor

MAX_DEPTH = 100
"""What every later stage can recur over within Python's stack, with room for the user's own frames."""
MAX_TERMS = 100_000
RESERVED = ("inf", "nan")
"""Identifiers that are literals in the text of a program."""

_serial = itertools.count()


def fresh_index(stem: str) -> Index:
    """An index for a body that is about to run."""
    return Index(f"{stem}#{next(_serial)}")


def stem_of(name: str) -> str:
    """The name that the user gave an index."""
    return name.partition("#")[0]


def parameters(body: Callable[..., Any], count: int, what: str, takes: str | None = None, example: str = "") -> list[str]:
    """The names of the first `count` parameters of `body`; `*idx` stands for i0, i1, ...

    `takes` says what they are, by default that many indices, and `example` how they may be called. Parameters with defaults
    beyond `count` are left to their defaults (``lambda i, k=k: ...`` in a loop). Raises `DefinitionError` where the body takes
    another number.
    """
    wanted = takes or f"{count} {'index' if count == 1 else 'indices'}"
    if not callable(body):
        hint = f"write lambda {example or 'i, j'}: ..."
        if isinstance(body, int):
            hint = "a shape is one argument, a tuple: te.compute((m, n), lambda i, j: ...)"
        raise DefinitionError(f"{what}: expected a function of {wanted}, got {type(body).__name__}", location=user_location(), hint=hint)
    try:
        signature = inspect.signature(body)
    except ValueError:  # a builtin without one
        return [f"i{n}" for n in range(count)]
    names: list[str] = []
    required = 0
    many = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            many = True
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
            required += parameter.default is parameter.empty
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise DefinitionError(
                f"{what}: expected a function of {wanted}, got one that needs the keyword {parameter.name}", location=user_location()
            )
    if required > count or (count > len(names) and not many):
        number = f"{required} to {len(names)}" if required < len(names) else str(required)
        raise DefinitionError(
            f"{what}: expected a function of {wanted}, got one of {number} {'parameter' if number == '1' else 'parameters'}",
            term=f"lambda {', '.join(names)}: ..." if names else "lambda: ...",
            location=user_location(),
            hint=f"lambda {example}: ..." if takes else "one index per axis of the shape, or per extent",
        )
    names = names[:count] + [f"i{n}" for n in range(len(names), count)]
    return [name.strip("_") or f"i{position}" for position, name in enumerate(names)]


_axes: ContextVar[tuple[Axis, ...]] = ContextVar("tensorexpr_axes", default=())


def active_axes() -> tuple[Axis, ...]:
    """The loops around what is being written, outermost first: what is known of the indices before the body is complete."""
    return _axes.get()


@contextmanager
def binding(axes: tuple[Axis, ...]) -> Iterator[None]:
    """Makes `axes` the innermost loops while a body runs."""
    token = _axes.set((*_axes.get(), *axes))
    try:
        yield
    except KeyError as error:
        if not error.args or not isinstance(error.args[0], Scalar):
            raise
        raise DefinitionError(
            f"expected a tensor where something is looked up by an index, got a dict: no key {error.args[0]!r}",
            location=failure_location(error) or user_location(),
            hint="a table that is read as it runs is a tensor: te.constant(array)",
        ) from None
    except RecursionError:
        raise DefinitionError(
            "expected a body that comes to an end, got one that calls itself without a base",
            location=user_location(),
            hint="an index has no value while the body runs; a recurrence is te.scan(lambda t, state: ..., init, length)",
        ) from None
    finally:
        _axes.reset(token)


# --------------------------------------------------------------------------------------------------------- scans


@record(frozen=False, eq=False)
class Frame:
    """The body of a scan being written: its step (unsettled name), its length, the formal tensors of its states."""

    step: str
    length: Expr
    states: tuple[Tensor, ...] = ()

    @property
    def axis(self) -> Axis:
        return Axis(self.step, const(0), self.length)


_frames: ContextVar[tuple[Frame, ...]] = ContextVar("tensorexpr_scan_frames", default=())


def active_frames() -> tuple[Frame, ...]:
    """The scans whose bodies are being written, outermost first."""
    return _frames.get()


@contextmanager
def inside(frame: Frame) -> Iterator[None]:
    """Makes `frame` the innermost scan."""
    token = _frames.set((*_frames.get(), frame))
    try:
        yield
    finally:
        _frames.reset(token)


def frames_of(free: Iterable[str], sources: Sources) -> tuple[Frame, ...]:
    """The active scans on which a definition depends: through their step, their states or tensors made of those.

    Raises `DefinitionError` for a tensor that depends on a scan whose body is complete.
    """
    active = active_frames()
    free = set(free)
    wanted = [frame for frame in active if frame.step in free]
    for tensor in sources.values():
        for frame in tensor.frames:
            if frame not in active:
                raise DefinitionError(
                    f"expected a tensor that has a meaning here, got {tensor.name}, which belongs to the body of a scan",
                    location=user_location(),
                    hint="only what te.scan returns leaves its body: make it one of the states",
                )
            wanted.append(frame)
    return tuple(frame for frame in active if frame in wanted)


# ------------------------------------------------------------------------------------------------------- settling


@record
class Settled:
    """Expressions with final index names, the final names of the definition's own indices, and the scan steps left free."""

    expressions: tuple[Expr, ...]
    names: tuple[str, ...]
    steps: tuple[str, ...]


def settle(expressions: Sequence[Expr], own: Sequence[Index], sources: Sources = NO_SOURCES) -> Settled:
    """The expressions of one definition with pretty names for its `own` indices and those of its reductions.

    Raises `DefinitionError` for an index that belongs elsewhere and for expressions too large to compile.
    """
    survey = _Survey()
    try:
        for expr in expressions:
            survey.visit(expr)
    except RecursionError:
        raise _too_deep() from None
    top = [survey.facts[id(expr)] for expr in expressions]
    terms = sum(fact[1] for fact in top)
    if max((fact[2] for fact in top), default=0) > MAX_DEPTH:
        raise _too_deep()
    if terms > MAX_TERMS:
        raise DefinitionError(
            f"expected an expression of at most {MAX_TERMS:,} terms, got {terms:.3g} (a value used several times counts each time)",
            location=user_location(),
            hint="make a repeated part a te.compute of its own, a long sum a te.sum, an iteration a te.scan",
        )
    steps = {frame.step for frame in active_frames()}
    known = {index.name for index in own}
    free: list[str] = []
    for expr, fact in zip(expressions, top, strict=True):
        for name in sorted(fact[0] - known):
            if name not in steps:
                raise DefinitionError(
                    f"expected indices of this definition, got {stem_of(name)}, which belongs to another definition or reduction",
                    term=describe(expr, sources),
                    location=user_location(),
                    hint="an index has a meaning in its own lambda only",
                )
            free.append(name)
    taken = {*survey.sizes, *RESERVED, *(stem_of(name) for name in free)}
    table = {name: fresh_name(stem_of(name), taken) for name in [index.name for index in own]}
    for name in survey.bound:
        if name not in table:
            table[name] = fresh_name(stem_of(name), taken)
    rename = Renaming({raw: Index(final) for raw, final in table.items()})
    return Settled(tuple(rename(expr) for expr in expressions), tuple(table[index.name] for index in own), tuple(dict.fromkeys(free)))


def _too_deep() -> DefinitionError:
    return DefinitionError(
        f"expected an expression of at most {MAX_DEPTH} nested operations, got a deeper one",
        location=user_location(),
        hint="a long sum is a te.sum, an iteration a te.scan; or make a part of it a te.compute of its own",
    )


class _Survey:
    """One look at every node of an expression, shared ones once: free indices, number of terms, depth; sizes; bound indices."""

    def __init__(self) -> None:
        self.facts: dict[int, tuple[frozenset[str], int, int]] = {}
        self.sizes: dict[str, None] = {}
        self.bound: dict[str, None] = {}

    def visit(self, node: Expr) -> tuple[frozenset[str], int, int]:
        found = self.facts.get(id(node))
        if found is not None:
            return found
        free: frozenset[str] = frozenset()
        terms, depth = 1, 0
        if isinstance(node, Index):
            free = frozenset((node.name,))
        elif isinstance(node, Size):
            self.sizes.setdefault(node.name)
        elif isinstance(node, Reduce):
            for axis in node.axes:
                self.bound.setdefault(axis.index)
        parts = [self.visit(child) for child in children(node)]
        for fact in parts:
            free |= fact[0]
            terms += fact[1]
            depth = max(depth, fact[2] + 1)
        if isinstance(node, Reduce):
            # A bound uses only the indices before it, by construction, so taking all of them off at once is right.
            free -= {axis.index for axis in node.axes}
        self.facts[id(node)] = result = (free, terms, depth)
        return result


class Renaming:
    """Replaces indices by name, bound ones too; every object is rewritten once, so shared parts stay shared."""

    def __init__(self, table: dict[str, Index]) -> None:
        self._table = table
        self._done: dict[int, tuple[Expr, Expr]] = {}

    def __call__(self, node: Expr) -> Expr:
        found = self._done.get(id(node))
        if found is not None:
            return found[1]
        if isinstance(node, Index):
            result: Expr = self._table.get(node.name, node)
        else:
            result = map_children(node, self)
            if isinstance(result, Reduce) and any(axis.index in self._table for axis in result.axes):
                axes = tuple(Axis(self._name(axis.index), axis.start, axis.stop) for axis in result.axes)
                result = Reduce(result.combiner, result.values, axes, result.where, result.component)
        hash(result)
        self._done[id(node)] = (node, result)
        return result

    def _name(self, name: str) -> str:
        found = self._table.get(name)
        return name if found is None else found.name
