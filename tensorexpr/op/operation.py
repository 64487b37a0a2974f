"""`@te.op`: a Python function on tensors as an operation on arrays.

Called on arrays, an op is traced once per signature (shapes, dtypes, static arguments), after many lengths once for all of
them (`lengths`), compiled, kept and run; called on tensors of the language it is composed: the function runs and gives
tensors. Positional parameters are tensors (one with the default None may be left out), keyword-only parameters are static.
An argument may be a tuple of tensors, and so may the result, nested at will: trees are flattened on the way to a compiled
function and rebuilt on the way back; a tensor left out is a tree without leaves. The transforms (`te.vjp`, `te.grad`, ...)
make ops from ops, so they are called, composed and differentiated in the same ways.
"""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np

from tensorexpr.autodiff.api.units import is_rule
from tensorexpr.codegen.llvm.process.call import Callable as Entered
from tensorexpr.codegen.llvm.process.call import link, native_calls
from tensorexpr.codegen.memo import Memo
from tensorexpr.dtypes import dtype
from tensorexpr.errors import ArgumentError, DefinitionError, Location, failure_location, user_location
from tensorexpr.hints import Explained, article, checked, made_by, suggestion
from tensorexpr.ir import Program
from tensorexpr.language import Tensor, constant, program_of
from tensorexpr.markup import code, formula, listed, or_reason, page, paragraph, table
from tensorexpr.op.arguments import check_integer, static_key, tree_text, weak_floats
from tensorexpr.op.conventions import places_of, spelling_of
from tensorexpr.op.hosts import host_of
from tensorexpr.op.lengths import Lengths, Ready
from tensorexpr.op.names import identity, imported, name_of, name_results
from tensorexpr.op.rules import Rule, refusing
from tensorexpr.op.signatures import REQUIRED, Bound, read_signature
from tensorexpr.op.specs import Spec, argument_error, dtype_of, is_scalar, opened, placeholders_of, spec_of
from tensorexpr.op.trees import form_of, leaves, map_tree, rebuild, stood_for
from tensorexpr.sharding import Sharding
from tensorexpr.traversal import fresh_name

if TYPE_CHECKING:
    from tensorexpr.codegen.compiled.function import CompiledFunction

_SIGNATURES_KEPT = 1024
_SPELLINGS_KEPT = 1024
_LINKED = 8  # signatures that are tried one after the other before Python looks them up


_ops: weakref.WeakSet[Op] = weakref.WeakSet()
_told: list[Callable[[Op], object]] = []


def for_every_op(tell: Callable[[Op], object]) -> None:
    """Calls a function with each op that there is, and from now on with each that is made: a tracer of another library has to know them
    before it meets a call."""
    _told.append(tell)
    for operation in list(_ops):
        tell(operation)


# ---------------------------------------------------------------------------------------------------- operations


