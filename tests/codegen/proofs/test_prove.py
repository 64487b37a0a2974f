"""The verifier of nests: what it proves, what it refutes, with which counterexample."""

import pytest

import tensorexpr as te
from tensorexpr import dtypes
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import Alloc, Buffer, Check, CheckSite, For, If, Kernel, LoopNest, Store
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.ir import Access, Cast, Const, Index, Size, apply, const
from tensorexpr.op.trees import leaves
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tensorexpr.simplify import simplify
from tests.codegen.programs import WIDE
from tests.kernels.table import ALL
from tests.kernels.test_laws import placed
from tests.random_programs import random_program
from tests.seeds import share_of

i, j, p, n = Index("i"), Index("j"), Index("p"), Size("n")
ZERO, ONE = const(0), Const(1.0, dtypes.float32)


def add(a, b):
    return apply("add", a, b if not isinstance(b, int) else const(b))


def mul(a, b):
    return apply("mul", a, const(b))


def read(name, *indices, dtype=dtypes.float32):
    return Access(name, indices, dtype)


def over(index, stop, *body, start=ZERO, kind="serial"):
    return For(index.name, start, const(stop) if isinstance(stop, int) else stop, body, kind)


def nest(*body, y=(4,), x=(4,), sizes=(), together=False, **fields):
    shape = {name: tuple(const(e) if isinstance(e, int) else e for e in extents) for name, extents in (("X", x), ("Y", y))}
    parameters = (
        Buffer("X", dtypes.float32, shape["X"], "parameter"),
        Buffer("ids", dtypes.int32, (const(4),), "parameter"),
        Buffer("Y", dtypes.float32, shape["Y"], "parameter"),
    )
    sites = (CheckSite("X[ids[i]]", "X", 0, "Y", None),)
    kernels = tuple(Kernel("Y", (s,)) for s in body) if not together else (Kernel("Y", body, together=True),)
    return LoopNest("test", parameters, (), (), kernels, ("Y",), sizes, sites, **fields)


def findings(nest, kinds=("bounds", "race")):
    return [(f.kind, f.refuted, f.about, f.at) for f in prove(nest).findings if f.kind in kinds]


def unwritten(*body, **fields):
    return [f[:3] for f in findings(nest(*body, **fields), ("initial", "coverage"))]


IDS = Cast(dtypes.int64, read("ids", i, dtype=dtypes.int32))
CHECK = Check(IDS, const(4), 0)


def test_a_bound_that_is_one_too_far_is_refuted_where_it_is():
    assert findings(nest(over(i, 4, Store("Y", (i,), read("X", add(i, 1)))))) == [("bounds", True, "0 <= i + 1 < 4", (("i", 3),))]
    inside = If(apply("lt", i, const(3)), (Store("Y", (i,), read("X", add(i, 1))),), (Store("Y", (i,), ONE),))
    assert findings(nest(over(i, 4, inside))) == []
    guarded = apply("where", apply("lt", i, const(3)), read("X", add(i, 1)), ONE)
    assert findings(nest(over(i, 4, Store("Y", (i,), guarded)))) == []


def test_no_size_counts_for_which_a_check_before_fails():
    """Where `i % n` is checked in a loop of its own, nothing runs with n = 0; a kernel that is launched by itself does."""
    place = apply("mod", i, n)
    checks = over(i, 4, Check(place, n, 0))
    reads = over(i, 4, Store("Y", (i,), read("X", place)))
    kinds = ("bounds", "initial", "coverage")
    shape = {"x": (n,), "sizes": ("n",)}
    together = replace(nest(reads, **shape), kernels=(Kernel("Y", (checks, reads)),))
    assert not [f for f in findings(together, kinds) if f[1]]
    assert [f[:2] for f in findings(nest(reads, **shape), kinds)] == [("bounds", True)]
    one_by_one = nest(checks, reads, **shape)
    assert not [f for f in findings(one_by_one, kinds) if f[1]]
    assert [f.kind for f in prove(one_by_one, launched=True).refuted] == ["bounds"]
    # All of the result is written in every run that ends; a check that passes for some sizes hides nothing there.
    late = over(i, 3, Check(place, n, 0), Store("Y", (i,), ONE))
    assert [(f[0], f[1]) for f in findings(nest(late, **shape), kinds)] == [("coverage", True)]
    none = nest(over(i, 1, Check(ZERO, n, 0)), over(i, n, Store("Y", (i,), ONE)), y=(apply("maximum", n, const(1)),), sizes=("n",))
    assert [f[:2] for f in findings(none, kinds)] == [("coverage", False)]


