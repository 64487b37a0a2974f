"""`te.jvp`: forward mode on tensors of the language, and `te.jacobian`, all derivatives at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorexpr.autodiff.api.arguments import checked_tangents, checked_tensors
from tensorexpr.autodiff.api.directions import Directions
from tensorexpr.autodiff.api.gradient import Gradient
from tensorexpr.autodiff.api.units import Graph, Unit, units_of, with_rules
from tensorexpr.autodiff.local.overrides import Override, Rule
from tensorexpr.autodiff.local.workspace import Workspace, plain_axes
from tensorexpr.autodiff.sweep.forward import Forward
from tensorexpr.autodiff.sweep.reverse import reverse
from tensorexpr.errors import DifferentiationError, user_location
from tensorexpr.hints import checked, described
from tensorexpr.ir import Const, Define, Definition, Index, Input, Program, apply, conjunction
from tensorexpr.language import Tensor, lift
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import remove_dead_definitions


def jvp(output: Tensor | Sequence[Tensor], wrt: Tensor | Sequence[Tensor], tangents: Tensor | Sequence[Tensor]) -> Any:
    """The tangent of `output` when the tensors `wrt` change by `tangents`: a tensor, or a list of them for a list.

    Each tangent has the shape and dtype of its tensor, and so has the result. Tangents with one more axis in front, of the same
    extent B for all of `wrt`, are B directions at once: the result then has this axis in front, too. Rules that tensors have of
    their own serve forward mode too. Raises `DifferentiationError` for tensors that are not floating and tangents that do not fit.
    """
    outputs = checked_tensors(output, "output")
    inputs = checked_tensors(wrt, "wrt")
    given, count = checked_tangents(inputs, tangents)
    single = given if count is None else tuple(Tensor(f"{t.name}_dot", t.extents, t.dtype) for t in inputs)
    graph = Graph.of([*given, *single, *inputs, *outputs], units_of([*outputs, *inputs, *given], {}))
    workspace = Workspace.behind(graph.program, graph.labels)
    rules = {name: unit.override(_transposed(unit, graph)) for name, unit in graph.rules.items()}
    forward = Forward(workspace, {t.key: tangent.key for t, tangent in zip(inputs, single, strict=True)}, rules)
    forward.run(graph.program.definitions)
    names = [forward.names.get(t.key) or workspace.zeros(t.key, "_dot") for t in outputs]
    derived = workspace.definitions
    if count is not None:
        stands = {s.key: tangent.key for s, tangent in zip(single, given, strict=True)}
        directions = Directions.over([("direction", count)], stands, workspace)
        derived = directions.spread(derived)
        results = [directions.result(name) for name in names]
        names = [name for name, _ in results]
        derived += [definition for _, copies in results for definition in copies]
    table = lift(replace(graph.program, definitions=(*graph.program.definitions, *derived)), graph.known)
    with_rules(graph.rules, rules, derived, table)
    found = [table[name] for name in names]
    return found[0] if isinstance(output, Tensor) else found


def _transposed(unit: Unit, graph: Graph) -> Rule:
    """The tangent that a rule for reverse mode implies: the rule is linear in its head, so its own gradient is forward mode."""

    def rule(tangents: Mapping[str, str], workspace: Workspace, override: Override) -> str:
        head = Tensor(f"{unit.tensor.name}_bar", unit.tensor.extents, unit.tensor.dtype)
        scratch = workspace.inside()
        scratch.types[head.key] = head.type
        sent = []
        for source, result in zip(unit.inputs, unit.results(head), strict=True):
            tangent = tangents.get(override.names.get(source.key, source.key))
            if tangent is not None and result is not None:
                sent.append((result, workspace.rounded(tangent, source.dtype, "_rounded")))
        if not sent:
            return workspace.zeros(unit.tensor.key, "_dot")
        results = graph.insert([result for result, _ in sent], {**override.names, head.key: head.key}, scratch, unit.steps(override))
        # What is read comes as it is: the rule is transposed, not what it reads.
        own = {name for definition in scratch.definitions for name, _ in definition.results}
        scratch.types.update(workspace.types)
        given = tuple(Input(name, type_) for name, type_ in scratch.types.items() if name not in own)
        program = Program(given, (), tuple(scratch.definitions), (), workspace.sizes)
        seeds = list(zip(results, (tangent for _, tangent in sent), strict=True))
        transposed = reverse(program, seeds, [head.key], labels=workspace.labels, taken=workspace.taken, steps=workspace.steps)
        (name,) = transposed.program.outputs
        # Adjoints of states that do not depend on the head read the head, which is none of this program: nobody needs them.
        for definition in remove_dead_definitions(replace(transposed.program, outputs=(name,))).definitions:
            workspace.add(definition)
        return name

    return rule


@checked()
def jacobian(output: Tensor, wrt: Tensor | Sequence[Tensor]) -> Any:
    """All derivatives of `output` by `wrt`: a tensor of the shape of the output followed by the shape of `wrt`.

    A list for a list. This is the whole matrix, as large and as costly as it sounds; products with it are `te.gradient` and
    `te.jvp`. Raises `DifferentiationError` for tensors that are not floating.

    >>> x = te.placeholder((2,), "float64", name="x")
    >>> y = te.compute((2,), lambda i: x[i] * x[1 - i], name="y")
    >>> te.evaluate(te.jacobian(y, x), {x: np.array([2.0, 3.0])})
    array([[3., 2.],
           [3., 2.]])
    """
    if not isinstance(output, Tensor):
        raise DifferentiationError(
            f"te.jacobian: expected one output tensor, got {described(output)}",
            location=user_location(),
            hint="call it once for each output",
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
    eye = workspace.new_name(head.name, "_unit")
    directions = Directions.over([(f"o{d}", stop) for d, stop in enumerate(output.extents)], {head.key: eye}, workspace)
    axes = directions.axes
    own = plain_axes(output.type, (*workspace.reserved, *(axis.index for axis in axes)))
    equal = conjunction([apply("eq", Index(a.index), Index(b.index)) for a, b in zip(axes, own, strict=True)])
    unit = Define(eye, (*axes, *own), apply("where", equal, Const(1, output.dtype), Const(0, output.dtype)))
    definitions: list[Definition] = [*derived.forward, unit]  # those of which every result is a tensor already are not made again
    definitions += directions.spread(workspace.definitions)
    name, copies = directions.result(derived.reverse.adjoints[wrt.key])
    definitions += copies
    program = Program((), (), tuple(definitions), (name,), workspace.sizes)
    return lift(program, derived.tensors)[name]