@native_calls
class Op(Explained, Bound, Entered):
    """An operation: see `op`.

    `name`; `parameters`, the names of its tensor arguments; `rest`, the stem of the names of further ones (of a transform
    that takes a varying number; None: no more are taken); `optional`, those parameters that may be left out; `static`, its
    static arguments with their defaults (`inspect.Parameter.empty`: must be given); `rule`, its own gradient rule or None; `surplus`,
    the hint where more tensors are given (None: the static arguments); `lacking`, the hint where fewer are;
    `direct`, what computes calls without static arguments on arrays of another library, by their type, once its host has seen some;
    `kept`, what hosts made of the op, by their name; `derived`, the transform and its arguments that made it of another op, or None.
    """

    noun = "an op"
    offered = ("compile", "location", "name", "parameters", "sharding", "static", "trace")
    habits: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("grad", "gradient", "backward", "vjp"), "te.vjp(op) is the op that gives its gradients, te.grad(op) that of a loss"
        ),
        "value_and_grad": "te.value_and_grad(op) is the op that gives a loss and its gradients",
        "jvp": "te.jvp(op) is the op that gives its derivative along tangents",
        "schedule": "te.schedule(op(x, w)) of placeholders x and w",
        "source": "op.compile(*arrays).source(stage)",
        "profile": "op.compile(*arrays).profile(*arrays)",
        "lower": "print(op.trace(*arrays)) shows the program, op.compile(*arrays).source(stage) the code",
    }

    @checked(made_by("@te.op above the def of a function on tensors makes an op of it"))
    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        parameters: tuple[str, ...],
        static: Mapping[str, Any],
        rest: str | None = None,
        rule: Callable[..., Any] | None = None,
        optional: tuple[str, ...] = (),
        surplus: str | None = None,
        lacking: str | None = None,
        written_by_user: bool = False,
        derived: tuple[Callable[..., Op], tuple[Any, ...]] | None = None,
    ) -> None:
        self.function = function
        self.derived = derived
        self.name = self.__name__ = name
        self.parameters = parameters
        self.rest = rest
        self.optional = optional
        self.static = dict(static)
        self.rule = rule
        self.surplus, self.lacking = surplus, lacking
        self._written_by_user = written_by_user
        self.direct: dict[type, Callable[..., Any]] = {}
        self.kept: dict[str, Any] = {}
        self.transforms: dict[object, Op] = {}
        """The derivatives that were made of it, by transform and what they are with respect to."""
        self._memo: Memo[Ready] = Memo(_SIGNATURES_KEPT)
        self._lengths = Lengths()
        self._spellings: dict[Hashable, tuple[Hashable, list[int]]] = {}
        """Calls as they were written, each with the key of its signature and the places of its arrays: they are bound once."""
        self._free_links = _LINKED
        self.__signature__ = self._python_signature()
        _ops.add(self)
        for tell in _told:
            tell(self)

    def _python_signature(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        tensors = [inspect.Parameter(n, kind, default=None if n in self.optional else REQUIRED) for n in self.parameters]
        rest = [] if self.rest is None else [inspect.Parameter(self.rest, inspect.Parameter.VAR_POSITIONAL)]
        static = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d) for n, d in self.static.items()]
        # Not checked for the order of defaults: what a transform adds, a head, stands behind what may be left out.
        return inspect.Signature([*tensors, *rest, *static], __validate_parameters__=False)

    def __repr__(self) -> str:
        return f"<te.op {self.name}{self.__signature__}>"

    def _repr_html_(self) -> str:
        """What it is, what it was compiled for so far, and the formulas of the last of these."""
        made = list({id(ready.function): ready.function for ready in self._memo.values()}.values())
        if not made:
            return page(code(repr(self)), paragraph("not called on arrays yet"))
        compiled = table(("compiled for", "gives"), made[::-1], lambda f: (listed(f.signature.inputs), listed(f.signature.outputs)))
        return page(code(repr(self)), compiled, or_reason(lambda: formula(made[-1].program._repr_latex_())))

    # ------------------------------------------------------------------------------------------------ copies

    def __deepcopy__(self, memo: Any) -> Op:
        return self  # as Python does with functions

    def __copy__(self) -> Op:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """By module and name where these find this op, by the transform that made it, else by its function."""
        if self.derived is not None:
            return self.derived
        found = name_of(self, self.function)
        if found is not None:
            return imported, found
        return _made_again, (self.function, self.name, self.parameters, self.static, self.rest, self.rule, self.optional, self.surplus)

    # ------------------------------------------------------------------------------------------------ calls

    def call(self, *arguments: Any, out: Any = None, **keywords: Any) -> Any:
        """On arrays: the result as an array (several: a tuple), computed into `out` if given. On tensors: tensors. Arrays of
        another library give arrays of that library, on their device.

        Calls on arrays of a linked signature, without static arguments, do not come here.
        """
        if not keywords:
            # The short way: plain arrays of a signature seen before.
            key: list[Any] = []
            for argument in arguments:
                if type(argument) is not np.ndarray:
                    direct = self.direct.get(type(argument))
                    if direct is not None and out is None:
                        return direct(*arguments)
                    break
                key.append(argument.shape)
                key.append(argument.dtype)
            else:
                ready = self._memo.find((*key, ()))
                if ready is not None and ready.tree is None:
                    return ready.function(*arguments, out=out) if ready.alone is None else ready.run(arguments, out)
        values = (*arguments, *keywords.values())
        spelling = spelling_of(values, keywords) if out is None else None
        known = self._spellings.get(spelling) if spelling is not None else None
        ready = self._memo.find(known[0]) if known is not None else None
        if known is not None and ready is not None:
            return ready.run([values[place] for place in known[1]], None)
        trees, static = self.bind(arguments, keywords)
        if any(hasattr(type(leaf), "__tensor__") for leaf in leaves(trees)):
            trees = [map_tree(stood_for, tree) for tree in trees]
        if any(isinstance(leaf, Tensor) for leaf in leaves(trees)):
            if out is not None:
                raise argument_error(f"{self.name}: expected no out with te tensors, got one", hint="out is for calls on arrays")
            trees = weak_floats(trees)
            tensors = [map_tree(functools.partial(self._as_tensor, name), tree) for name, tree in self._named(trees)]
            return self.compose(tensors, static)
        host = host_of(leaves(trees))
        return self._run(self._arrays(trees), static, out, values, spelling) if host is None else host.call(self, trees, static, out)

    __call__ = call

    def _run(self, trees: list[Any], static: dict[str, Any], out: Any, values: Sequence[Any], spelling: Hashable | None) -> Any:
        flat = list(leaves(trees))
        key = (*(part for array in flat for part in (array.shape, array.dtype)), (*form_of(trees), *self.static_key(static)))
        ready = self._memo.find(key)
        if ready is None:
            ready = self._memo.get(key, lambda: self._met(trees, static, key))
            if ready.tree is None and not key[-1] and ready.function.plan is not None and self._free_links:
                self._free_links -= 1
                link(self, ready.function.plan)
        if ready.tree is None:
            places = places_of(values, flat) if spelling is not None else None
            if places is not None:
                if len(self._spellings) >= _SPELLINGS_KEPT:
                    self._spellings.clear()
                self._spellings[spelling] = key, places
            return ready.run(flat, out)
        results = ready.run(flat, None if out is None else tuple(leaves(out)))
        return rebuild(ready.tree, iter(results))

    def _met(self, trees: list[Any], static: dict[str, Any], key: tuple[Any, ...]) -> Ready:
        """The compiled signature for arrays that are met for the first time."""
        arrays = list(leaves(trees))

        def make(shapes: Sequence[tuple[Any, ...]]) -> Ready:
            found = iter(shapes)
            return self._make([map_tree(lambda array: Spec(next(found), dtype(array.dtype)), tree) for tree in trees], static)

        family = (*((array.ndim, array.dtype) for array in arrays), key[-1])
        return self._lengths.ready(family, tuple(array.shape for array in arrays), make)

    def static_key(self, static: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
        """The static arguments that differ from their defaults."""
        for name, value in static.items():
            default = self.static[name]
            if value is not default:
                key = static_key(name, value)
                if default is REQUIRED or key != static_key(name, default):
                    yield name, key

    def compose(self, trees: Sequence[Any], static: Mapping[str, Any]) -> Any:
        """The results as tensors, for tensors and every static argument; the op's own gradient rule rides along."""
        result = self._checked(self._body(trees, static))
        if self._written_by_user and self.name.isidentifier():
            name_results(self.name, result)
        return result if self.rule is None else self._with_rule(self.rule, result, trees, static)

    def _with_rule(self, own: Callable[..., Any], result: Any, trees: Sequence[Any], static: Mapping[str, Any]) -> Any:
        """The results, each carrying the op's rule as its `unit`: `te.gradient` treats it as an override of that tensor."""
        inputs = tuple(leaves(trees))
        taken = {tensor.key for tensor in inputs}
        outputs = []
        for tensor in leaves(result):
            # A result that is an argument, has a rule already or shares its definition gets an identity to carry this rule.
            if tensor.definition is None or tensor.key in taken or tensor.unit is not None or len(tensor.definition.results) > 1:
                tensor = identity(tensor)
            taken.add(tensor.key)
            outputs.append(tensor)
        marked = rebuild(result, iter(outputs))
        rule = Rule(self.name, own, self.argument_names(len(trees)), trees, marked, static)
        for position, tensor in enumerate(outputs):
            tensor.unit = (inputs, functools.partial(rule.pull_back, position))
        return marked

    def _checked(self, result: object) -> Any:
        """The results with lists as tuples; `DefinitionError` for anything but tensors."""
        if isinstance(result, (tuple, list)) and not result:
            raise DefinitionError(f"{self.name}: expected a te tensor or a tuple of them, got an empty tuple", location=self.location)

        def check(leaf: object) -> Tensor:
            if isinstance(leaf, Tensor):
                return leaf
            hint = "return what te.compute, te.scatter or te.scan gives"
            raise DefinitionError(
                f"{self.name}: expected the function to return a te tensor or a tuple of them, got {article(leaf)}",
                location=self.location,
                hint="return te.constant(array)" if isinstance(leaf, np.ndarray) else hint,
            )

        return map_tree(check, result)

    @property
    def location(self) -> Location | None:
        """The line of the function's definition."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return None if code is None else Location(code.co_filename, code.co_firstlineno)

    def _body(self, trees: Sequence[Any], static: Mapping[str, Any]) -> Any:
        """What the user's function gives. Where Python fails in it (a shape of another rank unpacked), it was not made for these
        arguments; what it raises by itself is its own word and passes through."""
        if self._written_by_user:
            absent = [name for name, tree in self._named(trees) if tree == () and name not in self.optional]
            if absent:
                raise argument_error(f"{self.name}: expected a tensor for {absent[0]}, got none", term=self._term)
            trees = [None if tree == () else tree for tree in trees]
        try:
            return self.function(*trees, **static)
        except ArgumentError:  # of an op inside, and a `ValueError` as well
            raise
        except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
            code = getattr(self.function, "__code__", None)
            nested = [name for name, tree in self._named(trees) if isinstance(tree, tuple)]
            if nested and isinstance(error, AttributeError) and isinstance(error.obj, tuple):
                expected = f"{self.name}: expected a tensor for {' or '.join(nested)}, got a tuple"
                raise argument_error(expected, term=self._term) from error
            place = failure_location(error, os.path.dirname(code.co_filename) if code is not None and self._written_by_user else None)
            if place is None:
                raise
            given = ", ".join(f"{name}: {tree_text(tree)}" for name, tree in self._named(trees))
            raise DefinitionError(
                f"{self.name}: expected arguments that its body is written for, got {type(error).__name__}: {error}",
                term=f"{self.name}({given})",
                location=place,
                hint="check the ranks and the static arguments of the call",
            ) from error

    def _named(self, trees: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        return zip(self.argument_names(len(trees)), trees, strict=True)

    def argument_names(self, number: int) -> list[str]:
        """The names of `number` tensor arguments, no two alike."""
        taken = set(self.parameters)
        return [*self.parameters[:number], *(fresh_name(f"{self.rest}_{k}", taken) for k in range(number - len(self.parameters)))]

    def arrays(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The tensor arguments of a call as (trees of) arrays, checked as a call checks them, and its static arguments."""
        trees, static = self.bind(arguments, keywords)
        return self._arrays(trees), static

    def _arrays(self, trees: Sequence[Any]) -> list[Any]:
        given = weak_floats([self._tree(name, tree) for name, tree in self._named(trees)])
        return [map_tree(functools.partial(self._as_array, name), tree) for name, tree in self._named(given)]

    def _tree(self, name: str, tree: Any) -> Any:
        """The tree, unless it is a list of numbers that is meant as an array. (A tuple of them is a tree: heads of scalar outputs.)"""
        if isinstance(tree, list) and tree and all(isinstance(leaf, (bool, int, float)) for leaf in leaves(tree)):
            raise argument_error(
                f"{self.name}: argument {name}: expected an array, got Python numbers in a list", hint=f"np.asarray({name}) makes an array"
            )
        return tree

    def _as_array(self, name: str, leaf: object) -> np.ndarray:
        check_integer(self.name, name, leaf)
        array = np.asarray(leaf) if isinstance(leaf, np.ndarray) or is_scalar(leaf) else None
        if array is None or isinstance(leaf, np.ma.MaskedArray):
            raise argument_error(
                f"{self.name}: argument {name}: expected an array or a te tensor, got {article(leaf)}", hint="np.asarray makes an array"
            )
        dtype_of(self.name, name, array.dtype)
        return array

    def _as_tensor(self, name: str, leaf: object) -> Tensor:
        return leaf if isinstance(leaf, Tensor) else constant(self._as_array(name, leaf), name=name)

    # ------------------------------------------------------------------------------------------------ tracing

    def _traced(self, specs: Sequence[Any], static: Mapping[str, Any]) -> tuple[list[Tensor], Any]:
        """Placeholders for a tree of specs per parameter, flat, and the tree of results on them."""
        taken = set(self.argument_names(len(specs)))
        inputs = [placeholders_of(name, tree, taken) for name, tree in self._named(specs)]
        return list(leaves(inputs)), self.compose(inputs, static)

    def _make(self, specs: Sequence[Any], static: Mapping[str, Any], target: str = "cpu", precision: str = "float32") -> Ready:
        from tensorexpr.codegen.compile import build  # noqa: PLC0415 -- half of all modules, which come with the first compilation

        inputs, result = self._traced(specs, static)
        if isinstance(result, Tensor):
            return Ready(build(result, inputs, target, precision=precision).known_as(self.name), None)
        function = build(list(leaves(result)), inputs, target, precision=precision).known_as(self.name)
        return Ready(function, None if all(isinstance(item, Tensor) for item in result) else map_tree(lambda _: None, result))

    def trace(self, *specs: Any, dynamic: Mapping[str | int, Any] | None = None, **static: Any) -> Program:
        """The program of the op for arguments like `specs`: placeholders, arrays or `(shape, dtype)`.

        `dynamic={"x": (0,)}` keeps axes open: their extents become `te.dim`s named after parameter and axis, or with
        `dynamic={"x": {0: "n"}}` as it says: a name, a `te.dim` with what is known of it, or an expression of some (`2 * n + 1`). Those of
        one name are one.
        """
        inputs, result = self._traced(*self._specs(specs, dynamic, static))
        return program_of(list(leaves(result)), inputs)

    def sharding(self, *specs: Any, **static: Any) -> Sharding:
        """How the op may be cut over devices, for arguments like `specs` (see `trace`): which axes are split together, what is then
        a partial sum, which reads need a halo, what has to be whole. Prints as a table; `.rows` has the same by name.
        """
        return Sharding(self.trace(*specs, **static))

    def compile(
        self,
        *specs: Any,
        target: str = "cpu",
        precision: str = "float32",
        dynamic: Mapping[str | int, Any] | None = None,
        **static: Any,
    ) -> CompiledFunction:
        """The op compiled for arguments like `specs` (see `trace`); nested arguments and results are flattened. `precision` is that
        of `te.build`."""
        return self._make(*self._specs(specs, dynamic, static), target=target, precision=precision).function

    def _specs(
        self, specs: Sequence[Any], dynamic: Mapping[str | int, Any] | None, static: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        trees, chosen = self.bind(specs, static, ("target", "precision", "dynamic"))
        found = [spec_of(self.name, name, tree) for name, tree in self._named(trees)]
        names = self.argument_names(len(found))
        taken = set(names)
        if dynamic is not None and not isinstance(dynamic, Mapping):
            raise argument_error(f"{self.name}: dynamic: expected axes by parameter, got {dynamic!r}", hint='dynamic={"x": (0,)}')
        for key, axes in (dynamic or {}).items():
            position = names.index(key) if isinstance(key, str) and key in names else key
            if not isinstance(position, int) or not -len(found) <= position < len(found) or not isinstance(found[position], Spec):
                raise argument_error(
                    f"{self.name}: dynamic: expected one of {', '.join(names) or 'none'}, got {key}",
                    term=self._term,
                    hint=suggestion(key, names),
                )
            found[position] = opened(self.name, names[position], found[position], axes, taken)
        return found, chosen


# ---------------------------------------------------------------------------------------------------- the decorator


@overload
def op(function: Callable[..., Any], *, gradient: Callable[..., Any] | None = None, differentiable: bool = True) -> Op: ...
@overload
def op(
    function: None = None, *, gradient: Callable[..., Any] | None = None, differentiable: bool = True
) -> Callable[[Callable[..., Any]], Op]: ...
@checked()
def op(function: Callable[..., Any] | None = None, *, gradient: Callable[..., Any] | None = None, differentiable: bool = True) -> Any:
    """Makes an operation of a Python function on tensors: `@te.op`, or `@te.op(gradient=rule)`.

    The function takes tensors (positional parameters) and static arguments (keyword-only, hashable) and returns a tensor
    or a tuple of tensors. A call may give static arguments by position behind the tensors, and lists for tuples. Python scalars
    passed for tensors become 0-d arrays: ints int64, bools bool, floats of the floating dtype that the other
    arguments promote to (float64 where there is none). `rule(output, inputs, head) -> list`
    gives the gradient by every input (tuples of outputs and heads where there are several outputs), and takes those static
    arguments that it names as keyword-only parameters; it serves forward mode and every order, too. A derivative that would
    have to pass through an op with `differentiable=False` raises `DifferentiationError`.

    A tensor parameter with the default None is optional: the function gets None where it is left out.

    Raises `DefinitionError` for a function with `*args`, `**kwargs`, another default for a tensor, or a parameter called `out`.

    >>> @te.op
    ... def scaled(x, *, by=2.0):
    ...     return te.compute(x.shape, lambda i: x[i] * by)
    >>> scaled(np.arange(3.0), by=10.0)
    array([ 0., 10., 20.])
    """
    if function is None:
        return functools.partial(op, gradient=gradient, differentiable=differentiable)
    if not callable(function):
        hint = "@te.op stands above the def of a function on tensors"
        raise DefinitionError(f"te.op: expected a function, got {article(function)}", location=user_location(), hint=hint)
    name = getattr(function, "__name__", type(function).__name__)
    location = Location(function.__code__.co_filename, function.__code__.co_firstlineno) if hasattr(function, "__code__") else None
    known = read_signature(function, name, location)
    if gradient is not None and not is_rule(gradient):
        hint = "def rule(output, inputs, head): return [one gradient per input]"
        raise DefinitionError(f"{name}: expected gradient= to be a rule, got {article(gradient)}", location=user_location(), hint=hint)
    if not differentiable:
        if gradient is not None:
            message = f"{name}: expected either a gradient rule or differentiable=False, got both"
            raise DefinitionError(message, location=user_location())
        gradient = refusing(name)
    made = Op(
        function, name=name, parameters=known.tensors, static=known.static, rule=gradient, optional=known.optional, written_by_user=True
    )
    functools.update_wrapper(made, function, updated=())
    return made


def _made_again(
    function: Any, name: str, parameters: Any, static: Any, rest: str | None, rule: Any, optional: Any, surplus: str | None
) -> Op:
    """What pickle calls to make an op of its function."""
    made = Op(
        function, name=name, parameters=parameters, static=static, rest=rest, rule=rule, optional=optional, surplus=surplus,
        written_by_user=True,
    )  # fmt: skip
    functools.update_wrapper(made, function, updated=())
    return made
