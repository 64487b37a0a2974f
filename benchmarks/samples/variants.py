"""Other ways to write an operation, by rule: the same mathematics at other extents, in other layouts, in other words.

Each rule takes a sample and gives one `Variant`, or says why it does not apply. Rules that only say things differently (`SAME`) have to
give the values of the base: the law of `tests/benchmarks/test_variants.py`, forward and gradient. Rules that change the mathematics
(other extents, other borders) are compared per unit of work, which is counted from both programs.

- primes: every extent above eight that can change is the largest prime up to it.
- batch: another leading axis of two on all inputs; batch of the largest: on the inputs that have at least half as many elements as the
  largest one, which share the others.
- unit axis first, unit axis last: an axis of one element in every tensor.
- operands transposed: the last two axes of every input are stored the other way around; turned: the last axis of every tensor, results
  among them, is stored first, so what was summed along the last axis is summed along the first.
- split: an extent of sixteen and more in two, in every tensor and loop; merged: the first two axes of every input and output in one.
- inline: intermediate tensors are written where they are read, those that hold no reduction; all inline: these, too.
- named: what a sum or a result computes of fewer indices than it has is a tensor of its own.
- border zero, clamp, reflect, symmetric, wrap: what reads beyond the edge give; windows without a border begin one element before.
- open: every extent that can make it larger (no window) is an open size; open rows: only the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks.samples import growth
from tensorexpr.benchmarks.samples.sample import Sample, Shape, Traced
from tensorexpr.benchmarks.samples.speaking import AS_IT_IS, MODES, Layout, Speaker, Unspoken, Words, integer_or_none
from tensorexpr.errors import TensorExprError
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Define, Expr, Index, Program, Reduce, Scan
from tensorexpr.ir import integer as integer_of
from tensorexpr.language import program_of
from tensorexpr.traversal import children, expressions, free_names, walk

LEAST_PRIME = 8
"""Extents up to this one are windows and channels of pixels: they stay."""
LEAST_SPLIT = 16
"""The least extent that is written in two."""
REPEATED = 2
"""The extent of another leading axis."""
NODES = 2000
"""As many nodes as an expression may have when everything is written where it is read."""


class DoesNotApply(Exception):
    """Why a rule gives nothing for a sample."""


@dataclass(frozen=True)
class Variant:
    """A sample written in another way: its tensors, and how arrays for it are made of those of the base.

    `times` is how often it does the work of the base, None where the work is another (it is counted). `sizes` are numbers for its open
    extents. `own` are arrays where those of the base do not fit.
    """

    traced: Traced
    times: int | None = 1
    inputs: Sequence[Layout] = ()
    outputs: Sequence[Layout] = ()
    repeated: frozenset[int] = frozenset()
    """The positions of the inputs that a leading axis repeats."""
    batch: int = 0
    steps: frozenset[int] = frozenset()
    """The positions of the outputs whose first axis, the steps of a scan, stays in front of the leading one."""
    own: Sample | None = None
    open: bool = False
    """Whether extents are open."""
    versions: bool = True
    """Whether code may be made for the sizes of the calls, where extents are open; else it is that for all sizes."""

    def arrays(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Its inputs, from those of the base."""
        if self.own is not None:
            return self.own.draw()
        return [self._stored(array, self.inputs[k] if self.inputs else AS_IT_IS, k in self.repeated) for k, array in enumerate(arrays)]

    def results(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What its outputs (or heads for them) are, from those of the base."""
        found = []
        for k, array in enumerate(arrays):
            stored = self._stored(array, self.outputs[k] if self.outputs else AS_IT_IS, bool(self.batch))
            found.append(np.ascontiguousarray(np.moveaxis(stored, 0, 1)) if k in self.steps else stored)
        return found

    def gradients(self, arrays: Sequence[np.ndarray], floating: Sequence[int]) -> list[np.ndarray]:
        """What the gradients by the inputs at `floating` are, from those of the base: of inputs that are shared, so often as much."""
        found = []
        for k, array in zip(floating, arrays, strict=True):
            stored = self._stored(array, self.inputs[k] if self.inputs else AS_IT_IS, k in self.repeated)
            found.append(stored if not self.batch or k in self.repeated else stored * np.asarray(self.batch, stored.dtype))
        return found

    def _stored(self, array: np.ndarray, layout: Layout, repeated: bool) -> np.ndarray:
        stored = layout.array(array)
        return np.ascontiguousarray(np.broadcast_to(stored, (self.batch, *stored.shape))) if repeated else stored


def variant(sample: Sample, rule: str) -> Variant:
    """The sample as the rule writes it. Raises `DoesNotApply`."""
    try:
        return RULES[rule](sample)
    except Unspoken as error:
        raise DoesNotApply(f"has {error}") from None


def _program(sample: Sample) -> Program:
    traced = sample.traced()
    return program_of(traced.outputs, traced.inputs)


# ---------------------------------------------------------------------------------------------------- other extents


def _primes(sample: Sample) -> Variant:
    shapes = sample.shapes
    for joint in growth.joints(sample):
        extent = sample.shapes[joint[0][0]][joint[0][1]]
        if extent > LEAST_PRIME and sample.takes(tried := growth.changed(shapes, joint, growth.prime_up_to(extent))):
            shapes = tried
    if shapes == sample.shapes:
        raise DoesNotApply("no extent can change")
    other = sample.at(shapes)
    return Variant(other.traced(), None, own=other)


def _open(first_only: bool) -> Callable[[Sample], Variant]:
    def rule(sample: Sample) -> Variant:
        extents: list[list[int | te.Scalar]] = [list(shape) for shape in sample.shapes]
        found = growth.larger(sample, growth.joints(sample))
        if not found:
            raise DoesNotApply("no extent can change")
        opened = 0
        for number, joint in enumerate(found[:1] if first_only else found):
            tried = [list(shape) for shape in extents]
            size = te.dim(f"n{number}")
            for tensor, axis in joint:
                tried[tensor][axis] = size
            try:
                sample.traced([tuple(shape) for shape in tried])
            except (TensorExprError, ValueError, TypeError):
                continue
            extents, opened = tried, opened + 1
        if not opened:
            raise DoesNotApply("refuses open sizes")
        return Variant(sample.traced([tuple(shape) for shape in extents]), open=True)

    return rule


# ---------------------------------------------------------------------------------------------------- other layouts


def _batch(largest_only: bool) -> Callable[[Sample], Variant]:
    def rule(sample: Sample) -> Variant:
        program = _program(sample)
        sizes = [prod(shape) for shape in sample.shapes]
        chosen = frozenset(k for k, size in enumerate(sizes) if not largest_only or 2 * size >= max(sizes))
        if largest_only and len(chosen) == len(sizes):
            raise DoesNotApply("no input is small")
        words = Words(batch=REPEATED, batched=frozenset(program.inputs[k].name for k in chosen))
        speaker = Speaker(program, words)
        traced = speaker.spoken()
        if not set(program.outputs) <= speaker.batched:
            raise DoesNotApply("an output reads none of the largest inputs")
        steps = frozenset(k for k, name in enumerate(program.outputs) if name in speaker.stepped)
        return Variant(traced, REPEATED, repeated=chosen, batch=REPEATED, steps=steps)

    return rule


def _laid_out(program: Program, layouts: Mapping[str, Layout], split_loops: tuple[int, int] | None = None) -> Variant:
    if not layouts:
        raise DoesNotApply("no tensor has such axes")
    traced = Speaker(program, Words(layouts, split_loops=split_loops)).spoken()
    inputs = [layouts.get(item.name, AS_IT_IS) for item in program.inputs]
    return Variant(traced, inputs=inputs, outputs=[layouts.get(name, AS_IT_IS) for name in program.outputs])


def _unit(last: bool) -> Callable[[Sample], Variant]:
    def rule(sample: Sample) -> Variant:
        program = _program(sample)
        ranks = {name: rank for name, rank in _ranks(program).items() if rank}
        return _laid_out(program, {name: Layout(unit=rank if last else 0) for name, rank in ranks.items() if name not in _states(program)})

    return rule


def _transposed(sample: Sample) -> Variant:
    program = _program(sample)
    ranks, inits = _ranks(program), _states(program)
    names = [item.name for item in program.inputs if ranks[item.name] >= 2 and item.name not in inits]
    return _laid_out(program, {n: Layout(order=(*range(ranks[n] - 2), ranks[n] - 1, ranks[n] - 2)) for n in names})


def _turned(sample: Sample) -> Variant:
    program = _program(sample)
    inits = _states(program)
    ranks = {name: rank for name, rank in _ranks(program).items() if rank >= 2 and name not in inits}
    return _laid_out(program, {name: Layout(order=(rank - 1, *range(rank - 1))) for name, rank in ranks.items()})


def _split(sample: Sample) -> Variant:
    program = _program(sample)
    extent, inner = _to_split(program)
    layouts = {}
    for name, shape in _shapes(program).items():
        at = [axis for axis, n in enumerate(shape) if n == extent]
        if at and name not in _states(program):
            layouts[name] = Layout(split=(at[-1], inner))
    return _laid_out(program, layouts, (extent, inner))


def _to_split(program: Program) -> tuple[int, int]:
    """An extent of an input that is read by plain indices alone, and the inner one of two that make it: the largest of each."""
    shapes = _shapes(program)
    windowed = set()
    for definition in program.definitions:
        for value in expressions(definition):
            for node in walk(value):
                if isinstance(node, Access):
                    windowed |= {n for index, n in zip(node.indices, shapes[node.tensor], strict=False) if not isinstance(index, Index)}
    of_inputs = {n for item in program.inputs for n in map(integer_of, item.type.shape)}
    for extent in sorted(of_inputs - windowed, reverse=True):
        inner = next((n for n in range(isqrt(extent), 1, -1) if extent % n == 0), None)
        if extent >= LEAST_SPLIT and inner is not None:
            return extent, extent // inner
    raise DoesNotApply("no extent can be two")


def _merged(sample: Sample) -> Variant:
    program = _program(sample)
    shapes, inits = _shapes(program), _states(program)
    names = [*(item.name for item in program.inputs), *program.outputs]
    return _laid_out(program, {n: Layout(merged=(0, shapes[n][1])) for n in names if len(shapes[n]) >= 2 and n not in inits})


def _shapes(program: Program) -> dict[str, Shape]:
    """The shapes of all tensors that definitions make or read, those within scans among them."""
    found = {name: type_.shape for name, type_ in program.types.items()}
    for definition in program.definitions:
        if isinstance(definition, Scan):
            found |= {name: type_.shape for name, type_ in definition.states}
            found |= {name: type_.shape for inner in definition.body for name, type_ in inner.results}
    return {name: tuple(map(integer_of, shape)) for name, shape in found.items()}


def _ranks(program: Program) -> dict[str, int]:
    return {name: len(shape) for name, shape in _shapes(program).items()}


def _states(program: Program) -> set[str]:
    """Tensors in and around scans, and constants: stored as they are."""
    found = {constant.name for constant in program.constants}
    for definition in program.definitions:
        if isinstance(definition, Scan):
            found |= {*definition.inits, *definition.names, *(name for name, _ in definition.states)}
            found |= {name for inner in definition.body for name, _ in inner.results}
    return found


# ----------------------------------------------------------------------------------------------------- other words


def _inline(reductions: bool) -> Callable[[Sample], Variant]:
    def rule(sample: Sample) -> Variant:
        program = _program(sample)
        inits = _states(program)
        between = [d for d in program.definitions if isinstance(d, Define) and d.name not in program.outputs and d.name not in inits]
        reduced = {d.name for d in between if any(isinstance(node, Reduce) for node in walk(d.value))}
        chosen = frozenset(d.name for d in between if reductions or d.name not in reduced)
        if not chosen or (reductions and not reduced):
            raise DoesNotApply("no such intermediate tensors")
        sizes: dict[str, int] = {}
        for definition in program.definitions:
            if isinstance(definition, Define):
                nodes = list(walk(definition.value))
                sizes[definition.name] = len(nodes) + sum(sizes[n.tensor] for n in nodes if isinstance(n, Access) and n.tensor in chosen)
        if max(sizes.values(), default=0) > NODES:
            raise DoesNotApply(f"more than {NODES} nodes")
        return Variant(Speaker(program, Words(inline=chosen)).spoken())

    return rule


def _named(sample: Sample) -> Variant:
    program = _program(sample)
    largest = max((prod(shape) for shape in _shapes(program).values()), default=1)
    named: dict[Expr, tuple[Axis, ...]] = {}
    for definition in program.definitions:
        if isinstance(definition, Define):
            loops = {axis.index: axis for axis in definition.axes}
            for axes in _axes_within(definition.value):
                loops |= {axis.index: axis for axis in axes}
            named |= {part: axes for part, axes in _parts(definition.value, loops, len(loops)) if _elements(axes) <= largest}
    if not named:
        raise DoesNotApply("nothing is computed of fewer indices")
    return Variant(Speaker(program, Words(named=named)).spoken())


def _axes_within(value: Expr) -> Iterator[tuple[Axis, ...]]:
    for node in walk(value):
        if isinstance(node, Reduce):
            yield node.axes


def _elements(axes: Sequence[Axis]) -> int:
    return prod(integer_of(axis.stop) for axis in axes)


def _parts(value: Expr, loops: Mapping[str, Axis], rank: int) -> Iterator[tuple[Expr, tuple[Axis, ...]]]:
    """The largest subexpressions that compute with elements, of some of the indices in loops that start at 0 and have an extent."""
    names = free_names(value)
    computes = isinstance(value, Apply) and value.op.name != "stop_gradient" and not value.dtype.is_bool
    reads_only = all(isinstance(node, Apply | Access | Const | Cast | Index) for node in walk(value))
    if computes and reads_only and any(isinstance(node, Access) for node in walk(value)) and 0 < len(names) < rank:
        axes = tuple(loops[name] for name in loops if name in names)
        if len(axes) == len(names) and all(integer_or_none(a.stop) and integer_or_none(a.start) == 0 for a in axes):
            yield value, axes
            return
    for child in children(value):
        yield from _parts(child, loops, rank)


def _border(mode: str) -> Callable[[Sample], Variant]:
    def rule(sample: Sample) -> Variant:
        program = _program(sample)
        speaker = Speaker(program, Words(border=mode))
        traced = speaker.spoken()
        if not speaker.changes:
            raise DoesNotApply("no window is read, or it has this border")
        return Variant(traced, None)

    return rule


RULES: dict[str, Callable[[Sample], Variant]] = {
    "primes": _primes,
    "batch": _batch(False),
    "batch of the largest": _batch(True),
    "unit axis first": _unit(False),
    "unit axis last": _unit(True),
    "operands transposed": _transposed,
    "turned": _turned,
    "split": _split,
    "merged": _merged,
    "inline": _inline(False),
    "all inline": _inline(True),
    "named": _named,
    **{f"border {mode}": _border(mode) for mode in MODES},
    "open": _open(False),
    "open rows": _open(True),
    "open, all sizes": lambda sample: replace(_open(False)(sample), versions=False),
}
OPEN = ("open", "open rows", "open, all sizes")
"""Rules whose bar is that of open sizes."""
OTHER = ("primes", *(f"border {mode}" for mode in MODES))
"""Rules that change the mathematics."""
SAME = tuple(rule for rule in RULES if rule not in OTHER)
"""Rules that say the same."""
