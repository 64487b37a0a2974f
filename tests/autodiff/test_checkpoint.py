"""`te.checkpoint`: tensors that the gradient computes again instead of keeping them."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.language import program_of
from tensorexpr.simplify import simplify
from tests.autodiff.laws import check_orders

F64 = "float64"
WIDTH, STAGES = 100, 32


def chain(every: int | None, width: int = WIDTH, stages: int = STAGES, exact: bool = False):
    """A chain of stencils of which every `every`-th stage is kept; the loss, and what the marked stages are called."""
    x = te.placeholder((width,), F64, name="x")
    stage, marked = x, []
    for number in range(stages):

        def element(i, v=stage):
            left, right = v.read(i - 1, outside="wrap"), v.read(i + 1, outside="wrap")
            return left - right * v[0] if exact else te.sin(left) * 0.5 + right * v[width - 1 - i]

        stage = te.compute((width,), element, name=f"u{number}")
        if every is not None and (number + 1) % every:
            stage = te.checkpoint(stage)
            marked.append(stage.name)
    return x, te.compute((), lambda: te.sum(lambda i: stage[i] ** 2, width), name="loss"), marked


def held(function) -> int:
    """The most tensors of the width of the chain that are alive at once, in the order of the kernels."""
    first, last = {}, {}
    for at, kernel in enumerate(function.nest.kernels):
        text = repr(kernel.body)
        for buffer in function.nest.workspace:
            if f"'{buffer.name}'" in text:
                first.setdefault(buffer.name, at)
                last[buffer.name] = at
    sizes = {b.name: int(np.prod([e.value for e in b.shape])) for b in function.nest.workspace}
    return max(sum(sizes[n] for n in first if first[n] <= at <= last[n]) for at in range(len(function.nest.kernels))) // WIDTH


def test_marks_trade_memory_for_work_and_keep_the_gradient():
    data = np.random.default_rng(50).standard_normal(WIDTH) * 0.1
    found = {}
    for every in (None, 4, STAGES + 1):
        x, loss, _ = chain(every)
        gradient = te.gradient(loss, x)[0]
        function = te.build([loss, gradient], [x])
        found[every] = (held(function), function.cost.operations, te.evaluate([loss, gradient], {x: data}), function(data))
    for every in (4, STAGES + 1):
        for value, expected in zip(found[every][2], found[None][2], strict=True):
            np.testing.assert_array_equal(value, expected)
        np.testing.assert_allclose(found[every][3][1], found[None][3][1], rtol=1e-9, atol=1e-12)
        assert found[None][1] < found[every][1] < 1.6 * found[None][1]
    kept = {every: numbers[0] for every, numbers in found.items()}
    assert kept[None] >= STAGES and kept[4] <= STAGES // 4 + 4 + 2
    assert kept[STAGES + 1] <= STAGES + 2  # all at once again: nothing is won by marking everything


def test_copies_are_never_merged_with_what_they_copy():
    x, loss, marked = chain(4, stages=8)
    program = simplify(program_of([loss, te.gradient(loss, x)[0]]))
    assert str(program).count("recompute(") == len(marked) == 6
    for name in marked:
        assert sum(f"{name}_again[i]: " in line for line in str(program).splitlines()) == 1
    assert simplify(program) is program


def test_only_marked_tensors_are_copied_and_other_outputs_read_the_original():
    x = te.placeholder((4,), F64, name="x")
    e = te.checkpoint(te.compute((4,), lambda i: te.exp(x[i]) * x[3 - i], name="e"))
    y = te.compute((4,), lambda i: e[i] * e[3 - i], name="y")
    head = te.placeholder((4,), F64, name="H")
    text = str(program_of([y, te.gradient(y, x, head)[0]]))
    assert text.count("exp(x[i]) * x[3 - i]") == 2 and "e_again[i]: f64[4] = recompute(exp(x[i]) * x[3 - i])" in text
    assert "recompute" not in str(program_of([te.jvp(y, x, head)]))


def test_marks_at_every_order_and_on_every_kind_of_definition():
    x, ids = te.placeholder((5,), F64, name="x"), te.placeholder((5,), "int64", name="ids")
    a = te.checkpoint(te.compute((5,), lambda i: te.sin(x[i]) * x[4 - i], name="a"))
    b = te.checkpoint(te.scatter((5,), lambda i: (ids[i], a[i] ** 2), 5, name="b"))
    c = te.checkpoint(te.scan(lambda t, s: te.compute((5,), lambda i: te.sin(s[i]) * b[t]), a, 3, name="c"))
    arrays = {x: np.random.default_rng(51).standard_normal(5), ids: np.array([0, 2, 2, 1, 4])}
    check_orders(te.compute((5,), lambda i: c[2, i] * b[i]), [x], arrays)
    text = str(te.gradient(te.compute((), lambda: te.sum(lambda i: c[2, i] * b[i], 5)), x))
    assert "a_again" in text and "b_again" in text and "c_again" in text


def test_a_mark_keeps_name_and_rule_and_says_nothing_inside_a_scan():
    double = te.op(gradient=lambda output, inputs, head: [te.compute(head.shape, lambda i: head[i] * 7.0)])(
        lambda a: te.compute(a.shape, lambda i: a[i] * 2.0, name="d")
    )
    x = te.placeholder((3,), F64, name="x")
    marked = te.checkpoint(double(x))
    assert marked.name == "d" and marked.shape == (3,)
    np.testing.assert_array_equal(te.evaluate(te.gradient(marked, x, te.constant(np.ones(3)))[0], {x: np.ones(3)}), 7.0)

    def body(t, s):
        return te.checkpoint(te.compute((3,), lambda i: s[i] * x[i]))

    s = te.scan(body, x, 2)
    np.testing.assert_allclose(te.evaluate(te.gradient(te.compute((), lambda: s[1, 0]), x)[0], {x: np.full(3, 2.0)}), [12.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("given", "said"),
    [(te.placeholder((3,), name="x"), "x, which is given"), (te.constant(np.ones(3), name="k"), "k, which is given"), (3.0, "3.0")],
)
def test_what_cannot_be_marked(given, said):
    with pytest.raises(te.DefinitionError) as caught:
        te.checkpoint(given)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"te.checkpoint: expected a computed tensor, got {said}" and __file__ in lines[1]
    assert lines[2] == "  hint: inputs and constants are there as long as the function runs"


@pytest.mark.parametrize(("length", "checkpoint", "states"), [(100, "sqrt", 10), (100, 5, 5), (400, "sqrt", 20), (90, 7, 7)])
def test_a_scan_in_segments_holds_what_the_language_page_says(length, checkpoint, states):
    start = te.placeholder((WIDTH,), F64, name="u0")
    u = te.scan(lambda t, u: te.compute((WIDTH,), lambda i: te.sin(u[i]) + u[WIDTH - 1 - i]), start, length, checkpoint=checkpoint)
    loss = te.compute((), lambda: te.sum(lambda i: u[length - 1, i] ** 2, WIDTH))
    rest = 2 * (length % states)  # the steps behind the last whole segment, forward and backward
    assert held(te.build([loss, *te.gradient(loss, [start])], [start])) <= -(-length // states) + states + 8 + rest
