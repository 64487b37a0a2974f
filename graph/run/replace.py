"""Replacements: a tool computes a composite in its own way.

A replacement is registered for (name, target). When a graph is compiled, its composites are offered, outer ones first; what a
tool takes becomes its own, what nobody takes is its body, and composites inside of that body are offered next. A tool is asked with a
`Site` (attributes, types, what is called) and gives an implementation or None. It is never shown the body, and nothing matches on it.

In a differentiated program a composite is two calls, its forward pass and its backward pass:

- a `pair` takes both. What its forward pass saves is the tool's own: any number of any objects, handed to its backward pass;
- `forward` alone takes the forward call; the backward pass of the body then recomputes what it needs from the inputs;
- `backward` alone takes the backward call, beside the body's forward pass.

In a branch or a loop the two passes are in graphs of their own, out of sight of each other. There a `backward` is offered the one, a
`forward` the other where nothing that the body saves is used; a pair is not, since what it saves has no way from one graph to the other.

An implementation is a `te.op` or `te.function`, which is traced and compiled with the rest, or any callable on arrays.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from tensorexpr.codegen.compile import check_target
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.graph.nodes.effects import graph_effects
from tensorexpr.graph.nodes.inline import inline, with_graphs
from tensorexpr.graph.nodes.ir import Backward, Call, Composite, Graph, Node, OfComposite, Renaming, names_in, unused
from tensorexpr.graph.run.implementations import Implementation, Pair
from tensorexpr.hints import checked
from tensorexpr.ir import TensorType

Offer = Callable[["Site"], Any]
KINDS = ("forward", "backward", "pair")


@dataclass(frozen=True)
class Site(OfComposite):
    """One call of a composite as a tool sees it.

    `inputs` and `outputs` are types of the function itself (not of its backward pass); `wanted` are the positions of the inputs that
    need a gradient, and `heads` of the outputs that have one, where the backward pass is asked for, else empty.
    """

    composite: Composite
    target: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    wanted: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()


class Replacement:
    """A registered replacement: a context manager, and `remove()`."""

    def __init__(self, name: str, target: str, offers: dict[str, Offer], check: bool, tolerance: float) -> None:
        self.name, self.target, self.offers, self.check, self.tolerance = name, target, offers, check, tolerance

    def __repr__(self) -> str:
        return f"<replacement of {self.name} for {self.target}: {', '.join(self.offers)}>"

    def remove(self) -> None:
        """Takes the replacement away: what is called from now on runs the body."""
        registry.remove(self)

    def __enter__(self) -> Replacement:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.remove()


class Registry:
    """All replacements, the last registered first. Its `state` changes whenever what a target would be given changes."""

    def __init__(self) -> None:
        self._entries: tuple[Replacement, ...] = ()
        self._versions: dict[str, int] = {}
        self._count = itertools.count(1)
        self._lock = threading.Lock()

    def add(self, entry: Replacement) -> None:
        """Registers a replacement."""
        with self._lock:
            self._entries = (entry, *self._entries)
            self._versions[entry.target] = next(self._count)

    def remove(self, entry: Replacement) -> None:
        """Forgets a replacement; nothing if it was forgotten before."""
        with self._lock:
            if entry in self._entries:
                self._entries = tuple(other for other in self._entries if other is not entry)
                self._versions[entry.target] = next(self._count)

    def state(self, target: str) -> tuple[Replacement, ...]:
        """What is registered now: compiled steps are kept by it."""
        return self._entries

    def offers(self, site: Site, kind: str) -> Iterator[tuple[Replacement, Any]]:
        """What the tools that know a composite give for it."""
        names = (site.composite.name, *site.composite.aliases)
        for entry in self._entries:
            if entry.name in names and entry.target == site.target and kind in entry.offers:
                given = entry.offers[kind](site)
                if given is not None:
                    yield entry, given


registry = Registry()


@checked()
def register_replacement(
    name: str,
    target: str = "cpu",
    forward: Offer | None = None,
    *,
    backward: Offer | None = None,
    pair: Offer | None = None,
    check: bool = False,
    tolerance: float = 1e-4,
) -> Replacement:
    """Registers a tool for the composite `name` (or an alias of it) on a target. Each option takes a `Site` and gives None to decline, or

    - `forward`: a function of the inputs that gives the outputs (one, or a tuple);
    - `backward`: a function `(inputs, outputs, heads, saved)` of tuples that gives one gradient for each of `site.wanted`; heads that
      there are none of are None, and `saved` is empty unless the forward pass was the tool's, too;
    - `pair`: such a forward pass that gives `(outputs, saved)`, both tuples, and a backward pass.

    A `te.op` or `te.function` is compiled with the rest of the program, other callables are called with arrays. With `check` what is
    computed is compared with the body at every run, and the first difference beyond the relative `tolerance` raises `ReplacementError`.
    `ReplacementError` is also raised when a program is compiled, for results that differ in number, shape or dtype from the body's;
    `TargetError` for a target that there is not. Where there are a `pair` and other offers, the pair is asked first.

    >>> square = te.function(lambda x: x * x, implements="org.nn.square")
    >>> with te.register_replacement("org.nn.square", "cpu", lambda site: np.square, check=True):
    ...     square(np.arange(3.0))
    array([0., 1., 4.])
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"te.register_replacement: expected the name of a composite, got {name!r}", location=user_location())
    offers = {kind: offer for kind, offer in (("forward", forward), ("backward", backward), ("pair", pair)) if offer is not None}
    if not offers or not all(callable(offer) for offer in offers.values()):
        raise ArgumentError(
            f"te.register_replacement: expected a function of a site for {name}, got none",
            location=user_location(),
            hint="forward=lambda site: implementation, or None to decline",
        )
    check_target(target)
    entry = Replacement(name, target, offers, check, tolerance)
    registry.add(entry)
    return entry


