"""The graph of a function: nodes in program order, over named values.

A **Graph** has inputs, constants, nodes and outputs. Its nodes are what its function does: definitions of the language
(`Compute`), reads of and assignments to variables, calls of other graphs, branches, loops, and what is done on the host (`Print`, `Check`,
`Native`). Branches and loops stay single nodes over graphs until they are run.

**Order.** Program order is the truth: no edges are stored but those that the user asked for (`after`). What must come before what follows
from the resources of the nodes (`effects.py`), so taking a call apart cannot lose or invent an edge.

**Laziness.** A value that nothing needs is not computed. A node with an effect always runs, a read is no effect.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tensorexpr.errors import Location
from tensorexpr.ir import Constant, Definition, Input, TensorType, integer
from tensorexpr.language.core.renaming import ProgramRenaming, local_names
from tensorexpr.markup import amount, code, listing, page
from tensorexpr.text import print_definition, print_type
from tensorexpr.traversal import expressions, size_names

Typed = tuple[str, TensorType]


@dataclass(frozen=True, eq=False)
class Node:
    """What all nodes have: an `id`, unique in its graph; the values it takes and gives; and where it belongs.

    `device` is None where the user named none; `scope` is the name scope of its maker; `after` are ids of nodes that the user wants to
    have run before.
    """

    id: str
    operands: tuple[str, ...]
    results: tuple[Typed, ...]
    device: str | None = None
    scope: str = ""
    after: tuple[str, ...] = ()
    location: Location | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its results."""
        return tuple(name for name, _ in self.results)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs that it runs."""
        return tuple(value for value in vars(self).values() if isinstance(value, Graph))


@dataclass(frozen=True, eq=False, kw_only=True)
class Compute(Node):
    """A definition of the language, whose names are those of the graph."""

    definition: Definition


@dataclass(frozen=True, eq=False, kw_only=True)
class Read(Node):
    """The value that a variable holds at this point."""

    variable: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class Assign(Node):
    """The variable holds the operand from here on."""

    variable: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class Call(Node):
    """The outputs of a graph for the operands as inputs."""

    graph: Graph


@dataclass(frozen=True, eq=False, kw_only=True)
class Cond(Node):
    """One of two graphs, by the first operand; the others are the inputs of either."""

    then: Graph
    otherwise: Graph


@dataclass(frozen=True, eq=False, kw_only=True)
class While(Node):
    """The state after the last iteration. `body` gives the next state, `condition` (state to a bool) decides before each iteration.

    With `history` there is one result more: what `body` gave beyond the state, for every iteration, as the host keeps it.
    """

    condition: Graph
    body: Graph
    history: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class WhileGradient(Node):
    """The iterations of a loop backwards. Operands: its history, then a head for each floating state, then totals for variables.

    `body` takes what one iteration saved, the heads and the totals, and gives heads and totals before that iteration.
    """

    body: Graph
    saved: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Absent(Node):
    """A value that nothing looks at: what the other way through a branch would have saved."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Print(Node):
    """Writes a line: the text with the operands in place of `{}`."""

    text: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Check(Node):
    """Raises `FailedCheckError` with the text where the operand is not true."""

    text: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Native(Node):
    """What a tool computes in place of a composite: `function(*arrays)` gives the results as a tuple of arrays."""

    composite: Composite
    function: Any


