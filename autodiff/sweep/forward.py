"""Forward mode on programs: behind each definition that changes with `wrt` stands one for its tangent.

The tangent of an expression follows the expression: sums stay sums, a maximum takes the tangent of its winner, a product
the sum over its factors, `where` the tangent of the branch taken. The derivative table is the one of reverse mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorexpr.autodiff.data.scatters import scattered_slope
from tensorexpr.autodiff.local.contributions import ExpressionAdjoint
from tensorexpr.autodiff.local.derivatives import cast_to, plus, scalings, widened, widened_operation
from tensorexpr.autodiff.local.overrides import Override, inside
from tensorexpr.autodiff.local.products import leave_one_out
from tensorexpr.autodiff.local.winners import winner_guards
from tensorexpr.autodiff.local.workspace import Place, Workspace, all_of, plain_axes
from tensorexpr.autodiff.scan.bodies import recalled, renamed_scan
from tensorexpr.autodiff.scan.folds import expand_reduction, in_parts
from tensorexpr.autodiff.sweep.accumulate import SUM
from tensorexpr.autodiff.sweep.reverse import active_tensors
from tensorexpr.dtypes import DType, accumulator
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Cast,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Reduce,
    Scan,
    Scatter,
    TensorType,
    apply,
    conjuncts,
    const,
)
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, negate


class Forward:
    """The tangents of tensors: `names` maps each tensor that changes to the tensor of its tangent."""

    def __init__(self, workspace: Workspace, tangents: Mapping[str, str], rules: Mapping[str, Override] | None = None) -> None:
        self.workspace = workspace
        self.names = dict(tangents)
        self.rules: Mapping[str, Override] = {} if rules is None else rules

    def run(self, definitions: Iterable[Definition]) -> None:
        """Adds the tangents of all definitions that change, in order."""
        for definition in definitions:
            custom = next((name for name, _ in definition.results if name in self.rules), None)
            if custom is not None:
                override = self.rules[custom]
                if custom not in self.names and any(name in self.names for name in override.inputs):
                    found = override.rule(self.names, self.workspace, override)
                    self.names[custom] = self.workspace.rounded(found, self.workspace.adjoint_type(custom).dtype, "_wide")
                continue
            active = active_tensors([definition], self.names, self.rules)
            if any(name in active and name not in self.names for name, _ in definition.results):
                self.visit(definition)

    def visit(self, definition: Definition) -> None:
        """Adds the tangent of one definition."""
        match definition:
            case Define():
                at = tuple(Index(axis.index) for axis in definition.axes)
                whole = Access(definition.name, at, definition.value.dtype)
                value = self._tangent(definition.value, Place(definition.axes), definition.name, len(definition.axes), whole)
                if value is not None:
                    name, dtype = self._name(definition.name), self.workspace.adjoint_type(definition.name).dtype
                    self.workspace.add(Define(name, definition.axes, cast_to(value, dtype), definition.location))
            case Scatter():
                self._visit_scatter(definition)
            case Scan():
                self._visit_scan(definition)

    def _name(self, tensor: str) -> str:
        return self.names.setdefault(tensor, self.workspace.new_name(tensor, "_dot"))

    def _visit_scatter(self, definition: Scatter) -> None:
        factor, place = scattered_slope(definition, self.workspace)
        value = self._tangent(definition.value, place, definition.name, len(definition.axes), None)
        if value is not None:
            value = value if factor is None else apply("mul", value, widened(factor))
            name, type_ = self._name(definition.name), self.workspace.adjoint_type(definition.name)
            value, where = cast_to(value, type_.dtype), all_of(place.guards)
            self.workspace.add(replace(definition, name=name, type=type_, value=value, where=where, combine="sum"))

    def _visit_scan(self, scan: Scan) -> None:
        """The tangents of the states run through a scan of their own, which computes the body again from the stored states."""
        workspace = self.workspace
        again = renamed_scan(scan, workspace)
        floating = [c for c, (_, type_) in enumerate(scan.states) if type_.dtype.is_float]
        inner = Forward(workspace.inside((Axis(again.step, const(0), scan.length),)), self.names, inside(self.rules, scan, again))
        inner.workspace.types.update(dict(again.states))
        states, inits = [], []
        for c in floating:
            state, _ = again.states[c]
            dot, type_ = workspace.new_name(scan.names[c], "_dot_state"), inner.workspace.adjoint_type(state)
            inner.names[state] = dot
            inner.workspace.types[dot] = type_
            states.append((dot, type_))
            inits.append(self._start(scan.inits[c], type_))
        for definition in again.body:
            inner.workspace.types.update(definition.results)
            inner.workspace.definitions.append(definition)
            inner.run([definition])
        nexts = []
        for c in floating:
            found = inner.names.get(again.nexts[c])
            if found is None or not any(found == name for d in inner.workspace.definitions for name, _ in d.results):
                found = self._copied(inner, found, again, c)
            nexts.append(found)
        body = recalled(again, inner.workspace.definitions, nexts, {}, inner.rules)
        names: list[str] = []
        for c, (_, type_) in zip(floating, states, strict=True):  # carried in float32, rounded where a tangent leaves the scan
            same = type_.dtype is workspace.adjoint_type(scan.names[c]).dtype
            names.append(self._name(scan.names[c]) if same else workspace.new_name(scan.names[c], "_dot_wide"))
        workspace.add(Scan(tuple(names), scan.length, again.step, tuple(states), tuple(inits), tuple(body), tuple(nexts), scan.location))
        for c, wide in zip(floating, names, strict=True):
            if scan.names[c] not in self.names:
                self._rounded(wide, self._name(scan.names[c]), workspace.types[scan.names[c]].dtype)

    def _start(self, init: str, type_: TensorType) -> str:
        """The tangent of an initial state, in the type of the tangents of the scan."""
        known, workspace = self.names.get(init), self.workspace
        if known is not None and workspace.types[known].dtype is type_.dtype:
            return known
        name = workspace.new_name(init, "_dot")
        if known is not None:
            self._rounded(known, name, type_.dtype)
        else:
            workspace.add(Define(name, plain_axes(type_, workspace.reserved), Const(0, type_.dtype)))
        return name

    def _rounded(self, tensor: str, name: str, dtype: DType) -> None:
        """Adds the tensor `name`, equal to `tensor` but for its dtype."""
        type_ = self.workspace.types[tensor]
        axes = plain_axes(type_, self.workspace.reserved)
        read = Access(tensor, tuple(Index(axis.index) for axis in axes), type_.dtype)
        self.workspace.add(Define(name, axes, cast_to(read, dtype)))

    @staticmethod
    def _copied(inner: Forward, found: str | None, scan: Scan, c: int) -> str:
        """The tangent of a next state as a definition of the body: a copy, or zeros."""
        if found is None:
            return inner.workspace.zeros(scan.states[c][0], "_dot")
        return inner.workspace.copy(found, "_next")

    # -- expressions -------------------------------------------------------------------------------------------------

    def _tangent(self, value: Expr, place: Place, owner: str, outer: int, whole: Expr | None) -> Expr | None:
        """The tangent of an expression at `place`, None for zero; `whole` is a read that has the same value as `value`."""
        counter = ExpressionAdjoint(self.workspace, owner, self.names, outer)

        def visit(node: Expr, place: Place) -> Expr | None:
            if not node.dtype.is_float or not counter.count(node):
                return None
            match node:
                case Access():
                    return self._tangent_of(node)
                case Cast():
                    inner = visit(node.arg, place)
                    return None if inner is None else cast_to(inner, accumulator(node.dtype))
                case Reduce():
                    return reduction(node, place)
                case Apply() if node.op.name == "where":
                    zero = Const(0, accumulator(node.dtype))
                    condition = node.args[0]
                    taken = visit(node.args[1], place.under(guards=conjuncts(condition)))
                    otherwise = visit(node.args[2], place.under(guards=(negate(condition),)))
                    return apply("where", condition, zero if taken is None else taken, zero if otherwise is None else otherwise)
                case Apply():
                    args, result = widened_operation(node, whole if whole is not None and node is value else node)
                    total: Expr | None = None
                    for arg, scaling in zip(node.args, scalings(node.op), strict=True):
                        inner = None if scaling is None else visit(arg, place)
                        if scaling is not None and inner is not None:
                            part = scaling(inner, args, result)
                            total = part if total is None else plus(total, part)
                    return total
            return None

        def folded(node: Reduce, place: Place) -> Expr:
            while (parts := in_parts(node, place, self.workspace)) is not None:
                below = place.under(parts.axes, conjuncts(parts.where))
                node = replace(parts, values=tuple(folded(value, below) for value in parts.values if isinstance(value, Reduce)))
            read, scan = expand_reduction(node, place, self.workspace, owner)
            if scan.names[0] not in self.names:
                self._visit_scan(scan)
            return read

        def reduction(node: Reduce, place: Place) -> Expr | None:
            inner = place.under(node.axes, conjuncts(node.where))
            match node.combiner.name:
                case "sum":
                    tangent, where = visit(node.values[0], inner), node.where
                case "max" | "min":
                    guards = winner_guards(node, place, self.workspace, owner)
                    tangent = visit(node.values[0], inner)
                    where = all_of([*conjuncts(node.where), *guards])
                case "prod":
                    factor = leave_one_out(node, place, self.workspace, owner)
                    tangent, where = visit(node.values[0], inner), node.where
                    tangent = None if tangent is None else apply("mul", tangent, factor)
                case _:
                    read = folded(node, place)
                    recount = ExpressionAdjoint(self.workspace, owner, self.names, outer)
                    return bottom_up(read, self._to_tangent) if recount.count(read) else None
            if tangent is None:
                return None
            total = Reduce(SUM, (tangent,), node.axes, where)
            shared = node is not value and self.workspace.is_shared(total, place)
            return self.workspace.save(total, place, owner, "_dot") if shared else total

        return visit(value, place)

    def _to_tangent(self, node: Expr) -> Expr:
        """An access to a tensor as one to its tangent; a constant, which starts a fold over nothing, as zero."""
        if isinstance(node, Access) and node.tensor in self.names:
            return self._tangent_of(node)
        return Const(0, accumulator(node.dtype)) if isinstance(node, Const) and node.dtype.is_float else node

    def _tangent_of(self, access: Access) -> Expr:
        tensor = self.names[access.tensor]
        return widened(replace(access, tensor=tensor, dtype=self.workspace.types[tensor].dtype))
