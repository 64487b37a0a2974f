"""Backward passes of functions, branches and loops: graphs of their own, and what forward passes save for them.

For a function `f(inputs) -> outputs` there are

    f_forward(inputs) -> outputs, saved
    f_backward(inputs, outputs, heads, saved) -> gradients of the wanted inputs, then of variables

`saved` is what the derivative of the body reads of the body beyond inputs and outputs; once both are taken apart it is shared, and costs
nothing. Where a derivative is asked for, the noted call of `f` becomes one of `f_forward`, and one of `f_backward` is added. Both carry
what `f` implements, with a role. A branch saves for the way that was taken; a loop keeps a history, and its backward pass is one
iteration backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tensorexpr.errors import DifferentiationError, user_location
from tensorexpr.graph.nodes.ir import Absent, Backward, Call, Compute, Cond, Graph, While, WhileGradient, names_in, unused
from tensorexpr.graph.trace.sweep import Sweep, added
from tensorexpr.graph.trace.tracing import Record, Trace, current, stem_of
from tensorexpr.graph.trace.values import value_of
from tensorexpr.ir import Input, Program, TensorType
from tensorexpr.language import Tensor, constant, lift
from tensorexpr.op.rules import zeros


@dataclass
class Derived:
    """A graph whose body is differentiated: a copy of its trace, the tensors of its inputs, and what has to be saved so far."""

    graph: Graph
    body: Trace
    inputs: tuple[Tensor, ...]
    saved: list[Tensor]

    @classmethod
    def of(cls, graph: Graph) -> Derived:
        """The start: nothing saved."""
        trace, inputs = graph.origin if graph.origin is not None else revived(graph)
        # Notes in the copy may come to save more than the graph's own do.
        copy = replace(trace, records=[replace(record, results=list(record.results)) for record in trace.records])
        return cls(graph, copy, tuple(inputs), [])

    def save(self, tensors: Sequence[Tensor]) -> None:
        """Saves more."""
        self.saved += [tensor for tensor in tensors if tensor not in self.saved]

    def forward(self, more: Sequence[Tensor] | None = None) -> Graph:
        """The forward pass that saves (or gives `more` instead)."""
        graph = self.graph
        captured = self.inputs[len(self.body.formals) :]
        made = self.body.graph(captured, self.saved if more is None else more)
        composite = None if graph.composite is None or graph.composite.role else graph.composite.of("forward")
        return replace(made, name=f"{graph.name}_forward", composite=composite, kept=graph.kept, own=len(self.body.outputs))

    def backward(
        self, wanted: Sequence[int], heads: Sequence[int], variables: Sequence[Any], totals: bool = False
    ) -> tuple[Graph, list[Tensor]]:
        """The backward pass, and what it takes of the body behind inputs, outputs, heads. `totals` are added to where asked for.

        `heads` are positions among the outputs and, behind these, what is saved so far: of that in a derivative of a derivative.
        """
        graph, body = self.graph, self.body
        targets = [*body.outputs, *self.saved]
        back = Trace(f"{graph.name}_backward")
        with back.open():
            given: list[Tensor] = []
            for tensor in (*self.inputs, *body.outputs):
                given.append(tensor if tensor not in given and tensor.data is None else value_of(tensor.type, "unused"))
            own = [value_of(targets[k].type, "head") for k in heads]
            sums = [value_of(variable.type, "total") for variable in variables] if totals else []
            back.formals = [*given, *own, *sums]
            adjoints: dict[Tensor, Tensor] = {}
            for k, head in zip(heads, own, strict=True):
                adjoints[targets[k]] = added(adjoints.get(targets[k]), head)
            sweep = Sweep(body, adjoints, [self.inputs[k] for k in wanted], variables, pull_back).run()
            found = [sweep.adjoints.get(self.inputs[k], None) for k in wanted]
            results = [zeros(self.inputs[k]) if adjoint is None else adjoint for k, adjoint in zip(wanted, found, strict=True)]
            for k, variable in enumerate(variables):
                adjoint = sweep.of_variables.get(variable)
                if totals:
                    results.append(sums[k] if adjoint is None else added(sums[k], adjoint))
                else:
                    results.append(zeros(value_of(variable.type, "like")) if adjoint is None else adjoint)
            back.outputs = results
        saved = back.captured()
        parts = Backward(len(self.inputs), len(body.outputs), tuple(heads), tuple(wanted))
        first = graph.composite is not None and not graph.composite.role and all(k < len(body.outputs) for k in heads)
        composite = graph.composite.of("backward") if first and graph.composite is not None else None
        return back.graph(saved, composite=composite, kept=graph.kept, backward=parts), saved


def pull_back(
    record: Record, heads: list[Tensor | None], wanted: list[bool], variables: list[Any]
) -> tuple[list[Tensor | None], list[Tensor]]:
    """The adjoints of the operands of a note, and of variables, by a new note in the current trace."""
    match record.node:
        case Call():
            return _of_call(record, record.node, heads, wanted, variables)
        case Cond():
            return _of_cond(record, record.node, heads, wanted, variables)
        case While():
            return _of_while(record, record.node, heads, variables)
    raise DifferentiationError(
        f"expected one derivative of a loop, got a second one, of {record.node.id}",
        location=record.node.location or user_location(),
        hint="te.scan has derivatives of every order",
    )


def _note(node: Any, operands: Sequence[Tensor], types: Sequence[tuple[str, TensorType]]) -> list[Tensor]:
    trace = current()
    assert trace is not None
    return trace.note(node, operands, types).results


def _extended(record: Record, first: int, saved: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """Results of a note for what it saves now, behind its first ones; those that it has stay."""
    known = record.results[first:]
    record.results += [value_of(tensor.type, "saved") for tensor in saved[len(known) :]]
    return dict(zip(saved, record.results[first:], strict=True))


def _spread(wanted: list[bool], found: Sequence[Tensor]) -> list[Tensor | None]:
    gradients = iter(found)
    return [next(gradients) if asked else None for asked in wanted]


def _of_call(
    record: Record, node: Call, heads: list[Tensor | None], wanted: list[bool], variables: list[Any]
) -> tuple[list[Tensor | None], list[Tensor]]:
    derived = record.derived[0] if record.derived else Derived.of(node.graph)
    count = len(derived.body.outputs)
    positions = [k for k, asked in enumerate(wanted) if asked]
    known = [k for k, head in enumerate(heads) if head is not None]
    graph, saved = derived.backward(positions, known, variables)
    derived.save(saved)
    record.derived = (derived,)
    record.node = replace(node, graph=derived.forward())
    values = _extended(record, count, derived.saved)
    operands = [*record.operands, *record.results[:count], *(head for head in heads if head is not None), *(values[t] for t in saved)]
    types = [(f"{record.operands[k].name.rstrip('0123456789')}_bar", record.operands[k].type) for k in positions]
    types += [(f"{stem_of(variable)}_bar", variable.type) for variable in variables]
    found = _note(Call(graph.name, (), (), graph=graph, device=node.device), operands, types)
    return _spread(wanted, found), list(found[len(positions) :])


def _of_cond(
    record: Record, node: Cond, heads: list[Tensor | None], wanted: list[bool], variables: list[Any]
) -> tuple[list[Tensor | None], list[Tensor]]:
    ways = record.derived or tuple(Derived.of(graph) for graph in (node.then, node.otherwise))
    count = len(ways[0].body.outputs)
    positions = [k for k, asked in enumerate(wanted[1:]) if asked]
    known = [k for k in range(count) if heads[k] is not None]
    # Heads of what a way saved (in a derivative of a derivative) are that way's alone.
    before = [len(way.saved) for way in ways]
    starts = [count, count + before[0]]
    of_saved = [[k for k in range(size) if heads[start + k] is not None] for size, start in zip(before, starts, strict=True)]
    found_heads = [[*known, *(count + k for k in own)] for own in of_saved]
    graphs, lists = zip(*(way.backward(positions, at, variables) for way, at in zip(ways, found_heads, strict=True)), strict=True)
    given = [heads[k] for k in known] + [heads[start + k] for start, own in zip(starts, of_saved, strict=True) for k in own]
    for way, saved in zip(ways, lists, strict=True):
        way.save(saved)
    record.derived = ways
    every = [*ways[0].saved, *ways[1].saved]
    # What both ways save grows in the middle: results that stand for something keep it, wherever they come to stand.
    old = dict(zip(record.saved, record.results[count:], strict=True))
    record.results[count:] = [old[tensor] if tensor in old else value_of(tensor.type, "saved") for tensor in every]
    record.saved = every
    forwards = [way.forward() for way in ways]
    then = with_absent(forwards[0], [t.type for t in ways[1].saved], count + len(ways[0].saved))
    otherwise = with_absent(forwards[1], [t.type for t in ways[0].saved], count)
    record.node = replace(node, then=then, otherwise=otherwise)
    values = dict(zip(every, record.results[count:], strict=True))
    operands = [*record.operands, *record.results[:count], *(head for head in given if head is not None)]
    operands += [values[tensor] for saved in lists for tensor in saved]
    types = [("gradient", record.operands[k + 1].type) for k in positions] + [("gradient", v.type) for v in variables]
    back = Cond("cond_backward", (), (), then=_one_way(0, graphs, of_saved, lists), otherwise=_one_way(1, graphs, of_saved, lists))
    found = _note(back, operands, types)
    return [None, *_spread(wanted[1:], found)], list(found[len(positions) :])


def _one_way(way: int, graphs: Sequence[Graph], heads: Sequence[list[int]], lists: Sequence[list[Tensor]]) -> Graph:
    """The backward pass of one way, taking what that of the other takes, too: heads of what was saved, and what was saved."""
    graph, other = graphs[way], 1 - way
    width = len(graph.inputs) - len(lists[way]) - len(heads[way])  # inputs, outputs, heads of outputs
    behind = len(graph.inputs) - len(lists[way])
    saved_types = [tensor.type for tensor in lists[other]]
    far = len(graphs[other].inputs) - len(lists[other]) - len(heads[other])
    head_types = [given.type for given in graphs[other].inputs[far : far + len(heads[other])]]
    graph = with_unused(graph, saved_types, len(graph.inputs) if way == 0 else behind)
    return with_unused(graph, head_types, behind if way == 0 else width)


def _of_while(record: Record, node: While, heads: list[Tensor | None], variables: list[Any]) -> tuple[list[Tensor | None], list[Tensor]]:
    body = Derived.of(node.body) if not record.derived else record.derived[0]
    width = len(node.condition.inputs)
    floating = [k for k in range(width) if record.operands[k].dtype.is_float]
    graph, saved = body.backward(floating, floating, variables, totals=True)
    # One iteration gives the state, then what it had before and after, and what it saved.
    body.save(saved)
    record.derived = (body,)
    before = [*body.inputs, *body.body.outputs[:width], *body.saved]
    forward = body.forward(before)
    record.node = replace(node, body=forward, history=True)
    history = record.results[width] if len(record.results) > width else value_of(TensorType((), record.operands[0].dtype), "history")
    record.results[width:] = [history]
    entries = [*graph.inputs[: 2 * width], *(Input(f"{tensor.key}_saved", tensor.type) for tensor in body.saved)]
    names = dict(zip(saved, graph.inputs[len(graph.inputs) - len(saved) :], strict=True))
    entries[2 * width :] = [names.get(tensor, entry) for tensor, entry in zip(body.saved, entries[2 * width :], strict=True)]
    middle = graph.inputs[2 * width : len(graph.inputs) - len(saved)]
    back = replace(graph, inputs=(*entries, *middle), composite=None, backward=None, origin=None)
    start = [zeros(record.operands[k]) if heads[k] is None else heads[k] for k in floating]
    sums = [zeros(value_of(variable.type, "like")) for variable in variables]
    types = [("gradient", record.operands[k].type) for k in floating] + [("gradient", v.type) for v in variables]
    gradient = WhileGradient("while_backward", (), (), body=back, saved=len(entries))
    found = _note(gradient, [history, *(t for t in start if t is not None), *sums], types)
    operands: list[Tensor | None] = [None] * width
    for k, adjoint in zip(floating, found, strict=False):
        operands[k] = adjoint
    return operands, list(found[len(floating) :])


# ---------------------------------------------------------------------------------------------------------- graphs


def with_absent(graph: Graph, types: Sequence[TensorType], at: int) -> Graph:
    """The graph with further outputs at a position, which nothing will look at."""
    taken = names_in(graph)
    nodes = tuple(Absent(name, (), ((name, type_),)) for type_ in types for name in (unused("absent", taken),))
    outputs = (*graph.outputs[:at], *(node.id for node in nodes), *graph.outputs[at:])
    return replace(graph, nodes=(*graph.nodes, *nodes), outputs=outputs, origin=None)


def with_unused(graph: Graph, types: Sequence[TensorType], at: int) -> Graph:
    """The graph with further inputs at a position, which it does not use."""
    taken = names_in(graph)
    inputs = tuple(Input(unused("unused", taken), type_) for type_ in types)
    return replace(graph, inputs=(*graph.inputs[:at], *inputs, *graph.inputs[at:]), origin=None)


def revived(graph: Graph) -> tuple[Trace, tuple[Tensor, ...]]:
    """A trace that a graph could have been made from: of one that was read from a file."""
    trace = Trace(graph.name, capturing=False)
    with trace.open():
        table: dict[str, Tensor] = {i.name: trace.formal(i.type, i.name.rstrip("0123456789") or "x") for i in graph.inputs}
        table |= {c.name: constant(c.data) for c in graph.constants}
        for node in graph.nodes:
            if isinstance(node, Compute):
                known = {name: table[name] for name in node.operands}
                given = tuple(Input(name, tensor.type) for name, tensor in known.items())
                lifted = lift(Program(given, (), (node.definition,), node.names), known)
                table.update((name, lifted[name]) for name in node.names)
                continue
            record = trace.note(node, [table[name] for name in node.operands], list(node.results))
            record.node = replace(record.node, device=node.device, scope=node.scope, after=node.after, location=node.location)
            table.update(zip(node.names, record.results, strict=True))
        trace.outputs = [table[name] for name in graph.outputs]
    return trace, tuple(trace.formals)
