"""`te.function`: Python functions as graphs.

A function is a macro: putting code in one changes nothing in what the code means. Called on arrays it is traced once for each signature
(shapes and dtypes of its data, its static arguments by value, everything else by identity), compiled, and run: variables get
their new values when all has succeeded. Called while another function is traced it becomes a call node of that one. Called on
tensors of the language outside of a trace (in a `te.op`) it is the Python function.
"""

from __future__ import annotations

import contextvars
import copy
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from tensorexpr import dtypes
from tensorexpr.codegen.compile import check_precision
from tensorexpr.errors import ArgumentError, DefinitionError, user_location
from tensorexpr.graph.nodes.ir import Call, Composite, Graph
from tensorexpr.graph.nodes.strict import run_strict
from tensorexpr.graph.run.compile import Step, compile_graph
from tensorexpr.graph.run.composites import composite_of
from tensorexpr.graph.run.replace import registry
from tensorexpr.graph.trace.control import returned
from tensorexpr.graph.trace.tracing import Trace, as_tensor, current, current_device
from tensorexpr.graph.trace.trees import HOLE, filled, form, is_array, leaves, map_tree
from tensorexpr.graph.trace.values import arithmetic
from tensorexpr.hints import Explained, checked
from tensorexpr.ir import Const, TensorType, const
from tensorexpr.language import Tensor
from tensorexpr.language.core.tensor import whole
from tensorexpr.markup import code, listed, page, paragraph, table
from tensorexpr.op.names import imported, name_of
from tensorexpr.text import print_type

_active: contextvars.ContextVar[tuple[tuple[Function, Hashable], ...]] = contextvars.ContextVar("functions being traced", default=())
_DEPTH = 100
_STEPS_KEPT = 8


