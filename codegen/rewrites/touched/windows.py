"""The part of a buffer that one iteration of a loop reads: a window for each axis, found by projection.

    for i: for k in range(0, 3): y[i] = y[i] + a[2*i + k]      of a, iteration i reads  2*i <= ' < 2*i + 3

Of each load the points of its loops, under the conditions that guard it, are projected to the element's index and the loops around
(Fourier and Motzkin). Of several loads the window is the least of constant length that begins at a bound of one of them and holds all; the
whole axis where there is none, as with an index that is data. Windows are not cut to their buffer, so that they begin at an affine form
and are of constant length, as the indices and shapes of local buffers want it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, constant, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_of, map_accesses
from tensorexpr.codegen.rewrites.paths import Path, statement
from tensorexpr.codegen.rewrites.touched.places import by_axes, conditions_around, loops_around
from tensorexpr.integers import Affine, Domain, DomainTooComplex, at_most, eq, ge, lt
from tensorexpr.ir import Access, Apply, Axis, Expr, const
from tensorexpr.records import record
from tensorexpr.regions import Opaque, affine_of, domain_of, expression_of, with_constraints
from tensorexpr.traversal import children, free_names, negate, tensors_read

STEPS = 20_000
"""Steps of the solver for one load; where that takes more the axis is taken whole (`integers.effort`)."""

_ELEMENT = "the element"


def element_names(rank: int) -> tuple[str, ...]:
    """Names of the indices of an element in integer sets, which no loop has."""
    return tuple(f"{_ELEMENT} {axis}" for axis in range(rank))


@record
class Window:
    """`length` elements of an axis from `low` on, which may reach beyond both ends; `whole`: all of them."""

    low: Expr
    length: Expr
    whole: bool = False

    @property
    def is_point(self) -> bool:
        """Whether it is one element."""
        return not self.whole and constant(self.length) == 1


@record
class _Span:
    """What one load reads along an axis: from the greatest of `lows` up to the least of `highs`."""

    lows: tuple[Affine, ...]
    highs: tuple[Affine, ...]


def windows(nest: LoopNest, at: Path, loads: Iterable[Path], buffer: Buffer, inside: bool = True) -> tuple[Window, ...]:
    """For each axis of a buffer the window that holds what is touched of it at some places in one iteration of the loop at a path; without
    `inside`, in the whole statement there."""
    found: list[list[_Span | None]] = [[] for _ in buffer.shape]
    opaque, sizes = Opaque(), dict.fromkeys(nest.sizes)
    around = [*loops_around(nest, at), *((statement(nest, at),) if inside else ())]
    axes = [Axis(s.index, s.start, s.stop) for s in around if isinstance(s, For)]
    context = domain_of(axes, conditions_around(nest, at), opaque).domain
    for load in dict.fromkeys(loads):
        inner = [Axis(s.index, s.start, s.stop) for s in loops_around(nest, load, len(at) + inside)]
        for access, conditions in _touched(nest, load, buffer.name):
            guards = (*conditions_around(nest, load), *conditions)
            for axis, (index, extent) in enumerate(zip(by_axes(buffer, access).indices, buffer.shape, strict=True)):
                found[axis].append(_span(index, extent, axes, inner, guards, opaque))
    return tuple(_window(spans, extent, context, list(sizes), opaque) for spans, extent in zip(found, buffer.shape, strict=True))


def _touched(nest: LoopNest, path: Path, buffer: str) -> Iterator[tuple[Access, tuple[Expr, ...]]]:
    """The elements of a buffer that a statement itself touches, each with the conditions of the choices that it stands in."""
    s = statement(nest, path)
    if isinstance(s, Store) and s.buffer == buffer:
        yield Access(buffer, s.indices, s.value.dtype), ()
    yield from elements_under(s, buffer)


def elements_under(s: Stmt, buffer: str) -> Iterator[tuple[Access, tuple[Expr, ...]]]:
    """The elements of a buffer that a statement itself reads, each with the conditions of the choices that it stands in."""
    todo: list[tuple[Expr, tuple[Expr, ...]]] = [(e, ()) for e in expressions_of(s)]
    while todo:
        expr, conditions = todo.pop()
        if isinstance(expr, Access) and expr.tensor == buffer:
            yield expr, conditions
        if isinstance(expr, Apply) and expr.op.name == "where":
            test, taken, otherwise = expr.args
            todo += [(test, conditions), (taken, (*conditions, test)), (otherwise, (*conditions, negate(test)))]
        else:
            todo += [(child, conditions) for child in children(expr)]


def _span(index: Expr, extent: Expr, axes: list[Axis], inner: list[Axis], guards: tuple[Expr, ...], opaque: Opaque) -> _Span | None:
    """What an index goes through in one iteration; None where that has no bounds."""
    form, end = affine_of(index, opaque), affine_of(extent, opaque)
    names = {axis.index for axis in (*axes, *inner)}
    close = {n for e in (index, extent) for n in free_names(e)}
    guards = tuple(g for g in guards if not {n for n in free_names(g)}.isdisjoint(close | names) and not _reads(g))
    assert form is not None and end is not None
    try:
        with at_most(STEPS):
            region = domain_of([*axes, *inner], guards, opaque).domain
            domain = Domain((*region.dims, _ELEMENT), region.constraints, region.sizes)
            domain = with_constraints(domain, [eq(_ELEMENT, form), ge(_ELEMENT, 0), lt(_ELEMENT, end)])
            hidden = opaque.expressions
            moving = {axis.index for axis in inner}
            loose = [n for n in domain.sizes if n in hidden and (_reads(hidden[n]) or not moving.isdisjoint(free_names(hidden[n])))]
            found = domain.bounds(_ELEMENT, [*(axis.index for axis in inner), *loose])
    except DomainTooComplex:
        return None
    lows = tuple(-(-e // divisor) for e, divisor in found.lowers)
    highs = tuple(e // divisor for e, divisor in found.uppers)
    return _Span(lows, highs) if lows and highs else None


def _reads(expr: Expr) -> bool:
    return bool(tensors_read(expr))


def _window(spans: list[_Span | None], extent: Expr, context: Domain, sizes: list[str], opaque: Opaque) -> Window:
    whole = Window(ZERO, extent, True)
    known = [span for span in spans if span is not None]
    if not spans or len(known) < len(spans):
        return whole
    best: tuple[int, bool, Affine] | None = None
    for start in dict.fromkeys(low for span in known for low in span.lows):
        before = [_most((start - low for low in span.lows), context) for span in known]
        behind = [_most((high - start for high in span.highs), context) for span in known]
        if any(n is None for n in (*before, *behind)):
            continue
        back = max(0, *(n for n in before if n is not None))
        length = back + max(0, *(n for n in behind if n is not None)) + 1
        candidate = length, start.is_constant, start - back
        if best is None or candidate[:2] < best[:2]:
            best = candidate
    most = constant(extent)
    if best is None or (most is not None and best[0] >= most and (best[1] or most != 1)):
        return whole
    return Window(expression_of(best[2], sizes, opaque), const(best[0]))


def _most(forms: Iterable[Affine], context: Domain) -> int | None:
    """The least of the greatest values of some forms at the points of a domain, where they have one."""
    found: list[int] = []
    for form in forms:
        if form.is_constant:
            found.append(form.constant)
            continue
        most = with_constraints(context, (), form.names()).range(form)[1]
        if most is not None:
            found.append(most)
    return min(found, default=None)


def framed(buffer: Buffer, name: str, frame: tuple[Window, ...], block: Block) -> Alloc:
    """A block with a local buffer of windows of another one, and the elements of that one from there; an axis of one element is gone."""

    def moved(access: Access) -> Access:
        if access.tensor != buffer.name:
            return access
        return Access(name, tuple(sub(i, w.low) for i, w in zip(access.indices, frame, strict=True) if not w.is_point), access.dtype)

    shape = tuple(w.length for w in frame if not w.is_point)
    return Alloc(Buffer(name, buffer.dtype, shape, "local", buffer.within), map_accesses(block, moved))
