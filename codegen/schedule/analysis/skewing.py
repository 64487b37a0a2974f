"""The primitive `skew`: several steps of a scan in one pass over its states, each a few rows behind the one before.

A step of a stencil needs, for a row, a few rows of the step before. Step after step, every one of them goes through memory from end
to end. Skewed, the loop over rows stands around the steps: where it is at row y, step s works on row y - s * behind, whose rows of step
s - 1 have been made by then and are still near. What lies between two steps is a ring of a few rows for each:

    for t: for i: S[t, i] = f(S[t - 1, i - 1 .. i + 1])
    -->  for block of rows: for y: for s: R[s, (y - s) % 3] = f(R[s - 1, (y - s - 1) % 3 .. (y - s + 1) % 3])

Blocks of rows are independent of each other, since a block computes for itself what its steps need beyond its borders: fewer rows with
every step. All that is proved from the distances along the rows at which the body reads its states; what a step computes at a point
is the same to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tensorexpr.bounds import implied
from tensorexpr.codegen.schedule.analysis.rings import last_entries
from tensorexpr.codegen.schedule.analysis.state import SERIAL, Skew, Stage, State, program_facts
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Axis, Const, Define, Expr, Index, Scan, apply, const, integer
from tensorexpr.records import record, replace
from tensorexpr.regions import affine_of
from tensorexpr.text import print_expr
from tensorexpr.traversal import read_occurrences

FARTHEST = 64
"""Rows at which a step may read from its own: a ring is that long."""
NEAREST = 4
"""Rows up to which a distance is sought that is not affine (that of a read clamped at the border, say)."""


@record
class Row:
    """A definition of the body: its axis along the rows and their number; how many rows behind the first of its step it works, how many
    rows beyond a block its last step needs at either end, and how many rows of it are kept."""

    axis: str
    extent: int
    behind: int
    before: int
    after: int
    kept: int


@record
class Wave:
    """How the steps of a scan follow each other: a step works `behind` rows behind the one before, and needs so many rows more of it
    `before` and `after` its own."""

    behind: int
    before: int
    after: int
    rows: Mapping[str, Row]

    def bytes_of(self, scan: Scan, steps: int) -> int:
        """The bytes of all rings, for so many steps in a pass."""
        return sum(
            steps * self.rows[d.name].kept * math.prod(integer(a.stop) for a in d.axes[1:]) * d.value.dtype.itemsize
            for d in scan.body
            if isinstance(d, Define)
        )


def skew(state: State, name: str, steps: int, rows: int) -> State:
    """rewrite: for t: for i: S[t, i] = f(S[t - 1, i - 1 .. i + 1]) --> for block of rows: for y: for s: S[s, y - s] = f(S[s - 1, ...])

    Passes of `steps` steps each, in blocks of `rows` rows, which run on all cores where the loops over rows are parallel. The first
    axis of everything in the body is that of the rows, its outermost loop.
    """
    found = program_facts(state.program).definitions.get(name)
    if not isinstance(found, Scan) or found not in state.program.definitions or found.names[0] != name:
        raise ScheduleError(f"expected the first name of a scan outside of others, got {name!r}", term=f"skew {name}")
    refuse = _refusal(name)
    length = found.length
    most = integer(length) if isinstance(length, Const) else 0
    if not isinstance(steps, int) or isinstance(steps, bool) or not 2 <= steps <= most:
        raise refuse(f"expected 2 to {most} steps in a pass, got {steps!r}", None if most else "the scan needs a constant length")
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise refuse(f"expected a positive number of rows, got {rows!r}")
    if state.target.is_gpu:
        raise refuse("expected a CPU, whose cores each keep the rows of a few steps near, got a GPU")
    wave = wave_of(state, found)
    for definition in found.body:
        stage = state.stage(definition.results[0][0])
        changed = replace(stage, skewed=Skew(name, wave.rows[stage.name].axis, steps, rows))
        state = state.with_stage(check_skewed(changed))
    return state


def _refusal(name: str) -> Callable[..., ScheduleError]:
    return lambda message, hint=None: ScheduleError(message, term=f"skew {name}", hint=hint)


def check_skewed(stage: Stage) -> Stage:
    """Gives the stage back; raises `ScheduleError` where its steps are skewed and the loop over rows is not outermost."""
    skewed = stage.skewed
    if skewed is None or (stage.order[:1] == (skewed.axis,) and stage.kind(skewed.axis) in (SERIAL, "parallel")):
        return stage
    raise _refusal(skewed.scan)(
        f"expected the rows of {stage.name}, {skewed.axis}, as its outermost loop, serial or parallel, got {', '.join(stage.order)}"
    )


def wave_of(state: State, scan: Scan) -> Wave:
    """How the steps of a scan may follow each other; raises `ScheduleError` where they cannot be skewed."""
    refuse = _refusal(scan.names[0])
    last = last_entries(state.program)
    kept = next((n for n in scan.names if n not in last), None)
    if kept is not None:
        raise refuse(f"expected a scan of which the last entry alone is read, got {kept}, of which others are")
    body: list[Define] = []
    for definition in scan.body:
        if not isinstance(definition, Define) or not definition.axes or not all(isinstance(a.stop, Const) for a in definition.axes):
            raise refuse(f"expected rows of constant extents in the body, got {definition.results[0][0]}")
        body.append(definition)
    made = {d.name: d for d in body}
    if len(set(scan.nexts)) != len(scan.nexts) or not set(scan.nexts) <= set(made):
        raise refuse("expected every next state to be a definition of its own in the body")
    if len({integer(made[n].axes[0].stop) for n in scan.nexts}) != 1:
        raise refuse("expected states with one number of rows")
    following = {formal: following for (formal, _), following in zip(scan.states, scan.nexts, strict=True)}
    inner: list[tuple[Define, str, int, int]] = []
    """Who reads which definition of the same step, and how far before and after its own row."""
    outer: list[tuple[Define, str, int, int]] = []
    """The same for definitions of the step before, which the states are."""
    for definition in body:
        for access, axes, guards in read_occurrences(definition.value, definition.axes):
            if access.tensor in made or access.tensor in following:
                low, high = _distance(access.indices[0], definition.axes[0].index, axes, guards, refuse)
                if access.tensor in made:
                    inner.append((definition, access.tensor, low, high))
                else:
                    outer.append((definition, following[access.tensor], low, high))
    wrong = next((n for d, n, _, _ in inner if n in scan.nexts), None)
    if wrong is not None:
        raise refuse(f"expected next states that nothing else in the body reads, got {wrong}")
    behind: dict[str, int] = {}
    for d in body:
        behind[d.name] = max([0, *(behind[n] + high for reader, n, _, high in inner if reader is d)])
    before = dict.fromkeys(made, 0)
    after = dict.fromkeys(made, 0)
    for d in reversed(body):
        for reader, n, low, high in inner:
            if n == d.name:
                before[n] = max(before[n], before[reader.name] - low)
                after[n] = max(after[n], after[reader.name] + high)
    late = max([0, *(behind[n] + high - behind[d.name] for d, n, _, high in outer)])
    kept_rows = dict.fromkeys(made, 1)
    for readers, more in ((inner, 0), (outer, late)):
        for d, n, low, _ in readers:
            kept_rows[n] = max(kept_rows[n], more + behind[d.name] - behind[n] - low + 1)
    if max(kept_rows.values()) > FARTHEST:
        raise refuse(f"expected steps that read at most {FARTHEST} rows of what they need, got {max(kept_rows.values())}")
    return Wave(
        late,
        max([0, *(before[d.name] - low for d, _, low, _ in outer)]),
        max([0, *(after[d.name] + high for d, _, _, high in outer)]),
        {n: Row(d.axes[0].index, integer(d.axes[0].stop), behind[n], before[n], after[n], kept_rows[n]) for n, d in made.items()},
    )


def _distance(
    index: Expr, row: str, axes: tuple[Axis, ...], guards: tuple[Expr, ...], refuse: Callable[..., ScheduleError]
) -> tuple[int, int]:
    """How far from its own row, at least and at most, a definition reads there."""
    form = affine_of(apply("sub", index, Index(row)))
    box = {a.index: (integer(a.start), integer(a.stop) - 1) for a in axes if isinstance(a.start, Const) and isinstance(a.stop, Const)}
    low, high = (None, None) if form is None else form.interval(box)
    if low is None or high is None or max(-low, high) >= FARTHEST:
        low = _nearest(lambda c: apply("ge", index, apply("sub", Index(row), const(c))), axes, guards)
        high = _nearest(lambda c: apply("le", index, apply("add", Index(row), const(c))), axes, guards)
        if low is None or high is None:
            raise refuse(f"expected reads of states a few rows from their own, got one at {print_expr(index)}")
        low = -low
    return min(low, 0), max(high, 0)


def _nearest(condition: Callable[[int], Expr], axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> int | None:
    return next((c for c in range(NEAREST + 1) if implied(condition(c), axes, guards)), None)
