"""Methods of modules, compiled apart from their modules: `te.compile_method`.

A call of a traced function reads variables as they are. Here a method becomes a function of the language, whose placeholders are the
arguments and, under their paths (`layers.0.w`), the variables that it uses; their values come from a `te.Context` at each run. So one
compiled method serves any number of sets of weights, can be exported, and some or all of its variables can be made constants
(`freeze`), on which the compiler then folds what depends on them alone. What the method assigns to are its updates.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tensorexpr.codegen.compiled.context import Context
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.compiled.storage import compile, freeze
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.graph.modules.module import Module
from tensorexpr.graph.modules.state import by_path
from tensorexpr.graph.modules.variable import Variable
from tensorexpr.graph.nodes.ir import Assign, Compute, Graph, Read, node_text, unused
from tensorexpr.graph.nodes.sizes import sized_program
from tensorexpr.graph.run.compile import forwarded, lowered_graph
from tensorexpr.graph.run.function import Function, function
from tensorexpr.graph.trace.trees import filled
from tensorexpr.hints import checked
from tensorexpr.ir import Constant, Input, Program
from tensorexpr.language import Tensor, lift, program_of
from tensorexpr.language.core.renaming import ProgramRenaming
from tensorexpr.markup import code, listed, page


@dataclass(frozen=True)
class _Method:
    """A method as tensors: its arguments, the placeholders of variables by path, results, new values by path, how results nest."""

    name: str
    arguments: dict[str, Tensor]
    weights: dict[str, Tensor]
    variables: dict[str, Variable]
    results: list[Tensor]
    new: dict[str, Tensor]
    tree: Any
    target: str

    @property
    def inputs(self) -> list[Tensor]:
        return [*self.arguments.values(), *self.weights.values()]


class CompiledMethod:
    """A compiled method: see `compile_method`. Called with arrays it runs on the values that the module's variables have now.

    `function` is the compiled function, for runs in contexts of one's own; `variables` are those that it uses, by path, `updates` the paths
    of those that it assigns to, `frozen` of those that are constants.
    """

    def __init__(self, method: _Method, made: CompiledFunction, frozen: tuple[str, ...] = ()) -> None:
        self.function = made
        self.frozen = frozen
        self.updates = tuple(method.new)
        self.variables = {path: variable for path, variable in method.variables.items() if path not in frozen}
        self._method = method

    def __repr__(self) -> str:
        return f"<compiled method {self.function.signature.line}>"

    def _repr_html_(self) -> str:
        assigned = f"assigns to {listed(self.updates)}"
        return page(code(repr(self)), code(assigned) if self.updates else "", self.function._repr_html_())

    def context(self) -> Context:
        """A context with the values that the variables have now: copies of those that are updated, the arrays themselves of the rest."""
        values = {path: variable.value for path, variable in self.variables.items()}
        return Context({path: value.copy() if path in self.updates else value for path, value in values.items()})

    def __call__(self, *arrays: Any) -> Any:
        names = self._method.arguments
        if len(arrays) != len(names):
            raise ArgumentError(
                f"{self._method.name}: expected {len(names)} arrays ({', '.join(names)}), got {len(arrays)}", location=user_location()
            )
        context = self.context()
        results = self.function.run(context, **dict(zip(names, arrays, strict=True)))
        for path in self.updates:
            self.variables[path].put(context[path])
        return filled(self._method.tree, iter(results))

    def freeze(self, predicate: Callable[[str, Variable], bool] = lambda path, variable: True) -> CompiledMethod:
        """The method with constants for the variables for which `predicate(path, variable)` holds, of the values that they have now.

        Raises `ArgumentError` for a method that assigns to variables, and for what is no predicate.
        """
        if not callable(predicate):
            raise ArgumentError(
                f"{self._method.name}: expected a function of path and variable, to freeze by, got {predicate!r}",
                location=user_location(),
                hint='lambda path, variable: path.startswith("encoder.")',
            )
        if self.updates:
            raise ArgumentError(
                f"{self._method.name}: expected a method that assigns to no variable, to freeze, got one that assigns to "
                f"{', '.join(self.updates)}",
                location=user_location(),
            )
        chosen = [path for path, variable in self.variables.items() if predicate(path, variable)]
        program = program_of(self._method.results, self._method.inputs)
        frozen = freeze(program, Context({path: v.value for path, v in self._method.variables.items()}), [*self.frozen, *chosen])
        return CompiledMethod(self._method, compile(frozen, target=self._method.target), (*self.frozen, *chosen))


@checked()
def compile_method(method: Callable[..., Any], *arguments: Any, target: str = "cpu", **static: Any) -> CompiledMethod:
    """Compiles a method of a module for arguments like these (arrays, or placeholders), with its variables as placeholders.

    The placeholders of variables are named by their paths from the module. Raises `ArgumentError` for what is no method of a module, for
    variables that the module does not hold, and for a method that does more than compute, read and assign.

    >>> class Scale(te.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = te.Variable(np.array(2.0), name="w")
    ...     @te.function
    ...     def __call__(self, x):
    ...         return te.compute(x.shape, lambda i: self.w[()] * x[i])
    >>> compiled = te.compile_method(Scale().__call__, np.ones(3))
    >>> compiled(np.arange(3.0)), list(compiled.variables)
    (array([0., 2., 4.]), ['w'])
    """
    traced, module = _traced(method)
    signature = traced.signature(*arguments, **static)
    graph = forwarded(lowered_graph(signature.graph))
    paths: dict[Any, str] = {}
    for path, variable in by_path(module).items():
        paths.setdefault(variable, path)
    program, reads, new = _program(graph, paths, traced.__name__)
    table = lift(program, {})
    weights = {path: table[name] for path, name in reads.items()}
    variables = {path: variable for variable, path in paths.items() if path in weights}
    given = [i.name for i in program.inputs if i.name not in set(reads.values())]
    made = _Method(
        traced.__name__,
        {name: table[name] for name in given},
        weights,
        variables,
        [table[name] for name in program.outputs[: len(graph.outputs)]],
        {path: table[name] for path, name in new.items()},
        signature.tree,
        target,
    )
    updates = {weights[path]: tensor for path, tensor in made.new.items()}
    mode = "training" if updates else "inference"
    return CompiledMethod(made, compile(made.results, made.inputs, target=target, mode=mode, updates=updates))


def _traced(method: Any) -> tuple[Function, Module]:
    """A method as a traced function, and its module."""
    if isinstance(method, Function):
        owner = method.owner
    else:
        owner = method.__self__ if inspect.ismethod(method) else None
        method = function(method.__func__).__get__(owner) if isinstance(owner, Module) else method
    if not isinstance(owner, Module):
        raise ArgumentError(
            f"te.compile_method: expected a method of a module, got {method!r}",
            location=user_location(),
            hint="te.compile_method(model.encode, x)",
        )
    return method, owner


def _program(graph: Graph, paths: dict[Any, str], name: str) -> tuple[Program, dict[str, str], dict[str, str]]:
    """The program of a graph; the inputs that are variables, and the new values, by path."""
    reads: dict[str, str] = {}
    new: dict[str, str] = {}
    taken = set(graph.types)
    names = _plain([given.name for given in graph.inputs], taken)
    inputs = [Input(names[given.name], given.type) for given in graph.inputs]
    definitions = []
    for node in graph.nodes:
        if isinstance(node, Compute):
            definitions.append(node.definition)
        elif isinstance(node, (Read, Assign)):
            path = paths.get(node.variable)
            if path is None:
                raise ArgumentError(
                    f"{name}: expected variables of its module, got {node.variable.name}, which the module does not hold",
                    term=node_text(node),
                    location=node.location,
                )
            if path not in reads:
                own = node.names[0] if isinstance(node, Read) else path
                reads[path] = names[own] = unused(path.replace(".", "_"), taken)
                inputs.append(Input(reads[path], node.variable.type, path))
            if isinstance(node, Assign):
                new[path] = node.operands[0]
        else:
            raise ArgumentError(
                f"{name}: expected a method that computes, reads and assigns, to compile it apart from its module, got one that does more",
                term=node_text(node),
                location=node.location,
                hint="call it as a te.function",
            )
    renaming = ProgramRenaming(names, ())
    constants = tuple(Constant(names.get(c.name, c.name), c.data) for c in graph.constants)
    outputs = tuple(names.get(output, output) for output in graph.outputs)
    new = {path: names.get(value, value) for path, value in new.items()}
    return sized_program(inputs, list(map(renaming.definition, definitions)), outputs, constants), reads, new


def _plain(names: Iterable[str], taken: set[str]) -> dict[str, str]:
    """Inputs under the names of their parameters: a trace numbers them, x0."""
    plain = {name: name.rstrip("0123456789") for name in names}
    stems = list(plain.values())
    result = {name: stem if stem and stems.count(stem) == 1 and stem not in taken else name for name, stem in plain.items()}
    taken.update(result.values())
    return result
