"""Which values are addends where a loop of a reduction runs over a block alone, and what else has to be said of them.

Restricted to a block, a sum is an addend of the whole sum. It stays one through everything that is linear in it; through anything else
it does not: the addends would have to be combined first. The same holds of products, maxima, minima, `all` and `any`, each with what
passes through it. What a sum or a product stands beside (a bias) belongs to one of the addends: `addend(expr, first=False)` leaves
it out. Along two dimensions of a mesh it is left out for each by itself (a `Share` for each rule), so that what is an addend of
one of them stands beside those of the other: `x_a + z_b` is `x_a` where b is not the first, and nothing where neither is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Define, Expr, Index, Program, Reduce, Scan, Scatter, Segments, apply, const
from tensorexpr.regions import affine_of
from tensorexpr.sharding.placements import Site
from tensorexpr.traversal import bottom_up, free_names, map_children, reads, walk

COMBINERS = ("sum", "prod", "max", "min", "all", "any")
_BINARY = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "all": "and", "any": "or"}


class Mixed(Exception):
    """A restricted reduction stands where its addends would have to be combined first."""


class Share(NamedTuple):
    """What a part has of the loops of one rule: `combine`, the `sites` that run over a block, and whether it is the first block."""

    combine: str
    sites: frozenset[Site]
    first: bool


@dataclass
class Addends:
    """The tensors of a program that are addends where the sites are restricted, and by which combiner: `combines`."""

    combine: str
    sites: frozenset[Site]
    tensors: set[str] = field(default_factory=set)
    plans: set[str] = field(default_factory=set)
    """Results of sort plans of the points of a block."""

    def is_restricted(self, owner: str, axes: Iterable[Axis]) -> bool:
        """Whether one of some loops around each other is. Raises `Mixed` where two are: blocks of both leave points out."""
        found = [axis for axis in axes if Site("loop", owner, axis.index) in self.sites]
        if len(found) > 1:
            raise Mixed
        return bool(found)

    def within(self, owner: str, expr: Expr) -> bool:
        """Whether addends occur in an expression."""
        return any(
            (isinstance(node, Access) and (node.tensor in self.tensors or node.tensor in self.plans or self._of_rows(node)))
            or (isinstance(node, Reduce) and self.is_restricted(owner, node.axes))
            for node in walk(expr)
        )

    def _of_rows(self, access: Access) -> bool:
        return any(Site("rows", access.tensor, position) in self.sites for position in range(len(access.indices)))

    def addend(self, owner: str, expr: Expr, first: bool) -> Expr:
        """The expression of an addend, for an expression with addends in it: what stands beside them belongs to the first alone.

        Raises `Mixed` where its value is none.
        """
        return self._addend(owner, expr, first) if self.within(owner, expr) else self._beside(expr, first)

    def _whole(self, owner: str, exprs: Iterable[Expr]) -> None:
        if any(self.within(owner, expr) for expr in exprs):
            raise Mixed

    def _addend(self, owner: str, expr: Expr, first: bool) -> Expr:
        match expr:
            case Access() if expr.tensor not in self.plans:
                self._whole(owner, expr.indices)
                return expr
            case Cast() if expr.dtype.is_float == expr.arg.dtype.is_float and not expr.arg.dtype.is_bool and not expr.dtype.is_bool:
                return map_children(expr, lambda child: self._addend(owner, child, first))
            case Reduce():
                return self._reduce(owner, expr, first)
            case Apply():
                return self._apply(owner, expr, first)
        raise Mixed

    def _reduce(self, owner: str, expr: Reduce, first: bool) -> Expr:
        if not expr.combiner.is_builtin or expr.combiner.name != self.combine:
            raise Mixed
        if self._over_listed(expr):
            for value in (*expr.values, *(() if expr.where is None else (expr.where,))):
                self._whole(owner, [_unlisted(value, self.plans)])
            return expr
        self._whole(owner, [bound for axis in expr.axes for bound in (axis.start, axis.stop)])
        self._whole(owner, () if expr.where is None else (expr.where,))
        if not any(self.within(owner, value) for value in expr.values):
            return expr
        if self.is_restricted(owner, expr.axes):
            raise Mixed  # a block of blocks
        return map_children(expr, lambda child: self._addend(owner, child, first) if child is expr.values[0] else child)

    def _over_listed(self, expr: Reduce) -> bool:
        """Whether a reduction runs over the points of one key that a restricted plan lists: each is there where its block is."""
        if len(expr.axes) != 1:
            return False
        (axis,) = expr.axes
        start, stop = axis.start, axis.stop
        if not (isinstance(start, Access) and isinstance(stop, Access) and start.tensor == stop.tensor and start.tensor in self.plans):
            return False
        if start.indices[:-1] != stop.indices[:-1] or affine_of(apply("sub", stop.indices[-1], start.indices[-1])) != Affine.of(1):
            return False
        inside = (*expr.values, *(() if expr.where is None else (expr.where,)))
        listed = [node for value in inside for node in walk(value) if isinstance(node, Access) and node.tensor in self.plans]
        number = Index(axis.index)
        return all(node.indices == (*start.indices[:-1], number) for node in listed) and not any(
            axis.index in free_names(_unlisted(value, self.plans)) for value in inside
        )

    def _apply(self, owner: str, expr: Apply, first: bool) -> Expr:
        name, inside = expr.op.name, [self.within(owner, arg) for arg in expr.args]

        def there(position: int) -> Expr:
            return self._addend(owner, expr.args[position], first)

        if name == "stop_gradient":
            return apply(name, there(0))
        if name == "where":
            if inside[0]:
                raise Mixed
            branches = [there(k) if inside[k] else self._beside(expr.args[k], first) for k in (1, 2)]
            return apply("where", expr.args[0], *branches)
        if name == _BINARY[self.combine]:
            return apply(name, *(there(k) if inside[k] else self._beside(expr.args[k], first) for k in (0, 1)))
        if self.combine == "sum":
            if name == "neg":
                return apply("neg", there(0))
            if name == "sub":
                return apply("sub", *(there(k) if inside[k] else self._beside(expr.args[k], first) for k in (0, 1)))
            if name == "mul" and not all(inside):
                return apply("mul", *(there(k) if inside[k] else expr.args[k] for k in (0, 1)))
            if name == "div" and not inside[1]:
                return apply("div", there(0), expr.args[1])
        if self.combine in ("max", "min") and name == "add" and not all(inside):  # the greatest of sums with one addend in common
            return apply("add", *(there(k) if inside[k] else expr.args[k] for k in (0, 1)))
        raise Mixed

    def _beside(self, expr: Expr, first: bool) -> Expr:
        """What stands beside addends: in one of them alone, unless it does no harm twice."""
        if first or self.combine not in ("sum", "prod"):
            return expr
        return Const(0 if self.combine == "sum" else 1, expr.dtype)


def addends(program: Program, combine: str, sites: frozenset[Site]) -> Addends:
    """The tensors that are addends where the sites are restricted. Raises `Mixed` where one goes into what has to have the whole."""
    found = Addends(combine, sites)
    for definition in program.definitions:
        match definition:
            case Define():
                if found.within(definition.name, definition.value):
                    found.addend(definition.name, definition.value, True)
                    found.tensors.add(definition.name)
            case Scatter():
                restricted = found.is_restricted(definition.name, definition.axes)
                inside = found.within(definition.name, definition.value)
                rest = (*definition.indices, *(() if definition.where is None else (definition.where,)))
                if any(found.within(definition.name, expr) for expr in rest) or (restricted and inside):
                    raise Mixed
                if inside:
                    found.addend(definition.name, definition.value, True)
                if restricted or inside:
                    if definition.combine != combine:
                        raise Mixed
                    found.tensors.add(definition.name)
            case Segments():
                if found.tensors & set(reads(definition)) or found.plans & set(reads(definition)):
                    raise Mixed
                if found.is_restricted(definition.name, definition.axes):
                    found.plans.update(definition.names)
            case Scan():
                if (found.tensors | found.plans) & set(reads(definition)):
                    raise Mixed
    return found


def _unlisted(expr: Expr, plans: set[str]) -> Expr:
    """An expression with a number in the place of everything that reads a plan."""
    return bottom_up(expr, lambda node: const(0) if isinstance(node, Access) and node.tensor in plans else node)
