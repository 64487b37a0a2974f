"""Rules by hand: what is derived for operations that everybody knows, as tables."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.errors import DefinitionError
from tensorexpr.sharding import UNREAD, WHOLE, Partial, Sharding, Split
from tests.sharding.law import check


def f32(*shape):
    return shape, "float32"


def lines(sharding):
    return [" ".join(line.split()) for line in str(sharding).splitlines()]


def test_a_product_of_matrices():
    sharding = kernels.matmul.sharding(f32(6, 8), f32(8, 10))
    assert lines(sharding) == [
        "x y -> matmul",
        "split 0 whole -> split 0",
        "split 1 split 0 -> partial sum",
        "whole split 1 -> split 1",
    ]
    assert sharding.rows[1].inputs == {"x": Split(1), "y": Split(0)} and sharding.rows[1].outputs == {"matmul": Partial("sum")}
    assert repr(sharding) == "<sharding of matmul: 3 rules>"


def test_its_gradient_splits_the_axis_that_both_gradients_share():
    sharding = te.vjp(kernels.matmul).sharding(f32(6, 8), f32(8, 10), f32(6, 10))
    found = [(tuple(row.inputs.values()), tuple(row.outputs.values())) for row in sharding.rows]
    assert ((Split(1), Split(0), WHOLE), (Split(1), Split(0))) in found
    assert ((Split(0), WHOLE, Split(0)), (Split(0), Partial("sum"))) in found
    assert ((WHOLE, Split(1), Split(1)), (Partial("sum"), Split(1))) in found


@pytest.mark.parametrize("border, around", [(0.0, False), ("clamp", False), ("reflect", False), ("symmetric", False), ("wrap", True)])
def test_a_stencil_needs_a_halo_at_every_border(border, around):
    x = te.placeholder((40,), "float64", name="x")
    y = te.compute((40,), lambda i: x.read(i - 1, outside=border) - 2.0 * x.read(i + 2, outside=border), name="y")
    sharding = check(te.program_of([y], [x]), [np.random.default_rng(0).standard_normal(40)], counts=(2, 3, 5))
    (rule,) = sharding.rules
    (split,) = rule.inputs
    assert split.axis == 0 and split.wraps == around and split.halo == ((2, 2) if border == "reflect" else (1, 2))


@pytest.mark.parametrize("border", [0.0, "clamp", "reflect", "wrap"])
def test_so_does_its_gradient(border):
    x = te.placeholder((40,), "float64", name="x")
    y = te.compute((40,), lambda i: x.read(i - 1, outside=border) * x.read(i + 2, outside=border), name="y")
    head = te.placeholder((40,), "float64", name="head")
    program = te.program_of([*te.gradient(y, [x], head)], [x, head])
    draw = np.random.default_rng(0).standard_normal
    rules = check(program, [draw(40), draw(40)], counts=(2, 5)).rules
    assert any(all(isinstance(one, Split) and max(one.halo) <= 6 for one in rule.inputs) for rule in rules), Sharding(program)


def test_strides_and_reshapes_give_blocks_their_steps():
    strided = kernels.conv2d.sharding(f32(2, 3, 32, 32), f32(4, 3, 3, 3), None, padding=1, stride=2)
    assert Split(2, 2, (1, 0)) in [rule.inputs[0] for rule in strided.rules]
    x = te.placeholder((6, 4), "float32", name="x")
    flat = Sharding(te.program_of([te.compute((24,), lambda i: x[i // 4, i % 4], name="y")], [x]))
    assert [(rule.inputs, rule.outputs) for rule in flat.rules] == [((Split(0, 1),), (Split(0, 4),))]


def test_rows_of_a_table_are_partial_sums_of_what_data_asks_for():
    assert lines(kernels.embedding.sharding(((7,), "int64"), f32(20, 5))) == [
        "input weight -> embedding",
        "split 0 whole -> split 0",
        "whole split 1 -> split 1",
        "whole split 0 -> partial sum",
    ]


def test_a_bias_beside_a_partial_sum_belongs_to_one_part():
    sharding = kernels.linear.sharding(f32(4, 6), f32(5, 6), f32(5))
    rule = next(rule for rule in sharding.rules if isinstance(rule.outputs[0], Partial))
    first, second = (sharding.part(rule, *block).program for block in sharding.blocks(rule, 2))
    assert "bias[" in str(first) and "bias[" not in str(second)


def test_what_is_not_linear_in_a_sum_has_no_partial_rule():
    sharding = kernels.softmax.sharding(f32(7, 5))
    assert not any(isinstance(rule.outputs[0], Partial) for rule in sharding.rules)
    assert lines(sharding) == ["x -> softmax", "split 0 -> split 0", "whole -> split 1"]


def test_two_loops_of_one_sum_are_not_split_at_once():
    x = te.placeholder((4, 4), "float64", name="x")
    y = te.compute((), lambda: te.sum(lambda i, j: x[i, j] * x[j, i], (4, 4)), name="y")
    check(te.program_of([y], [x]), [np.random.default_rng(0).standard_normal((4, 4))])


@pytest.mark.parametrize("reduction, combine", [(te.max, "max"), (te.min, "min"), (te.prod, "prod")])
def test_other_reductions_are_combined_by_their_own_combiner(reduction, combine):
    x = te.placeholder((3, 9), "float64", name="x")
    y = te.compute((3,), lambda i: reduction(lambda k: x[i, k], 9), name="y")
    sharding = check(te.program_of([y], [x]), [np.random.default_rng(0).standard_normal((3, 9))])
    assert Partial(combine) in [rule.outputs[0] for rule in sharding.rules]


def test_what_is_not_read_lies_anywhere():
    sharding = te.vjp(kernels.sum).sharding(f32(8, 3), f32())
    assert sharding.rules[0].inputs == (UNREAD, WHOLE) and sharding.rules[0].outputs == (Split(0),)
    assert sharding.whole(sharding.rules[0]) == ()


def test_open_extents_are_refused():
    with pytest.raises(DefinitionError, match="sharding: expected extents that are numbers, got open ones: n"):
        kernels.exp.sharding(te.placeholder((te.dim("n"),), "float32", name="x"))