# --------------------------------------------------------------------------------------------------------- resolution


def resolve(graph: Graph, device: str) -> Graph:
    """The graph with every composite offered, outer ones first; all calls that may be are taken apart on the way."""
    while True:
        graph = _taken(graph, device)
        calls = [node for node in graph.nodes if isinstance(node, Call) and not node.graph.kept]
        if not calls:
            break
        names = {node.id for node in calls}
        graph = inline(graph, keep=lambda call, names=names: "" if call.id in names else "later")  # type: ignore[misc]  # mypy has no type for a lambda with a default
    done: dict[int, tuple[Graph, Graph]] = {}

    def inner(called: Graph, where: str) -> Graph:
        if id(called) not in done:
            done[id(called)] = (called, resolve(called, where))
        return done[id(called)][1]

    nodes = tuple(with_graphs(node, lambda g, node=node: inner(g, node.device or device)) for node in graph.nodes)  # type: ignore[misc]  # mypy has no type for a lambda with a default
    return replace(graph, nodes=nodes)


def _taken(graph: Graph, device: str) -> Graph:
    """One round: the composites that are called in a graph itself, each taken by a tool or left."""
    calls = {n.id: n for n in graph.nodes if isinstance(n, Call) and n.graph.composite is not None and _pure(n.graph)}
    if not calls or not registry.state(device):
        return graph
    changed: dict[str, list[Node]] = {}
    taken = names_in(graph)
    for node in calls.values():
        composite = node.graph.composite
        assert composite is not None
        where = node.device or device
        if composite.role == "backward":
            if node.id not in changed and not any(belongs(node, other) for other in calls.values()):
                changed.update(_alone(node, where))
            continue
        backwards = [other for other in calls.values() if belongs(other, node)]
        if composite.role == "forward" and not backwards and _used_beyond(graph, node):
            continue
        count = _outputs(node, backwards)
        site = Site(composite.of(""), where, _types(node.graph.inputs), tuple(type_ for _, type_ in node.results[:count]))
        if backwards and _pair(graph, node, backwards, site, changed):
            continue
        found = next(registry.offers(site, "forward"), None)
        if found is not None:
            made = Implementation(site, node.graph, *found).forward(node, count)
            changed[node.id] = [made]
            for other in backwards:
                again, mapping = _again(node, other, count, taken)
                changed[other.id] = [again, replace(other, operands=tuple(mapping.get(name, name) for name in other.operands))]
        for other in backwards:
            parts = other.graph.backward
            assert parts is not None
            asked = replace(site, wanted=parts.wanted, heads=parts.heads)
            found = next(registry.offers(asked, "backward"), None)
            if found is not None:
                changed[other.id] = [Implementation(asked, other.graph, *found).backward(other, parts)]
    nodes = [new for node in graph.nodes for new in changed.get(node.id, [node])]
    return replace(graph, nodes=tuple(nodes)) if changed else graph


