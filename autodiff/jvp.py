"""`te.jvp`: forward mode on tensors of the language, and `te.jacobian`, all derivatives at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorexpr.autodiff.arguments import checked_tangents, checked_tensors
from tensorexpr.autodiff.batching import batch, fresh_axes
from tensorexpr.autodiff.forward import Forward, Rule
from tensorexpr.autodiff.gradient import Gradient
from tensorexpr.autodiff.units import Graph, Unit, units_of
from tensorexpr.autodiff.workspace import Workspace, plain_axes
from tensorexpr.errors import DifferentiationError, user_location
from tensorexpr.ir import Const, Define, Definition, Index, Program, apply, conjunction
from tensorexpr.language import Tensor, lift
from tensorexpr.language.renaming import ProgramRenaming
from tensorexpr.traversal import reads


def jvp(output: Tensor | Sequence[Tensor], wrt: Tensor | Sequence[Tensor], tangents: Tensor | Sequence[Tensor]) -> Any:
    """The tangent of `output` when the tensors `wrt` change by `tangents`: a tensor, or a list of them for a list.

    Each tangent has the shape and dtype of its tensor, and so has the result. Rules that tensors have of their own serve
    forward mode too. Raises `DifferentiationError` for tensors that are not floating and tangents that do not fit.
    """
    outputs = checked_tensors(output, "output")
    inputs = checked_tensors(wrt, "wrt")
    given = checked_tangents(inputs, tangents)
    graph = Graph.of([*given, *inputs, *outputs], units_of([*outputs, *inputs, *given], {}))
    workspace = Workspace.behind(graph.program, graph.labels)
    forward = Forward(workspace, {t.key: tangent.key for t, tangent in zip(inputs, given, strict=True)})
    rules = {tensor.key: (tuple(t.key for t in unit.inputs), _transposed(unit, graph)) for tensor, unit in graph.units.items()}
    forward.run(graph.program.definitions, rules)
    names = [forward.names.get(t.key) or workspace.zeros(t.key, "_dot") for t in outputs]
    program = graph.program
    derived = Program(program.inputs, program.constants, (*program.definitions, *workspace.definitions), tuple(names), program.sizes)
    table = lift(derived, graph.known)
    found = [table[name] for name in names]
    return found[0] if isinstance(output, Tensor) else found


def _transposed(unit: Unit, graph: Graph) -> Rule:
    """The tangent that a rule for reverse mode implies: the rule is linear in its head, so its own gradient is forward mode."""

    def rule(tangents: Mapping[str, str], workspace: Workspace) -> str:
        head = Tensor(f"{unit.tensor.name}_bar", unit.tensor.extents, unit.tensor.dtype)
        pairs = []
        for source, result in zip(unit.inputs, unit.results(head), strict=True):
            name = tangents.get(source.key)
            if name is not None and result is not None:
                pairs.append((result, Tensor(source.name, source.extents, source.dtype, key=name)))
        if not pairs:
            return workspace.zeros(unit.tensor.key, "_dot")
        transposed = Gradient([r for r, _ in pairs], [head], [t for _, t in pairs], {}, None)
        return graph.insert([transposed[0]], {}, workspace)[0]

    return rule


def jacobian(output: Tensor, wrt: Tensor | Sequence[Tensor]) -> Any:
    """All derivatives of `output` by `wrt`: a tensor of the shape of the output followed by the shape of `wrt`.

    A list for a list. This is the whole matrix, as large and as costly as it sounds; products with it are `te.gradient` and
    `te.jvp`. Raises `DifferentiationError` for tensors that are not floating.
    """
    if not isinstance(output, Tensor):
        raise DifferentiationError(
            f"te.jacobian: expected one output tensor, got {output!r}", location=user_location(), hint="call it once for each output"
        )
    checked_tensors(output, "output")
    inputs = checked_tensors(wrt, "wrt")
    units = units_of([output, *inputs], {})
    found = [_jacobian(output, tensor, units) for tensor in inputs]
    return found[0] if isinstance(wrt, Tensor) else found


def _jacobian(output: Tensor, wrt: Tensor, units: Mapping[Tensor, Unit]) -> Tensor:
    """The gradient for each unit vector as head: everything that depends on the head gets the axes of the output in front."""
    head = Tensor(f"{output.name}_bar", output.extents, output.dtype)
    derived = Gradient([output], [wrt], [head], units, None)
    workspace = derived.reverse.workspace
    axes = fresh_axes([(f"o{d}", stop) for d, stop in enumerate(output.extents)], workspace.definitions, workspace.reserved)
    own = plain_axes(output.type, (*workspace.reserved, *(axis.index for axis in axes)))
    eye = workspace.new_name(head.name, "_unit")
    equal = conjunction([apply("eq", Index(a.index), Index(b.index)) for a, b in zip(axes, own, strict=True)])
    definitions: list[Definition] = [Define(eye, (*axes, *own), apply("where", equal, Const(1, output.dtype), Const(0, output.dtype)))]
    batched = {eye: 0}
    rename = ProgramRenaming({head.key: eye}, ())
    for definition in map(rename.definition, workspace.definitions):
        if any(name in batched for name in reads(definition)):
            definitions += batch([definition], axes, batched, workspace.types, lambda name: workspace.new_name(name, "_wide"))
        else:
            definitions.append(definition)
    name = derived.reverse.adjoints[wrt.key]
    name = eye if name == head.key else name
    if name not in batched:
        copy = workspace.new_name(name, "_wide")
        zero = plain_axes(wrt.type, (*workspace.reserved, *(axis.index for axis in axes)))
        definitions.append(Define(copy, (*axes, *zero), Const(0, wrt.dtype)))
        name = copy
    program = Program((), (), tuple(definitions), (name,), workspace.sizes)
    return lift(program, derived.tensors)[name]