def test_a_check_that_reads_data_hides_none_behind_it_that_is_certain_to_fail():
    """No run with n = 0 comes to what reads T: where the first check passes, the second fails."""
    text = """\
main(n, X, K, Y)
n: size
X: parameter(f32[n])
K: parameter(i16[n * 2 + 1])
Y: parameter(f32[n * 2 + 1], written)
T: workspace(f32[n * 2 + 1])

def kernel_0() -> T:
    for i in range(0, n * 2 + 1):
        if i < 1:
            check(i64(K[i]), n, 0)
        if i < 1:
            check(minimum(maximum(2 - i, 0), n - 1), n, 0)
        T[i] = where(i < 1, X[i64(K[i])] + X[minimum(maximum(2 - i, 0), n - 1)], 1.0)

def kernel_1() -> Y:
    for i in range(0, n * 2 + 1):
        Y[i] = T[(i + 2) % (n * 2 + 1)]

check_0 = site("X[i]", tensor="X", axis=0, definition="T")
"""
    assert not prove(parse_nest(text)).refuted


def test_two_conditions_on_a_buffer_that_is_written_between_them_do_not_fill_a_result():
    """One holds where the other does not, of what the buffer held then: with a write between them both may fail."""
    keeps = apply("gt", read("K", i), ONE)
    first, second = (If(condition, (Store("Y", (i,), ONE),)) for condition in (keeps, apply("invert", keeps)))
    fill, turn = Store("K", (i,), read("X", i)), Store("K", (i,), apply("neg", read("K", i)))
    one = Store("K", (ZERO,), read("X", i))
    at_first = apply("gt", read("K", ZERO), ONE)
    early, late = (If(condition, (Store("Y", (i,), ONE),)) for condition in (at_first, apply("invert", at_first)))

    def unwritten_of(*loops):
        kernels = (Kernel("Y", tuple(over(i, 4, *body) for body in loops)),)
        made = replace(nest(), kernels=kernels, workspace=(Buffer("K", dtypes.float32, (const(4),), "workspace"),))
        return [f.refuted for quick in (False, True) for f in prove(made, quick=quick).findings if f.kind == "coverage"]

    assert unwritten_of((fill,), (first,), (second,)) == unwritten_of((fill, first, second)) == []
    assert unwritten_of((fill,), (first,), (turn,), (second,)) == [False, False]
    assert unwritten_of((fill, first, turn, second)) == [False, False]
    assert unwritten_of((one, early), (late,)) == [False, False]


def test_both_operands_of_and_are_evaluated():
    condition = apply("and", apply("lt", i, const(3)), apply("gt", read("X", add(i, 1)), ONE))
    assert findings(nest(over(i, 4, If(condition, (Store("Y", (i,), ONE),))))) == [("bounds", True, "0 <= i + 1 < 4", (("i", 3),))]


def test_open_sizes_begin_at_zero():
    read_first = over(i, n, Store("Y", (i,), read("X", ZERO)))
    assert findings(nest(read_first, x=(n,), y=(n,), sizes=("n",))) == []
    before = If(apply("gt", read("X", ZERO), ONE), (over(i, n, Store("Y", (i,), ONE)),))
    assert findings(nest(before, x=(n,), y=(n,), sizes=("n",))) == [("bounds", True, "0 <= 0 < n", (("n", 0),))]


def test_a_remainder_of_a_negative_extent_is_refuted():
    extent = apply("sub", n, const(1))
    place = add(mul(apply("floordiv", extent, const(64)), 64), i)
    loop = over(i, apply("mod", extent, const(64)), Store("Y", (place,), ONE))
    ((kind, refuted, _, at),) = findings(nest(loop, y=(n,), sizes=("n",)))
    assert (kind, refuted, at) == ("bounds", True, (("n", 0), ("i", 0)))


def test_checks_hold_until_what_they_read_is_written():
    assert findings(nest(over(i, 4, CHECK, Store("Y", (i,), read("X", IDS))))) == []
    assert findings(nest(over(i, 4, Store("Y", (i,), read("X", IDS))))) == [("bounds", False, "0 <= i64(ids[i]) < 4", ())]
    ids_are_written = over(i, 4, CHECK, Store("ids", (i,), Const(7, dtypes.int32)), Store("Y", (i,), read("X", IDS)))
    assert [f[:2] for f in findings(nest(ids_are_written))] == [("bounds", False)]
    beside = nest(over(i, 4, CHECK, kind="parallel"), over(i, 4, Store("Y", (i,), read("X", IDS)), kind="parallel"), together=True)
    assert [f[:2] for f in findings(beside)] == [("bounds", False)]