class _Same:
    """An object as part of a key: by identity, kept alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


@dataclass
class Signature:
    """A function traced for one signature: its graph, the form of its results, the precision of products, and steps compiled from it, by
    target."""

    graph: Graph
    tree: Any
    precision: str = "float32"

    @property
    def cells(self) -> tuple[str, str, int]:
        """What a table says of it: its inputs, its outputs, how many nodes its graph has."""
        graph, types = self.graph, self.graph.types
        inputs = [f"{given.name}: {print_type(given.type)}" for given in graph.inputs]
        return listed(inputs), listed([print_type(types[name]) for name in graph.outputs]), len(graph.nodes)

    def __post_init__(self) -> None:
        self.steps: dict[Hashable, Step] = {}

    def step(self) -> Step:
        """The compiled step for the current device and the replacements that are registered now."""
        device = current_device() or "cpu"
        key = (device, registry.state(device))
        step = self.steps.get(key)
        if step is None:
            if len(self.steps) >= _STEPS_KEPT:
                del self.steps[next(iter(self.steps))]
            step = self.steps[key] = compile_graph(self.graph, device, self.precision)
        return step


class Function(Explained):
    """A traced function: see `function`. `composite` is what it implements, or None; `owner` what a method is bound to, or None;
    `precision` that of the products of steps compiled from it."""

    __name__: str
    noun = "a te.function"
    offered = ("compiled", "graph", "signature", "strict")
    habits = dict.fromkeys(("grad", "gradient", "backward", "vjp"), "te.gradients(loss, variables) inside of it gives gradients")

    def __init__(
        self, function: Callable[..., Any], *, composite: Composite | None = None, kept: str = "", precision: str = "float32"
    ) -> None:
        self.python = function
        self.precision = precision
        self.composite = composite
        self.kept = kept
        self.owner: Any = None
        self._signatures: dict[Hashable, Signature] = {}
        self._methods: weakref.WeakKeyDictionary[Any, dict[Hashable, Signature]] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()
        functools.update_wrapper(self, function)
        self._take(_signature_of(function))
        self._as_method: dict[str, Any] | None = None

    def _take(self, signature: inspect.Signature) -> None:
        """Makes that the signature of its calls."""
        self.__signature__ = signature
        self._parameters = list(signature.parameters.values())
        self._static = {p.name for p in self._parameters if p.kind is p.KEYWORD_ONLY}
        self._plain = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in self._parameters)

    def __get__(self, instance: Any, owner: type | None = None) -> Function:
        if instance is None:
            return self
        if self._as_method is None:
            method = object.__new__(Function)
            vars(method).update(vars(self))
            method._take(self.__signature__.replace(parameters=self._parameters[1:]))
            self._as_method = vars(method)
        state = self._methods.get(instance)
        if state is None:
            state = self._methods.setdefault(instance, {})
        # Made at every access, since it holds the instance, which is not to live longer for that.
        bound = object.__new__(Function)
        vars(bound).update(self._as_method, owner=instance, _signatures=state)
        return bound

    def __copy__(self) -> Function:
        return self  # as Python does with functions

    def __deepcopy__(self, memo: Any) -> Function:
        return self if self.owner is None else getattr(copy.deepcopy(self.owner, memo), self.__name__)

    def __reduce__(self) -> tuple[Any, ...]:
        """A method by its object; a function by module and name where these find it, else by what it was made of."""
        if self.owner is not None:
            return getattr, (self.owner, self.__name__)
        found = name_of(self, self.python)
        if found is not None:
            return imported, found
        return _made_again, (self.python, self.composite, self.kept, self.precision)

    def around(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Function:
        """The same function of `wrapper(python)`, which has its parameters."""
        return Function(wrapper(self.python), composite=self.composite, kept=self.kept, precision=self.precision)

    def __repr__(self) -> str:
        return f"<te.function {self.python.__qualname__}{self.__signature__}>"

    def _repr_html_(self) -> str:
        """What it is, and what it was traced for so far."""
        found = list({id(signature): signature for signature in list(self._signatures.values())}.values())
        if not found:
            return page(code(repr(self)), paragraph("not called on arrays yet"))
        return page(code(repr(self)), table(("traced for", "gives", "nodes"), found, lambda signature: signature.cells))

    # ------------------------------------------------------------------------------------------------------ calls

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        trace = current()
        if trace is None and not keywords:
            # The short way: plain arrays of a signature seen before.
            quick = tuple([(a.shape, a.dtype) for a in arguments if type(a) is np.ndarray])
            found = self._signatures.get(quick) if len(quick) == len(arguments) else None
            if found is not None:
                results = found.step()(arguments)
                return results[0] if found.tree is HOLE else filled(found.tree, iter(results))
        values, tree, key = self._bound(arguments, keywords)
        if trace is None and any(isinstance(value, Tensor) for value in values):
            return self._composed(arguments, keywords)
        if trace is None:
            arrays = [value if type(value) is np.ndarray else np.asarray(_array(value)) for value in values]
            signature = self._signatures.get(key) or self._signature(key, tree, list(map(self._type, arrays)))
            if not keywords and all(type(a) is np.ndarray for a in arguments):
                self._signatures[tuple([(a.shape, a.dtype) for a in arguments])] = signature
            results = signature.step()(arrays)
            return results[0] if signature.tree is HOLE else filled(signature.tree, iter(results))
        tensors = [as_tensor(value, self.__name__) for value in values]
        signature = self._signature(key, tree, [tensor.type for tensor in tensors])
        return call(trace, signature, tensors)

    def _composed(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The definitions that the body makes of tensors, outside of a trace: as in one, it reads like NumPy."""
        token = whole.set(arithmetic)
        try:
            return self._python(*arguments, **keywords)
        finally:
            whole.reset(token)

    def graph(self, *arguments: Any, **keywords: Any) -> Graph:
        """The graph for arguments like these: arrays, tensors or `(shape, dtype)` given by `te.placeholder`."""
        return self.signature(*arguments, **keywords).graph

    def strict(self, *arguments: Any, log: list[str] | None = None, **keywords: Any) -> Any:
        """A call by the strict interpreter: what compiled calls are compared with. `log` gets the ids of the nodes that ran."""
        signature = self.signature(*arguments, **keywords)
        values = [_array(value) for value in self._bound(arguments, keywords)[0]]
        return filled(signature.tree, iter(run_strict(signature.graph, values, log)))

    def compiled(self, *arguments: Any, **keywords: Any) -> Step:
        """The compiled step for arguments like these."""
        return self.signature(*arguments, **keywords).step()

    def signature(self, *arguments: Any, **keywords: Any) -> Signature:
        """The function traced for arguments like these."""
        values, tree, key = self._bound(arguments, keywords)
        types = [value.type if isinstance(value, Tensor) else self._type(np.asarray(_array(value))) for value in values]
        return self._signature(key, tree, types)

    def _type(self, array: np.ndarray) -> TensorType:
        """The type of an argument."""
        try:
            return type_of(array)
        except DefinitionError as error:
            raise ArgumentError(
                f"{self.__name__}: expected arrays of dtypes of the language as arguments, got one of {array.dtype}",
                location=user_location(),
                hint=error.hint,
            ) from None

    # --------------------------------------------------------------------------------------------------- binding

    def _python(self, *arguments: Any, **keywords: Any) -> Any:
        return self.python(*arguments, **keywords) if self.owner is None else self.python(self.owner, *arguments, **keywords)

    def _bound(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[list[Any], Any, Hashable]:
        """The data of a call, how its arguments nest, and the key of its signature."""
        if self._plain and not keywords and len(arguments) == len(self._parameters):
            tree: Any = tuple(arguments)
            named: dict[str, Any] = {}
        else:
            try:
                bound = self.__signature__.bind(*arguments, **keywords)
            except TypeError as error:
                raise ArgumentError(
                    f"{self.__name__}: expected arguments that fit its parameters, got {str(error).removeprefix('got ')}",
                    term=f"{self.__name__}{self.__signature__}",
                    location=user_location(),
                ) from None
            bound.apply_defaults()
            named = {name: value for name, value in bound.arguments.items() if name in self._static}
            tree = tuple(value for name, value in bound.arguments.items() if name not in self._static)
        values = [leaf for leaf in leaves(tree) if is_array(leaf)]
        key = (form(tree, _leaf_key), tuple((name, form(value, _static_key)) for name, value in named.items()))
        return values, (tree, named), key

    def _signature(self, key: Hashable, trees: Any, types: Sequence[TensorType]) -> Signature:
        found = self._signatures.get(key)
        if found is not None:
            return found
        active = _active.get()
        if any(function._signatures is self._signatures and other == key for function, other in active) or len(active) > _DEPTH:
            names = " -> ".join(function.__name__ for function, _ in (*active[-3:], (self, key)))
            raise DefinitionError(
                f"{self.__name__}: expected calls that come to an end, got a cycle: {names}",
                location=user_location(),
                hint="a function that calls itself on data without end is a loop: te.while_loop; on static arguments it must end",
            )
        with self._lock:
            found = self._signatures.get(key)
            if found is None:
                token = _active.set((*active, (self, key)))
                try:
                    found = self._signatures[key] = self._trace(trees, types)
                finally:
                    _active.reset(token)
        return found

    def _trace(self, trees: Any, types: Sequence[TensorType]) -> Signature:
        tree, named = trees
        trace = Trace(self.__name__, capturing=False)
        names = [p.name for p in self._parameters if p.name not in self._static]
        with trace.open():
            stems = [name for name, item in zip(names, tree, strict=True) for leaf in leaves(item) if is_array(leaf)]
            formals = iter([trace.formal(type_, stem) for type_, stem in zip(types, stems, strict=True)])
            given = map_tree(lambda leaf: next(formals) if is_array(leaf) else leaf, tree)
            form_ = returned(trace, self._python(*self._ordered(names, given), **named))
        trace.captured()
        composite = self.composite
        if composite is not None and named:
            composite = replace(composite, attributes=(*composite.attributes, *named.items()))
        return Signature(trace.graph(composite=composite, kept=self.kept), form_, self.precision)

    def _ordered(self, names: list[str], given: tuple[Any, ...]) -> Iterator[Any]:
        kinds = {p.name: p.kind for p in self._parameters}
        for name, value in zip(names, given, strict=True):
            if kinds[name] is inspect.Parameter.VAR_POSITIONAL:
                yield from value
            else:
                yield value


def _made_again(python: Any, composite: Composite | None, kept: str, precision: str) -> Function:
    """What pickle calls to make a traced function of its Python function."""
    return Function(python, composite=composite, kept=kept, precision=precision)


def call(trace: Trace, signature: Signature, tensors: Sequence[Tensor]) -> Any:
    """Notes a call of a traced function; gives its results in their form."""
    graph = signature.graph
    types = [(name, graph.types[name]) for name in graph.outputs]
    record = trace.note(Call(graph.name, (), (), graph=graph), tensors, [(stem.rstrip("0123456789"), type_) for stem, type_ in types])
    return filled(signature.tree, iter(record.results))


def _signature_of(python: Any) -> inspect.Signature:
    """The parameters of what is to be traced. Raises `DefinitionError` where there are none to be known, or some have no names."""
    try:
        signature = inspect.signature(python)
    except (TypeError, ValueError):  # no callable, or a built-in one that does not tell
        raise DefinitionError(
            f"te.function: expected a Python function with a signature, got {python!r}",
            location=user_location(),
            hint="write a def or lambda around it",
        ) from None
    rest = [p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    if rest:
        raise DefinitionError(
            f"te.function: expected parameters with names, got **{rest[0]} of {getattr(python, '__name__', python)}",
            location=user_location(),
            hint="data comes by position (a dict of tensors is one argument), static values by keyword-only parameters",
        )
    return signature


def _array(value: Any) -> Any:
    return np.float32(value) if type(value) is float else value


def type_of(array: np.ndarray) -> TensorType:
    """The type of an array."""
    return TensorType(tuple(map(const, array.shape)), dtypes.dtype(array.dtype))


def _leaf_key(leaf: Any) -> Hashable:
    if isinstance(leaf, np.ndarray):
        return (leaf.shape, leaf.dtype)
    if isinstance(leaf, Tensor):
        return (tuple(int(e.value) if isinstance(e, Const) else e for e in leaf.extents), leaf.dtype.numpy)
    if is_array(leaf):
        array = np.asarray(_array(leaf))
        return (array.shape, array.dtype)
    return _static_key(leaf)


def _static_key(leaf: Any) -> Hashable:
    if isinstance(leaf, float):
        return (float, leaf.hex())
    if isinstance(leaf, (str, int, bool, bytes, type(None))):
        return (type(leaf), leaf)
    return _Same(leaf)


@overload
def function(
    python: Callable[..., Any],
    *,
    implements: str | None = None,
    attrs: Mapping[str, Any] | None = None,
    aliases: Sequence[str] = (),
    inline: bool = True,
    precision: str = "float32",
) -> Function: ...
@overload
def function(
    python: None = None,
    *,
    implements: str | None = None,
    attrs: Mapping[str, Any] | None = None,
    aliases: Sequence[str] = (),
    inline: bool = True,
    precision: str = "float32",
) -> Callable[[Callable[..., Any]], Function]: ...
@checked()
def function(
    python: Callable[..., Any] | None = None,
    *,
    implements: str | None = None,
    attrs: Mapping[str, Any] | None = None,
    aliases: Sequence[str] = (),
    inline: bool = True,
    precision: str = "float32",
) -> Any:
    """Makes a traced function of a Python function: `@te.function`, or with options.

    Positional parameters take arrays, tensors, numbers, nested tuples, lists and dicts of these, variables, and any other object,
    which is part of the signature by identity; keyword-only parameters are static. `implements="org.semantic.op"` says what it
    computes, so that a tool may compute it in another way (`te.register_replacement`); `attrs` are named values of the composite,
    to which its static arguments are added; `aliases` are older names. With `inline=False` its calls stay calls. `precision` is that of
    `te.build`, for all that runs in a call of it, whatever functions inside of it say.

    Raises `DefinitionError` for a name without a dot, attributes without names, something that has no parameters to be known or takes
    `**keywords`, and when it is traced for a cycle of calls without an end; `ArgumentError` for another precision.

    >>> @te.function
    ... def twice(x):
    ...     return x + x
    >>> twice(np.arange(3.0))
    array([0., 2., 4.])
    """
    check_precision(precision)
    if python is None:
        return functools.partial(function, implements=implements, attrs=attrs, aliases=aliases, inline=inline, precision=precision)
    composite = None
    if implements is not None or attrs is not None or aliases:
        composite = composite_of(implements, attrs, aliases, inspect.getdoc(python) or "")
    return Function(python, composite=composite, kept="" if inline else "marked inline=False", precision=precision)
