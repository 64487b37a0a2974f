"""The definitions of a derivative while they are made: unique names, types, and values that are worth saving.

A derivative grows behind the program it belongs to; everything it needs is a definition of its own, so that sharing lives
in names. `save` makes an expression that stands inside a definition, perhaps under reductions and guards, into a tensor
over just the indices that it mentions: sums inside a nonlinear function, winners of maxima, adjoints that several reads
share. The tensor has the hull of the index ranges, and a guard where the hull is larger than what is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tensorexpr import dtypes
from tensorexpr.autodiff.local.points import at_point, points_of, with_points
from tensorexpr.integers import Affine, ge, lt
from tensorexpr.ir import (
    FALSE,
    Access,
    Apply,
    Axis,
    Cast,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Input,
    Program,
    Reduce,
    Scan,
    Segments,
    Size,
    TensorType,
    apply,
    conjunction,
    const,
)
from tensorexpr.records import field, record, replace
from tensorexpr.regions import affine_of, constraints_of, domain_of, expression_of
from tensorexpr.simplify import Options, factor_sums, narrow_domains
from tensorexpr.traversal import (
    bottom_up,
    bound_names,
    children,
    free_names,
    fresh_name,
    map_children,
    map_expressions,
    read_occurrences,
    reads,
    rename_bound,
    substitute,
    tensors_read,
    walk,
    with_bodies,
)


@record
class Place:
    """Where an expression stands: the axes around it, outermost first, and the conditions under which it is evaluated.

    No reduction in a condition binds the index of one of the axes: conditions from further outside can be written inside.
    """

    axes: tuple[Axis, ...]
    guards: tuple[Expr, ...] = ()

    def under(self, axes: Iterable[Axis] = (), guards: Iterable[Expr] = ()) -> Place:
        """The place further inside."""
        inner = Place((*self.axes, *axes))
        return Place(inner.axes, tuple(map(inner.apart, (*self.guards, *guards))))

    def apart(self, expr: Expr) -> Expr:
        """An expression from further outside, with other names for what its reductions bind where the axes here have these."""
        names = {axis.index for axis in self.axes}
        return expr if names.isdisjoint(bound_names(expr)) else rename_bound(expr, names | set(free_names(expr)))


@record(frozen=False)
class Workspace:
    """`definitions` made so far, `types` of all tensors, `labels` the names that users see, `taken` names of tensors.

    `sizes` are those of the program; `steps` the indices that are bound around the definitions, where these are the body of
    a scan. No new index has a name in `reserved`, which is both. `plans` are the sort plans that can be read, and
    `given_plans` those that somebody else made: what they hold is not certain.
    """

    definitions: list[Definition]
    types: dict[str, TensorType]
    labels: Mapping[str, str]
    taken: set[str]
    sizes: tuple[str, ...] = ()
    steps: tuple[Axis, ...] = ()
    folds: dict[tuple[Expr, tuple[Axis, ...], tuple[Expr, ...], tuple[int, ...]], Scan] = field(default_factory=dict)
    plans: list[Segments] = field(default_factory=list)
    given_plans: tuple[Segments, ...] = ()
    wide: bool = False
    unstored: set[str] = field(default_factory=set)
    _saved: dict[tuple[tuple[Axis, ...], Expr], str] = field(default_factory=dict)
    _plain: dict[int, Expr] = field(default_factory=dict)

    @classmethod
    def behind(
        cls, program: Program, labels: Mapping[str, str] | None = None, taken: set[str] | None = None, steps: tuple[Axis, ...] = ()
    ) -> Workspace:
        """A workspace whose definitions follow those of `program`; `labels` gives pretty stems for its names.

        New names stay clear of `taken`, to which they are added.
        """
        labels = {} if labels is None else labels
        taken = set() if taken is None else taken
        taken |= {*program.types, *labels.values(), *_local_names(program.definitions)}
        plans = [definition for definition in program.definitions if isinstance(definition, Segments)]
        return cls([], dict(program.types), labels, taken, program.sizes, steps, plans=plans)

    @property
    def reserved(self) -> tuple[str, ...]:
        """Names that no new index may have."""
        return self.sizes + tuple(axis.index for axis in self.steps)

    def inside(self, steps: tuple[Axis, ...] = ()) -> Workspace:
        """A workspace for definitions that are not added here, under further indices; names stay apart from those here."""
        known = list(self.plans)
        return Workspace(
            [],
            dict(self.types),
            self.labels,
            self.taken,
            self.sizes,
            self.steps + steps,
            plans=known,
            given_plans=self.given_plans,
            wide=self.wide or bool(steps),
        )

    def new_name(self, tensor: str, suffix: str) -> str:
        """A fresh tensor name made of the label of `tensor` and `suffix`."""
        return fresh_name(f"{self.labels.get(tensor, tensor)}{suffix}", self.taken)

    def add(self, definition: Definition) -> Definition:
        """Appends a definition, whose name `new_name` gave."""
        self.definitions.append(definition)
        self.types.update(definition.results)
        if isinstance(definition, Segments):
            self.plans.append(definition)
        return definition

    def definition(self, tensor: str) -> Definition:
        """The definition made here that has `tensor` among its results."""
        return next(d for d in reversed(self.definitions) if any(name == tensor for name, _ in d.results))

    def adjoint_type(self, tensor: str) -> TensorType:
        """The type of adjoints and tangents of a tensor: its own. For 16-bit floats float32 with `wide`, as in a scan, and for what is
        a part of a definition (`unstored`), since nothing of it is stored in the program as written."""
        type_ = self.types[tensor]
        return TensorType(type_.shape, dtypes.accumulator(type_.dtype)) if self.wide or tensor in self.unstored else type_

    def zeros(self, tensor: str, suffix: str) -> str:
        """A new tensor of the type of the adjoint of `tensor`, all zeros."""
        type_ = self.adjoint_type(tensor)
        name = self.new_name(tensor, suffix)
        self.add(Define(name, plain_axes(type_, self.reserved), Const(0, type_.dtype)))
        return name

    def copy(self, tensor: str, suffix: str) -> str:
        """A new tensor equal to `tensor`."""
        type_ = self.types[tensor]
        name = self.new_name(tensor, suffix)
        axes = plain_axes(type_, self.reserved)
        self.add(Define(name, axes, Access(tensor, tuple(Index(axis.index) for axis in axes), type_.dtype)))
        return name

    def rounded(self, tensor: str, dtype: dtypes.DType, suffix: str) -> str:
        """The tensor as one of a floating dtype: itself, or a new one."""
        type_ = self.types[tensor]
        if type_.dtype is dtype:
            return tensor
        name = self.new_name(tensor, suffix)
        axes = plain_axes(type_, self.reserved)
        read = Access(tensor, tuple(Index(axis.index) for axis in axes), type_.dtype)
        self.add(Define(name, axes, Cast(dtype, read)))
        return name

    def simplify(self, given: Iterable[Definition] = ()) -> None:
        """Brings every definition to its simplest form (derived formulas, see `simplify.Options`); steps are left alone.

        Where a definition, also one of those `given` before, turns out to be a number, that is written where it is read, and where one
        has values at one place of an axis only, those are where a sum over that axis reads it.
        """
        if self.steps:
            return
        own = {name: None for definition in self.definitions for name, _ in definition.results}
        inputs = tuple(Input(name, type_) for name, type_ in self.types.items() if name not in own)
        options = Options(signed_zeros=False, factor=True, derived=True)
        program = factor_sums(narrow_domains(Program(inputs, (), tuple(self.definitions), tuple(own), self.sizes), options), options)
        numbers = {d.name: d.value for d in (*given, *program.definitions) if isinstance(d, Define) and isinstance(d.value, Const)}
        definitions = tuple(part for d in program.definitions for part in at_point(d, self.new_name))
        self.types.update(result for d in definitions for result in d.results)
        program, points = replace(program, definitions=definitions), points_of(definitions)

        def written(node: Expr) -> Expr:
            return numbers.get(node.tensor, node) if isinstance(node, Access) else with_points(node, points)

        if any(name in numbers or name in points for definition in program.definitions for name in reads(definition)):
            definitions = tuple(map_expressions(d, lambda e: bottom_up(e, written)) for d in program.definitions)
            program = narrow_domains(replace(program, definitions=definitions), options)
        self.definitions = list(program.definitions)

    # -- saving values -----------------------------------------------------------------------------------------------

    def save(self, expr: Expr, place: Place, owner: str, suffix: str, but: Collection[str] = ()) -> Expr:
        """A read of a tensor, none of `but`, that holds `expr` for every point of `place`; `expr` itself where no hull is known."""
        axes, guards, offsets = self.hull(expr, place)
        if axes is None:
            return rename_bound(expr, {axis.index for axis in place.axes} | set(bound_names(expr)) | set(self.reserved))
        reads_at = tuple(shifted(Index(axis.index), -offset) for axis, offset in zip(axes, offsets, strict=True))
        shift = {axis.index: shifted(Index(axis.index), offset) for axis, offset in zip(axes, offsets, strict=True) if offset}
        value = guarded(expr, guards, Const(0, expr.dtype))
        value = substitute(value, shift)
        key = (axes, value)
        name = self._saved.get(key)
        if name is None or name in but:
            name = self.new_name(owner, suffix)
            self._saved[key] = name
            self.add(Define(name, axes, value))
        return Access(name, reads_at, expr.dtype)

    def without_reductions(self, expr: Expr, place: Place, owner: str) -> Expr:
        """`expr` with every outermost reduction in it saved; what has none is gone through once, however often it is asked for."""
        if isinstance(expr, Reduce):
            return self.save(expr, place, owner, f"_{expr.combiner.name}")
        if id(expr) in self._plain:
            return expr
        found = map_children(expr, lambda child: self.without_reductions(child, place, owner))
        if found is expr and all(id(child) in self._plain for child in children(expr)):
            self._plain[id(expr)] = expr
        return found

    def is_shared(self, expr: Expr, place: Place) -> bool:
        """Whether `expr` has one value at many points of `place`: it mentions some of the indices around it only."""
        axes, _, _ = self.hull(expr, place)
        return axes is not None and len(axes) < len(place.axes)

    def hull(self, expr: Expr, place: Place) -> tuple[tuple[Axis, ...] | None, list[Expr], list[int]]:
        """Rectangular axes that cover the indices of `expr`, the guards to keep, and where each axis begins.

        The axes are those that `expr` mentions, and more only where it could read out of bounds without what they say.
        """
        wanted = set(free_names(expr))
        steps = {axis.index for axis in self.steps}
        while True:
            if not wanted <= {axis.index for axis in place.axes} | steps:
                return None, [], []
            chosen = [axis for axis in place.axes if axis.index in wanted]
            hulls = [hull for hull in (self._plain_or_hull(axis, place) for axis in chosen) if hull is not None]
            if len(hulls) < len(chosen):
                return None, [], []
            conditions = [*place.guards, *(c for axis in place.axes for c in conditions_of(axis, axis.index in wanted))]
            kept = [c for c in conditions if set(free_names(c)) <= wanted | steps]
            needed = [c for c in kept if c in place.guards or free_names(c)]
            axes = [Axis(axis.index, const(low), stop) for axis, (low, stop) in zip(chosen, hulls, strict=True)]
            if self._in_bounds(expr, axes, needed):
                break
            if len(kept) == len(conditions) or self._in_bounds(expr, axes, kept):
                needed = kept
                break
            more = {name for c in conditions for name in free_names(c)} - wanted - steps
            wanted |= more or {axis.index for axis in place.axes}
        names = {axis.index for axis in axes} | set(self.reserved)
        needed = [rename_bound(c, set(names)) for c in needed if not _always(c, axes)]
        moved = tuple(Axis(axis.index, const(0), shifted(stop, -low)) for axis, (low, stop) in zip(chosen, hulls, strict=True))
        return moved, needed, [low for low, _ in hulls]

    def is_safe(self, expr: Expr, axes: Sequence[Axis]) -> bool:
        """Whether every read in `expr` is in bounds at all points of the axes, without a guard."""
        return self._in_bounds(expr, list(axes), [])

    def _plain_or_hull(self, axis: Axis, place: Place) -> tuple[int, Expr] | None:
        if axis.start == const(0) and not (free_names(axis.stop) or _reads(axis.stop)):
            return 0, axis.stop
        return self.hull_of(axis, place)

    def hull_of(self, axis: Axis, place: Place) -> tuple[int, Expr] | None:
        """The least start (a number) and a greatest stop (a number, or an expression over sizes) of an axis around `place`.

        An axis from a least of bounds, or to a greatest, is as long as those from, or to, each of them.
        """
        for at, op in ((0, "minimum"), (1, "maximum")):
            bound = (axis.start, axis.stop)[at]
            if isinstance(bound, Apply) and bound.op.name == op:
                parts = [Axis(axis.index, *(part if k == at else e for k, e in enumerate((axis.start, axis.stop)))) for part in bound.args]
                places = (replace(place, axes=tuple(part if a is axis else a for a in place.axes)) for part in parts)
                hulls = [self.hull_of(part, around) for part, around in zip(parts, places, strict=True)]
                if hulls[0] is None or hulls[1] is None:
                    return None
                (first, stop), (other, end) = hulls[0], hulls[1]
                if isinstance(stop, Const) and isinstance(end, Const):
                    return min(first, other), const(max(int(stop.value), int(end.value)))
                return min(first, other), apply("maximum", stop, end)
        around = Place(_linked(axis, (*self.steps, *place.axes)))
        region = domain_of(around.axes)
        name = Affine.of(axis.index)
        low, high = region.domain.range(name)
        if low is None:
            return None if not region.domain.is_empty() else (0, const(0))
        if high is not None:
            return low, const(high + 1)
        for candidate in _size_limits(axis, around):
            form = affine_of(candidate)
            if form is not None and region.domain.implies(lt(name, form)):
                return low, expression_of(form, form.names())
        return None

    def _in_bounds(self, expr: Expr, axes: list[Axis], guards: list[Expr]) -> bool:
        """Whether every read in `expr` is provably in bounds under these axes and guards alone."""
        for access, inner, conditions in read_occurrences(expr, tuple(axes), tuple(guards)):
            region = domain_of(inner, conditions)
            if region.domain.is_empty():
                continue
            for index, extent in zip(access.indices, self.types[access.tensor].shape, strict=True):
                form, limit = affine_of(index), affine_of(extent)
                if form is None or limit is None or not set(form.names()) <= set(region.domain.names):
                    return False
                sizes = [name for name in limit.names() if name not in region.domain.names]
                domain = (
                    region.domain
                    if not sizes
                    else type(region.domain)(region.domain.dims, region.domain.constraints, (*region.domain.sizes, *sizes))
                )
                if not (domain.implies(ge(form, 0)) and domain.implies(lt(form, limit))):
                    return False
        return True


def conditions_of(axis: Axis, chosen: bool) -> list[Expr]:
    """What an axis says where its bounds are no constants: about its own index, or, if that is left out, that it is not empty."""
    if chosen:
        ends = [apply("ge", Index(axis.index), axis.start), apply("lt", Index(axis.index), axis.stop)]
        return [end for end, bound in zip(ends, (axis.start, axis.stop), strict=True) if free_names(bound) or _reads(bound)]
    constant = isinstance(axis.start, Const) and isinstance(axis.stop, Const)
    return [] if constant else [apply("lt", axis.start, axis.stop)]


def _always(condition: Expr, axes: Sequence[Axis]) -> bool:
    """Whether a condition over indices holds at every point of the axes."""
    constraints, exact = constraints_of(condition)
    if not exact:
        return False
    domain = domain_of(axes, (condition,)).domain
    free = type(domain)(domain.dims, [c for c in domain_of(axes).domain.constraints], domain.sizes)
    return all(free.implies(c) for c in constraints)


def _local_names(definitions: Iterable[Definition]) -> Iterator[str]:
    """The names of tensors that live inside scans."""
    for definition in with_bodies(definitions):
        if isinstance(definition, Scan):
            yield from (name for name, _ in definition.states)
            yield from (name for inner in definition.body for name, _ in inner.results)


def plain_axes(type_: TensorType, reserved: Iterable[str] = ()) -> tuple[Axis, ...]:
    """Axes over all elements of a type, called i0, i1, ... unless that is reserved."""
    used = set(reserved)
    return tuple(Axis(fresh_name(f"i{d}", used), const(0), stop) for d, stop in enumerate(type_.shape))


def _reads(expr: Expr) -> bool:
    return bool(tensors_read(expr))


def guarded(value: Expr, guards: Sequence[Expr], otherwise: Expr) -> Expr:
    """`value` where all guards hold; a guard that reads is evaluated only where those before it hold."""
    for part in reversed(_runs(guards)):
        value = apply("where", conjunction(part), value, otherwise)
    return value


def all_of(guards: Sequence[Expr]) -> Expr | None:
    """The guards as one condition, None for none; a guard that reads is evaluated only where those before it hold."""
    runs = _runs(guards)
    if not runs:
        return None
    condition = conjunction(runs[-1])
    for part in reversed(runs[:-1]):
        condition = apply("where", conjunction(part), condition, FALSE)
    return condition


def _runs(guards: Sequence[Expr]) -> list[list[Expr]]:
    """The guards in groups, each begun by a guard that reads."""
    runs: list[list[Expr]] = []
    for guard in guards:
        if not runs or _reads(guard):
            runs.append([])
        runs[-1].append(guard)
    return runs


def shifted(expr: Expr, offset: int) -> Expr:
    """`expr + offset`."""
    if not offset:
        return expr
    if isinstance(expr, Const):
        return const(int(expr.value) + offset)
    return apply("add" if offset > 0 else "sub", expr, const(abs(offset)))


def as_extent(expr: Expr) -> Expr:
    """The expression with 0 in place of what is negative, as an extent must be: `n - 4` for a small n."""
    form = affine_of(expr)
    if form is not None and form.constant >= 0 and all(factor >= 0 for _, factor in form.terms):
        return expr
    return const(max(int(expr.value), 0)) if isinstance(expr, Const) else apply("maximum", expr, const(0))


def _linked(axis: Axis, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """`axis` and those of the axes that its bounds depend on, directly or not."""
    wanted = {axis.index}
    linked: list[Axis] = []
    for other in reversed(axes):
        if other.index in wanted:
            linked.insert(0, other)
            wanted |= set(free_names(other.start)) | set(free_names(other.stop))
    return tuple(linked)


def _size_limits(axis: Axis, place: Place) -> list[Expr]:
    """Stops of the axes around that mention sizes only, widest guess last: what may bound a dependent axis."""
    limits: list[Expr] = []
    for other in (axis, *place.axes):
        for node in walk(other.stop):
            if not free_names(node) and any(isinstance(n, Size) for n in walk(node)) and node.dtype is dtypes.int64 and not _reads(node):
                if isinstance(node, Size | Apply):
                    limits.append(node)
    return list(dict.fromkeys(limits))