def test_a_check_behind_a_condition_counts_where_the_condition_holds():
    chosen, other = apply("gt", read("X", i), ONE), apply("lt", read("X", i), ONE)
    behind = [If(condition, (Store("Y", (i,), read("X", IDS)),)) for condition in (chosen, other)]
    assert [prove(nest(over(i, 4, If(chosen, (CHECK,)), s)), quick=True).findings[0].kind for s in behind] == ["coverage", "bounds"]


def test_a_check_of_another_launch_counts_for_nothing():
    first = Cast(dtypes.int64, read("ids", ZERO, dtype=dtypes.int32))
    checked = nest(Check(first, const(4), 0), over(i, 4, Store("Y", (i,), read("X", first))))
    assert findings(checked) == []
    assert [f.kind for f in prove(checked, launched=True).findings] == ["bounds"]


@pytest.mark.parametrize("kind", ["parallel", "vectorize", "thread.x", "block.x", "warp"])
def test_iterations_at_once_write_different_elements(kind):
    assert findings(nest(over(i, 4, Store("Y", (i,), ONE), kind=kind))) == []
    shared = over(i, 4, Store("Y", (apply("floordiv", i, const(2)),), ONE), kind=kind)
    assert findings(nest(shared)) == [("race", True, "iterations of i meet at Y[i // 2]", (("i", 0), ("i'", 1)))]
    assert findings(nest(shared, atomics=("Y",))) == []
    carried = over(i, 3, Store("Y", (add(i, 1),), read("Y", i)), kind=kind)
    assert [f[:2] for f in findings(nest(carried))] == [("race", True)]


def test_blocks_that_are_shifted_inwards_write_equal_values():
    place = add(apply("minimum", mul(p, 3), const(4)), i)
    loop = over(p, 3, over(i, 3, Store("Y", (place,), read("X", place))), kind="parallel")
    assert findings(nest(loop, x=(7,), y=(7,))) == []
    block = over(p, 3, over(i, 3, Store("Y", (place,), read("X", i))), kind="parallel")
    assert [f[:2] for f in findings(nest(block, x=(7,), y=(7,)))] == [("race", False)]
    copies = [Store("Y", (add(apply("minimum", mul(p, 3), const(4)), k),), ONE) for k in range(3)]
    assert not prove(nest(over(p, 3, *copies, kind="parallel"), x=(7,), y=(7,))).refuted
    added = over(p, 3, over(i, 3, Store("Y", (place,), apply("add", read("Y", place), ONE))), kind="parallel")
    assert [f[:2] for f in findings(nest(added, x=(7,), y=(7,)))] == [("race", True)]


def test_shifted_blocks_of_a_step_may_read_the_step_before():
    place = add(apply("minimum", mul(p, 3), const(4)), i)

    def step(read_at):
        rest = (over(p, 3, over(i, 3, Store("Y", (j, place), read("Y", *read_at))), kind="parallel"),)
        return nest(over(j, 4, *rest, start=const(1)), x=(7,), y=(4, 7))

    before = apply("sub", j, const(1))
    assert findings(step((before, const(6)))) == findings(step((before, place))) == []
    assert [f[:2] for f in findings(step((before, i)))] == [("race", False)]  # by the place in the block
    assert {f[:2] for f in findings(step((j, const(6))))} == {("race", True), ("race", False)}  # another block writes it now
    assert [f[:2] for f in findings(step((j, place)))] == [("race", True)]


def test_nothing_is_read_that_nothing_wrote():
    acc = Buffer("acc", dtypes.float32, (const(4),), "local")
    begin, end = over(i, 4, Store("acc", (i,), ONE), kind="vectorize"), over(i, 4, Store("Y", (i,), read("acc", i)))
    add_up = over(p, 3, over(i, 4, Store("acc", (i,), apply("add", read("acc", i), ONE))))
    assert unwritten(Alloc(acc, (begin, add_up, end))) == []
    about = "acc[i] is written before it is read"
    assert unwritten(Alloc(acc, (over(i, 4, Store("Y", (i,), read("acc", i))),))) == [("initial", True, about)]
    short = over(i, 3, Store("acc", (i,), ONE))
    assert unwritten(Alloc(acc, (short, end))) == [("initial", True, about)]
    assert unwritten(Alloc(acc, (short, Store("acc", (const(3),), ONE), end))) == []
    one, chosen = Buffer("one", dtypes.float32, (), "local"), apply("gt", read("X", ZERO), ONE)
    made = If(apply("or", chosen, apply("gt", read("X", const(1)), ONE)), (Store("one", (), ONE),))
    used = over(i, 4, Store("Y", (i,), read("one")))
    assert unwritten(Alloc(one, (made, If(chosen, (used,), (over(i, 4, Store("Y", (i,), ONE)),))))) == []
    assert unwritten(Alloc(one, (made, used))) == [("initial", False, "one[()] is written before it is read")]
    running = over(i, 3, Store("acc", (add(i, 1),), read("acc", i)))
    assert unwritten(Alloc(acc, (Store("acc", (ZERO,), ONE), running, end))) == []
    assert unwritten(Alloc(acc, (Store("acc", (const(1),), ONE), running, end)))


