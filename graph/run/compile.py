"""From a graph to a plan of as few compiled functions as it takes.

    graph -> replacements taken, calls taken apart -> pruned -> lazy work sunk into branches -> regions -> plan

Between two nodes that the host runs (branches, loops, prints, checks, tools) all definitions become one program of the language, a
**region**, and the compiler makes kernels of it; without such nodes the whole function, with its gradients and updates, is one region. A
definition is put as late as it can be: behind the checks that stand before its first use. A read that follows an assignment in the same
graph takes the assigned value; other reads are arguments of the region, assignments its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.graph.nodes.effects import effects_of
from tensorexpr.graph.nodes.inline import inline, kept_calls
from tensorexpr.graph.nodes.ir import (
    Absent,
    Assign,
    Call,
    Check,
    Compute,
    Cond,
    Graph,
    Native,
    Node,
    Print,
    Read,
    While,
    WhileGradient,
)
from tensorexpr.graph.nodes.prune import prune, sink
from tensorexpr.graph.nodes.sizes import carried, sized_program
from tensorexpr.graph.run.replace import resolve
from tensorexpr.graph.run.runtime import (
    Assigns,
    Branch,
    Brings,
    Called,
    Checked,
    Foreign,
    Instruction,
    Kernel,
    Loop,
    LoopBackwards,
    Plan,
    Printed,
    Reads,
    on_host,
)
from tensorexpr.ir import Input, Program
from tensorexpr.language.core.renaming import ProgramRenaming
from tensorexpr.markup import MOST_NAMES, amount, code, folded, listing, page


class Step:
    """A compiled graph: called with a list of arrays it gives the list of its outputs, and variables have their new values.

    If anything in it raises, no variable has changed. `graph` is what was compiled, calls taken apart and pruned; `functions` are
    its compiled functions, `kept` the calls that stayed calls and why.
    """

    def __init__(self, graph: Graph, plan: Plan, functions: list[CompiledFunction]) -> None:
        self.graph, self.plan, self.functions = graph, plan, functions

    @property
    def kept(self) -> dict[str, str]:
        """The calls that stay calls, by id, and why."""
        return kept_calls(self.graph)

    @property
    def kernels(self) -> int:
        """How many kernels one run of each compiled function launches."""
        return sum(len(function.nest.kernels) for function in self.functions)

    def __repr__(self) -> str:
        return f"<compiled step of {self.graph.name}: {amount(len(self.functions), 'function')}, {amount(self.kernels, 'kernel')}>"

    def _repr_html_(self) -> str:
        return page(code(repr(self)), listing(str(self.graph)), *(folded(repr(f), f._repr_html_()) for f in self.functions[:MOST_NAMES]))

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        state: dict[Any, Any] = {}
        outputs = self.plan.run(arrays, state)
        if state:
            # What the caller holds is the caller's: variables get copies of it. Nothing here can fail but for want of memory.
            foreign = {id(array) for array in (*arrays, *outputs)}
            if not foreign.isdisjoint(map(id, state.values())):
                state = {v: np.array(on_host(a), order="C") if id(a) in foreign else a for v, a in state.items()}
            for variable, array in state.items():
                variable.storage = array
        return [array if type(array) is np.ndarray else on_host(array) for array in outputs]


def compile_graph(graph: Graph, device: str = "cpu", precision: str = "float32") -> Step:
    """Compiles a graph; `device` is where nodes without a device of their own are computed, `precision` that of `te.build`."""
    lowered = lowered_graph(graph, device)
    functions: list[CompiledFunction] = []
    return Step(lowered, _plan(lowered, device, functions, precision), functions)


def lowered_graph(graph: Graph, device: str = "cpu") -> Graph:
    """What is compiled: replacements taken, calls taken apart, pruned, lazy work in the branches that need it."""
    return carried(sink(prune(inline(resolve(prune(graph), device)), whole=lambda call: False)))


# ------------------------------------------------------------------------------------------------------- forwarding


def forwarded(graph: Graph) -> Graph:
    """The graph with one read for all that see the same value, and none behind an assignment that it sees."""
    known: dict[Any, str] = {}
    names: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        operands = tuple(names.get(name, name) for name in node.operands)
        if operands != node.operands:
            node = replace(node, operands=operands)
            if isinstance(node, Compute):
                node = replace(node, definition=ProgramRenaming(names, ()).definition(node.definition))
        if isinstance(node, Read) and node.variable in known:
            names[node.names[0]] = known[node.variable]
            continue
        if isinstance(node, Read):
            known[node.variable] = node.names[0]
        elif isinstance(node, Assign):
            known[node.variable] = node.operands[0]
        else:
            for variable in effects_of(node).writes:
                known.pop(variable, None)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), outputs=tuple(names.get(name, name) for name in graph.outputs))


# ----------------------------------------------------------------------------------------------------------- plans


@dataclass
class _Region:
    """Definitions that become one compiled function."""

    device: str
    nodes: list[Compute]


def _plan(graph: Graph, device: str, functions: list[CompiledFunction], precision: str) -> Plan:
    graph = forwarded(graph)
    slots: dict[str, int] = {}
    for name in graph.types:
        slots[name] = len(slots)
    start: list[Any] = [None] * len(slots)
    for constant in graph.constants:
        start[slots[constant.name]] = constant.data
    inputs = tuple(slots[given.name] for given in graph.inputs)
    plan = Plan(inputs, tuple(slots[name] for name in graph.outputs), start)
    places = _Places(plan.start)
    for gap in _gaps(graph):
        _fill(graph, gap, slots, device, plan.instructions, functions, places, precision)
    return plan


class _Places:
    """Where values are: `made` on which device, and the slots of copies on another one."""

    def __init__(self, start: list[Any]) -> None:
        self.start = start
        self.made: dict[int, str] = {}
        self.copies: dict[tuple[int, str], int] = {}

    def brought(self, slots: Sequence[int], device: str) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
        """The slots in which values are found on a device, and what must be brought there first, from which slot into which."""
        found, pairs = [], []
        for slot in slots:
            if self.made.get(slot, "cpu") == device:
                found.append(slot)
                continue
            if (slot, device) not in self.copies:
                self.copies[slot, device] = len(self.start)
                self.start.append(None)
                pairs.append((slot, len(self.start) - 1))
            found.append(self.copies[slot, device])
        return tuple(found), pairs


@dataclass
class _Gap:
    """What runs before a host node: reads, definitions, assignments; and the host node (None at the end)."""

    reads: list[Read]
    computes: list[Compute]
    assigns: list[Assign]
    host: Node | None


def _gaps(graph: Graph) -> list[_Gap]:
    gaps = [_Gap([], [], [], None)]
    place: dict[str, int] = {}
    for node in graph.nodes:
        place[node.id] = len(gaps) - 1
        match node:
            case Read():
                gaps[-1].reads.append(node)
            case Assign():
                gaps[-1].assigns.append(node)
            case Compute() | Absent():
                pass
            case _:
                gaps[-1].host = node
                gaps.append(_Gap([], [], [], None))
    last = len(gaps) - 1
    latest: dict[str, int] = dict.fromkeys(graph.outputs, last)
    for node in reversed(graph.nodes):
        at = place[node.id]
        if isinstance(node, Compute):
            at = min(latest.get(name, last) for name in node.names)
            gaps[at].computes.append(node)
        for name in node.operands:
            latest[name] = min(at, latest.get(name, last))
    for gap in gaps:
        gap.computes.reverse()
    return gaps


def _fill(
    graph: Graph,
    gap: _Gap,
    slots: dict[str, int],
    device: str,
    instructions: list[Instruction],
    functions: list[CompiledFunction],
    places: _Places,
    precision: str,
) -> None:
    if gap.reads:
        instructions.append(Reads([(node.variable, slots[node.names[0]]) for node in gap.reads]))
    for region in _regions(gap.computes, device):
        program = _program(graph, region)
        function = build_program(program, target=region.device, precision=precision)
        functions.append(function)
        own, pairs = places.brought([slots[given.name] for given in program.inputs], region.device)
        if pairs:
            instructions.append(Brings(function, region.device, pairs))
        results = tuple(slots[name] for name in program.outputs)
        places.made.update(dict.fromkeys(results, region.device))
        instructions.append(Kernel(function, region.device, own, results))
    if gap.assigns:
        instructions.append(Assigns([(node.variable, slots[node.operands[0]]) for node in gap.assigns]))
    if gap.host is not None:
        instructions.append(_host(gap.host, slots, device, functions, precision))


def _host(node: Node, slots: dict[str, int], device: str, functions: list[CompiledFunction], precision: str) -> Instruction:
    inputs = tuple(slots[name] for name in node.operands)
    outputs = tuple(slots[name] for name in node.names)
    device = node.device or device

    def plan(graph: Graph) -> Plan:
        return _plan(graph, device, functions, precision)

    match node:
        case Print():
            return Printed(node.text, inputs)
        case Check():
            return Checked(node.text, inputs[0], node.location)
        case Call():
            return Called(plan(node.graph), inputs, outputs)
        case Cond():
            return Branch(inputs[0], plan(node.then), plan(node.otherwise), inputs[1:], outputs)
        case While():
            return Loop(plan(node.condition), plan(node.body), inputs, outputs, node.history)
        case WhileGradient():
            return LoopBackwards(plan(node.body), node.saved, inputs, outputs)
        case Native():
            return Foreign(node.function, inputs, outputs)
    raise AssertionError(type(node))


def _regions(nodes: list[Compute], device: str) -> list[_Region]:
    """The definitions by device, each region after those that it takes from."""
    levels: dict[str, tuple[int, str]] = {}
    regions: dict[tuple[int, str], _Region] = {}
    for node in nodes:
        own = node.device or device
        level = 0
        for name in node.operands:
            if name in levels:
                before, other = levels[name]
                level = max(level, before + (other != own))
        for name in node.names:
            levels[name] = (level, own)
        regions.setdefault((level, own), _Region(own, [])).nodes.append(node)
    return [regions[key] for key in sorted(regions)]


def _program(graph: Graph, region: _Region) -> Program:
    made = {name for node in region.nodes for name in node.names}
    inside = {node.id for node in region.nodes}
    used = dict.fromkeys(name for node in region.nodes for name in node.operands if name not in made)
    outside = set(graph.outputs) | {name for node in graph.nodes if node.id not in inside for name in node.operands}
    types = graph.types
    constants = tuple(c for c in graph.constants if c.name in used)
    data = {c.name for c in constants}
    return sized_program(
        [Input(name, types[name]) for name in used if name not in data],
        [node.definition for node in region.nodes],
        [name for node in region.nodes for name in node.names if name in outside],
        constants,
        graph.inputs,
    )