@dataclass(frozen=True)
class Composite:
    """What a graph implements: `org.semantic.op`, its attributes, and the text that describes it.

    `role` is "" for the function itself, "forward" for its form that also gives what its backward pass needs, and "backward" for that.
    `aliases` are older names. A tool finds all three by `name`; `full_name` tells them apart.
    """

    name: str
    attributes: tuple[tuple[str, Any], ...] = ()
    doc: str = ""
    aliases: tuple[str, ...] = ()
    role: str = ""

    @property
    def domain(self) -> str:
        """The name without its last part: `org.semantic`."""
        return self.name.rpartition(".")[0]

    @property
    def op(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes by name."""
        return dict(self.attributes)

    @property
    def full_name(self) -> str:
        """`org.semantic.op`, with `.forward` or `.backward` behind it."""
        return f"{self.name}.{self.role}" if self.role else self.name

    def of(self, role: str) -> Composite:
        """The same in another role."""
        return replace(self, role=role)


class OfComposite:
    """What a call of a `composite` says of it."""

    composite: Composite

    @property
    def name(self) -> str:
        """The name that it implements."""
        return self.composite.name

    @property
    def role(self) -> str:
        """ "" for the function itself, "forward" and "backward" for the passes of its derivative."""
        return self.composite.role

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes by name."""
        return self.composite.attrs

    @property
    def doc(self) -> str:
        """The docstring of the function."""
        return self.composite.doc


@dataclass(frozen=True, eq=False)
class Graph:
    """A function as a graph. `kept` says why calls of it are not taken apart ("" if they may be).

    `backward` is None but for the backward pass of a function: how its inputs are divided; `own` None but for a forward pass that saves:
    how many of its outputs are the function's. `origin` is what it was traced from, the trace
    and the tensors that are its inputs: derivatives are made from that. It is no part of the graph's meaning.
    """

    name: str
    inputs: tuple[Input, ...]
    constants: tuple[Constant, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    composite: Composite | None = None
    kept: str = ""
    backward: Backward | None = None
    own: int | None = None
    origin: tuple[Any, tuple[Any, ...]] | None = field(default=None, repr=False)

    @property
    def types(self) -> dict[str, TensorType]:
        """The type of every value."""
        table = {i.name: i.type for i in self.inputs} | {c.name: c.type for c in self.constants}
        for node in self.nodes:
            table.update(node.results)
        return table

    @property
    def producers(self) -> dict[str, Node]:
        """The node that gives each value that is neither input nor constant."""
        return {name: node for node in self.nodes for name in node.names}

    def __str__(self) -> str:
        return print_graph(self)

    def __repr__(self) -> str:
        return f"<graph of {self.name}: {amount(len(self.inputs), 'input')}, {amount(len(self.nodes), 'node')}>"

    def _repr_html_(self) -> str:
        return page(code(repr(self)), listing(str(self)))


@dataclass(frozen=True)
class Backward:
    """How the inputs of a backward pass are divided: those of the forward pass, its outputs, heads, and then what it saved.

    `heads` are the positions of the outputs that have a head, `wanted` the positions among the inputs of the forward pass that get a
    gradient, in order; gradients of variables stand behind these.
    """

    inputs: int
    outputs: int
    heads: tuple[int, ...]
    wanted: tuple[int, ...]

    @property
    def saved_at(self) -> int:
        """Where what was saved begins."""
        return self.inputs + self.outputs + len(self.heads)


# ---------------------------------------------------------------------------------------------------------- renaming


class Renaming:
    """Gives values and nodes of a graph new names: those in the tables, and fresh ones for the rest."""

    def __init__(self, taken: set[str], values: Mapping[str, str], after: tuple[str, ...] = ()) -> None:
        self.taken, self.values, self._after = taken, dict(values), after
        self.ids: dict[str, tuple[str, ...]] = {}

    def node(self, node: Node, device: str | None = None, scope: str = "") -> Node:
        """The node under new names; on `device` if it has none of its own, in `scope`."""
        results = tuple((self._fresh(name), type_) for name, type_ in node.results)
        identity = self.fresh_id(node, results)
        after = tuple(dict.fromkeys((*self._after, *(new for old in node.after for new in self.ids.get(old, ())))))
        changes: dict[str, Any] = {
            "id": identity, "operands": tuple(self.values[name] for name in node.operands), "results": results,
            "device": node.device or device, "scope": f"{scope}{node.scope}", "after": after,
        }  # fmt: skip
        if isinstance(node, Compute):
            for name in local_names(node.definition):
                self._fresh(name)
            changes["definition"] = ProgramRenaming(self.values, ()).definition(node.definition)
        return replace(node, **changes)

    def fresh_id(self, node: Node, results: tuple[Typed, ...]) -> str:
        """An id for the node in the new graph."""
        identity = results[0][0] if results and node.id == node.results[0][0] else unused(node.id, self.taken)
        self.ids[node.id] = (identity,)
        return identity

    def _fresh(self, name: str) -> str:
        self.values[name] = fresh = unused(name, self.taken)
        return fresh


def unused(name: str, taken: set[str]) -> str:
    """The name, or the next numbered one that is not taken; taken from then on."""
    if name in taken:
        stem = name.rstrip("0123456789").rstrip("_") or name
        name = next(new for count in itertools.count(1) if (new := f"{stem}_{count}") not in taken)
    taken.add(name)
    return name


def walk_graphs(graph: Graph) -> Iterator[Graph]:
    """The graph and all that it runs, each once, callers first."""
    done: dict[int, Graph] = {}
    stack = [graph]
    while stack:
        found = stack.pop()
        if id(found) not in done:
            done[id(found)] = found
            yield found
            stack.extend(inner for node in reversed(found.nodes) for inner in reversed(node.graphs))


def sizes_in(graph: Graph) -> dict[str, None]:
    """The open sizes that stand in a graph and in those that it runs, in order."""
    found: dict[str, None] = {}
    for one in walk_graphs(graph):
        shapes = [type_.shape for type_ in one.types.values()]
        inner = [expressions(node.definition) for node in one.nodes if isinstance(node, Compute)]
        found |= dict.fromkeys(name for source in (*shapes, *inner) for e in source for name in size_names(e))
    return found


def names_in(graph: Graph) -> set[str]:
    """All names that stand in a graph: values, sizes, nodes, and what lives inside of scans."""
    names = {i.name for i in graph.inputs} | {c.name for c in graph.constants} | set(sizes_in(graph))
    for node in graph.nodes:
        names.add(node.id)
        names.update(node.names)
        if isinstance(node, Compute):
            names.update(local_names(node.definition))
    return names


# -------------------------------------------------------------------------------------------------------------- text


def print_graph(graph: Graph) -> str:
    """The graph as text: its own lines first, then the graphs that it runs."""
    return "\n\n".join(_text(one) for one in walk_graphs(graph))


def _text(graph: Graph) -> str:
    given = ", ".join(f"{i.name}: {print_type(i.type)}" for i in graph.inputs)
    lines = [f"def {graph.name}({given}):"]
    if graph.composite is not None:
        attributes = ", ".join(f"{name}={value!r}" for name, value in graph.composite.attributes)
        lines.insert(0, f"# implements {graph.composite.full_name}({attributes})")
    lines += [f"    {c.name}: {print_type(c.type)} = constant()" for c in graph.constants]
    for node in graph.nodes:
        where = "".join((f"  # {node.scope}" if node.scope else "", f"  @{node.device}" if node.device else ""))
        where += f"  after {', '.join(node.after)}" if node.after else ""
        lines += [f"    {line}" for line in (node_text(node) + where).splitlines()]
    lines.append(f"    return {', '.join(graph.outputs)}")
    return "\n".join(lines)


def node_text(node: Node) -> str:
    """One node as a line."""
    operands = ", ".join(node.operands)
    results = ", ".join(f"{name}: {print_type(type_)}" for name, type_ in node.results)
    match node:
        case Compute():
            return print_definition(node.definition)
        case Read():
            text = f"read({node.variable.name})"
        case Assign():
            text = f"assign({node.variable.name}, {operands})"
        case Call():
            text = f"{node.graph.name}({operands})"
        case Cond():
            text = f"cond({node.operands[0]}, {node.then.name}, {node.otherwise.name}, {', '.join(node.operands[1:])})"
        case While():
            text = f"while_loop({node.condition.name}, {node.body.name}, {operands})"
        case WhileGradient():
            text = f"while_gradient({node.body.name}, {operands})"
        case Print():
            text = f"print({', '.join((repr(node.text), *node.operands))})"
        case Check():
            text = f"check({operands}, {node.text!r})"
        case Native():
            text = f"native[{node.composite.full_name}]({operands})"
        case _:
            raise AssertionError(type(node))
    return f"{results} = {text}" if results else text


def resized(array: np.ndarray, type_: TensorType) -> bool:
    """Whether an array has a type."""
    return tuple(integer(e) for e in type_.shape) == array.shape and array.dtype == type_.dtype.numpy