def test_a_size_that_stores_alone_name_is_none_below_0():
    """What is copied into a layout of m + 3 rows is all there, for every m that a call may have."""
    s = schedule(
        parse_program("""
sizes(m, n)
X: f32[m + 3, n] = input()
Y[i]: f32[n] = where(i % 3 == 0, X[0, i], 2.0 * X[0, i])
return Y
"""),
        WIDE,
    )
    s["Y"].stage("X", ((1, 3), 0))
    assert not prove(lower(s)).findings


def test_every_element_of_a_result_is_written():
    whole, open_ = [("coverage", True, "all of Y is written")], [("coverage", False, "all of Y is written")]
    assert unwritten(over(i, 3, Store("Y", (i,), ONE))) == whole
    assert unwritten(over(p, 2, over(i, 2, Store("Y", (add(mul(p, 2), i),), ONE)))) == []
    assert unwritten(over(p, 2, over(i, 2, Store("Y", (add(mul(p, 2), ZERO),), ONE)))) == whole
    blocks = over(p, apply("floordiv", n, const(8)), over(i, 8, Store("Y", (add(mul(p, 8), i),), ONE)))
    place = add(mul(apply("floordiv", n, const(8)), 8), i)
    rest = over(i, apply("mod", n, const(8)), Store("Y", (place,), ONE))
    assert unwritten(blocks, rest, y=(n,), sizes=("n",)) == []
    assert unwritten(blocks, y=(n,), sizes=("n",)) == whole
    chosen = apply("gt", read("X", i), ONE)
    assert unwritten(over(i, 4, If(chosen, (Store("Y", (i,), ONE),), (Store("Y", (i,), read("X", i)),)))) == []
    assert unwritten(over(i, 4, If(chosen, (Store("Y", (i,), ONE),)))) == open_
    assert prove(nest(blocks, y=(n,), sizes=("n",))).refuted[0].at == (("n", 1), ("axis 0", 0))
    assert prove(nest(blocks, y=(n,), sizes=("n",)), quick=True).refuted


def test_the_same_nest_gives_the_same_verdict():
    nests = [lower(autoschedule(random_program(seed), WIDE)) for seed in range(5)]
    assert [prove(one) for one in nests] == [prove(one) for one in nests]


@pytest.mark.parametrize("seed", share_of(range(90)))
def test_nothing_is_refuted_of_random_programs(seed):
    program = random_program(seed)
    for made in (schedule(program, WIDE), autoschedule(program, WIDE)):
        assert not prove(lower(made)).refuted


@pytest.mark.parametrize("case", share_of(range(len(ALL)))[::4], ids=lambda k: ALL[k].name)
def test_nothing_is_refuted_of_the_library(case):
    inputs, result, _ = placed(ALL[case])
    outputs = list(leaves(result))
    for made in (schedule, autoschedule):
        assert not prove(lower(made(simplify(te.program_of(outputs, inputs)), WIDE))).refuted


@pytest.mark.parametrize("inside", [False, True])
def test_a_store_behind_a_condition_that_was_changed_meanwhile_may_not_run(inside):
    flag, y = Buffer("F", dtypes.int64, (const(1),), "workspace"), Buffer("Y", dtypes.float32, (const(4),), "parameter")
    x, local = Buffer("X", dtypes.int64, (const(1),), "parameter"), Buffer("T", dtypes.float32, (const(4),), "workspace")
    fill = For("i", ZERO, const(4), (Store("T", (i,), ONE),), "serial")
    read = For("j", ZERO, const(4), (Store("Y", (j,), Access("T", (j,), dtypes.float32)),), "serial")
    start = Store("F", (ZERO,), Access("X", (ZERO,), dtypes.int64))
    positive = apply("gt", Access("F", (ZERO,), dtypes.int64), ZERO)
    then = (Store("F", (ZERO,), ZERO), fill)
    body = (start, If(positive, (*then, read) if inside else then), *(() if inside else (read,)))
    found = prove(LoopNest("test", (x, y), (), (flag, local), (Kernel("Y", body),), ("Y",)))
    assert {finding.kind for finding in found.findings} == {"coverage" if inside else "initial"}
