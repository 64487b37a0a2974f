"""The rewrite `reorder`: loops in another order, also where they are not alone in each other.

    for i in range(0, n):                         for i in range(0, n):
        for j in range(0, 8):                         sum: local(f32[8])
            sum: local(f32[()])                       for j in range(0, 8):
            sum[()] = 0.0                                 sum[j] = 0.0
            for k in range(0, m):           -->       for k in range(0, m):
                sum[()] = sum[()] + ...                   for j in range(0, 8):
            C[i, j] = sum[()]                                 sum[j] = sum[j] + ...
                                                      for j in range(0, 8):
                                                          C[i, j] = sum[j]

Neighbors change places one after the other. Where a loop has more inside than the one that goes out, it is taken apart first
(`distribute`), and accumulators get an axis for it. Where the bounds of the inner loop depend on the outer one, it runs from the least of
its starts to the greatest of its stops, under a condition (`partition` cuts it off). A condition around the inner loop alone goes inside,
unless it holds for all iterations or none: then it goes outside, if all elements that it reads exist there.

Legal where no two iterations that touch one element change their order. Accumulations into one element by an operation whose order does
not matter may: a sum of floats then rounds otherwise. A loop that runs in lanes or on cores goes out only where its iterations meet in no
element then, either. A copy that cannot follow (a tail of unknown length around an accumulator) keeps its order; where no copy can, that
is a `ScheduleError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorexpr.codegen.dependence import dependences
from tensorexpr.codegen.nest import GRID, Alloc, Block, For, If, LoopNest, Stmt
from tensorexpr.codegen.nest.walks import buffers_written, inside
from tensorexpr.codegen.rewrites.cuts import hull
from tensorexpr.codegen.rewrites.expressions import under
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.distribute import NotAlone, distributed, is_over, taken_apart
from tensorexpr.codegen.rewrites.loops.order import check_any_order
from tensorexpr.codegen.rewrites.loops.partition import SHARED
from tensorexpr.codegen.rewrites.loops.simplify import simplified
from tensorexpr.codegen.rewrites.paths import Path, around, loop_at, loop_paths, put, walk_block
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Access, Expr, Index, apply, const
from tensorexpr.records import replace
from tensorexpr.traversal import free_names, tensors_read, walk


def reorder(nest: LoopNest, *loops: str) -> LoopNest:
    """rewrite: the places of some loops, one inside the other, are taken by them in the order given; others keep theirs.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[4, 4])
    ... y: parameter(f32[4], written)
    ...
    ... def kernel_0() -> y:
    ...     for j in range(0, 4):
    ...         sum: local(f32[()])
    ...         sum[()] = 0.0
    ...         for k in range(0, j + 1):
    ...             sum[()] = sum[()] + x[k, j]
    ...         y[j] = sum[()]
    ... ''')
    >>> print(reorder(nest, "k", "j"))
    main(x, y)
    x: parameter(f32[4, 4])
    y: parameter(f32[4], written)
    <BLANKLINE>
    def kernel_0() -> y:
        sum: local(f32[4])
        for j in range(0, 4):
            sum[j] = 0.0
        for k in range(0, 4):
            for j in range(0, 4):
                if k < j + 1:
                    sum[j] = sum[j] + x[k, j]
        for j in range(0, 4):
            y[j] = sum[j]
    <BLANKLINE>
    """
    if len(set(loops)) != len(loops) or len(loops) < 2:
        hint = "the loops that change places, in their new order: reorder('j', 'i')"
        raise refuse(f"expected two or more loops, each once, got {', '.join(loops) or 'none'}", hint=hint)
    chain = _chain(nest, loops)
    wanted = iter(loops)
    order = [next(wanted) if name in loops else name for name in chain]
    for goal, name in enumerate(order):
        at = chain.index(name)
        while at > goal:
            nest = swap(nest, chain[at - 1], name)
            chain[at - 1 : at + 1] = [name, chain[at - 1]]
            at -= 1
    return nest


def _chain(nest: LoopNest, loops: Sequence[str]) -> list[str]:
    """The names from the outermost to the innermost of some loops, in the order in which they stand in each other."""
    paths = {name: loop_paths(nest, name) for name in loops}
    for path in [path for name in loops for path in paths[name]]:
        names = [s.index for s in (*around(nest, path).loops, loop_at(nest, path))]
        if all(name in names for name in loops):
            first = min(names.index(name) for name in loops)
            return names[first:]
    raise refuse(f"expected loops one inside the other, got {', '.join(loops)}")


def swap(nest: LoopNest, outer: str, inner: str) -> LoopNest:
    """rewrite: a loop and the next one inside of it change places, in every copy in which they can."""
    reasons: list[Exception] = []
    done = False
    for path in reversed(loop_paths(nest, outer)):
        if not any(isinstance(s, For) and s.index == inner for _, s in walk_block(loop_at(nest, path).body)):
            continue
        try:
            nest = _swapped(nest, path, inner)
            done = True
        except NotAlone as error:
            reasons.append(error)
    if not done:
        s = loop_at(nest, loop_paths(nest, outer)[0])
        raise refuse(str(reasons[-1]) if reasons else f"expected {inner} right inside of {outer}", s, outer)
    return nest


def _swapped(nest: LoopNest, path: Path, inner: str) -> LoopNest:
    """The nest with one loop and those over `inner` right inside of it exchanged."""
    s = loop_at(nest, path)
    deps = dependences(nest)
    parts = taken_apart(s, inner)[1]
    if len(parts) > 1:
        if not any(is_over(part.statement, inner) for part in parts):
            raise NotAlone(f"expected {inner} right inside of {s.index}")
        block = distributed(s, Facts.at(nest, path), deps, inner)
        nest = put(nest, path, block)
        # Those that have the inner loop alone change places now, the last first.
        for here, one in reversed(list(_standing(block, path))):
            if isinstance(one, For) and one.index == s.index and any(is_over(x, inner) for x in _bare(one.body)):
                if len(_bare(one.body)) > 1:
                    raise NotAlone(f"expected {inner} alone in {s.index}, where it cannot be taken apart")
                nest = _swapped(nest, here, inner)
        return nest
    (one,) = _bare(s.body)
    if not is_over(one, inner):
        raise NotAlone(f"expected {inner} right inside of {s.index}")
    tests: list[Expr] = []
    while isinstance(one, If):
        tests.append(one.condition)
        one = one.then[0]
    assert isinstance(one, For)
    if s.kind in SHARED and not (one.kind in SHARED or (one.kind == "serial" and s.kind not in GRID)):
        raise NotAlone(f"expected a loop that may stand around {s.kind} {s.index}, got {one.kind} {inner}")
    allowed = deps.may_swap(s, one, updates=True)
    if not allowed:
        raise NotAlone(f"expected {inner} outside of {s.index} to keep what is computed: {allowed.obstacle}")
    shapes = {b.name: b.shape for b in (*nest.parameters, *nest.workspace, *around(nest, path).locals)}
    shapes |= {c.name: c.type.shape for c in nest.constants}
    made = put(nest, path, _exchanged(s, one, tests, Facts.at(nest, path), shapes))
    if one.kind not in ("serial", "unroll"):  # its iterations run at once for all of the other loop now
        word = "run in lanes" if one.kind == "vectorize" else "run in parallel"
        check_any_order(made, inner, f"{word} around {s.index}", alike=True)
    return made


def _bare(body: Block) -> Block:
    """Statements without the declarations around all of them."""
    while len(body) == 1 and isinstance(body[0], Alloc):
        body = body[0].body
    return body


def _standing(block: Block, path: Path) -> list[tuple[Path, Stmt]]:
    """The statements of a block that was put at a path, below its declarations."""
    found: list[tuple[Path, Stmt]] = []
    for at, s in enumerate(block):
        here = (*path[:-1], path[-1] + at)
        while isinstance(s, Alloc) and len(s.body) == 1:
            here, s = (*here, 0), s.body[0]
        if isinstance(s, Alloc):
            found += [((*here, k), x) for k, x in enumerate(inside(s))]
        else:
            found.append((here, s))
    return found


def _exchanged(outer: For, inner: For, tests: Sequence[Expr], facts: Facts, shapes: Mapping[str, Sequence[Expr]]) -> Block:
    """Two loops in the other order, the inner one under some tests."""
    declared: list[Alloc] = []
    body = outer.body
    while len(body) == 1 and isinstance(body[0], Alloc):
        declared.append(body[0])
        body = body[0].body
    changed = buffers_written(inner.body)
    bounds = [inner.start, inner.stop, *tests, outer.start, outer.stop]
    if any(name in changed for e in bounds for name in tensors_read(e)):
        raise NotAlone(f"expected bounds of {inner.index} that its iterations do not change")
    # What holds for all iterations or none stays around both, where it can be asked without an iteration.
    ahead = [test for test in tests if outer.index not in free_names(test) and _all_exist(test, facts, shapes)]
    tests = [test for test in tests if test not in ahead]
    if tensors_read(inner.start) or tensors_read(inner.stop):
        if tests or outer.index in (*free_names(inner.start), *free_names(inner.stop)):
            raise NotAlone(f"expected bounds of {inner.index} that depend on no data inside of {outer.index}")
    conditions = list(tests)
    start, stop = inner.start, inner.stop
    if outer.index in free_names(start):
        conditions.append(apply("ge", Index(inner.index), start))
        start = _hull(start, outer, False, facts)
    if outer.index in free_names(stop):
        conditions.append(apply("lt", Index(inner.index), stop))
        stop = _hull(stop, outer, True, facts)
    innermost = under(conditions, inner.body)
    for alloc in reversed(declared):
        innermost = (replace(alloc, body=innermost),)
    made = replace(inner, start=start, stop=stop, body=(replace(outer, body=innermost),))
    block = under(ahead, (made,))
    return simplified(block, facts, ended=False) if conditions else block  # else all that is known inside was known before


def _all_exist(test: Expr, facts: Facts, shapes: Mapping[str, Sequence[Expr]]) -> bool:
    """Whether every element that a test reads is known to exist, whatever else is asked before."""
    reads = [(i, n) for e in walk(test) if isinstance(e, Access) for i, n in zip(e.indices, shapes[e.tensor], strict=True)]
    return all(facts.holds(apply("ge", i, const(0))) and facts.holds(apply("lt", i, n)) for i, n in reads)


def _hull(bound: Expr, outer: For, greatest: bool, facts: Facts) -> Expr:
    found = hull(bound, outer.index, facts.loop(outer.index, outer.start, outer.stop), greatest)
    if found is None:
        raise NotAlone(f"expected bounds of a loop that grow evenly with {outer.index}")
    return found
