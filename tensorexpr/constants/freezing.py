"""Placeholders made constants: what `te.freeze` and the mode of a compilation do to a program."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tensorexpr.ir import Access, Const, Constant, Define, Definition, Expr, Program, Scan, Scatter, Size, TensorType, const
from tensorexpr.records import replace
from tensorexpr.regions import normal_form, told_sizes
from tensorexpr.traversal import bottom_up, map_expressions


def with_constants(program: Program, arrays: Mapping[str, np.ndarray]) -> Program:
    """The program in which the inputs named in `arrays` are constants of that data; sizes that they tell are numbers.

    Requires: arrays of the dtype and shape of their inputs, read-only. Ensures: the other inputs, and all outputs, stay; the
    value is that of the program with the arrays as inputs.
    """
    if not arrays:
        return program
    constants = tuple(Constant(i.name, arrays[i.name]) for i in program.inputs if i.name in arrays)
    rest = tuple(i for i in program.inputs if i.name not in arrays)
    frozen = replace(program, inputs=rest, constants=(*program.constants, *constants))
    sizes = _sizes([(i.type, arrays[i.name].shape) for i in program.inputs if i.name in arrays])
    return with_sizes(frozen, sizes) if sizes else frozen


def with_literals(program: Program) -> Program:
    """The program with a literal for each read of a constant without axes.

    Requires: nothing. Ensures: such constants are read only where a name must stand (the start of a scan); every value is kept.
    """
    values = {c.name: Const(_scalar(c.data), c.type.dtype) for c in program.constants if not c.data.ndim}
    if not values:
        return program

    def literal(node: Expr) -> Expr:
        return values.get(node.tensor, node) if isinstance(node, Access) else node

    return replace(program, definitions=tuple(map_expressions(d, lambda e: bottom_up(e, literal)) for d in program.definitions))


def _scalar(data: np.ndarray) -> bool | int | float:
    value: bool | int | float = data.astype(np.float64).item() if data.dtype.kind == "V" or data.dtype.kind == "f" else data.item()
    return value


def _sizes(bound: list[tuple[TensorType, tuple[int, ...]]]) -> dict[str, int]:
    """The sizes that extents of constants tell."""
    extents = [(e, n) for type_, shape in bound for e, n in zip(type_.shape, shape, strict=True)]
    found: dict[str, int] = {}
    for name, number, form in told_sizes([e for e, _ in extents]):
        rest = extents[number][1] - form.constant - sum(c * found[str(n)] for n, c in form.terms if n != name)
        found[name] = rest // form.coefficient(name)
    return found


def with_sizes(program: Program, sizes: Mapping[str, int]) -> Program:
    """The program with numbers for some of its sizes."""

    def number(node: Expr) -> Expr:
        return const(sizes[node.name]) if isinstance(node, Size) and node.name in sizes else node

    def expr(e: Expr) -> Expr:
        return bottom_up(e, number)

    def typed(type_: TensorType) -> TensorType:
        return replace(type_, shape=tuple(normal_form(expr(e)) for e in type_.shape))

    def definition(d: Definition) -> Definition:
        mapped = d if isinstance(d, Scan) else map_expressions(d, expr)
        match mapped:
            case Define():
                return replace(mapped, axes=tuple(replace(a, stop=normal_form(a.stop)) for a in mapped.axes))
            case Scatter():
                return replace(mapped, type=typed(mapped.type))
            case Scan():
                states = tuple((name, typed(type_)) for name, type_ in mapped.states)
                return replace(mapped, length=normal_form(expr(mapped.length)), states=states, body=tuple(map(definition, mapped.body)))
        return mapped

    inputs = tuple(replace(i, type=typed(i.type)) for i in program.inputs)
    kept = tuple(s for s in program.sizes if s not in sizes)
    return replace(program, inputs=inputs, definitions=tuple(map(definition, program.definitions)), sizes=kept)
