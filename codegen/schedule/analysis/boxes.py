"""The box of a tensor that an iteration of a loop reads, axis by axis: where it begins, and how long it is.

Each read asks for elements from the least to the greatest value of its index over what runs inside of the loop: reductions, axes of the
reader that are open there or stand in a block. Where all reads begin and end at a constant distance from one form of what is known in
the loop, the elements between are a window of constant length:

    y[i] = b[i] + b[i + 1] + b[i + 2], i in blocks of 32      -->      b from 32 * i_o, 34 elements

A window that would leave the tensor is moved back into it, so that its length stays constant. What is not needed there is computed, too.
An index that is clamped to the tensor then asks for what lies in the window of the index as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorexpr.codegen.schedule.analysis.windows import alternatives, widest
from tensorexpr.codegen.schedule.analysis.work import has_reduction
from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.integers.forms.affine import Interval
from tensorexpr.ir import Apply, Axis, Const, Expr, apply, const, integer
from tensorexpr.records import field, record
from tensorexpr.regions import affine_of, expression_of
from tensorexpr.traversal import Read, free_names, read_occurrences, substitute

MOST_FORMS = 4
"""How many forms of a bound are looked at, where loops begin at the greatest or end at the least of several."""


Ranges = Mapping[str, tuple[Affine | None, Affine | None]]
"""The least and the greatest value of names; None where there is no such form."""


def reads_tensors(expr: Expr) -> bool:
    """Whether a value depends on what tensors hold."""
    return any(True for _ in read_occurrences(expr, ()))


@record
class Span:
    """What a read asks for along one axis: at least one of `lows` up to one of `highs`, each of which bounds it."""

    lows: tuple[Affine, ...]
    highs: tuple[Affine, ...]


@record
class Window:
    """`length` elements of an axis from `begin` on."""

    begin: Expr
    length: int


@record
class Known:
    """What the axes of a definition are where it is computed: `points` as expressions of axes around, `spans` as they range over these (and
    sizes, and the begins of windows), where they do."""

    points: Mapping[str, Expr] = field(default_factory=dict)
    spans: Ranges = field(default_factory=dict)


@record
class Begin:
    """Where a window begins that is computed in `loop`: an expression, from 0 to `last`."""

    loop: str
    value: Expr
    last: int


@record
class Asked:
    """A read of a tensor in the loops of another definition, by one of which this is `known`."""

    read: Read
    known: Known

    def point(self, axis: int) -> Expr | None:
        """The index along an axis over what is known; None where it is over something else."""
        index, points = self.read.access.indices[axis], self.known.points
        if not set(free_names(index)) <= set(points) or reads_tensors(index) or has_reduction(index):
            return None
        return substitute(index, points)

    def span(self, axis: int, extent: Expr) -> Span | None:
        """The least and the greatest index along an axis; None where it is not affine, but for a clamp to the extent of the axis."""
        return _span(unclamped(self.read.access.indices[axis], extent), self.read.axes, self.known)


def unclamped(index: Expr, extent: Expr) -> Expr:
    """An index before it is clamped to a tensor: what it asks for lies in the window of that, moved back into the tensor."""
    while isinstance(index, Apply) and index.op.name in ("minimum", "maximum") and isinstance(extent, Const):
        inner, bound = index.args
        if bound != (const(integer(extent) - 1) if index.op.name == "minimum" else const(0)):
            break
        index = inner
    return index


def _span(index: Expr, axes: tuple[Axis, ...], known: Known) -> Span | None:
    form = affine_of(index)
    if form is None:
        return None
    lows, highs = [form], [form]
    for axis in reversed(axes):
        if not any(axis.index in f.names() for f in (*lows, *highs)):
            continue
        starts = _forms(alternatives(axis.start, "maximum"), 0)
        ends = _forms(alternatives(axis.stop, "minimum"), -1)
        pairs = [(start, end) for start in starts for end in ends]
        lows = _kept(_extreme(form, {axis.index: pair}, False) for form in lows for pair in pairs)
        highs = _kept(_extreme(form, {axis.index: pair}, True) for form in highs for pair in pairs)
    return _over(known.spans, lows, highs)


def _over(ranges: Ranges, lows: Iterable[Affine], highs: Iterable[Affine]) -> Span | None:
    """The span of forms over the ranges of some names; None where they have no such ends."""
    least, greatest = _kept(_extreme(f, ranges, False) for f in lows), _kept(_extreme(f, ranges, True) for f in highs)
    return Span(tuple(least), tuple(greatest)) if least and greatest else None


def _forms(bounds: Iterable[Expr], more: int) -> list[Affine]:
    found = (affine_of(e) for e in bounds)
    return [form + more for form in found if form is not None]


def _kept(forms: Iterable[Affine | None]) -> list[Affine]:
    return list(dict.fromkeys(form for form in forms if form is not None))[:MOST_FORMS]


def _extreme(form: Affine, ranges: Ranges, greatest: bool) -> Affine | None:
    """The form at the end of the `ranges` of some names where it is greatest, or least; None where it has no such end."""
    total = Affine.of(form.constant)
    for atom, factor in form.terms:
        up = greatest == (factor > 0)
        part: Affine | None
        if isinstance(atom, FloorDiv):
            part = _extreme(atom.numerator, ranges, up)
            part = None if part is None else part // atom.denominator
        else:
            part = ranges[atom][up] if atom in ranges else Affine.of(atom)
        if part is None:
            return None
        total = total + part * factor
    return total


@record
class Site:
    """A loop that something is computed in: the axes around that are settled there, those in blocks of so many iterations (and whether all
    are as long), all others with their bounds, the sizes of the program, and windows that begin there or further in."""

    loop: str
    settled: frozenset[str]
    blocks: Mapping[str, tuple[int, bool]]
    axes: Mapping[str, Axis]
    sizes: frozenset[str]
    begins: Mapping[str, Begin]

    def window(self, spans: Iterable[Span | None], extent: Expr) -> Window | None:
        """The window of an axis that holds all spans; None where there is none that depends on the loop and is shorter than the axis."""
        if not isinstance(extent, Const):
            return None
        found = [None if span is None else self.ranged(span) for span in spans]
        ranged = [span for span in found if span is not None]
        if not found or len(ranged) < len(found):
            return None
        best: tuple[int, Affine] | None = None
        for start in dict.fromkeys(low for span in ranged for low in span.lows):
            before = [_least(start - low for low in span.lows) for span in ranged]
            behind = [_least(high - start for high in span.highs) for span in ranged]
            if start.is_constant or any(n is None for n in (*before, *behind)):
                continue
            back = max(n for n in before if n is not None)
            length = back + max(n for n in behind if n is not None) + 1
            if best is None or length < best[0]:
                best = length, start - back
        if best is None or not 0 < best[0] < integer(extent):
            return None
        return Window(self.within(best[1], integer(extent) - best[0]), best[0])

    def ranged(self, span: Span) -> Span | None:
        """A span over the points of the loops inside, in names that have one value in an iteration."""
        names = [n for form in (*span.lows, *span.highs) for n in form.names()]
        begins = {n: (self.begins[n], affine_of(self.begins[n].value)) for n in names if n in self.begins}
        settled = {n for n, (_, form) in begins.items() if form is not None and set(form.names()) <= self.settled}
        further = {n: form for n, (begin, form) in begins.items() if begin.loop != self.loop or n in settled}
        if further:
            found = _over({n: (begin, begin) for n, begin in further.items()}, span.lows, span.highs)
            return None if found is None else self.ranged(found)
        return _over({n: self.range(n) for n in names if n in self.axes and n not in self.settled}, span.lows, span.highs)

    def range(self, name: str) -> tuple[Affine | None, Affine | None]:
        """The values of an axis that the loops inside visit in an iteration."""
        if name in self.blocks:
            return Affine.of(name), Affine.of(name) + (self.blocks[name][0] - 1)
        start, stop = self.axes[name].start, self.axes[name].stop
        if not isinstance(start, Const) or not isinstance(stop, Const):
            return None, None
        return Affine.of(integer(start)), Affine.of(integer(stop) - 1)

    def within(self, begin: Affine, last: int) -> Expr:
        """Where a window begins, moved so that it is in the tensor, whose last window begins at `last`."""
        low, high = begin.interval({name: self.interval(name) for name in begin.names()})
        expr = substitute(expression_of(begin, self.sizes), {n: self.begins[n].value for n in begin.names() if n in self.begins})
        if high is None or high > last:
            expr = apply("minimum", expr, const(last))
        return apply("maximum", expr, const(0)) if low is None or low < 0 else expr

    def interval(self, name: str) -> Interval:
        """The values of a name at the begin of an iteration."""
        if name in self.begins:
            return 0, self.begins[name].last
        if name not in self.axes:
            return 0, None
        start, stop = ((integer(e) if isinstance(e, Const) else None) for e in (self.axes[name].start, self.axes[name].stop))
        length, whole = self.blocks.get(name, (1, True))
        return start, None if stop is None or not whole else stop - length


def _least(forms: Iterable[Affine]) -> int | None:
    """The least constant that bounds one of the forms."""
    return min((n for n in map(widest, forms) if n is not None), default=None)
