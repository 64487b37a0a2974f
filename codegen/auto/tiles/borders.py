"""Loops of planners' nests cut where tests inside of them change, by the rewrite `partition`: between its borders a tile tests nothing.

    for z_o in range(0, 4):                                     for z_o in range(0, 1): ... some points test
        for s in range(0, 3): for z_i in unroll(range(0, 14)):  for z_o in range(1, 3): none does
            if z_o*14 + z_i + s >= 1 and ... < 57: ...     -->  for z_o in range(3, 4): ... some do

A test of lanes is a mask, one of copies is made as often as there are copies, and an index held inside a tensor, or that goes around its
borders, makes gathers of loads. Loops that change a test of lanes or copies are cut, from the outermost in, where what the test depends on
inside runs between numbers: a triangle is cut along its inner loop, to which the outer one is a bound.

    for c: for z_i in unroll(range(0, 8)):                      if y + r >= 1: for c: for z_i ...: acc[z_i] += x[y + r - 1, z_i, c]
        acc[z_i] += where(y + r >= 1, x[y + r - 1, z_i, c], 0)  else: for c: for z_i ...: acc[z_i] += 0.0

A test that does not change along an innermost loop is made in front of it, and one that all of many copies make alike in front of these.
On a GPU threads test at no cost: there loops are cut alone. A step of a sum in a tile, which all threads of a block have come to, is asked
as a whole: a loop over steps is not cut, as copies for steps to come go through it. So is what a tile stores, if it reads memory where a
condition holds: loads behind branches wait for each other.

    for k_i in unroll(16): for i_i, lane: if k_o*16 + k_i <= i_o*64 + i_i: ...  -->  if k_o*16 + 15 <= i_o*64: for k_i, i_i, lane: ...
                                                                                     else: (as before)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from math import prod

from tensorexpr.codegen.nest import LANES, Block, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import (
    declared_in,
    expressions_of,
    inside,
    iterations,
    map_statements,
    statements,
    stores_in,
    with_blocks,
)
from tensorexpr.codegen.rewrites.cuts import are_counted, tests_in
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.partition import by_tests
from tensorexpr.codegen.rewrites.loops.simplify import simplify
from tensorexpr.codegen.rewrites.paths import Path, rewrite_loops
from tensorexpr.codegen.schedule.analysis.work import UNKNOWN_EXTENT
from tensorexpr.codegen.target import Target
from tensorexpr.dtypes import int64
from tensorexpr.integers import Affine, Constraint
from tensorexpr.ir import Access, Apply, Expr, apply, conjunction, const
from tensorexpr.records import replace
from tensorexpr.regions import constraints_of, expression_of
from tensorexpr.traversal import bottom_up, free_names, size_names, walk

MOST_CUT = 768
"""Statements, with those that are copied out, up to which a loop may grow where it is cut at its borders."""
FEWEST = 4
"""Iterations from which on an innermost loop is cut, and any of a GPU, where their number is known: borders are one or two of them."""
MANY = 16
"""Copies of a body from which on it is worth standing twice."""
OFTEN = 8
"""Tests that are made less than once while some statement runs so often are left: to copy all of that takes code, and gains little."""
_COPIED = (*LANES, "unroll")
_COMPARED = ("lt", "le", "gt", "ge")
_TESTS = (*_COMPARED, "minimum", "maximum", "mod", "floordiv")


def with_clear_middles(nest: LoopNest, target: Target) -> LoopNest:
    """The nest with loops cut where tests of lanes and copies change."""
    kernels = tuple(_cut(nest, kernel, target) for kernel in nest.kernels)
    if target.is_gpu:
        kernels = tuple(replace(k, body=map_statements(k.body, partial(_apart, local=declared_in(k.body)))) for k in kernels)
    return replace(nest, kernels=kernels)


def _apart(s: Stmt, local: frozenset[str]) -> Block | None:
    """A step of a sum in a tile, or what is stored of one, without its test where that holds at all points, or at none."""
    if isinstance(s, For) and s.kind == "vectorize":
        return (s,)
    chain, inner = tile_of(s)
    loops = {loop.index: iterations(loop) or 0 for loop in chain}
    if not all(loops.values()) or not chain:
        return None

    def with_body(body: Block) -> Stmt:
        for loop in reversed(chain):
            body = (replace(loop, body=body),)
        return body[0]

    if type(inner) is If and not inner.otherwise and chain[0].index in free_names(inner.condition):
        holds = _everywhere(constraints_of(inner.condition), inner.condition, loops)
        whole = with_body(inner.then)
        return (s,) if holds is None else (If(holds, _apart(whole, local) or (whole,), (s,)),)
    if not isinstance(inner, Store):
        return (s,)
    choices = [n for n in walk(inner.value) if isinstance(n, Apply) and n.op.name == "where"]
    if not any(isinstance(n, Access) and n.tensor not in local for c in choices for n in walk(c.args[1])):
        return (s,)
    known = [_everywhere(constraints_of(c.args[0]), c.args[0], loops) for c in choices]
    if None in known:
        return (s,)
    taken = replace(inner, value=bottom_up(inner.value, lambda n: n.args[1] if isinstance(n, Apply) and n.op.name == "where" else n))
    all_of, none = conjunction(tuple(e for e in known if e is not None)), nowhere(s)
    made: Stmt = s if none is None else If(none, (with_body((replace(inner, value=choices[0].args[2]),)),), (s,))
    return (If(all_of, (with_body((taken,)),), (made,)),)


def tile_of(s: Stmt) -> tuple[list[For], Stmt]:
    """The loops over copies and lanes from 0 that stand directly inside of each other, and what is in them."""
    chain: list[For] = []
    while isinstance(s, For) and s.kind in ("unroll", "vectorize") and len(s.body) == 1 and iterations(s) and s.start == const(0):
        chain.append(s)
        s = s.body[0]
    return chain, s


def nowhere(s: Stmt) -> Expr | None:
    """What holds where the choice that a tile stores is nowhere its first arm; None where that is not known, or it stores no choice."""
    chain, inner = tile_of(s)
    while type(inner) is If and len(inner.then) == 1 and not inner.otherwise:  # at the end of an axis
        inner = inner.then[0]
    choice = inner.value if isinstance(inner, Store) else None
    if not isinstance(choice, Apply) or choice.op.name != "where":
        return None
    found, exact = constraints_of(choice.args[0])
    loops = {loop.index: iterations(loop) or 0 for loop in chain}
    return _everywhere((found[0].negate(), exact), choice.args[0], loops) if len(found) == 1 else None


def _everywhere(test: tuple[tuple[Constraint, ...], bool], asked: Expr, loops: Mapping[str, int]) -> Expr | None:
    """What holds where constraints do, if they are all of a test, at all points of some loops; None where that is not known."""
    found, exact = test
    wanted = list[Expr]()
    for constraint in found:
        outer, own = Affine([], constraint.expr.constant), dict[str, Affine]()
        for atom, factor in constraint.expr.terms:
            term = Affine.of(atom) * factor
            names = set(term.names())
            if names.isdisjoint(loops):
                outer += term
            elif len(names) == 1:
                (name,) = names
                own[name] = own.get(name, Affine([])) + term
            else:
                return None
        least = sum(min(form.evaluate({name: n}) for n in range(loops[name])) for name, form in own.items())
        if constraint.kind != ">=" or not outer.names():
            return None
        wanted.append(apply("ge", expression_of(outer + least, size_names(asked)), const(0)))
    return conjunction(tuple(wanted)) if exact and wanted else None


def _cut(nest: LoopNest, kernel: Kernel, target: Target) -> Kernel:
    """A kernel whose loops are cut: serial ones alone where loops run together, or on a GPU, on which blocks take different branches."""
    is_shared = kernel.together or target.is_gpu
    kinds = ("serial",) if is_shared else ("serial", "parallel")
    loops = [s for s in statements(kernel.body) if isinstance(s, For)]
    in_front = set() if target.is_gpu else {s.index for s in _with_copies(loops) if _same_tests(s)}
    names = dict.fromkeys(s.index for s in loops if s.index in in_front or (s.kind in kinds and _changes_lanes(s, target)))
    if not names:
        return kernel

    def pieces(s: For, facts: Facts) -> Block | None:
        tests = _of_lanes(s, facts) if s.kind in kinds and _changes_lanes(s, target) else frozenset()
        tests |= _same_tests(s) if s.index in in_front else frozenset()
        found = by_tests(s, facts, MOST_CUT, tests) if tests else None
        if found is None or s.kind not in _COPIED:
            return found
        return tuple(replace(x, otherwise=_rolled(x.otherwise)) if isinstance(x, If) else x for x in found)

    made = replace(nest, kernels=(kernel,))
    for name in names:
        if any(isinstance(s, For) and s.index == name for k in made.kernels for s in statements(k.body)):  # not in what never runs

            def at(s: For, path: Path, nest: LoopNest = made) -> Block | None:
                return pieces(s, Facts.at(nest, path))

            cut = rewrite_loops(made, name, at)
            made = cut if _moved_back(cut) <= _moved_back(made) else made
    made = made if is_shared else simplify(made)
    return made.kernels[0] if made.kernels else kernel


def _of_lanes(loop: For, facts: Facts) -> frozenset[Expr]:
    """Tests of lanes that change along a loop, and choices made in them, if what they depend on inside runs between numbers."""
    lanes, depth, inner = _copied(loop.body), len(facts.loops) + 1, facts.loop(loop.index, loop.start, loop.stop)
    found = [(test, at) for test, _, at in tests_in(loop.body, inner) if not lanes.isdisjoint(free_names(test))]
    seldom = _runs(loop.body, inner, depth, lanes) / OFTEN if found else 0
    tests = {test for test, at in found if are_counted(at, depth, free_names(test)) and _times(at, depth, lanes) >= seldom}
    inside_them = [n for test in tests for n in walk(test) if isinstance(n, Apply) and n.op.name in ("minimum", "maximum")]
    return frozenset(tests | {apply("le", *n.args) for n in inside_them if loop.index in free_names(n)})


def _with_copies(loops: Iterable[For]) -> Iterator[For]:
    """Innermost loops, in which all others are lanes or copied out, and what makes many copies in one of them."""
    for s in loops:
        if s.kind == "serial" and _is_innermost(s):
            yield s
            for x in s.body:
                copies = [iterations(n) or 1 for n in statements((x,)) if isinstance(n, For) and n.kind == "unroll"]
                if isinstance(x, For) and prod(copies) >= MANY:
                    yield x


def _is_innermost(s: For) -> bool:
    loops = [x for x in statements(s.body) if isinstance(x, For)]
    return bool(loops) and all(x.kind in _COPIED for x in loops)


def _same_tests(s: For) -> frozenset[Expr]:
    """Conditions in a loop that do not change along it, and are the same for all copies and lanes."""
    changes = {s.index, *_copied(s.body)}
    return frozenset(n for n in _tests(s) if n.op.name in _COMPARED and changes.isdisjoint(free_names(n)))


def _tests(loop: For) -> Iterator[Apply]:
    """What tests integers in the statements of a loop, the bounds of loops inside left out."""
    stands = (s for s in statements(loop.body) if not isinstance(s, For))
    nodes = (n for s in stands for e in expressions_of(s) for n in walk(e) if isinstance(n, Apply) and n.op.name in _TESTS)
    return (n for n in nodes if n.args[0].dtype is int64)


def _runs(block: Block, facts: Facts, depth: int, lanes: set[str]) -> int:
    """`_times` of the statement inside that runs most often."""
    most = _times(facts, depth, lanes)
    for s in block:
        inner = facts.loop(s.index, s.start, s.stop) if isinstance(s, For) and s.index not in lanes else facts
        most = max(most, _runs(inside(s), inner, depth, lanes))
    return most


def _times(facts: Facts, depth: int, lanes: set[str]) -> int:
    """About how often what stands where some facts hold runs in loops from a depth on, all lanes and copies at once."""
    ranges = [facts.box.get(index, (None, None)) for index, *_ in facts.loops[depth:] if index not in lanes]
    return prod(UNKNOWN_EXTENT if low is None or high is None else max(1, high - low + 1) for low, high in ranges)


def _moved_back(nest: LoopNest) -> set[tuple[str, frozenset[Apply]]]:
    """Where stores write that are moved back at the end of a loop on all cores: elements that two cores write are proved to have the same
    value where both run one statement."""
    stores = [s for kernel in nest.kernels for s in stores_in(kernel.body)]
    shared = {s.index for kernel in nest.kernels for s in statements(kernel.body) if isinstance(s, For) and s.kind == "parallel"}
    ends = [[n for e in s.indices for n in walk(e) if isinstance(n, Apply) and n.op.name == "minimum"] for s in stores]
    return {(s.buffer, frozenset(n for n in found if not shared.isdisjoint(free_names(n)))) for s, found in zip(stores, ends, strict=True)}


def _rolled(block: Block) -> Block:
    """The statements with loops that are copied out, and choose no element that is stored to, as loops again: little runs here."""
    made: list[Stmt] = []
    for s in block:
        if isinstance(s, For) and s.kind == "unroll" and not any(s.index in free_names(i) for x in stores_in(s.body) for i in x.indices):
            s = replace(s, kind="serial")
        made.append(with_blocks(s, _rolled))
    return tuple(made)


def _copied(block: Block) -> set[str]:
    """The loops inside that are lanes or copied out."""
    return {s.index for s in statements(block) if isinstance(s, For) and s.kind in _COPIED}


def _changes_lanes(loop: For, target: Target) -> bool:
    """Whether lanes or copies inside differ in tests that change along a loop. Blocks over cores that are moved back at the end write
    elements twice, which is proved to be the same value where one statement does it: these stay one."""
    count = iterations(loop)
    if count is not None and count < (FEWEST if target.is_gpu or _is_innermost(loop) else 2):
        return False
    lanes = _copied(loop.body)
    tests = [n for n in _tests(loop) if loop.index in free_names(n)]
    if loop.kind == "parallel" and any(n.op.name == "minimum" and lanes.isdisjoint(free_names(n)) for n in tests):
        return False
    return any(not lanes.isdisjoint(free_names(n)) for n in tests)
