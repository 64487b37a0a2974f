"""Where an expression that may fault is evaluated: under every condition under which the program evaluates it, and in no empty loop.

    for j in range(0, n):                          if n > 0:
        if A[i, 0] > 0: y[j] = f(j)    -->             if A[i, 0] > 0:
                                                           for j in range(0, n): y[j] = f(j)

Arithmetic on indices cannot fault, so conditions on them stand wherever their indices are known. What reads data does not leave the
conditions before it, nor loops that may be empty, unless its accesses are in bounds by what is known where it stands: the loops that are
open, and the conditions that hold.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr.bounds import PROVED, check_access
from tensorexpr.codegen.lowering.context.arithmetic import constant, reads_data
from tensorexpr.codegen.lowering.context.scope import Scope
from tensorexpr.codegen.schedule.analysis.state import Stage
from tensorexpr.codegen.schedule.analysis.windows import nonempty
from tensorexpr.ir import FALSE, Access, Axis, Const, Expr, apply, conjunction, const
from tensorexpr.traversal import bottom_up, read_occurrences

Shape = Callable[[str], tuple[Expr, ...]]


def known_axes(stage: Stage, scope: Scope) -> tuple[Axis, ...]:
    """The axes of which the index is known, outermost first, as far as they run."""
    groups = [stage.parts.group(number) for number in scope.groups]
    axes = (*stage.parts.axes, *(a for g in groups for a in g.axes))
    return tuple(scope.bounded(a) for a in axes if scope.index(a.index) is not None)


def is_safe(exprs: tuple[Expr, ...], axes: tuple[Axis, ...], scope: Scope, shape: Shape) -> bool:
    """Whether all that is read is certain to be in bounds inside of some axes, by the conditions that hold."""
    for expr in exprs if any(map(reads_data, exprs)) else ():
        for access, _, guards in read_occurrences(expr, (), scope.holds):
            if any(verdict is not PROVED for verdict in check_access(access.indices, shape(access.tensor), axes, guards)):
                return False
    return True


def still_to_run(loops: tuple[str, ...], stage: Stage, scope: Scope) -> tuple[Expr, ...] | None:
    """What must hold yet for each of the loops to have an iteration; None where that is not known before they are open.

    Loops of reductions that stand inside do not count: without an iteration they have a result all the same."""
    found: dict[Expr, None] = {}
    for loop in loops:
        group = stage.group_of(loop)
        if group is not None and group.number not in scope.groups:
            continue
        for name in stage.axes_of(loop):
            if scope.index(name) is not None:
                continue
            axis = scope.axes[name]
            start, stop = constant(axis.start), constant(axis.stop)
            if start is not None and stop is not None and start < stop:
                continue
            for condition in nonempty(axis):
                if condition in scope.holds:
                    continue
                if not scope.is_ready(condition) or reads_data(condition):
                    return None
                found[condition] = None
    return tuple(found)


def sheltered_condition(condition: Expr, axes: tuple[Axis, ...], scope: Scope, shape: Shape) -> Expr | None:
    """A condition that is false where it cannot be evaluated: then nobody asks. None where it must be seen first whether anybody does."""
    bounds: dict[Expr, None] = {}
    for access, _, guards in read_occurrences(condition, ()):
        if not is_safe((access,), axes, scope, shape):
            if guards or any(map(reads_data, access.indices)):
                return None
            bounds.update(dict.fromkeys(_bounds(access, shape)))
    return apply("where", conjunction(bounds), condition, FALSE) if bounds else condition


def _bounds(access: Access, shape: Shape) -> list[Expr]:
    """What says that an access is in bounds."""
    pairs = zip(access.indices, shape(access.tensor), strict=True)
    return [bound for index, extent in pairs for bound in (apply("ge", index, const(0)), apply("lt", index, extent))]


def sheltered(expr: Expr, axes: tuple[Axis, ...], scope: Scope, shape: Shape) -> Expr:
    """The expression with elements read where they are in bounds only: where they are not, nobody asks for the value."""

    def visit(node: Expr) -> Expr:
        if not isinstance(node, Access) or is_safe((node,), axes, scope, shape):
            return node
        return apply("where", conjunction(_bounds(node, shape)), node, Const(0, node.dtype))

    return bottom_up(expr, visit) if reads_data(expr) else expr