def _alone(node: Call, where: str) -> dict[str, list[Node]]:
    """A backward call whose forward pass is in another graph, by the tool that takes it, if any."""
    parts, composite = node.graph.backward, node.graph.composite
    assert parts is not None and composite is not None
    types = _types(node.graph.inputs)
    inputs, outputs = types[: parts.inputs], types[parts.inputs : parts.inputs + parts.outputs]
    site = Site(composite.of(""), where, inputs, outputs, parts.wanted, parts.heads)
    found = next(registry.offers(site, "backward"), None)
    return {} if found is None else {node.id: [Implementation(site, node.graph, *found).backward(node, parts)]}


def _pair(graph: Graph, node: Call, backwards: Sequence[Call], site: Site, changed: dict[str, list[Node]]) -> bool:
    """Gives both passes to a tool that takes both; says whether there was one."""
    parts = [other.graph.backward for other in backwards]
    sites = [replace(site, wanted=p.wanted, heads=p.heads) for p in parts if p is not None]
    for entry, given in registry.offers(sites[0], "pair"):
        pairs = [given, *(entry.offers["pair"](one) for one in sites[1:])]
        if any(pair is None for pair in pairs):
            continue
        pair = Pair(site, entry, given)
        changed[node.id], saved = pair.forward(node, names_in(graph))
        for other, one, part, own in zip(backwards, sites, parts, pairs, strict=True):
            assert part is not None
            changed[other.id] = [Pair(one, entry, own).backward(other, part, saved, node)]
        return True
    return False


def belongs(back: Call, forward: Call) -> bool:
    """Whether a call is the backward pass of another one: what it takes as outputs and saved values is what that one gave."""
    parts = back.graph.backward
    a, b = back.graph.composite, forward.graph.composite
    if parts is None or a is None or b is None or a.name != b.name or a.role != "backward" or b.role != "forward":
        return False
    given = set(forward.names)
    outputs = back.operands[parts.inputs : parts.inputs + parts.outputs]
    return back.operands[: parts.inputs] == forward.operands and given.issuperset((*outputs, *back.operands[parts.saved_at :]))


def _pure(graph: Graph) -> bool:
    effects = graph_effects(graph)
    return not effects.matter and not effects.reads


def _outputs(node: Call, backwards: Sequence[Call]) -> int:
    """How many of the results of a call are the function's own; the others are saved."""
    parts: list[Backward] = [other.graph.backward for other in backwards if other.graph.backward is not None]
    if parts:
        return parts[0].outputs
    return len(node.results) if node.graph.own is None else node.graph.own


def _used_beyond(graph: Graph, node: Call) -> bool:
    """Whether saved results of a forward pass are used, by a backward pass that is not in sight (in a branch)."""
    saved = set(node.names[node.graph.own or len(node.names) :])
    return any(saved.intersection(other.operands) for other in graph.nodes) or bool(saved.intersection(graph.outputs))


def _again(node: Call, other: Call, count: int, taken: set[str]) -> tuple[Call, dict[str, str]]:
    """The body's forward pass once more, for a backward pass whose forward pass was a tool's; and its saved values by old names."""
    renaming = Renaming(taken, {name: name for name in node.operands})
    again = renaming.node(replace(node, id=unused(f"{node.id}_again", set(taken))))
    assert isinstance(again, Call)
    graph = replace(again.graph, composite=None)
    saved = dict(zip(node.names[count:], again.names[count:], strict=True))
    return replace(again, graph=graph), saved


def _types(inputs: Sequence[Any]) -> tuple[TensorType, ...]:
    return tuple(given.type for given in inputs)
