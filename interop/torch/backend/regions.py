"""A graph taken apart: what is ours, region by region, and what PyTorch runs between.

Nodes that have a definition, and do not wait for something that PyTorch has to run first, are one region: one program. A node is
PyTorch's where it has no definition, where its definition refuses its arguments, or where it draws random numbers or has effects;
these keep their order. Time goes in turns: PyTorch's nodes at even times, a region at odd ones, each node as early as it can (in a graph
that is cut for its memory, see `cuts`, not before its part). So a graph whose only foreign nodes are draws of random numbers is one
program still. The result is a graph again, of calls of regions, views and
foreign nodes, that torch makes Python of.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import _BoxedCodeGen
from torch.fx.node import _side_effectful_functions, map_arg

from tensorexpr.errors import InternalError, TensorExprError, user_location
from tensorexpr.interop.torch.backend.cuts import steps
from tensorexpr.interop.torch.backend.lowering import Failures, Lowered, is_view, lower, value_of, why_not
from tensorexpr.interop.torch.backend.sizes import symbol_of
from tensorexpr.interop.torch.backend.table import arguments

log = logging.getLogger("tensorexpr.torch")
_LAST = 1 << 30
_NAMED = 8  # operators that a message lists for one reason


def has_effects(node: Node) -> bool:
    """Whether a node must keep its place among others like it: it draws random numbers, or changes something."""
    target: Any = node.target
    if node.op != "call_function":
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return node.is_impure()
    return draws(node) or target._schema.is_mutable or target in _side_effectful_functions


def draws(node: Node) -> bool:
    """Whether a node draws random numbers: attention without dropout does not."""
    target: Any = node.target
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    named = zip(target._schema.arguments, arguments(target, node.args, node.kwargs), strict=True)
    rate = next((value for parameter, value in named if parameter.name == "dropout_p"), None)
    return rate is None or rate != 0


class Plan:
    """When each node runs."""

    def __init__(self, graph: Graph, device: torch.device, failures: Failures, steps: Mapping[Node, int]) -> None:
        self.foreign: dict[Node, str] = {}
        self.times: dict[Node, int] = {}
        self._steps, self.is_cut = steps, bool(steps)
        self._last = 0
        for node in graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.times[node] = 0
            elif node.op == "output":
                self.times[node] = _LAST
            elif is_view(node):
                self.times[node] = max((self.times[source] for source in node.all_input_nodes), default=0)
            elif node.target is operator.getitem:
                self.times[node] = self.times[node.all_input_nodes[0]]
                if node.all_input_nodes[0] in self.foreign:
                    self.foreign[node] = "part of a result of PyTorch's"
            else:
                self._schedule(node, failures.get(node) or why_not(node, device))

    def _schedule(self, node: Node, reason: str | None) -> None:
        ready = max((self.times[source] for source in node.all_input_nodes), default=0)
        effects = has_effects(node)
        if reason is None and not effects:
            self.times[node] = max(ready, 2 * self._steps.get(node, 0)) | 1
            return
        self.foreign[node] = reason or "order"
        if str(node.target) == "aten.copy_.default":  # what is left of mutations, after everything else
            self.times[node] = _LAST - 1
            return
        self.times[node] = ready + (ready & 1)
        if effects:
            self._last = self.times[node] = max(self.times[node], self._last)

    def members(self) -> dict[int, list[Node]]:
        """The regions by time."""
        found: dict[int, list[Node]] = {}
        for node, time in self.times.items():
            if node.op == "call_function" and node not in self.foreign and not is_view(node) and time < _LAST - 1:
                found.setdefault(time, []).append(node)
        return {time: nodes for time, nodes in sorted(found.items())}


def compiled(module: GraphModule, device: torch.device, strict: bool, saved: Collection[Node] = ()) -> GraphModule:
    """The graph with its regions compiled: a module that takes its arguments in one list, which it empties.

    `saved` are the arguments that are freed when that list is the last to hold them.
    """
    failures: Failures = {}
    cut = steps(module.graph, saved, _root)
    while True:
        plan = Plan(module.graph, device, failures, cut)
        known = len(failures)
        made = _Graph(module, plan, device, failures)
        if len(failures) == known:
            break
    _report(plan, strict)
    return made.module()


def _report(plan: Plan, strict: bool) -> None:
    """One line about what PyTorch runs."""
    reasons: dict[str, dict[str, None]] = {}
    for node, reason in plan.foreign.items():
        if (
            node.target is not operator.getitem
            and not has_effects(node)
            and "tensorexpr_foreign" not in node.meta
            and isinstance(value_of(node), (torch.Tensor, tuple, list))
        ):
            reasons.setdefault(reason, {})[str(node.target)] = None
    if not reasons:
        return
    said = ", ".join(f"{', '.join(list(names)[:_NAMED])}{' ...' if len(names) > _NAMED else ''} ({why})" for why, names in reasons.items())
    foreign = sum(node.target is not operator.getitem for node in plan.foreign)
    if strict:
        raise TensorExprError(
            f"torch.compile: expected a definition of every operator, got none of {said}",
            location=user_location(),
            hint="without options={'fallback': False} PyTorch runs these",
        )
    log.warning("torch.compile: %d of %d operators are run by PyTorch: %s", foreign, foreign + sum(map(len, plan.members().values())), said)


class _Graph:
    """The graph that is made of a plan. Regions that cannot be compiled leave their nodes in `failures`; then it is of no use."""

    def __init__(self, module: GraphModule, plan: Plan, device: torch.device, failures: Failures) -> None:
        self._source, self._plan, self._device = module, plan, device
        self._graph = Graph()
        self._made: dict[Node, Node] = {}
        self._regions = plan.members()
        self._wanted = self._needed()
        self._done: dict[int, Lowered] = {}
        failed = False
        for time, nodes in self._regions.items():
            outputs = [node for node in self._wanted if self._region_of(node) == time]
            if outputs:
                lowered = lower(nodes, outputs, device, f"region_{time // 2}", failures, not plan.is_cut)
                if lowered is not None:
                    self._done[time] = lowered
                failed = failed or lowered is None
        if not failed:
            self._write()

    def _region_of(self, node: Node) -> int | None:
        """The time of the region that computes a node."""
        if node.op != "call_function" or node in self._plan.foreign or is_view(node):
            return None
        return self._plan.times[node]

    def _needed(self) -> dict[Node, None]:
        """What regions have to give: what is read outside of them, or by a later one."""
        found: dict[Node, None] = {}
        for node in self._source.graph.nodes:
            if node.op == "output" or node in self._plan.foreign:
                for source in node.all_input_nodes:
                    self._need(source, found)
            elif not is_view(node) and node.op == "call_function":
                for source in node.all_input_nodes:
                    root = _root(source)
                    if self._region_of(root) not in (None, self._plan.times[node]):
                        self._need(root, found)
        return found

    def _need(self, node: Node, found: dict[Node, None]) -> None:
        if is_view(node):
            self._need(_root(node), found)
        elif self._region_of(node) is not None and isinstance(value_of(node), torch.Tensor):
            found[node] = None

    # ------------------------------------------------------------------------------------------------ written

    def _write(self) -> None:
        order = sorted(
            (
                node
                for node in self._source.graph.nodes
                if node.op != "output" and (node in self._plan.foreign or node.op != "call_function")
            ),
            key=lambda node: self._plan.times[node],
        )
        foreign: dict[int, list[Node]] = {}
        for node in order:
            if node.op == "placeholder":
                self._copy(node)
            else:
                foreign.setdefault(self._plan.times[node], []).append(node)
        for time in sorted({*foreign, *self._done}):
            for node in foreign.get(time, ()):
                self._copy(node)
            if time in self._done:
                self._call(time)
        output = next(node for node in self._source.graph.nodes if node.op == "output")
        self._graph.output(map_arg(output.args[0], self._place))

    def _copy(self, node: Node) -> None:
        for source in node.all_input_nodes:
            self._place(source)
        self._made[node] = self._graph.node_copy(node, lambda source: self._made[source])

    def _place(self, node: Node) -> Node:
        """The node in the new graph: a view, or an integer, is made where it is needed."""
        if node not in self._made:
            self._copy(node)
        return self._made[node]

    def _call(self, time: int) -> None:
        lowered = self._done[time]
        given = [self._place(node) for node in lowered.inputs] + [self._size(symbol) for symbol in lowered.symbols]
        call = self._graph.call_function(lowered.call, tuple(given))
        outputs = [node for node in self._wanted if self._region_of(node) == time]
        for position, node in enumerate(outputs):
            self._made[node] = self._graph.call_function(operator.getitem, (call, position))

    def _size(self, symbol: str) -> Node:
        """The node of a symbol: an argument that is it, or an extent of one."""
        arguments = [node for node in self._source.graph.nodes if node.op == "placeholder"]
        for node in arguments:
            if symbol_of(value_of(node)) == symbol:
                return self._made[node]
        for node in arguments:
            value = value_of(node)
            for axis, n in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if symbol_of(n) == symbol:
                    return self._graph.call_function(torch.ops.aten.sym_size.int, (self._made[node], axis))
        raise InternalError(f"torch.compile: expected the size {symbol} among the arguments of the graph")

    def module(self) -> GraphModule:
        """The graph as a module."""
        self._graph.set_codegen(_BoxedCodeGen())
        return GraphModule(self._source, self._graph)


def _root(node: Node) -> Node:
    """What a view is a view of."""
    while is_view(node):
        node = node.args[0]  # type: ignore[assignment]  # views read nodes
    return node
