"""Ops that are called with many lengths: after some of them code for all lengths, beside the code for those that were met.

What calls have in common (dtypes, ranks, static arguments) is a *family*. Its first choices of extents are compiled each for itself. Then
the axes whose extents differed are opened: an extent that has always been an expression of others (the same, `n - 2`, `(n - 1) // 2`,
`n * m`) is that expression, any other one a size of its own. Calls whose extents are of this form run the open function, and all others are
compiled for themselves, as before. Which code a choice of extents runs is decided when it is first met, so equal calls give equal bits.

No extent of an op's own is special to an open function: where the op asks more of an extent than is known (a condition or a look-up in
Python, a bound), its definition is refused, and nothing is opened. Extents of 0 and 1 are compiled for themselves, as those are what bodies
ask for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tensorexpr.building.environment import number_of
from tensorexpr.building.fallback import strict
from tensorexpr.errors import InternalError, TensorExprError
from tensorexpr.language import dim
from tensorexpr.language.core.scalar import standing_for_numbers
from tensorexpr.records import record

if TYPE_CHECKING:
    from tensorexpr.codegen.compiled.function import CompiledFunction

LENGTHS = 8
"""Choices of extents that a family is compiled for by themselves, where `TENSOREXPR_LENGTHS` does not say how many: those of the layers of
a network come back again and again, and code for them alone is the fastest."""
SMALL = 2
"""The least extent of an axis that is opened."""
STEPS = (2, 3, 4)
"""Steps of windows that an extent may have been divided by."""
_VARIABLE = "TENSOREXPR_LENGTHS"

Shapes: TypeAlias = tuple[tuple[int, ...], ...]


class Ready(NamedTuple):
    """A compiled signature: the function on flat arguments, and the tree of its results (None where it is flat already); of an open
    function also what compiles it `alone`, for these extents, as where it refuses a call."""

    function: CompiledFunction
    tree: Any
    alone: Callable[[], Ready] | None = None

    def run(self, arrays: Sequence[Any], out: Any) -> Any:
        """The flat results; where an open function fails, those of code for these extents alone, or its words."""
        try:
            return self.function(*arrays, out=out)
        except TensorExprError:
            if self.alone is None:
                raise
        return self.alone().run(arrays, out)


Make: TypeAlias = Callable[[Sequence[tuple[Any, ...]]], Ready]


class Form(NamedTuple):
    """An extent as an expression of others, by its kind: `(first, ...)` are positions among all extents of a call."""

    kind: str
    axes: tuple[int, ...]
    factor: int = 1
    constant: int = 0

    def of(self, extents: Sequence[Any]) -> Any:
        """The extent, of those that it is made of."""
        first = extents[self.axes[0]]
        if self.kind == "linear":
            scaled = first if self.factor == 1 else first * self.factor
            return scaled + self.constant if self.constant else scaled
        if self.kind == "divided":
            return (first + self.constant) // self.factor
        second = extents[self.axes[1]]
        return first * second if self.kind == "product" else first + second + self.constant


class Opened(NamedTuple):
    """An open function: what its extents are, a number, a form, or None where it is a size, and the least that sizes may be."""

    extents: tuple[int | Form | None, ...]
    least: int
    ready: Ready

    def takes(self, extents: Sequence[int]) -> bool:
        """Whether extents are of its form."""
        return all(
            extent >= self.least if what is None else extent == (what if isinstance(what, int) else what.of(extents))
            for what, extent in zip(self.extents, extents, strict=True)
        )


class Sample(NamedTuple):
    """A choice of extents and what was compiled for it alone."""

    shapes: Shapes
    ready: Ready


@record(frozen=False, eq=False)
class Family:
    """What a family was compiled for: choices of extents by themselves since it was last opened, the last of them, and open functions.
    `closed`: it is being opened, or cannot be."""

    met: list[tuple[int, ...]]
    opened: list[Opened]
    sample: Sample | None = None
    closed: bool = False


class Lengths:
    """The families of an op."""

    def __init__(self) -> None:
        self._families: dict[Hashable, Family] = {}
        self._lock = threading.Lock()

    def ready(self, family: Hashable, shapes: Shapes, make: Make) -> Ready:
        """The compiled signature for arrays of these shapes, which are new to a family; `make` compiles for some. Raises what compiling for
        these shapes does."""
        extents = tuple(extent for shape in shapes for extent in shape)
        most = _most()
        if not most or not extents:
            return make(shapes)
        with self._lock:
            known = self._families.setdefault(family, Family([], []))
            met = _large([*known.met, extents])
            ripe = len(met) > most and not known.closed
            known.closed |= ripe  # while one thread opens it others compile for themselves
        if ripe and known.sample is not None and (found := _opened(met, known.sample, make, known.opened)) is not None:
            with self._lock:
                known.opened.append(found)
                known.met.clear()
                known.closed = False
        for found in known.opened:
            if found.takes(extents) and _results(found.ready, shapes) is not None:
                return found.ready._replace(alone=lambda: make(shapes))
        made = make(shapes)
        with self._lock:
            known.met.append(extents)
            known.sample = Sample(shapes, made)
        return made


def _large(met: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The choices without those that have a small extent where others have another one."""
    one = [len(set(column)) == 1 for column in zip(*met, strict=True)]
    return [choice for choice in met if all(extent >= SMALL or alike for extent, alike in zip(choice, one, strict=True))]


