"""Which store a load has its value from, and that value as an expression at the load.

    for i: for j: e[i, j] = exp(x[i, j] - m[i])
    for r: for c: y[r, c] = e[r, c] / s[r]              e[r, c]  is  exp(x[r, c] - m[r]):  i = r, j = c

A store has the indices of its own loops solved for by the element that is loaded (also `32*i_o + i_i`, whose digits are quotient and
remainder); loops around both are in the same iteration. Several stores of a buffer (branches, copies of a loop) are a choice, the last that
stores the element first. A value stands for a load where nothing that it is made of is written in between, which `codegen.dependence` says.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.codegen.dependence import Dependences
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import For, LoopNest, Store
from tensorexpr.codegen.rewrites.expressions import substituted_in
from tensorexpr.codegen.rewrites.paths import Path, around, statement, walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import Touched, are_exclusive, conditions_around, loops_around, shared
from tensorexpr.codegen.rewrites.touched.windows import element_names
from tensorexpr.integers import Domain, eq
from tensorexpr.ir import FALSE, Access, Axis, Expr, Index, apply, conjunction
from tensorexpr.regions import Opaque, affine_of, domain_of, expression_of
from tensorexpr.traversal import size_names, tensors_read, walk


class Values:
    """The values of one declaration of a buffer at its loads. Paths are those of the nest."""

    def __init__(self, nest: LoopNest, touched: Touched, found: Dependences) -> None:
        self.nest, self.touched, self.found = nest, touched, found
        self.read_only = {b.name for b in nest.parameters if b.name not in nest.writes} | {c.name for c in nest.constants}

    def at(self, load: Path, access: Access) -> Expr:
        """What the element is that is loaded at a path. Raises `ScheduleError` where no expression says it there."""
        before = []
        for path in self.touched.stores:
            if path < load and not are_exclusive(self.nest, path, load):
                before.append(path)
            elif loops_around(self.nest, path[: shared(path, load) + 1], len(self.touched.home)):
                raise self.refused(load, f"{self.line(path)} stores in an earlier iteration of a loop around both")
        if not before:
            raise self.refused(load, "nothing is stored before it")
        self.ordered(before, load)
        value: Expr | None = None
        for path in before:
            given, where = self.value(path, load, access)
            value = given if value is None or where is None or value == given else apply("where", where, given, value)
        assert value is not None
        return value

    def value(self, store: Path, load: Path, access: Access) -> tuple[Expr, Expr | None]:
        """The value of one store for the element, and where it is the one that stores it (None: everywhere)."""
        s = statement(self.nest, store)
        assert isinstance(s, Store)
        if s.buffer in tensors_read(s.value):
            raise self.refused(load, f"{s.buffer} is updated: its value is no expression", "compute_at moves the loops of a reduction")
        depth = shared(store, load)
        own = loops_around(self.nest, store, depth + 1)
        values, left = self.solved(own, s, access, load)
        conditions = list(left)
        for loop in own:
            at = values[loop.index]
            start, stop = substituted_in(loop.start, values), substituted_in(loop.stop, values)
            conditions += [apply("ge", at, start), apply("lt", at, stop)]
        conditions += [substituted_in(c, values) for c in conditions_around(self.nest, store, depth + 1)]
        for read in (n for e in (s.value, *conditions) for n in walk(e) if isinstance(n, Access)):
            self.kept(store, load, read)
        made = substituted_in(s.value, values)
        return made, conjunction(conditions) if conditions else None

    def ordered(self, stores: list[Path], load: Path) -> None:
        """That of several stores to one element the last in the text runs last."""
        for at, path in enumerate(stores):
            for later in stores[at + 1 :]:
                one, other = statement(self.nest, path), statement(self.nest, later)
                outer = loops_around(self.nest, path[: shared(path, load) + 1])
                for conflict in self.found.between(other, one):
                    if conflict.kind == "output" and conflict.first.statement is other and not any(conflict.carrier is x for x in outer):
                        raise self.refused(load, f"it is stored twice, last by the first store: {conflict}")

    def solved(self, own: tuple[For, ...], s: Store, access: Access, load: Path) -> tuple[Mapping[str, Expr], list[Expr]]:
        """The indices of a store's own loops by the element, and what must hold for it to be stored there besides."""
        if len(s.indices) != len(access.indices):
            raise self.refused(load, f"{s.buffer} is stored and loaded with other numbers of indices")
        names = [loop.index for loop in own]
        values: dict[str, Expr] = {}
        others: list[tuple[Expr, Expr]] = []
        for index, wanted in zip(s.indices, access.indices, strict=True):
            if isinstance(index, Index) and index.name in names and index.name not in values:
                values[index.name] = wanted
            else:
                others.append((index, wanted))
        open_ = [name for name in names if name not in values]
        if open_:
            values |= self.inverted(own, open_, others, load, s)
        left: list[Expr] = []
        for index, wanted in others:
            there = substituted_in(index, values)
            known = constant(sub(there, wanted))
            if known == 0:
                continue
            free = {n.name for n in walk(index) if isinstance(n, Index)} - set(names)
            if free:
                raise self.refused(load, f"{s.buffer} is stored in another iteration of {', '.join(sorted(free))}")
            left.append(FALSE if known is not None else apply("eq", there, wanted))
        return values, left

    def inverted(self, own: tuple[For, ...], names: list[str], dims: list[tuple[Expr, Expr]], load: Path, s: Store) -> Mapping[str, Expr]:
        """Indices of loops that the element determines together."""
        loops = [loop for loop in own if loop.index in names]
        opaque = Opaque()
        region = domain_of([Axis(loop.index, loop.start, loop.stop) for loop in loops], (), opaque)
        forms = [(affine_of(index), name) for (index, _), name in zip(dims, element_names(len(dims)), strict=True)]
        useful = [(form, name) for form, name in forms if form is not None and not set(form.names()).isdisjoint(names)]
        known = [name for _, name in useful]
        more = dict.fromkeys(n for form, _ in useful for n in form.names() if n not in region.domain.names)
        domain = Domain((*region.domain.dims, *known), region.domain.constraints, (*region.domain.sizes, *more))
        found = domain.constrain(*(eq(name, form) for form, name in useful)).determine(names)
        if found is None:
            raise self.refused(load, f"the element does not say which iteration of {', '.join(names)} stores it ({self.line_of(s)})")
        sizes = [n for loop in loops for e in (loop.start, loop.stop) for n in size_names(e)]
        sizes += [n for index, _ in dims for n in size_names(index)]
        wanted = {name: element for name, (_, element) in zip(element_names(len(dims)), dims, strict=True)}
        return {name: substituted_in(expression_of(form, sizes, opaque), wanted) for name, form in found.items()}

    def kept(self, store: Path, load: Path, read: Access) -> None:
        """That what a store reads is the same at a load."""
        if read.tensor in self.read_only:
            return
        depth = shared(store, load)
        visible = {b.name for b in around(self.nest, load).locals}
        made_inside = {b.name for b in around(self.nest, store).locals[len(around(self.nest, store[: depth + 1]).locals) :]}
        if read.tensor in made_inside or (read.tensor in {b.name for b in around(self.nest, store).locals} and read.tensor not in visible):
            raise self.refused(
                load, f"its value is kept in {read.tensor}, which is gone there", "inline that first, or compute_at moves its loops"
            )
        own = statement(self.nest, store)
        outer = loops_around(self.nest, store[: depth + 1])
        for path, s in walk_nest(self.nest):
            if not isinstance(s, Store) or s.buffer != read.tensor:
                continue
            if path[:depth] != store[:depth] or not store[depth] <= path[depth] <= load[depth]:
                continue
            for conflict in self.found.between(own, s):
                if conflict.kind != "anti" or conflict.first.statement is not own or conflict.first.home.buffer.name != read.tensor:
                    continue
                if any(conflict.carrier is loop for loop in outer):
                    continue
                raise self.refused(load, f"what its value is made of is overwritten: {conflict}")

    def refused(self, load: Path, why: str, hint: str | None = None) -> Exception:
        """The error of a load that has no value."""
        return refuse(f"expected the value of {self.touched.buffer} as an expression; {why}", statement(self.nest, load), hint=hint)

    def line(self, path: Path) -> str:
        """A store as it is said in an error."""
        s = statement(self.nest, path)
        assert isinstance(s, Store)
        return self.line_of(s)

    def line_of(self, s: Store) -> str:
        """A store without its value."""
        from_ = Access(s.buffer, s.indices, s.value.dtype)
        return f"the store to {from_.tensor}"
