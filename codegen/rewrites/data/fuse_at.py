"""The rewrite `fuse_at`: what a loop reads of a buffer is computed in its iteration.

    for i in range(0, n):                               for i_1 in range(0, n):
        for j in range(0, 64):                              e: local(f32[64])
            e[i, j] = exp(x[i, j])                          for j in range(0, 64):
    for i_1 in range(0, n):                      -->            e[j] = exp(x[i_1, j])
        for k in range(0, 64):                              for k in range(0, 64):
            s[i_1] = s[i_1] + e[i_1, k]                         s[i_1] = s[i_1] + e[k]

The region of the buffer (all that computes it, reductions with their loops) is moved into every copy of the loop, its loops cut to the
window of each axis that an iteration reads (`windows`); an axis of one element is gone. Where windows overlap, elements are computed
again. Where the loop goes over blocks, what is left beside whole ones has a copy of the region in front of it. Kept

- **for the iteration**: in a local buffer of the windows, where their lengths are constant and all loads are in the loop;
- **in place**: in the buffer itself, where other loads come later, or it is an output: if the iterations of the loop compute all of it;
- **twice**: else the region stays where it was for the others, and the loop has a buffer of its own.

Legal where nothing that the region reads is written between its place and the loop's. Axes whose elements are not stored by a loop of their
own (an index that is data) are computed whole. Checks of the region also stay where they were: they fail whether or not an element is read.
Values keep their bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tensorexpr.codegen.dependence import Dependences, dependences
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, maximum, minimum, sub
from tensorexpr.codegen.nest import Alloc, Block, Check, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import elements_read, expressions_of, map_statements, stores_in, with_blocks
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, put, statement, walk_block, walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.regions import region
from tensorexpr.codegen.rewrites.touched.places import (
    apart,
    are_exclusive,
    by_axes,
    declared,
    loops_around,
    pruned,
    pruned_block,
    rest_of,
    shared,
    touched,
    undeclared,
)
from tensorexpr.codegen.rewrites.touched.windows import Window, element_names, framed, windows
from tensorexpr.integers import Domain, Union, ge, lt
from tensorexpr.ir import TRUE, Access, Axis, Expr, apply, conjunction, const
from tensorexpr.records import replace
from tensorexpr.regions import affine_of, domain_of, with_constraints
from tensorexpr.traversal import walk


def fuse_at(nest: LoopNest, buffer: str, loop: str) -> LoopNest:
    """The nest with a buffer computed in a loop that reads it, in each iteration what that reads.

    Raises `ScheduleError` where the loop reads nothing of it, or what the buffer is made of changes in between.

    >>> from tensorexpr.codegen.plain import plain_nest
    >>> from tensorexpr.codegen.rewrites.names import named
    >>> from tensorexpr.parse import parse_program
    >>> program = parse_program('''
    ... x: f32[8, 6] = input()
    ... m[i]: f32[8] = max(x[i, k] for k in range(6))
    ... y[i, j]: f32[8, 6] = x[i, j] - m[i]
    ... return y
    ... ''')
    >>> print(fuse_at(named(plain_nest(program)), "m", "i_1"))
    main(x, y)
    x: parameter(f32[8, 6])
    y: parameter(f32[8, 6], written)
    <BLANKLINE>
    def kernel_0() -> y:
        for i_1 in range(0, 8):
            m: local(f32[()])
            max: local(f32[()])
            max[()] = -inf
            for k in range(0, 6):
                max[()] = maximum(max[()], x[i_1, k])
            m[()] = max[()]
            del max
            for j in range(0, 6):
                y[i_1, j] = x[i_1, j] - m[()]
    <BLANKLINE>
    """
    return _Fusion(nest, buffer, loop).nest_made()


class _Fusion:
    """One fusion: where the region stands, the copies of the loop that read the buffer, and other loads."""

    def __init__(self, nest: LoopNest, buffer: str, loop: str) -> None:
        self.nest, self.loop = nest, loop
        homes = touched(nest, buffer)
        if len(homes) != 1:
            raise refuse(f"expected {buffer} in one place, got it in {len(homes)}", hint="fuse before loops are cut")
        self.touched = homes[0]
        self.buffer = declared(nest, self.touched)
        self.roots = self.roots_at_home()
        reads = [path for path in self.touched.reads if not any(path[: len(root)] == root for root in self.roots)]
        self.loads = {at: [path for path in reads if path[: len(at)] == at and path != at] for at in loop_paths(nest, loop)}
        self.loads = {at: paths for at, paths in self.loads.items() if paths}
        copies = tuple(self.loads)
        self.others: list[Path] = []
        rests: dict[Path, list[Path]] = {}
        for path in reads:
            if any(path[: len(at)] == at and path != at for at in copies):
                continue
            rest = rest_of(nest, path, copies, min(shared(root, path) for root in self.roots))
            if rest is None:
                self.others.append(path)
            else:
                rests.setdefault(rest, []).append(path)
        if not copies:
            raise refuse(
                f"expected a loop that reads {buffer}, got {loop}, which does not", hint="loops that read it: " + self.readers(reads)
            )
        self.rests = self.grouped(rests, copies)
        for first, last in self.rests.items():
            inside_ = [path for rest, paths in rests.items() for path in paths if first <= rest[: len(first)] <= (*first[:-1], last)]
            self.loads[first] = inside_

    def grouped(self, rests: Iterable[Path], copies: Sequence[Path]) -> dict[Path, int]:
        """The first statement of each run, and the position of the last, of loops over what is left beside blocks in one block."""
        blocks: dict[Path, list[Path]] = {}
        for rest in rests:
            path = rest
            while isinstance(statement(self.nest, path[:-1]), Alloc) if len(path) > 2 else False:
                if any(inner[: len(path) - 1] == path[:-1] for inner in (*self.roots, *copies)):
                    break
                path = path[:-1]
            blocks.setdefault(path[:-1], []).append(path)
        found: dict[Path, int] = {}
        for block, paths in blocks.items():
            first: Path | None = None
            for path in sorted(paths):
                if first is None or any(first <= at[: len(first)] <= path for at in copies):
                    first = path
                found[first] = path[len(block)]
        return found

    def roots_at_home(self) -> tuple[Path, ...]:
        """The statements that compute the buffer and nothing else, where it is declared or further in."""
        home, found = self.touched.home, region(self.nest, self.buffer.name)
        roots: dict[Path, None] = {}
        for path in found.stores:
            if path[: len(home)] == home:
                root = next(root for root in found.roots if path[: len(root)] == root)
                roots[root if len(root) > len(home) else path[: len(home) + 1]] = None
        return tuple(roots)

    def readers(self, reads: Sequence[Path]) -> str:
        """The loops around loads."""
        return ", ".join(dict.fromkeys(s.index for path in reads for s in loops_around(self.nest, path))) or "none"

    def nest_made(self) -> LoopNest:
        """The nest with the region in the loop."""
        found = dependences(self.nest)
        for at in self.loads:
            for root in self.roots:
                self.may_go(root, at, found)
        frames = {at: self.windows_at(at) for at in self.loads}
        needed_elsewhere = bool(self.others) or self.buffer.name in self.nest.writes
        lengths_known = all(constant(w.length) is not None for frame in frames.values() for w in frame)
        covered = self.covers(frames) if needed_elsewhere or not lengths_known else False
        in_place = (needed_elsewhere and covered) or (not needed_elsewhere and not lengths_known)
        if in_place and not self.others_come_later():
            in_place = False
        if not in_place and not lengths_known:
            raise refuse(
                f"expected constant windows of {self.buffer.name} in {self.loop}, or that its iterations compute all of it for others",
                statement(self.nest, min(self.loads)),
                hint="split the loop, or inline the buffer",
            )
        stays = needed_elsewhere and not in_place
        name = fresh(self.nest, self.buffer.name)[0] if stays else self.buffer.name
        nest = self.nest
        for at in sorted(self.loads, reverse=True):
            made = self.fused(at, frames[at], name, in_place)
            for behind in range(self.rests.get(at, at[-1]), at[-1], -1):
                nest = put(nest, (*at[:-1], behind), ())
            nest = put(nest, at, made)
        for root in sorted(self.roots, reverse=True):
            if not stays:
                nest = put(nest, root, _checks_of(statement(self.nest, root), self.buffer.name))
        if not stays and not in_place:
            nest = undeclared(nest, self.touched)
        nest = apart(pruned(nest, self.nest))
        if in_place:
            self.run_apart(nest)
        return nest

    # ------------------------------------------------------------------------------------------------------ legality

    def others_come_later(self) -> bool:
        """Whether all other loads stand behind everything that has a copy of the loop, in the block of the region."""
        depth = min(shared(root, at) for root in self.roots for at in self.loads)
        last = max(at[: depth + 1] for at in self.loads)
        return all(path[: depth + 1] > last for path in self.others)

    def may_go(self, root: Path, at: Path, found: Dependences) -> None:
        """That the region may run in the loop: what it reads is not written in between."""
        depth = shared(root, at)
        own = statement(self.nest, root)
        if root >= at or are_exclusive(self.nest, root, at):
            raise refuse(f"expected {self.buffer.name} to be computed before {self.loop}, got it elsewhere", own)
        if depth < len(root) - 1 and not (depth == 0 and len(root) == 2):
            raise refuse(
                f"expected what computes {self.buffer.name} to stand by itself, got it in loops that compute something else, too",
                own,
                hint="distribute these loops, or inline the buffer",
            )
        outer = loops_around(self.nest, root[: depth + 1])
        for path, s in walk_nest(self.nest):
            if not isinstance(s, Store) or s.buffer == self.buffer.name or path[:depth] != root[:depth]:
                continue
            if not root[depth] <= path[depth] <= at[depth] or any(path[: len(r)] == r for r in self.roots):
                continue
            if depth == 0 and path[0] == root[0] and path < root:
                continue
            for conflict in found.between(own, s):
                if conflict.first.statement is s or conflict.kind != "anti" or any(conflict.carrier is loop for loop in outer):
                    continue
                raise refuse(f"expected what {self.buffer.name} is made of to stay the same up to {self.loop}: {conflict}", own)

    def run_apart(self, made: LoopNest) -> None:
        """That iterations of loops that run at once still do not meet, where the buffer is shared by them."""
        found: Dependences | None = None
        for path, s in walk_nest(made):
            if isinstance(s, For) and s.kind not in ("serial", "unroll") and any(t.buffer == self.buffer.name for t in stores_in(s.body)):
                found = found or dependences(made)
                allowed = found.may_run_in_any_order(s)
                if not allowed:
                    raise refuse(f"expected iterations of {s.index} that compute elements of their own: {allowed}", statement(made, path))

    def covers(self, frames: Mapping[Path, tuple[Window, ...]]) -> bool:
        """Whether the copies of the loop together, in all iterations of the loops around that the region stands outside of, compute all."""
        names = element_names(len(self.buffer.shape))
        every = Domain(names)
        for name, extent in zip(names, self.buffer.shape, strict=True):
            end = affine_of(extent)
            if end is None:
                return False
            every = with_constraints(every, [ge(name, 0), lt(name, end)])
        left: Domain | Union = every
        for at, frame in frames.items():
            reached = self.reached(at, frame)
            left = left if reached is None else left.subtract(reached)
        return left.is_empty()

    def reached(self, at: Path, frame: tuple[Window, ...]) -> Union | None:
        """What a copy of the loop computes; None where that is not known."""
        depth = min(shared(root, at) for root in self.roots)
        if any(isinstance(statement(self.nest, at[:end]), If) for end in range(max(depth + 1, 2), len(at))):
            return None
        loops = [*loops_around(self.nest, at, depth + 1), *(() if at in self.rests else (loop_at(self.nest, at),))]
        points = domain_of([Axis(s.index, s.start, s.stop) for s in loops])
        if not points.exact:
            return None
        names = element_names(len(frame))
        domain = Domain((*names, *points.domain.dims), points.domain.constraints, points.domain.sizes)
        for name, w in zip(names, frame, strict=True):
            low, length = affine_of(w.low), affine_of(w.length)
            if low is None or length is None:
                return None
            domain = with_constraints(domain, [ge(name, low), lt(name, low + length)])
        return domain.project_out(points.domain.dims)

    # ------------------------------------------------------------------------------------------------------ the nest

    def windows_at(self, at: Path) -> tuple[Window, ...]:
        """The window of each axis in an iteration of a copy of the loop; whole where the region stores it by no loop of its own."""
        found = windows(self.nest, at, self.loads[at], self.buffer, at not in self.rests)
        whole = (Window(ZERO, extent, True) for extent in self.buffer.shape)
        return tuple(w if names else every for w, every, names in zip(found, whole, self.stored_by(), strict=True))

    def stored_by(self) -> tuple[Mapping[str, int], ...]:
        """For each axis the loops of the region whose index, more a number, is that of every element which it touches; none where some
        element is another one."""
        loops = {s.index for root in self.roots for s in _loops_in((statement(self.nest, root),))}
        found: list[dict[str, int] | None] = [{} for _ in self.buffer.shape]
        for access in self.own_elements():
            for axis, index in enumerate(by_axes(self.buffer, access).indices):
                names, form = found[axis], affine_of(index)
                if names is None:
                    continue
                name = form.terms[0][0] if form is not None and len(form.terms) == 1 and form.terms[0][1] == 1 else None
                if form is None or not isinstance(name, str) or name not in loops or names.setdefault(name, form.constant) != form.constant:
                    found[axis] = None
        several = Counter(name for names in found for name in names or ())
        return tuple({} if names is None or any(several[name] > 1 for name in names) else names for names in found)

    def own_elements(self) -> Iterator[Access]:
        """The elements of the buffer that its region stores and reads."""
        for root in self.roots:
            block = (statement(self.nest, root),)
            yield from (Access(s.buffer, s.indices, s.value.dtype) for s in stores_in(block) if s.buffer == self.buffer.name)
            yield from (a for a in elements_read(block) if a.tensor == self.buffer.name)

    def fused(self, at: Path, frame: tuple[Window, ...], name: str, in_place: bool) -> Block:
        """A copy of the loop with the region in front of its body; of what is left beside whole blocks, behind the region."""
        facts, last = Facts.at(self.nest, at), self.rests.get(at)
        if last is None:
            loop = loop_at(self.nest, at)
            facts = facts.loop(loop.index, loop.start, loop.stop)
            body = loop.body
        else:
            loop = None
            body = tuple(statement(self.nest, (*at[:-1], position)) for position in range(at[-1], last + 1))
        cuts = {name: (w, shift) for w, names in zip(frame, self.stored_by(), strict=True) for name, shift in names.items() if not w.whole}
        made: Block = tuple(s for root in self.roots for s in _cut((statement(self.nest, root),), cuts, facts))
        whole: Block = (*made, *body) if in_place else (framed(self.buffer, name, frame, (*made, *body)),)
        return whole if loop is None else (replace(loop, body=whole),)


def _loops_in(block: Block) -> Iterator[For]:
    """The loops in a block."""
    return (s for _, s in walk_block(block) if isinstance(s, For))


def _cut(block: Block, cuts: Mapping[str, tuple[Window, int]], facts: Facts) -> Block:
    """A block with the ranges of some loops cut to windows, less a number; a loop over one element is what is inside of it."""
    found: list[Stmt] = []
    for s in block:
        match s:
            case For():
                found += _cut_loop(s, cuts, facts)
            case If():
                found.append(replace(s, then=_cut(s.then, cuts, facts.under(s.condition)), otherwise=_cut(s.otherwise, cuts, facts)))
            case _:
                found.append(with_blocks(s, lambda body: _cut(body, cuts, facts)))
    return tuple(found)


def _cut_loop(s: For, cuts: Mapping[str, tuple[Window, int]], facts: Facts) -> Block:
    if s.index not in cuts:
        return (_again(s, s.start, s.stop, _cut(s.body, cuts, facts.loop(s.index, s.start, s.stop))),)
    window, shift = cuts[s.index]
    low = sub(window.low, const(shift))
    high = add(low, window.length)
    if window.is_point:
        tests = [apply("ge", low, s.start), apply("lt", low, s.stop)]
        needed = conjunction(test for test in tests if not facts.holds(test))
        body = _cut(substituted(s.body, {s.index: low}), cuts, facts.under(needed))
        return body if needed == TRUE else (If(needed, body),)
    start = low if facts.is_less(s.start, low, 0) else s.start if facts.is_less(low, s.start, 0) else maximum(low, s.start)
    stop = high if facts.is_less(high, s.stop, 0) else s.stop if facts.is_less(s.stop, high, 0) else minimum(high, s.stop)
    return (_again(s, start, stop, _cut(s.body, cuts, facts.loop(s.index, start, stop))),)


def _again(s: For, start: Expr, stop: Expr, body: Block) -> For:
    """A loop of the region in another loop: lanes and copies where their number is still known, else one after the other."""
    known = s.kind in ("vectorize", "unroll") and constant(start) is not None and constant(stop) is not None
    return For(s.index, start, stop, body, s.kind if known else "serial")


def _checks_of(s: Stmt, buffer: str) -> Block:
    """The checks of a statement with all that decides whether they are reached, and what is needed for that."""
    if not any(isinstance(inner, Check) for _, inner in walk_block((s,))):
        return ()
    needed = {
        a.tensor for _, inner in walk_block((s,)) if not isinstance(inner, Store) for e in expressions_of(inner) for a in _accesses(e)
    }
    more = True
    while more:
        read = {a.tensor for inner in stores_in((s,)) if inner.buffer in needed for e in expressions_of(inner) for a in _accesses(e)}
        more = not read <= needed
        needed |= read
    return pruned_block(_without((s,), needed - {buffer}))


def _accesses(expr: Expr) -> Iterator[Access]:
    return (n for n in walk(expr) if isinstance(n, Access))


def _without(block: Block, needed: Collection[str]) -> Block:
    """A block without stores to buffers that are not needed."""
    return map_statements(block, lambda s: () if isinstance(s, Store) and s.buffer not in needed else None)