def _opened(met: Sequence[tuple[int, ...]], sample: Sample, make: Make, others: Sequence[Opened]) -> Opened | None:
    """The function whose open axes are those in which extents differ; None where the op does not allow it, or where there is one."""
    what = tuple(_forms(met))
    if any(other.extents == what for other in others):
        return None
    for least in sorted({SMALL, min(min(choice[k] for choice in met) for k, form in enumerate(what) if form is None)}):
        sizes: list[Any] = []
        for k, form in enumerate(what):
            sizes.append(dim(f"n{k}", min=least) if form is None else form if isinstance(form, int) else form.of(sizes))
        extents = iter(sizes)
        try:
            with standing_for_numbers():
                ready = make([tuple(next(extents) for _ in shape) for shape in sample.shapes])
        except InternalError:
            if strict():
                raise
            return None
        except (TensorExprError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            continue  # it asks more of extents
        found = Opened(what, least, ready)
        given = tuple(extent for shape in sample.shapes for extent in shape)
        if not found.takes(given) or (
            ready.tree == sample.ready.tree and _results(ready, sample.shapes) == _results(sample.ready, sample.shapes)
        ):
            return found
    return None


def _forms(met: Sequence[tuple[int, ...]]) -> Iterator[int | Form | None]:
    """What each extent is in all these choices: a number, an expression of sizes before it, or a size."""
    columns = list(zip(*met, strict=True))
    sizes: list[int] = []
    for k, column in enumerate(columns):
        if len(set(column)) == 1:
            yield column[0]
        elif (form := _form(column, columns, sizes)) is not None:
            yield form
        else:
            sizes.append(k)
            yield None


def _form(column: Sequence[int], columns: Sequence[Sequence[int]], sizes: Sequence[int]) -> Form | None:
    for a in sizes:
        (low, x), (high, y) = min(zip(columns[a], column, strict=True)), max(zip(columns[a], column, strict=True))
        slope = (y - x) // (high - low)
        candidates = [Form("linear", (a,), slope, x - slope * low)] if slope > 0 else []
        # (low + c) // step is x for `step` values of c
        candidates += [Form("divided", (a,), step, x * step - low + k) for step in STEPS for k in range(step)]
        for form in candidates:
            if _is_always(form, column, columns):
                return form
    for a, b in combinations(sizes, 2):
        for form in (Form("sum", (a, b), 1, column[0] - columns[a][0] - columns[b][0]), Form("product", (a, b))):
            if _is_always(form, column, columns):
                return form
    return None


def _is_always(form: Form, column: Sequence[int], columns: Sequence[Sequence[int]]) -> bool:
    return all(form.of(choice) == extent for choice, extent in zip(zip(*columns, strict=True), column, strict=True))


def _results(ready: Ready, shapes: Shapes) -> object:
    """Shapes and types of the results for arrays of these shapes; None where they are refused."""
    try:
        return ready.function.layout(shapes).outputs
    except TensorExprError:
        return None


def _most() -> int:
    """How many choices of extents are compiled for themselves; 0: all of them."""
    said = number_of(_VARIABLE, "a number of lengths", hint=f"{_VARIABLE}=0 has ops compiled for each choice of extents")
    return LENGTHS if said is None else said
