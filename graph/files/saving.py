"""Functions in files: the graph with all that it calls, its constants and what its variables hold, as one safetensors file.

    te.save_function("step.safetensors", step, x, y)      # the function, traced for arguments like these
    step = te.load_function("step.safetensors")           # in a process that has never heard of its modules

The graph is JSON in the file's metadata; definitions stand in it as the text of programs, which people can read and `te.parse_program`
reads back. Nothing in the file is code. Composites keep name, attributes, docstring and body, so replacements registered later find them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tensorexpr.bounds.wrapping import program_with_wraps
from tensorexpr.dtypes import dtype, int64
from tensorexpr.errors import ArgumentError, Location, TensorExprError, user_location
from tensorexpr.graph.files.loaded import Loaded
from tensorexpr.graph.files.verify import verify_graph
from tensorexpr.graph.modules.tensor_files import once, read_tensors, write_tensors
from tensorexpr.graph.modules.variable import Variable
from tensorexpr.graph.nodes.ir import (
    Absent,
    Assign,
    Backward,
    Call,
    Check,
    Composite,
    Compute,
    Cond,
    Graph,
    Node,
    Print,
    Read,
    While,
    WhileGradient,
)
from tensorexpr.graph.nodes.sizes import sized_program
from tensorexpr.graph.run.function import Function, Signature
from tensorexpr.graph.trace.trees import HOLE, leaves
from tensorexpr.hints import article, checked
from tensorexpr.ir import Const, Constant, Expr, Index, Input, TensorType, const
from tensorexpr.parse import parse_expr, parse_program
from tensorexpr.text import print_expr, print_program
from tensorexpr.traversal import walk

_FORMAT = "tensorexpr.function/1"
_KINDS: dict[str, type[Node]] = {
    kind.__name__: kind for kind in (Absent, Assign, Call, Check, Compute, Cond, Print, Read, While, WhileGradient)
}
_COMMON = {field.name for field in fields(Node)}
_MALFORMED = (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError, MemoryError, TensorExprError)
"""What reading raises that was not written so."""
_Read = TypeVar("_Read")


@checked()
def save_function(path: Any, function: Function | Loaded, *arguments: Any, **keywords: Any) -> None:
    """Writes a function, traced for arguments like these, to a safetensors file: its graph, its constants and what its variables hold.

    Raises `ArgumentError` for what is no `te.function`, and for attributes of composites that no text holds.

    >>> import tempfile, pathlib
    >>> scale = te.function(lambda x: 2.0 * x)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     te.save_function(pathlib.Path(folder, "scale.safetensors"), scale, np.ones(3))
    ...     te.load_function(pathlib.Path(folder, "scale.safetensors"))(np.arange(3.0))
    array([0., 2., 4.])
    """
    if not isinstance(function, Function | Loaded):
        raise ArgumentError(
            f"te.save_function: expected a te.function, got {article(function)}",
            location=user_location(),
            hint="decorate the function with @te.function",
        )
    signature = function.signature(*arguments, **keywords)
    writer = _Writer()
    about = {
        "format": _FORMAT,
        "name": function.__name__,
        "tree": _tree_data(signature.tree, signature.graph.name),
        "main": writer.graph(signature.graph),
        "graphs": writer.graphs,
        "variables": [{"name": v.name, "dtype": v.dtype.name, "trainable": v.trainable} for v in writer.variables],
    }
    tensors = {f"variable.{k}": variable.value for k, variable in enumerate(writer.variables)} | writer.constants
    write_tensors(Path(path), tensors, {"function": json.dumps(about)})


@checked()
def load_function(path: Any, variables: Sequence[Variable] | None = None) -> Loaded:
    """The function in a file: called with arrays in the order of its data arguments, in a trace or outside of one.

    It has variables of its own (`.variables`, by name), with the values that were saved, unless `variables` gives others in their
    order. Raises `ArgumentError` for a file that holds no function, or variables that do not fit.

    >>> import tempfile, pathlib
    >>> weight = te.Variable(np.array(2.0), name="weight")
    >>> scale = te.function(lambda x: x * weight)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     te.save_function(pathlib.Path(folder, "scale.safetensors"), scale, np.ones(3))
    ...     loaded = te.load_function(pathlib.Path(folder, "scale.safetensors"))
    >>> loaded(np.arange(3.0)), loaded.variables
    (array([0., 2., 4.]), {'weight': <variable weight: f64[]>})
    """
    file = Path(path)
    tensors, metadata = read_tensors(file)
    about: Any = None
    try:
        about = json.loads(metadata["function"], object_pairs_hook=once)
        known = about["format"] == _FORMAT
    except (KeyError, ValueError, TypeError, RecursionError):
        known = False
    if not known:
        raise ArgumentError(
            f"te.load_function: expected a file with a function, got {file.name}",
            location=user_location(),
            hint="te.save_function writes one",
        )
    own = _reading(file, lambda: _variables(about, tensors))
    if variables is not None:
        if [(v.shape, v.dtype) for v in variables] != [(v.shape, v.dtype) for v in own]:
            wanted, got = ([f"{v.dtype.short}{list(v.shape)}" for v in items] for items in (own, variables))
            raise ArgumentError(
                f"te.load_function: expected variables of {', '.join(wanted)}, got {', '.join(got)}", location=user_location()
            )
        own = list(variables)
    return _reading(file, lambda: _function(about, tensors, own))


def _reading(file: Path, read: Callable[[], _Read]) -> _Read:
    """What `read` gives. Raises `ArgumentError` where the file holds what is not written so, or has no meaning."""
    try:
        return read()
    except _MALFORMED as error:
        what = error.message if isinstance(error, TensorExprError) else f"{type(error).__name__}: {error}"
        raise ArgumentError(
            f"te.load_function: expected a function as te.save_function writes it in {file.name}, got another text: {what}",
            at=getattr(error, "at", None),
            location=user_location(),
        ) from None


def _variables(about: dict[str, Any], tensors: dict[str, np.ndarray]) -> list[Variable]:
    found = []
    for k, entry in enumerate(_list(about["variables"])):
        array = tensors[f"variable.{k}"]
        if array.dtype != dtype(_text(entry["dtype"])).numpy:
            raise TypeError(f"variable {k} of dtype {entry['dtype']}, with values of {array.dtype}")
        found.append(Variable(array, name=_text(entry["name"]), dtype=entry["dtype"], trainable=entry["trainable"] is True))
    return found


def _function(about: dict[str, Any], tensors: dict[str, np.ndarray], variables: list[Variable]) -> Loaded:
    graph = _Reader(_list(about["graphs"]), variables, tensors).graph(about["main"])
    tree = _value(about["tree"])
    holes = sum(leaf is HOLE for leaf in leaves(tree))
    if holes != len(graph.outputs):
        raise ValueError(f"{len(graph.outputs)} results for {holes} places")
    return Loaded(_text(about["name"]), Signature(graph, tree), variables)


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise TypeError(f"expected a list, got {type(data).__name__}")
    return data


def _text(data: Any) -> str:
    if not isinstance(data, str):
        raise TypeError(f"expected a text, got {type(data).__name__}")
    return data


class _Writer:
    """Graphs as data, each once, with their constants and variables beside."""

    def __init__(self) -> None:
        self.graphs: list[dict[str, Any]] = []
        self.variables: list[Variable] = []
        self.constants: dict[str, np.ndarray] = {}
        self._done: dict[int, int] = {}

    def graph(self, graph: Graph) -> int:
        """The number of a graph among all."""
        if id(graph) not in self._done:
            data = self._data(graph)
            self._done[id(graph)] = len(self.graphs)
            self.graphs.append(data)
        return self._done[id(graph)]

    def _data(self, graph: Graph) -> dict[str, Any]:
        constants = {}
        for constant in graph.constants:
            key = constants[constant.name] = f"constant.{len(self.constants)}"
            self.constants[key] = constant.data
        composite = graph.composite
        return {
            "name": graph.name,
            "inputs": [[i.name, _type_data(i.type)] for i in graph.inputs],
            "constants": constants,
            "nodes": [self._node(node, graph) for node in graph.nodes],
            "outputs": list(graph.outputs),
            "kept": graph.kept,
            "own": graph.own,
            "composite": None if composite is None else {
                "name": composite.name, "doc": composite.doc, "aliases": list(composite.aliases), "role": composite.role,
                "attributes": [[name, _data(value, f"{composite.name}: attribute {name}")] for name, value in composite.attributes],
            },
            "backward": None if graph.backward is None else {
                "inputs": graph.backward.inputs, "outputs": graph.backward.outputs,
                "heads": list(graph.backward.heads), "wanted": list(graph.backward.wanted),
            },
        }  # fmt: skip

    def _node(self, node: Node, graph: Graph) -> dict[str, Any]:
        data: dict[str, Any] = {
            "kind": type(node).__name__,
            "id": node.id,
            "operands": list(node.operands),
            "results": [[name, _type_data(type_)] for name, type_ in node.results],
        }
        data |= {name: value for name, value in (("device", node.device), ("scope", node.scope), ("after", list(node.after))) if value}
        if node.location is not None:
            data["location"] = [node.location.file, node.location.line]
        for field in fields(node):
            if field.name in _COMMON:
                continue
            value = getattr(node, field.name)
            if isinstance(value, Graph):
                value = self.graph(value)
            elif isinstance(value, Variable):
                if value not in self.variables:
                    self.variables.append(value)
                value = self.variables.index(value)
            elif isinstance(node, Compute):
                types = graph.types
                given = tuple(Input(name, types[name]) for name in node.operands)
                value = print_program(sized_program(given, [node.definition], node.names))
            data[field.name] = value
        return data


class _Reader:
    """Graphs from data, those that are run before those that run them, as they were written; each is verified when it is read."""

    def __init__(self, graphs: list[dict[str, Any]], variables: Sequence[Variable], tensors: dict[str, np.ndarray]) -> None:
        self._variables, self._tensors = variables, tensors
        self._done: list[Graph] = []
        for data in graphs:
            graph = self._graph(data)
            verify_graph(graph)
            self._done.append(_with_wraps(graph))

    def graph(self, number: int) -> Graph:
        """The graph of a number, read before."""
        return self._done[_count(number)]

    def _graph(self, data: dict[str, Any]) -> Graph:
        composite, backward = data["composite"], data["backward"]
        return Graph(
            _text(data["name"]),
            tuple(Input(_text(name), _type(type_)) for name, type_ in _list(data["inputs"])),
            tuple(Constant(name, self._tensors[key]) for name, key in data["constants"].items()),
            tuple(self._node(node) for node in _list(data["nodes"])),
            tuple(map(_text, _list(data["outputs"]))),
            kept=data["kept"],
            own=data["own"],
            composite=None if composite is None else Composite(
                composite["name"], tuple((name, _value(value)) for name, value in composite["attributes"]), composite["doc"],
                tuple(composite["aliases"]), composite["role"],
            ),
            backward=None if backward is None else Backward(
                backward["inputs"], backward["outputs"], tuple(backward["heads"]), tuple(backward["wanted"])
            ),
        )  # fmt: skip

    def _node(self, data: dict[str, Any]) -> Node:
        kind = _KINDS[data["kind"]]
        own: dict[str, Any] = {}
        for field in fields(kind):
            if field.name in _COMMON:
                continue
            value = data[field.name]
            match field.name:
                case "variable":
                    value = self._variables[_count(value)]
                case "definition":
                    (value,) = parse_program(value).definitions
                case "graph" | "then" | "otherwise" | "condition" | "body":
                    value = self.graph(value)
            own[field.name] = value
        return kind(
            data["id"],
            tuple(map(_text, _list(data["operands"]))),
            tuple((_text(name), _type(type_)) for name, type_ in _list(data["results"])),
            data.get("device"),
            data.get("scope", ""),
            tuple(map(_text, _list(data.get("after", [])))),
            Location(_text(data["location"][0]), _count(data["location"][1])) if "location" in data else None,
            **own,
        )


def _with_wraps(graph: Graph) -> Graph:
    """A graph that is well formed, with arithmetic that may wrap around written as such: somebody may have written the file."""
    types, nodes = graph.types, list(graph.nodes)
    for at, node in enumerate(nodes):
        if isinstance(node, Compute):
            given = tuple(Input(name, types[name]) for name in dict.fromkeys(node.operands))
            program = sized_program(given, [node.definition], node.names)
            found = program_with_wraps(program)
            if found is not program:
                nodes[at] = replace(node, definition=found.definitions[0])
    return graph if nodes == list(graph.nodes) else replace(graph, nodes=tuple(nodes))


# ------------------------------------------------------------------------------------------------------------- data


def _type_data(type_: TensorType) -> list[Any]:
    """A type: its dtype and its extents, numbers or the text of open ones."""
    return [type_.dtype.name, [int(e.value) if isinstance(e, Const) else print_expr(e) for e in type_.shape]]


def _type(data: list[Any]) -> TensorType:
    name, shape = data
    return TensorType(tuple(_extent(extent) for extent in _list(shape)), dtype(_text(name)))


def _extent(data: Any) -> Expr:
    if not isinstance(data, str):
        return const(_count(data))
    free = parse_expr(data, dtype=int64)
    return parse_expr(data, dtype=int64, sizes=tuple(n.name for n in walk(free) if isinstance(n, Index)))


def _count(data: Any) -> int:
    if type(data) is not int or not 0 <= data < 1 << 63:
        raise TypeError(f"expected a number from 0 on, got {data!r}")
    return data


def _data(value: Any, what: str) -> Any:
    """A static value as JSON; tuples and lists are told apart."""
    if isinstance(value, (tuple, list)):
        return {type(value).__name__ if type(value) is list else "tuple": [_data(item, what) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_data(key, what), _data(item, what)] for key, item in value.items()]}
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise ArgumentError(
        f"te.save_function: expected text, numbers, None, tuples, lists and dicts, got {value!r}", at=what, location=user_location()
    )


def _value(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    ((kind, items),) = data.items()
    match kind:
        case "hole":
            return HOLE
        case "dict":
            return {_value(key): _value(item) for key, item in _list(items)}
        case "list" | "tuple":
            return (list if kind == "list" else tuple)(_value(item) for item in _list(items))
    raise ValueError(f"expected a tuple, list or dict, got {kind!r}")


def _tree_data(tree: Any, name: str) -> Any:
    if tree is HOLE:
        return {"hole": None}
    if isinstance(tree, (tuple, list)):
        return {"list" if type(tree) is list else "tuple": [_tree_data(item, name) for item in tree]}
    if isinstance(tree, dict):
        return {"dict": [[_data(key, name), _tree_data(item, name)] for key, item in tree.items()]}
    return _data(tree, f"result of {name}")
