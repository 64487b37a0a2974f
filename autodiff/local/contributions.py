"""The adjoint of one expression: what each read in it receives when the value of the expression receives `seed`.

An expression is swept like a program, parents before children, equal subexpressions once. The adjoint of a node is an
expression over the indices around it; it passes through scalar operations by the derivative table, through a sum
unchanged into the space of the sum, through `where` as a guard, to the winner of a maximum. Nothing is written down as an
array here, except values that would otherwise be computed again at every point of a reduction (see `ExpressionAdjoint`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorexpr.autodiff.local.derivatives import added, cast_to, scalings, widened, widened_operation
from tensorexpr.autodiff.local.products import leave_one_out
from tensorexpr.autodiff.local.winners import winner_guards
from tensorexpr.autodiff.local.workspace import Place, Workspace, guarded
from tensorexpr.dtypes import accumulator
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Expr, Reduce, apply, conjuncts
from tensorexpr.records import record, replace
from tensorexpr.traversal import children, map_children, negate, walk

CHEAP = 8
"""An adjoint of at most this cost is computed again rather than stored."""

MANY_READS = 5
"""Under a reduction an adjoint is stored only where at least this many reads would compute it again."""


Read = tuple[Access, tuple[Expr, ...]]
"""An access object, and conditions."""


@record
class Contribution:
    """At every point of `axes` where `guards` hold, the element that `access` reads receives `value`.

    `reads` are the access objects of the program that this stands for (equal reads are summed into one contribution), each with
    the conditions under which it reads, beside `guards`. The value of a contribution to a 16-bit float is a float32.
    """

    access: Access
    axes: tuple[Axis, ...]
    guards: tuple[Expr, ...]
    value: Expr
    reads: tuple[Read, ...]


Separate = Callable[[Expr, Place], Expr | None]
"""Makes a reduction, or a term that pays (else it gives None), a definition of its own, which is active, and gives a read of it."""
Running = Callable[[Reduce, Place], Expr | None]
"""A read of the running table that has a reduction over a prefix, as a definition of its own; None where there is none."""


class ExpressionAdjoint:
    """Finds the contributions of the expressions of one definition, called `owner`, to the tensors that are `active`.

    The cost rule: an adjoint is stored as a tensor over the indices it mentions where it enters a reduction that it
    does not depend on and is more than a scaled element, and where several reads share it and it costs more than `CHEAP`;
    under reductions only if `MANY_READS` share it or it costs more than `CHEAP` and enters an inner reduction. Reductions inside
    factors are stored always, and a reduction that is the same at many points around it is swept as a definition of its own,
    as is a costly term (`terms`).
    So every gradient costs a small multiple of the forward pass, and nothing has the size of a reduction's space unless the
    forward pass computes a transcendental function of a reduction at each of its points.
    """

    def __init__(
        self,
        workspace: Workspace,
        owner: str,
        active: Mapping[str, object],
        outer: int,
        separate: Separate | None = None,
        running: Running | None = None,
        still: Callable[[Expr], bool] = lambda node: False,
    ) -> None:
        self._workspace = workspace
        self._owner = owner
        self._active = active
        self._outer = outer
        self._separate = separate
        self._running = running
        self._still = still
        self._reached: dict[Expr, frozenset[Expr]] = {}

    # -- which nodes matter ------------------------------------------------------------------------------------------

    def count(self, node: Expr) -> int:
        """The number of different active reads through which a change reaches the value of `node`."""
        return len(self._reads(node))

    def _reads(self, node: Expr) -> frozenset[Expr]:
        found = self._reached.get(node)
        if found is None:
            if isinstance(node, Access):
                found = frozenset([node] if node.tensor in self._active and node.dtype.is_float else ())
            else:
                found = frozenset().union(*map(self._reads, self._varying(node)))
            self._reached[node] = found
        return found

    def _varying(self, node: Expr) -> tuple[Expr, ...]:
        """The operands through which derivatives pass."""
        match node:
            case Apply() | Reduce() if self._still(node):
                return ()
            case Apply() if node.dtype.is_float:
                if node.op.name == "where":
                    return node.args[1:]
                return tuple(arg for arg, scaling in zip(node.args, scalings(node.op), strict=True) if scaling is not None)
            case Cast() if node.dtype.is_float and node.arg.dtype.is_float:
                return (node.arg,)
            case Reduce() if node.dtype.is_float:
                return node.values
        return ()

    # -- the sweep ---------------------------------------------------------------------------------------------------

    def contributions(self, value: Expr, seed: Expr, place: Place, whole: Expr | None = None) -> list[Contribution]:
        """The contributions of `value` where it receives `seed`; `whole` is a read that has the same value, if there is one."""
        if not self.count(value):
            return []
        if len(place.axes) > self._outer:
            value = self._with_terms(value, place)
        objects = _access_objects(value)
        adjoints = {value: [widened(seed)]}
        found: list[Contribution] = []
        for node in self._parents_first(value):
            seed = added(adjoints.pop(node))
            match node:
                case Access():
                    found.append(Contribution(node, place.axes, place.guards, seed, tuple((read, ()) for read in objects[node])))
                case Cast():
                    self._receive(adjoints, node.arg, cast_to(seed, accumulator(node.arg.dtype)))
                case Reduce() if node is not value and self._separate is not None and self._workspace.is_shared(node, place):
                    found += self.contributions(self._separated(node, place), seed, place)
                case Reduce():
                    found += self._reduction(node, seed, place)
                case Apply() if node.op.name == "where":
                    found += self._branches(node, seed, place, whole if node is value else None)
                case Apply():
                    seed = self._shared(node, seed, place)
                    args, result = widened_operation(node, whole if node is value and whole is not None else node)
                    for arg, scaling in zip(node.args, scalings(node.op), strict=True):
                        if scaling is not None and self.count(arg):
                            scaled = scaling(seed, args, result)
                            self._receive(adjoints, arg, self._workspace.without_reductions(scaled, place, self._owner))
        return merged(found)

    def _with_terms(self, node: Expr, place: Place) -> Expr:
        """The value with reads of the costly terms in it that became definitions, but for those in branches and reductions."""
        if not isinstance(node, Apply | Cast) or not self.count(node):
            return node
        if isinstance(node, Apply) and self._separate is not None:
            read = self._separate(node, place)
            if read is not None:
                return read
            if node.op.name == "where":
                return node
        return map_children(node, lambda child: self._with_terms(child, place))

    @staticmethod
    def _receive(adjoints: dict[Expr, list[Expr]], node: Expr, value: Expr) -> None:
        adjoints.setdefault(node, []).append(value)

    def _parents_first(self, value: Expr) -> list[Expr]:
        order: dict[Expr, None] = {}
        self._children_first(value, order)
        return list(reversed(order))

    def _children_first(self, node: Expr, order: dict[Expr, None]) -> None:
        if node in order:
            return
        if isinstance(node, Cast) or (isinstance(node, Apply) and node.op.name != "where"):
            for child in self._varying(node):
                if self.count(child):
                    self._children_first(child, order)
        order[node] = None

    # -- branches and reductions -------------------------------------------------------------------------------------

    def _branches(self, node: Apply, seed: Expr, place: Place, whole: Expr | None) -> list[Contribution]:
        condition = self._workspace.without_reductions(node.args[0], place, self._owner)
        seed = self._shared(node, seed, place)
        depth = len(place.guards)
        sides = []
        for branch, guards in ((node.args[1], tuple(conjuncts(condition))), (node.args[2], (negate(condition),))):
            inner = self.contributions(branch, seed, place.under(guards=guards), whole)
            width = depth + len(guards)
            sides.append(({(c.access, c.axes, c.guards[:depth] + c.guards[width:]): c for c in inner}, guards))
        (taken, guards), (otherwise, opposite) = sides
        found: list[Contribution] = []
        for key, one in taken.items():
            other = otherwise.pop(key, None)
            if other is None:
                found.append(one)
                continue
            value = one.value if one.value == other.value else apply("where", condition, one.value, other.value)
            reads = _united(_under(one.reads, guards), _under(other.reads, opposite))
            found.append(replace(one, guards=key[2], value=value, reads=reads))
        return found + list(otherwise.values())

    def _reduction(self, node: Reduce, seed: Expr, place: Place) -> list[Contribution]:
        read = None if self._running is None else self._running(node, place)
        if read is not None:
            return self.contributions(read, seed, place)
        seed = self._entering(node, seed, place)
        inner = place.under(node.axes)
        seed = inner.apart(seed)
        if node.where is not None:
            inner = inner.under(guards=conjuncts(self._workspace.without_reductions(node.where, inner, self._owner)))
        match node.combiner.name:
            case "sum":
                return self.contributions(node.values[0], seed, inner)
            case "max" | "min":
                guards = winner_guards(node, place, self._workspace, self._owner)
                return self.contributions(node.values[0], seed, inner.under(guards=guards))
            case "prod":
                factor = leave_one_out(node, place, self._workspace, self._owner)
                return self.contributions(node.values[0], apply("mul", seed, factor), inner)
        return self.contributions(self._separated(node, place), seed, place)

    def _separated(self, node: Reduce, place: Place) -> Expr:
        assert self._separate is not None, "an adjoint without it only counts"
        read = self._separate(node, place)
        assert read is not None, "a reduction can always be a definition"
        return read

    # -- the cost rule -----------------------------------------------------------------------------------------------

    def _shared(self, node: Expr, seed: Expr, place: Place) -> Expr:
        """The adjoint of a node at which ways to several reads part: stored if that saves work."""
        reads = self.count(node)
        if sum(1 for child in self._varying(node) if self.count(child)) < 2:
            return seed
        inside = len(place.axes) > self._outer
        if reads < (MANY_READS if inside else 2) or cost(seed) * (reads - 1) <= CHEAP:
            return seed
        return self._workspace.save(seed, place, self._owner, "_bar")

    def _entering(self, node: Reduce, seed: Expr, place: Place) -> Expr:
        """The adjoint of a reduction: stored if computing it again at every point of the reduction costs something."""
        inside = len(place.axes) > self._outer
        simple = sum(isinstance(part, Access) for part in walk(seed)) <= 1 and cost(seed) <= CHEAP // 2
        if simple or (inside and cost(seed) <= CHEAP):
            return seed
        return self._workspace.save(seed, place, self._owner, "_bar")


def cost(expr: Expr) -> int:
    """The arithmetic in an expression in units of an addition, index arithmetic not counted."""
    if isinstance(expr, Access | Const):
        return 0
    if isinstance(expr, Apply):
        return (expr.op.cost if expr.dtype.is_float or expr.op.result == "bool" else 0) + sum(cost(arg) for arg in expr.args)
    return sum(cost(child) for child in children(expr))


def merged(found: list[Contribution]) -> list[Contribution]:
    """Contributions with one access, one space and one set of guards summed; a guard that only some have becomes a `where`."""
    result: list[tuple[Contribution, list[Expr]]] = []
    places: dict[object, list[int]] = {}
    for one in found:
        alike = places.setdefault((one.access, one.axes), [])
        for at in alike:
            joined = _join(*result[at], one)
            if joined is not None:
                result[at] = joined
                break
        else:
            alike.append(len(result))
            result.append((one, [one.value]))
    return [one if len(values) == 1 else replace(one, value=added(values)) for one, values in result]


def _join(a: Contribution, values: list[Expr], b: Contribution) -> tuple[Contribution, list[Expr]] | None:
    """One contribution for two of which one has no guard that the other has not, with what is to be added up; a has such `values`."""
    if set(a.guards) <= set(b.guards):
        guards = tuple(guard for guard in b.guards if guard not in a.guards)
        values.append(guarded(b.value, guards, Const(0, b.value.dtype)))
        return replace(a, reads=_united(a.reads, _under(b.reads, guards))), values
    if set(b.guards) <= set(a.guards):
        guards = tuple(guard for guard in a.guards if guard not in b.guards)
        value = guarded(added(values), guards, Const(0, a.value.dtype))
        return replace(b, reads=_united(b.reads, _under(a.reads, guards))), [b.value, value]
    return None


def _under(reads: tuple[Read, ...], guards: tuple[Expr, ...]) -> tuple[Read, ...]:
    return tuple((access, (*guards, *own)) for access, own in reads)


def _united(a: tuple[Read, ...], b: tuple[Read, ...]) -> tuple[Read, ...]:
    """All reads; what reads without conditions reads once, however often it is used."""
    always = {id(access) for access, guards in (*a, *b) if not guards}
    found: dict[tuple[int, tuple[Expr, ...]], Read] = {}
    for access, guards in (*a, *b):
        if not guards or id(access) not in always:
            found.setdefault((id(access), guards), (access, guards))
    return tuple(found.values())


def _access_objects(value: Expr) -> dict[Expr, list[Access]]:
    """The distinct access objects in `value`, grouped by equality: one object is one read, however often it is used.

    Those in branches and reductions are not among them: they are found where these are swept.
    """
    seen: set[int] = set()
    groups: dict[Expr, list[Access]] = {}
    stack = [value]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Access):
            groups.setdefault(node, []).append(node)
        elif not isinstance(node, Reduce) and not (isinstance(node, Apply) and node.op.name == "where"):
            stack.extend(reversed(children(node)))
    return groups
