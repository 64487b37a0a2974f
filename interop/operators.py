"""Flat operators: what other libraries call and differentiate, whatever the op's arguments look like.

A library hands over a list of arrays and takes a list back, says of each input whether it wants a gradient, and which
outputs have one to give. An `Operator` is an op in this form (tensors in, a tuple of tensors out, static arguments bound)
together with its derived operators, each made once: the gradient for those inputs that want one (`vjp`), tangents of those that
move (`jvp`), and the operator with a leading axis on some of its inputs (`batched`). All of them are operators again, so every
order and every nesting is there, each compiled as one program.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tensorexpr.autodiff import gradient, jvp
from tensorexpr.autodiff.api.vmap import has_rules, vmap
from tensorexpr.codegen.compile import build
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.graph.nodes.effects import graph_effects
from tensorexpr.graph.run.function import Function
from tensorexpr.hints import article
from tensorexpr.language import Tensor, compute, placeholder
from tensorexpr.language import sum as sum_of
from tensorexpr.op import Op, op
from tensorexpr.op.specs import Spec
from tensorexpr.op.trees import leaves, map_tree, rebuild
from tensorexpr.records import cached_property
from tensorexpr.traversal import fresh_name

Mask = tuple[bool, ...]


class Operator:
    """An operation on a list of tensors that gives a tuple of them: `op` is the `te.Op` that does so.

    `names` are those of its inputs.
    """

    def __init__(self, name: str, names: Sequence[str], function: Callable[..., tuple[Tensor, ...]], rule: Any = None) -> None:
        self.name = name
        self.names = tuple(names)
        self.op = Op(function, name=name, parameters=self.names, static={}, rule=rule)
        self._derived: dict[tuple[Any, ...], Operator] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, operation: Op, trees: Sequence[Any], static: dict[str, Any]) -> Operator:
        """The operator of an op for arguments that nest as `trees` do."""
        return _Whole(operation, trees, static)

    def compose(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The outputs as tensors."""
        results: tuple[Tensor, ...] = self.op.compose(list(inputs), {})
        return results

    def trace(self, specs: Sequence[Spec]) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Placeholders of these shapes and dtypes, and the outputs on them."""
        inputs, outputs, _ = self.nested(specs)
        return inputs, outputs

    def nested(self, specs: Sequence[Spec]) -> tuple[list[Tensor], tuple[Tensor, ...], Any]:
        """What `trace` gives, and how the op nests its results (a tree whose leaves are None)."""
        inputs = [placeholder(spec.shape, spec.dtype.name, name=name) for name, spec in zip(self.names, specs, strict=True)]
        outputs = self.compose(inputs)
        return inputs, outputs, (None,) * len(outputs)

    def compile(self, specs: Sequence[Spec], target: str = "cpu") -> CompiledFunction:
        """The compiled function of a list of arrays that gives a tuple."""
        inputs, outputs = self.trace(specs)
        return build(outputs, inputs, target)

    def _made(self, key: tuple[Any, ...], make: Callable[[], Operator]) -> Operator:
        with self._lock:
            found = self._derived.get(key)
            if found is None:
                found = self._derived[key] = make()
            return found

    # ---------------------------------------------------------------------------------------------------- derived

    def vjp(self, wanted: Mask, heads: Mask) -> Operator:
        """The operator `(*inputs, *heads) -> gradients`: of the inputs that are wanted, for a head of each output that has one.

        The other outputs receive nothing. Both masks say yes to floating tensors alone.
        """

        def pulled(*arguments: Tensor) -> tuple[Tensor, ...]:
            inputs = arguments[: len(self.names)]
            outputs = [output for output, given in zip(self.compose(inputs), heads, strict=True) if given]
            sources = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want]
            return tuple(gradient(outputs, sources, list(arguments[len(self.names) :])))

        several = sum(heads) > 1
        stems = [f"head_{position}" if several else "head" for position, given in enumerate(heads) if given]
        marks = "_".join(name for name, want in zip(self.names, wanted, strict=True) if want)
        return self._made(("vjp", wanted, heads), lambda: Operator(f"{self.name}_vjp_{marks}", self._further(stems), pulled))

    def jvp(self, moving: Mask) -> Operator:
        """The operator `(*inputs, *tangents) -> tangents of the floating outputs`: a tangent for each input that moves."""

        def pushed(*arguments: Tensor) -> tuple[Tensor, ...]:
            inputs, tangents = arguments[: len(self.names)], arguments[len(self.names) :]
            outputs = [output for output in self.compose(inputs) if output.dtype.is_float]
            sources = [tensor for tensor, moves in zip(inputs, moving, strict=True) if moves]
            return tuple(jvp(outputs, sources, list(tangents)))

        stems = [f"{name}_dot" for name, moves in zip(self.names, moving, strict=True) if moves]
        marks = "_".join(name for name, moves in zip(self.names, moving, strict=True) if moves)
        return self._made(("jvp", moving), lambda: Operator(f"{self.name}_jvp_{marks}", self._further(stems), pushed))

    def batched(self, mask: Mask) -> Operator:
        """The operator on inputs of which those in `mask` have one more axis in front, as have all outputs."""

        def wide(*arguments: Tensor) -> tuple[Tensor, ...]:
            outputs, single = self._for_one(arguments, mask)
            return tuple(vmap(outputs, single, [argument for argument, many in zip(arguments, mask, strict=True) if many]))

        return self._made(("batched", mask), lambda: _Batched(self, mask, wide))

    def _for_one(self, arguments: Sequence[Tensor], mask: Mask) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """The outputs for one value of the axis, and the placeholders that stand for the batched inputs there."""
        ones = [
            placeholder(argument.shape[1:], argument.dtype.name, name=name) if many else argument
            for name, argument, many in zip(self.names, arguments, mask, strict=True)
        ]
        return self.compose(ones), [one for one, many in zip(ones, mask, strict=True) if many]

    def _further(self, stems: Sequence[str]) -> list[str]:
        """The names of the inputs, and of further ones."""
        taken = set(self.names)
        return [*self.names, *(fresh_name(stem, taken) for stem in stems)]

    @cached_property
    def mark(self) -> str:
        """The name as an identifier."""
        return "".join(c if c.isalnum() else "_" for c in self.name)


class _Whole(Operator):
    """An op as it is, for arguments of one form."""

    def __init__(self, operation: Op, trees: Sequence[Any], static: dict[str, Any]) -> None:
        taken: set[str] = set()
        names = [fresh_name(name, taken) for name, _ in leaf_names(operation, trees)]
        self._operation, self._trees, self._static = operation, trees, static
        super().__init__(operation.name, names, lambda *tensors: tuple(leaves(self._nested(tensors))))

    def _nested(self, tensors: Sequence[Tensor]) -> Any:
        given = iter(tensors)
        return self._operation.compose([rebuild(tree, given) for tree in self._trees], self._static)

    def compose(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(leaves(self._nested(inputs)))

    def nested(self, specs: Sequence[Spec]) -> tuple[list[Tensor], tuple[Tensor, ...], Any]:
        inputs = [placeholder(spec.shape, spec.dtype.name, name=name) for name, spec in zip(self.names, specs, strict=True)]
        result = self._nested(inputs)
        return inputs, tuple(leaves(result)), map_tree(lambda _: None, result)


class _Batched(Operator):
    """An operator for every value of a leading axis. Where a gradient rule is inside, its derivative is that of one value, batched."""

    def __init__(self, one: Operator, mask: Mask, function: Callable[..., tuple[Tensor, ...]]) -> None:
        self._one, self._mask = one, mask
        super().__init__(f"{one.name}_batched", one.names, function)

    def compose(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        outputs, _ = self._one._for_one(inputs, self._mask)
        if self.op.rule is None and has_rules(outputs):
            self.op.rule = self._rule
        return super().compose(inputs)

    def _rule(self, outputs: tuple[Tensor, ...], inputs: Sequence[Tensor], heads: tuple[Tensor, ...]) -> list[Tensor | None]:
        wanted = tuple(tensor.dtype.is_float for tensor in inputs)
        given = tuple(head.dtype.is_float for head in heads)
        if not any(wanted) or not any(given):
            return [None] * len(inputs)
        single = self._one.vjp(wanted, given)
        found = iter(single.batched((*self._mask, *(True for head in given if head))).compose([*inputs, *_floating(heads)]))
        return [(next(found) if many else _total(next(found))) if want else None for want, many in zip(wanted, self._mask, strict=True)]


def _floating(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor.dtype.is_float]


def _total(tensor: Tensor) -> Tensor:
    """The sum over the first axis."""
    return compute(tensor.shape[1:], lambda *i: sum_of(lambda b: tensor[(b, *i)], tensor.shape[0]))


def op_of(value: object, what: str) -> Op:
    """The op that a value is, or makes as a plain function on tensors. Raises `DefinitionError` in the name of `what` for anything else."""
    if isinstance(value, Op):
        return value
    if isinstance(value, Function):
        return _of_traced(value, what)
    if isinstance(value, Tensor) or not callable(value):
        raise DefinitionError(
            f"{what}: expected a te.op, got {article(value)}", location=user_location(), hint="decorate the function with @te.op"
        )
    return op(value)


def _of_traced(function: Function, what: str) -> Op:
    """The op of a traced function. One that reads or changes variables is refused when it is composed: an op is its arguments' alone."""

    def body(*tensors: Any, **static: Any) -> Any:
        effects = graph_effects(function.signature(*tensors, **static).graph)
        if effects.matter or effects.reads:
            raise DefinitionError(
                f"{what}: expected a function of its arguments alone, got {function.__name__}, which has variables or effects",
                location=user_location(),
                hint="make what it reads an argument",
            )
        return function(*tensors, **static)

    functools.update_wrapper(body, function, updated=())
    return op(body)


def leaf_names(operation: Op, trees: Sequence[Any]) -> list[tuple[str, Any]]:
    """The leaves of the arguments of a call with the names that messages use: that of the parameter, with places in a tree."""

    def within(name: str, tree: Any) -> list[tuple[str, Any]]:
        if isinstance(tree, (tuple, list)):
            return [item for position, inner in enumerate(tree) for item in within(f"{name}_{position}", inner)]
        return [(name, tree)]

    names = operation.argument_names(len(trees))
    return [item for name, tree in zip(names, trees, strict=True) for item in within(name, tree)]
