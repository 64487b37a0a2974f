"""tensorexpr in JAX: `as_jax(op)` is the op as a function of JAX's arrays, at home in every transform.

    from tensorexpr.interop.jax import as_jax

    correlation = as_jax(local_correlation)
    loss = jax.jit(jax.value_and_grad(lambda a, b: jnp.sum(correlation(a, b, radius=3) ** 2)))

Under `jit` an op is one custom call of XLA to its compiled kernel, through handlers that are compiled here, too; no Python runs
in the program. Derivatives and batches are derived from the definition, compiled as one kernel each, and differentiate
again. The result of an op called on arrays of JAX (`op(x)`) is the same.

`cost_analysis(function, *arguments)` is XLA's count of a program with what its ops compute.

What differs from a call on NumPy's arrays: JAX has 64-bit types only where `jax_enable_x64` is on. Where it is off, results that
the definition makes 64 bits wide have the type of 32 bits that JAX uses in their place, and so have numbers and arrays of Python and
NumPy; integers that it does not hold are refused.
An index that leaves its tensor ends the program of XLA with an error that has the words of the `IndexError`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from tensorexpr.codegen.memo import Memo
from tensorexpr.dtypes import dtype
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.hints import article
from tensorexpr.interop.jax.counts import cost_analysis as cost_analysis
from tensorexpr.interop.jax.primitive import Call, Types, check_dtype, types_of
from tensorexpr.interop.operators import Operator, leaf_names, op_of
from tensorexpr.language import Tensor, cast, compute
from tensorexpr.op import Op
from tensorexpr.op.arguments import check_integer, weak_floats
from tensorexpr.op.trees import leaves, map_tree, rebuild
from tensorexpr.traversal import fresh_name

_FORMS_KEPT = 1024


class JaxFunction:
    """An op as a function of JAX's arrays: see `as_jax`. Copies are the same function; it is pickled as its op."""

    def __init__(self, operation: Op) -> None:
        self.operation = self.__tensorexpr__ = operation
        self._forms: Memo[_Form] = Memo(_FORMS_KEPT)
        self._plain: dict[tuple[int, bool], _Form] = {}
        self._array: type | None = None  # that of JAX's arrays which are no tracers, once one was met
        functools.update_wrapper(self, operation, updated=())

    def __call__(self, *arguments: Any, **static: Any) -> Any:
        form = None if static else self._short(arguments)
        if form is not None:
            return form.run(*arguments)
        trees, chosen = self.operation.bind(arguments, static)
        return self.call(trees, chosen)

    def __repr__(self) -> str:
        return f"<as_jax {self.operation!r}>"

    def __copy__(self) -> JaxFunction:
        return self

    def __deepcopy__(self, memo: Any) -> JaxFunction:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return as_jax, (self.operation,)

    def call(self, trees: Sequence[Any], static: dict[str, Any]) -> Any:
        """The results for one (tree of) array per parameter and every static argument."""
        operation = self.operation
        given = weak_floats([map_tree(_weak, tree) for tree in trees])
        arrays = [_as_jax(operation.name, name, leaf) for name, leaf in leaf_names(operation, given)]
        shape = tuple(map_tree(lambda _: None, tree) for tree in given)
        own = tuple(operation.static_key(static))
        form = self._forms.get((shape, _wide(), *own), lambda: _Form(operation, given, static))
        if any(isinstance(array, Tracer) for array in arrays):
            return form.bind(*arrays)
        if not own and arrays and all(type(tree) is type(arrays[0]) for tree in trees):
            self._array = type(arrays[0])
            self._plain[len(trees), _wide()] = form
        return form.run(*arrays)

    def _short(self, arguments: Sequence[Any]) -> _Form | None:
        """What computes plain arrays of JAX with the defaults of all static arguments, where that was computed before."""
        for argument in arguments:
            if type(argument) is not self._array:
                return None
        return self._plain.get((len(arguments), _wide()))


def _wide() -> bool:
    config: Any = jax.config  # its switches are attributes that it makes at run time
    return bool(config.jax_enable_x64)


