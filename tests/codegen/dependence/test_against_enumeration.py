"""Every verdict of the dependences against all iterations of runs: what is said never to meet does not, every point is one."""

import itertools
import random
from collections import Counter

import pytest

import tensorexpr as te
from tensorexpr.codegen.dependence import dependences
from tensorexpr.codegen.dependence.nests import common
from tensorexpr.codegen.dependence.pairs import SAME, Tie
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.nest.walks import blocks_of
from tensorexpr.codegen.plain import plain_nest
from tensorexpr.codegen.schedule import schedule
from tensorexpr.simplify import simplify
from tests.codegen.dependence.enumerated import Key, TooMany, events, meetings, random_affine_nest
from tests.codegen.programs import WIDE
from tests.random_programs import Options, random_sample
from tests.random_programs.sample import arrays_for, sizes_of
from tests.random_programs.schedules import shuffled
from tests.seeds import share_of

MANY = 60
"""Accesses of a nest that are compared with each other."""


def key_of(touch):
    return Key(id(touch.statement), touch.home.buffer.name, touch.indices, touch.write)


def questions(deps):
    """All pairs of accesses of one buffer, the loop that would carry a conflict (None: within one iteration), and the answer."""
    for first, second in deps._pairs(deps.touches, deps.touches):
        shared = first.loops[: common(first, second)]
        for level in range(first.home.depth, len(shared)):
            yield first, second, level, deps.meeting(first, second, deps._carried_at(shared, level))
        if (first.number, first.write) < (second.number, second.write):
            yield first, second, None, deps.meeting(first, second, [Tie(loop, SAME, loop) for loop in shared])


def check(nest, arrays, sizes_of_runs):
    """Compares all answers with runs; counts them."""
    deps, found = dependences(nest), Counter()
    runs = {tuple(sorted(sizes.items())): events(nest, arrays, sizes) for sizes in sizes_of_runs}
    seen = set().union(*map(meetings, runs.values()))
    carried = {(first, second, next((at for at, one in enumerate(order) if one != "="), None)) for first, second, order in seen}
    never, answers = {}, list(questions(deps))
    for first, second, level, answer in answers:
        key = key_of(first), key_of(second), level
        never[key] = never.get(key, True) and not answer.may
    wrong = [key for key in carried if never.get(key)]
    assert not wrong, f"said never to meet, and does: {wrong[0]}, in\n{nest}"
    for first, second, level, answer in answers:
        found["perhaps" if answer.may and not answer.is_certain else "point" if answer.may else "never"] += 1
        if answer.is_certain:
            assert_point(nest, arrays, first, second, level, dict(answer.at), runs)
    check_loops(nest, deps, seen, found)
    return found


def assert_point(nest, arrays, first, second, level, at, runs):
    """A point is an iteration of each, in that order, that touch one element."""
    sizes = {name: at.get(name, 1) for name in nest.sizes}
    run = tuple(sorted(sizes.items()))
    if run not in runs and (arrays or any(value > 12 for value in sizes.values())):
        return  # the arrays are of other sizes
    if run not in runs:
        runs[run] = events(nest, arrays, sizes)
    shared = first.loops[: common(first, second)]
    same = shared if level is None else shared[:level]
    here = tuple((id(loop.statement), at[loop.statement.index]) for loop in first.loops)
    there = tuple((id(loop.statement), at[loop.statement.index + ("" if loop in same else "'")]) for loop in second.loops)
    pairs = [(key_of(first), here), (key_of(second), there)]
    assert any(all(any((e.key, e.at) == one for e in each) for one in pairs) for each in runs[run]), (
        f"{pairs} at {at} touch no one element in\n{nest}"
    )


def check_loops(nest, deps, seen, found):
    """What may be done to loops, against the conflicts that were seen."""
    owners = {}  # statements by the loops around them, and their neighbors

    def walk(block, around):
        for s in block:
            owners[id(s)] = around
            inner = (*around, s) if isinstance(s, For) else around
            for one in blocks_of(s):
                walk(one, inner)
        for left, right in itertools.pairwise(block):
            check_neighbors(left, right, around)

    def inside(block):
        for s in block:
            yield id(s)
            for one in blocks_of(s):
                yield from inside(one)

    def check_neighbors(left, right, around):
        one, other = set(inside((left,))), set(inside((right,)))
        allowed = deps.may_move(left, right)
        level = len(around)
        kept = any(a.statement in one and b.statement in other and set(order[:level]) <= {"="} for a, b, order in seen)
        found[f"move {bool(allowed)}"] += 1
        assert not (allowed and kept), f"said to be free to change places: {left} and {right} in\n{nest}"

    for kernel in nest.kernels:
        walk(kernel.body, ())
    for loop in deps.places.all_loops:
        level, own = len(loop.around), set(inside((loop.statement,)))
        allowed = deps.may_run_in_any_order(loop.statement)
        carried = any(
            {a.statement, b.statement} <= own and len(order) > level and order[level] == "<" and set(order[:level]) <= {"="}
            for a, b, order in seen
        )
        found[f"any order {bool(allowed)}"] += 1
        assert not (allowed and carried), f"said to run in any order: {loop.statement.index} in\n{nest}"
        if len(loop.statement.body) == 1 and isinstance(inner := loop.statement.body[0], For):
            allowed = deps.may_swap(loop.statement, inner)
            own = set(inside(inner.body))
            turned = any(
                {a.statement, b.statement} <= own and order[level : level + 2] == ("<", ">") and set(order[:level]) <= {"="}
                for a, b, order in seen
            )
            found[f"swap {bool(allowed)}"] += 1
            assert not (allowed and turned), f"said to change places: {loop.statement.index} and {inner.index} in\n{nest}"


@pytest.mark.parametrize("seed", share_of(range(75)))
def test_random_affine_nests(seed):
    nest = random_affine_nest(random.Random(seed))
    try:
        check(nest, {}, [{"n": n} for n in (0, 1, 2, 4, 5)])
    except TooMany:
        return


@pytest.mark.parametrize("seed", share_of(range(48)))
def test_nests_of_random_programs(seed):
    rng = random.Random(seed)
    sample = random_sample(seed, Options(points=6, open_sizes=rng.choice((0, 0.5)), most=rng.choice((1, 2))))
    try:
        traced = sample.traced()
        program = simplify(traced.program)
        nest = lower(shuffled(schedule(program, WIDE), rng)) if seed % 2 else plain_nest(traced.program)
    except te.TensorExprError:
        return
    if len(dependences(nest).touches) > MANY:
        return
    sizes = sizes_of(sample, traced.program, rng, 1)[0]
    try:
        check(nest, arrays_for(traced.program, traced.below, sizes, seed, True, False), [sizes])
    except (TooMany, te.OutOfBoundsError):
        return
