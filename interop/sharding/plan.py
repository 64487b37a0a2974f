"""Which rule to use along each dimension of a mesh, and what every device then computes.

A `Layout` says for one tensor how it lies: a placement for each dimension of the mesh. `choose` tries every rule, and computing everywhere,
along every dimension, and takes what moves the fewest bytes; of equals what leaves a device the least to compute. A `Plan` has the box
that each device holds of each tensor, and its `part`. Blocks of blocks (two dimensions that split one axis) are cut as PyTorch cuts them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tensorexpr.codegen.memo import Memo
from tensorexpr.sharding import Part, Partial, Placement, Rule, Sharding, Share, Site, Split, Unread, Whole, part_of
from tensorexpr.sharding.placements import WHOLE

Layout = tuple[Placement, ...]
"""A placement for each dimension of a mesh."""

Choice = tuple[Rule | None, ...]
"""A rule for each dimension of a mesh; None: all devices along it compute the same."""

_CHOICES = 4096
_PARTS_KEPT = 4096


class Cost(NamedTuple):
    """What speaks against a choice, first things first: bytes moved by a device, bytes of results that it computes, how many of these are
    addends, and how many results lie as no argument of their shape does."""

    moved: float
    work: float
    addends: int
    unlike: int


def block(extent: int, count: int, index: int) -> tuple[int, int]:
    """Begin and end of a block of an axis cut into `count`: as long as each other, the last ones shorter or empty."""
    size = -(-extent // count)
    return min(index * size, extent), min((index + 1) * size, extent)


def held(shape: Sequence[int], layout: Layout, counts: Sequence[int], at: Sequence[int]) -> list[tuple[int, int]]:
    """The box of a tensor that the device at a place in the mesh holds."""
    box = [(0, extent) for extent in shape]
    for placement, count, index in zip(layout, counts, at, strict=True):
        if isinstance(placement, Split):
            begin, end = box[placement.axis]
            first, last = block(end - begin, count, index)
            box[placement.axis] = begin + first, begin + last
    return box


class Plan:
    """A choice of rules for the dimensions of a mesh, which has `counts` devices along them."""

    def __init__(self, sharding: Sharding, counts: tuple[int, ...], choice: Choice) -> None:
        self.sharding, self.counts, self.choice = sharding, counts, choice
        names = [given.name for given in sharding.program.inputs]
        self.inputs: list[Layout] = [tuple(WHOLE if rule is None else rule.inputs[k] for rule in choice) for k in range(len(names))]
        self.outputs: list[Layout] = [
            tuple(WHOLE if rule is None else rule.outputs[k] for rule in choice) for k in range(len(sharding.program.outputs))
        ]
        self._parts: Memo[Part] = Memo(_PARTS_KEPT)

    def places(self) -> Iterator[tuple[int, ...]]:
        """All places in the mesh, in row-major order."""
        return itertools.product(*map(range, self.counts))

    def part(self, at: tuple[int, ...]) -> Part:
        """What the device at a place computes."""
        return self._parts.get(at, lambda: self._part(at))

    def _part(self, at: tuple[int, ...]) -> Part:
        return part_of(self.sharding.program, *self.restriction(at))

    def restriction(self, at: tuple[int, ...]) -> tuple[dict[Site, tuple[int, int]], tuple[Share, ...]]:
        """Where the restricted loops run on the device at a place, and what it has of the addends of each rule."""
        sites: dict[Site, tuple[int, int]] = {}
        shares: dict[tuple[Site, ...], tuple[Rule, bool]] = {}
        for rule, count, index in zip(self.choice, self.counts, at, strict=True):
            if rule is None:
                continue
            for site, _ in rule.sites:
                begin, end = sites.get(site, (0, rule.extents[site]))
                low, high = block(end - begin, count, index)
                sites[site] = begin + low, begin + high
            same = tuple(site for site, _ in rule.sites)
            shares[same] = rule, index == 0 and (same not in shares or shares[same][1])
        return sites, tuple(share for rule, first in shares.values() for share in rule.shares(first))

    def held(self, position: int, at: tuple[int, ...]) -> list[tuple[int, int]]:
        """The box of an input that the device at a place holds where it lies as the rules have it."""
        name = self.sharding.program.inputs[position].name
        return held(self.sharding.extents(name), self.inputs[position], self.counts, at)


def choices(sharding: Sharding, counts: tuple[int, ...]) -> Iterator[Choice]:
    """Every choice of rules that go together."""
    options: list[Rule | None] = [None, *sharding.rules]
    for choice in itertools.islice(itertools.product(options, repeat=len(counts)), _CHOICES):
        if _together([rule for rule in choice if rule is not None]):
            yield choice


def _together(rules: Sequence[Rule]) -> bool:
    """Whether rules may be used at once: no loop is in two different ones, and addends are combined by one combiner."""
    different = list(dict.fromkeys((rule.sites, rule.combine) for rule in rules))
    sites = [site for each, _ in different for site, _ in each]
    combines = {combine for _, combine in different if combine is not None}
    return len(sites) == len(set(sites)) and len(combines) <= 1


def choose(
    sharding: Sharding,
    counts: tuple[int, ...],
    layouts: Sequence[Layout],
    outputs: Sequence[Layout] | None = None,
    known: frozenset[str] = frozenset(),
) -> Plan:
    """The plan that moves the least for inputs that lie as `layouts` say; `known` are the combiners that the host has.

    `outputs` wants results to lie in a way: what does not is moved, and counts.
    """
    found = [
        choice
        for choice in choices(sharding, counts)
        if all(rule is None or rule.combine is None or rule.combine in known for rule in choice)
    ]
    return Plan(sharding, counts, min(found, key=lambda choice: cost_of(sharding, counts, choice, layouts, outputs)))


def cost_of(
    sharding: Sharding,
    counts: tuple[int, ...],
    choice: Choice,
    layouts: Sequence[Layout],
    outputs: Sequence[Layout] | None = None,
    combined: bool = False,
) -> Cost:
    """What a choice costs a device, with rings of devices along each dimension; `combined`: addends are combined at once."""
    moved, work, addends, unlike = 0.0, 0.0, 0, 0
    shapes = [sharding.extents(given.name) for given in sharding.program.inputs]
    for position, given in enumerate(sharding.program.inputs):
        size = math.prod(sharding.extents(given.name)) * given.type.dtype.bits // 8
        wanted = tuple(WHOLE if rule is None else rule.inputs[position] for rule in choice)
        moved += _moved(sharding.extents(given.name), size, counts, layouts[position], wanted)
    for position, name in enumerate(sharding.program.outputs):
        size = math.prod(sharding.extents(name)) * sharding.program.types[name].dtype.bits // 8
        lies = tuple(WHOLE if rule is None else rule.outputs[position] for rule in choice)
        if outputs is not None or combined:
            done = tuple(WHOLE if isinstance(one, Partial) else one for one in lies)
            moved += _moved(sharding.extents(name), size, counts, lies, done if outputs is None else outputs[position])
        addends += sum(size for one in lies if isinstance(one, Partial))
        work += size / math.prod(count for one, count in zip(lies, counts, strict=True) if not isinstance(one, Whole))
        plain = [_plain(layout) for shape, layout in zip(shapes, layouts, strict=True) if shape == sharding.extents(name)]
        unlike += bool(plain) and _plain(lies) not in plain
    return Cost(moved, work, addends, unlike)


def _plain(layout: Layout) -> tuple[int | None, ...]:
    """Which axis each dimension of the mesh splits."""
    return tuple(one.axis if isinstance(one, Split) else None for one in layout)


def _moved(shape: Sequence[int], size: int, counts: Sequence[int], lies: Layout, wanted: Layout) -> float:
    """Bytes that a device sends to bring a tensor from one layout to another, dimension by dimension of the mesh."""
    total, own = 0.0, float(size)
    for one, count in zip(lies, counts, strict=True):
        own /= count if isinstance(one, Split) else 1
    for one, other, count in zip(lies, wanted, counts, strict=True):
        if isinstance(other, Unread):
            continue
        share = (count - 1) / count
        if isinstance(one, Partial):
            if not isinstance(other, Partial):
                total += own * share * (1 if isinstance(other, Split) else 2)
                own /= count if isinstance(other, Split) else 1
        elif isinstance(one, Split) and isinstance(other, Split):
            total += own * share if one.axis != other.axis else 0
        elif isinstance(one, Split):
            own *= count
            total += own * share
        elif isinstance(other, Split):
            own /= count
        elif isinstance(one, Whole) and isinstance(other, Partial):
            total += math.inf
        if isinstance(other, Split) and other.halo != (0, 0):
            total += own * sum(other.halo) * count / max(shape[other.axis], 1) * (1 if other.wraps else share)
    return total