class _Form:
    """The op for arguments that nest in one way, with its static arguments: a flat call, and how its results nest."""

    def __init__(self, operation: Op, trees: Sequence[Any], static: dict[str, Any]) -> None:
        taken: set[str] = set()
        names = [fresh_name(name, taken) for name, _ in leaf_names(operation, trees)]
        forms = [map_tree(lambda _: None, tree) for tree in trees]
        wide = _wide()

        def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
            given = iter(tensors)
            result = operation.compose([rebuild(form, given) for form in forms], static)
            types = tuple((tuple(tensor.shape), tensor.dtype.name) for tensor in tensors)
            self._results.get(types, lambda: _Tree(map_tree(lambda _: None, result)))
            return tuple(tensor if wide else _narrow(tensor) for tensor in leaves(result))

        self._results: Memo[_Tree] = Memo(_FORMS_KEPT)
        self._call = Call(Operator(operation.name, names, flat))
        self.run = jax.jit(self.bind)

    def bind(self, *arrays: Any) -> Any:
        """The results for arrays and tracers, nested."""
        results = self._call.bind(*arrays)
        return rebuild(self.result(types_of(arrays, self._call)), iter(results))

    def result(self, types: Types) -> Any:
        """How the results nest for arguments of these types (leaves are None). Known from tracing, unless that was long ago."""
        found = self._results.find(types)
        if found is None:
            self._call.trace(types)
            found = self._results.find(types)
        assert found is not None, "tracing notes it"
        return found.tree


class _Tree(NamedTuple):
    tree: Any


def _narrow(tensor: Tensor) -> Tensor:
    """The tensor in the dtype that JAX uses where it has none of 64 bits."""
    narrow = dtype(jax.dtypes.canonicalize_dtype(tensor.dtype.numpy))
    return tensor if narrow == tensor.dtype else compute(tensor.shape, lambda *i: cast(tensor[i], narrow.name))


def _weak(leaf: Any) -> Any:
    """Python's integers are int64 and its bools bool, as in calls on NumPy's arrays; its floats follow the others."""
    return np.asarray(leaf) if isinstance(leaf, bool | int) and abs(leaf) < 2**64 else leaf


def _as_jax(op: str, name: str, leaf: Any) -> Any:
    """An argument as JAX's array. Raises `ArgumentError` for what is none, or of a dtype that the language does not have."""
    check_integer(op, name, leaf)
    if isinstance(leaf, jax.Array):
        array = leaf
    elif isinstance(leaf, np.ndarray | np.generic | float) and not isinstance(leaf, np.ma.MaskedArray):
        given = np.asarray(leaf)
        check_dtype(op, name, given.dtype)
        narrow = given.astype(jax.dtypes.canonicalize_dtype(given.dtype), copy=False)
        if given.dtype.kind in "iu" and narrow is not given and not np.array_equal(narrow, given):
            value = given[narrow != given].flat[0] if given.ndim else given
            raise ArgumentError(
                f"{op}: argument {name}: expected integers that {narrow.dtype} holds, in which JAX computes here, got {value}",
                location=user_location(),
                hint='jax.config.update("jax_enable_x64", True)',
            )
        array = jax.numpy.asarray(leaf)
    else:
        raise ArgumentError(
            f"{op}: argument {name}: expected an array of JAX, got {article(leaf)}",
            location=user_location(),
            hint="jax.numpy.asarray makes one of what is on the cpu",
        )
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.extended):
        raise ArgumentError(f"{op}: argument {name}: expected an array of numbers, got {array.dtype}", location=user_location())
    check_dtype(op, name, np.dtype(array.dtype))
    return array


def as_jax(operation: Any) -> JaxFunction:
    """The op (or plain function on tensors) as a function of JAX's arrays, with the op's static arguments by name.

    It can be called, and put under `jit`, `grad`, `vmap`, `jvp`, `scan` and any nesting of them. Arguments are arrays or tracers of
    JAX, NumPy's arrays and Python's numbers. Raises `DefinitionError` for what is no op; calls raise `ArgumentError` for other
    arguments, `DifferentiationError` for a derivative that the op does not have, `TargetError` for extents that are open (exports
    with symbolic shapes) and where a program is lowered for other platforms than CPUs and GPUs of CUDA.
    """
    return JaxFunction(op_of(operation, "as_jax"))


class _Host:
    """JAX among the hosts (`tensorexpr.op.hosts`): ops that are called on its arrays."""

    def call(self, operation: Op, trees: list[Any], static: dict[str, Any], out: Any) -> Any:
        """The results of an op on arrays of JAX."""
        if out is not None:
            raise ArgumentError(
                f"{operation.name}: expected no out with arrays of JAX, got one",
                location=user_location(),
                hint="arrays of JAX are never written; jax.jit(..., donate_argnums=...) lets memory be used again",
            )
        function = operation.__dict__.get("_as_jax")
        if function is None:
            function = operation.__dict__.setdefault("_as_jax", JaxFunction(operation))
        form = None if static else function._short(trees)
        return function.call(trees, static) if form is None else form.run(*trees)


HOST = _Host()
