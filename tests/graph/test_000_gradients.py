"""Part 000 of the checklists: composites and gradients."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph.nodes.ir import Compute, Native
from tensorexpr.graph.run.compile import lowered_graph
from tensorexpr.graph.run.composites import graphs_of

NAME = "org.nn.softmax_cross_entropy"
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(5, 7)).astype(np.float32)
LABELS = RNG.integers(0, 7, 5)


def body(logits, labels):
    """Mean of the cross-entropy of the softmax of logits (rows) with integer labels."""
    n, c = logits.shape
    top = te.compute((n,), lambda i: te.max(lambda j: logits[i, j], c))
    total = te.compute((n,), lambda i: te.sum(lambda j: te.exp(logits[i, j] - top[i]), c))
    return te.compute((), lambda: te.sum(lambda i: te.log(total[i]) + top[i] - logits[i, labels[i]], n) / n)


def annotated():
    return te.function(body, implements=NAME, attrs={"reduction": "mean"})


def step_of(function):
    @te.function
    def step(logits, labels):
        loss = function(logits, labels)
        return loss, te.gradients(loss, logits)

    return step


def reference(logits, labels):
    z = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    rows = np.arange(len(labels))
    hot = np.zeros_like(p)
    hot[rows, labels] = 1
    return -np.log(p[rows, labels]).mean(), (p - hot) / len(labels)


def agrees(results, logits=LOGITS, labels=LABELS):
    for own, true in zip(results, reference(logits, labels), strict=True):
        np.testing.assert_allclose(own, true, rtol=2e-5, atol=1e-6)


def inference(logits, labels):
    return np.float32(reference(logits, labels)[0])


# A fused pair as te ops: the softmax is computed once, saved by the forward pass and used by the backward pass.
@te.op
def fused_forward(logits, labels):
    n, c = logits.shape
    top = te.compute((n,), lambda i: te.max(lambda j: logits[i, j], c))
    e = te.compute((n, c), lambda i, j: te.exp(logits[i, j] - top[i]))
    total = te.compute((n,), lambda i: te.sum(lambda j: e[i, j], c))
    softmax = te.compute((n, c), lambda i, j: e[i, j] / total[i], name="softmax")
    loss = te.compute((), lambda: te.sum(lambda i: -te.log(softmax[i, labels[i]]), n) / n)
    return (loss,), (softmax,)


@te.op
def fused_backward(inputs, outputs, heads, saved):
    _, labels = inputs
    (softmax,) = saved
    n, c = softmax.shape
    hot = te.compute((n, c), lambda i, j: (softmax[i, j] - te.cast(labels[i] == j, "float32")) * heads[0][()] / n)
    return (hot,)


class Native_:
    """A pair on arrays that counts its calls."""

    def __init__(self):
        self.forwards, self.backwards, self.asked = 0, [], []

    def forward(self, logits, labels):
        self.forwards += 1
        loss, gradient = reference(logits, labels)
        return (np.float32(loss),), ("what the tool likes", gradient)

    def backward(self, inputs, outputs, heads, saved):
        self.backwards.append((len(inputs), len(outputs), len(heads), saved[0]))
        return ((saved[1] * heads[0]).astype(np.float32),)

    def pair(self, site):
        self.asked.append((site.wanted, site.heads))
        return self.forward, self.backward


def test_000_25_the_gradient_through_an_unreplaced_composite_equals_that_of_the_plain_function():
    f, plain = step_of(annotated()), step_of(te.function(body))
    for a, b in zip(f(LOGITS, LABELS), plain(LOGITS, LABELS), strict=True):
        assert np.array_equal(a, b)
    agrees(f(LOGITS, LABELS))
    agrees(f.strict(LOGITS, LABELS))
    wide = LOGITS.astype(np.float64)
    _, gradient = f(wide, LABELS)
    direction = RNG.normal(size=wide.shape)
    ahead, behind = (float(f(wide + s * direction, LABELS)[0]) for s in (1e-6, -1e-6))
    assert abs((ahead - behind) / 2e-6 - float((gradient * direction).sum())) < 1e-7


def test_000_26_the_forward_call_carries_name_and_attributes_after_the_gradient():
    listed = te.list_composites(step_of(annotated()).graph(LOGITS, LABELS))
    assert [(one.name, one.role, one.attrs) for one in listed] == [
        (NAME, "forward", {"reduction": "mean"}), (NAME, "backward", {"reduction": "mean"}),
    ]  # fmt: skip


def test_000_27_both_passes_are_functions_that_a_tool_finds_from_the_name():
    graph = step_of(annotated()).graph(LOGITS, LABELS)
    (forward,), (backward,) = graphs_of(graph, NAME, "forward"), graphs_of(graph, NAME, "backward")
    assert (forward.composite.full_name, backward.composite.full_name) == (f"{NAME}.forward", f"{NAME}.backward")
    assert forward.own == 1 and len(forward.outputs) > 1
    assert (backward.backward.inputs, backward.backward.outputs, backward.backward.wanted) == (2, 1, (0,))


def test_000_28_replacing_only_the_forward_leaves_gradients_right():
    with te.register_replacement(NAME, "cpu", lambda site: inference):
        step = step_of(annotated())
        agrees(step(LOGITS, LABELS))
        graph = step.compiled(LOGITS, LABELS).graph
        (native,) = (n for n in graph.nodes if isinstance(n, Native))
        # Nothing that the gradient is made from comes from the replaced forward pass.
        gradient = graph.outputs[1]
        reached, stack = set(), [gradient]
        while stack:
            node = graph.producers.get(stack.pop())
            if node is not None and node.id not in reached:
                reached.add(node.id)
                stack.extend(node.operands)
        assert native.id not in reached and len(native.names) == 1


def test_000_29_a_pair_is_replaced_as_a_pair():
    tool = Native_()
    with te.register_replacement(NAME, "cpu", pair=tool.pair):
        step = step_of(annotated())
        agrees(step(LOGITS, LABELS))
        graph = step.compiled(LOGITS, LABELS).graph
        assert sum(isinstance(n, Native) for n in graph.nodes) == 2
    with te.register_replacement(NAME, "cpu", pair=lambda site: None):
        step = step_of(annotated())
        agrees(step(LOGITS, LABELS))
        assert not any(isinstance(n, Native) for n in step.compiled(LOGITS, LABELS).graph.nodes)
    for wrong in ("no pair", (fused_forward, tool.backward)):
        with (
            te.register_replacement(NAME, "cpu", pair=lambda site, wrong=wrong: wrong),
            pytest.raises(te.ReplacementError, match=r"softmax_cross_entropy\.\w+: expected (a pair|both passes)"),
        ):
            step_of(annotated())(LOGITS, LABELS)
    with (
        te.register_replacement(NAME, "cpu", pair=lambda site: (inference, tool.backward)),
        pytest.raises(te.ReplacementError, match=r"expected the forward pass of a pair to give \(outputs, saved\), got float32"),
    ):
        step_of(annotated())(LOGITS, LABELS)


def test_000_30_the_replaced_backward_is_called_with_inputs_outputs_heads_and_its_own_saved_values():
    tool = Native_()
    with te.register_replacement(NAME, "cpu", pair=tool.pair):
        step_of(annotated())(LOGITS, LABELS)
    assert tool.backwards == [(2, 1, 1, "what the tool likes")]


def test_000_31_saved_values_may_differ_also_when_composites_are_nested():
    inner = annotated()
    outer = te.function(lambda logits, labels: inner(logits * 2.0, labels) * 3.0, implements="org.nn.outer")
    plain = step_of(outer)(LOGITS, LABELS)
    tool = Native_()
    with te.register_replacement(NAME, "cpu", pair=tool.pair):
        step = step_of(outer)
        for a, b in zip(step(LOGITS, LABELS), plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
        graph = step.graph(LOGITS, LABELS)
        assert [one.role for one in te.list_composites(graph) if one.name == "org.nn.outer"] == ["forward", "backward"]
    assert tool.backwards == [(2, 1, 1, "what the tool likes")]
    with te.register_replacement(NAME, "cpu", pair=lambda site: (fused_forward, fused_backward)):
        for a, b in zip(step_of(outer)(LOGITS, LABELS), plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_000_32_without_a_gradient_the_inference_form_is_used():
    tool = Native_()
    f = annotated()
    caller = te.function(lambda logits, labels: f(logits, labels) * 1.0)
    asked = []
    with te.register_replacement(NAME, "cpu", lambda site: asked.append(site) or inference, pair=tool.pair):
        np.testing.assert_allclose(caller(LOGITS, LABELS), reference(LOGITS, LABELS)[0], rtol=1e-5)
    assert tool.forwards == 0 and len(asked) == 1 and asked[0].wanted == ()
    (listed,) = te.list_composites(caller.graph(LOGITS, LABELS))
    assert listed.role == "" and len(listed.outputs) == 1


def exps(step):
    return sum(str(function.program).count("exp(") for function in step.functions)


def test_000_33_softmax_cross_entropy_replaced_by_a_fused_pair_computes_the_softmax_once():
    with te.register_replacement(NAME, "cpu", pair=lambda site: (fused_forward, fused_backward)):
        step = step_of(annotated())
        agrees(step(LOGITS, LABELS))
        compiled = step.compiled(LOGITS, LABELS)
        assert len(compiled.functions) == 1
        assert exps(compiled) == 1
        assert str(compiled.functions[0].program).count("max(") == 1
        alone = te.function(lambda logits, labels: annotated()(logits, labels)).compiled(LOGITS, LABELS)
        assert compiled.kernels <= alone.kernels + 1


def test_000_34_a_replaced_backward_alone_is_right():
    calls = []

    def backward(site):
        def run(inputs, outputs, heads, saved):
            calls.append((len(inputs), len(outputs), len(heads), saved))
            return (reference(*inputs)[1] * heads[0]).astype(np.float32)

        return run

    with te.register_replacement(NAME, "cpu", backward=backward):
        agrees(step_of(annotated())(LOGITS, LABELS))
    assert set(calls) == {(2, 1, 1, ())}
    with (
        te.register_replacement(NAME, "cpu", backward=lambda site: lambda *a: np.zeros(3)),
        pytest.raises(te.ReplacementError, match=r"expected a replacement that gives f32\[5, 7\], got f64\[3\]"),
    ):
        step_of(annotated())(LOGITS, LABELS)


def test_000_34_a_backward_alone_is_used_in_branches_and_loops():
    square = te.function(lambda x: x * x, implements="org.math.square")

    @te.function
    def step(x, flag):
        y = te.cond(flag, lambda: square(x), lambda: x * 3.0)
        _, y = te.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, square(a) * 0.5), (np.int64(0), y))
        return te.gradients(y, x, head=np.ones(4, np.float32))

    x = np.arange(4, dtype=np.float32)
    plain = [step(x, flag) for flag in (True, False)]
    calls = []

    def backward(inputs, outputs, heads, saved):
        calls.append(len(inputs) + len(outputs) + len(heads) + len(saved))
        return 2 * inputs[0] * heads[0]

    traced = te.op(lambda inputs, outputs, heads, saved: te.compute((4,), lambda i: 2 * inputs[0][i] * heads[0][i]))
    for tool, check in ((backward, False), (backward, True), (traced, False), (traced, True)):
        with te.register_replacement("org.math.square", "cpu", backward=lambda site, tool=tool: tool, check=check):
            for flag, wanted in zip((True, False), plain, strict=True):
                calls.clear()
                np.testing.assert_allclose(step(x, flag), wanted, rtol=1e-6)
                step(x, flag)
                assert tool is traced or (len(calls) >= 2 * (2 + flag) and set(calls) == {3})


@pytest.mark.parametrize("check", [False, True])
def test_passes_written_as_ops_may_save_nothing_and_lack_heads(check):
    two = te.function(lambda x: (x * x, x * 3.0), implements="org.math.two")

    @te.function
    def step(x):
        first, second = two(x)
        return second, te.gradients(first, x, head=np.ones(4, np.float32))

    @te.op
    def forward(x):
        return (te.compute((4,), lambda i: x[i] * x[i]), te.compute((4,), lambda i: x[i] * 3.0)), ()

    @te.op
    def backward(inputs, outputs, heads, saved):
        assert heads[1] is None and saved == ()
        return te.compute((4,), lambda i: 2 * inputs[0][i] * heads[0][i])

    x = np.arange(4, dtype=np.float32)
    for tool in ({"pair": lambda site: (forward, backward)}, {"backward": lambda site: backward}):
        with te.register_replacement("org.math.two", "cpu", check=check, **tool):
            np.testing.assert_allclose(step(x)[1], 2 * x)


def test_000_35_a_backward_replacement_is_told_which_inputs_need_a_gradient():
    f = te.function(lambda a, b, c: a * b + c, implements="org.math.fma")
    sites = []

    def backward(site):
        sites.append(site.wanted)
        return lambda inputs, outputs, heads, saved: tuple(
            {0: inputs[1] * heads[0], 1: inputs[0] * heads[0], 2: heads[0]}[k] for k in site.wanted
        )

    x = np.arange(4, dtype=np.float32)
    with te.register_replacement("org.math.fma", "cpu", backward=backward):

        @te.function
        def step(a, b, c):
            y = f(a, b, c)
            return te.gradients(y, [b], head=np.ones(4, np.float32)) + te.gradients(y, [c, a], head=np.full(4, 2, np.float32))

        b_bar, c_bar, a_bar = step(x, x + 1, x)
    assert sites == [(1,), (0, 2)]
    assert b_bar.tolist() == x.tolist() and c_bar.tolist() == [2] * 4 and a_bar.tolist() == (2 * (x + 1)).tolist()


def test_000_36_the_second_derivative_through_a_composite_is_right_and_through_a_tool_too():
    cube = te.function(lambda x: x * x * x, implements="org.math.cube")

    @te.function
    def second(x):
        y = cube(x)
        first = te.gradients(y, x, head=np.ones(4, np.float32))
        return first, te.gradients(first, x, head=np.ones(4, np.float32))

    x = np.arange(4, dtype=np.float32)
    for run in (second, second.strict):
        first, twice = run(x)
        np.testing.assert_allclose(first, 3 * x**2)
        np.testing.assert_allclose(twice, 6 * x)
    # What a tool computes forward is not what is differentiated twice: that is the body.
    with te.register_replacement("org.math.cube", "cpu", lambda site: lambda x: x**3):
        first, twice = second(x)
        np.testing.assert_allclose(twice, 6 * x)


def test_000_37_two_functions_of_one_name_have_each_its_own_backward():
    a = te.function(lambda x: x * x, implements=NAME)
    b = te.function(lambda x: x * x * x, implements=NAME)

    @te.function
    def step(x):
        return te.gradients(a(x) + b(x) * 2.0, x, head=np.ones(4, np.float32))

    x = np.arange(4, dtype=np.float32)
    np.testing.assert_allclose(step(x), 2 * x + 6 * x * x)
    np.testing.assert_allclose(step.strict(x), 2 * x + 6 * x * x)


def test_000_38_an_unreplaced_composite_costs_nothing_once_compiled():
    f, plain = step_of(annotated()), step_of(te.function(body))
    ours, theirs = f.compiled(LOGITS, LABELS), plain.compiled(LOGITS, LABELS)
    assert [str(a.program) for a in ours.functions] == [str(b.program) for b in theirs.functions]
    assert len(ours.plan.instructions) == len(theirs.plan.instructions)
    # And as without any function: one program, in which the body is written out.
    bare = step_of(body).compiled(LOGITS, LABELS)
    assert [(a.cost, len(a.nest.kernels)) for a in ours.functions] == [(b.cost, len(b.nest.kernels)) for b in bare.functions]


def test_gradients_of_a_pair_are_compared_with_the_body_in_checking_mode():
    with (
        te.register_replacement(NAME, "cpu", backward=lambda site: lambda *a: np.zeros((5, 7), np.float32), check=True),
        pytest.raises(te.ReplacementError, match=r"softmax_cross_entropy\.backward: expected output 0 at \(0, 0\) to be"),
    ):
        step_of(annotated())(LOGITS, LABELS)
    tool = Native_()
    for pair in (tool.pair, lambda site: (fused_forward, fused_backward)):
        with te.register_replacement(NAME, "cpu", pair=pair, check=True):
            agrees(step_of(annotated())(LOGITS, LABELS))
    wrong = lambda *a: (tool.backward(*a)[0] + 1,)  # noqa: E731
    with (
        te.register_replacement(NAME, "cpu", pair=lambda site: (tool.forward, wrong), check=True),
        pytest.raises(te.ReplacementError, match=r"softmax_cross_entropy\.backward: expected output 0 at \(0, 0\) to be"),
    ):
        step_of(annotated())(LOGITS, LABELS)


def test_gradients_say_what_they_expect():
    x = np.arange(4, dtype=np.float32)
    with pytest.raises(te.DifferentiationError, match=r"te\.gradients: expected to be called in a te\.function"):
        te.gradients(x, x)
    for wrong, message in (
        (lambda x: te.gradients(x, x), r"expected a head for a loss that is no scalar, got none for f32\[4\]"),
        (lambda x: te.gradients(x, x, head=np.ones(2, np.float32)), r"expected a head of f32\[4\], got f32\[2\]"),
        (lambda x: te.gradients(x, [3], head=x), "expected to differentiate by floating tensors and variables, got 3"),
        (lambda x: te.gradients([x], x, head=[x, x]), "expected 1 heads, one for each loss, got 2"),
        (lambda x: te.gradients(x < 1.0, x), r"expected a floating loss, got bool\[4\]"),
    ):
        with pytest.raises(te.DifferentiationError, match=message):
            te.function(wrong).graph(x)


def test_gradients_through_calls_branches_and_loops_agree_with_differences():
    w = te.Variable(np.array([0.5, -1.5, 2.0, 0.25]), name="w")
    layer = te.function(lambda x: te.compute((4,), lambda i: te.tanh(x[i] * w[i])))

    def loss(x):
        y = layer(x)
        y = te.cond(te.compute((), lambda: te.sum(lambda i: x[i], 4) > 0), lambda: layer(y) * w, lambda: y * y)
        _, z = te.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, layer(a) + a * 0.5), (np.int64(0), y))
        return te.compute((), lambda: te.sum(lambda i: z[i] * z[i], 4))

    @te.function
    def step(x):
        value = loss(x)
        return value, *te.gradients(value, [x, w])

    start = w.value
    for x in (np.array([0.3, -0.2, 0.5, 1.0]), np.array([0.3, -0.2, -0.5, -1.0])):
        value, x_bar, w_bar = step(x)
        for a, b in zip(step.strict(x), (value, x_bar, w_bar), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        direction = RNG.normal(size=4)
        slopes = []
        for s in (1e-6, -1e-6):
            w.assign(start + s * direction)
            slopes.append(float(step(x + s * direction)[0]))
        w.assign(start)
        assert abs((slopes[0] - slopes[1]) / 2e-6 - float(((x_bar + w_bar) * direction).sum())) < 1e-7


def test_a_loop_has_one_derivative_and_says_so():
    @te.function
    def f(x):
        _, y = te.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * a), (np.int64(0), x))
        first = te.gradients(y, x)
        return te.gradients(first, x)

    with pytest.raises(te.DifferentiationError, match="expected one derivative of a loop, got a second one, of while_backward"):
        f.graph(np.float32(1.5))


def test_the_lowered_step_is_one_region():
    step = step_of(annotated())
    assert all(isinstance(n, Compute) for n in lowered_graph(step.graph(LOGITS, LABELS)).nodes)
    assert len(step.compiled(LOGITS, LABELS).functions) == 1


def test_second_derivatives_through_branches_are_right():
    @te.function
    def f(flag, x):
        y = te.cond(flag, lambda: x * x * x, lambda: x * x)
        first = te.gradients(y, x, head=np.ones(4, np.float32))
        return first, te.gradients(first * x, x, head=np.ones(4, np.float32))

    x = np.arange(4, dtype=np.float32)
    for run in (f, f.strict):
        first, second = run(np.True_, x)
        np.testing.assert_allclose(first, 3 * x**2)
        np.testing.assert_allclose(second, 9 * x**2)
        first, second = run(np.False_, x)
        np.testing.assert_allclose(first, 2 * x)
        np.testing.assert_allclose(second, 4 * x)


def test_gradients_through_a_function_that_was_loaded(tmp_path):
    w = te.Variable(np.float32(2), name="w")
    f = annotated()

    @te.function
    def scaled(logits, labels):
        z = te.cond(te.compute((), lambda: logits[0, 0] < 100.0), lambda: logits * w, lambda: logits)
        _, z = te.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * w), (np.int64(0), z))
        return f(z, labels)

    te.save_function(tmp_path / "f.safetensors", scaled, LOGITS, LABELS)
    loaded = te.load_function(tmp_path / "f.safetensors")

    def step_through(function, variable):
        @te.function
        def step(logits, labels):
            loss = function(logits, labels)
            return loss, *te.gradients(loss, [logits, variable])

        return step

    own, other = step_through(scaled, w), step_through(loaded, loaded.variables["w"])
    for a, b in zip(own(LOGITS, LABELS), other(LOGITS, LABELS), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    tool = Native_()
    with te.register_replacement(NAME, "cpu", pair=tool.pair):
        other(LOGITS, LABELS)
    assert tool.forwards > 0 and tool.backwards == [(2, 1, 1, "what the tool likes")]
    # A differentiated step is a function like any other: it can be saved, with its passes.
    te.save_function(tmp_path / "step.safetensors", own, LOGITS, LABELS)
    again = te.load_function(tmp_path / "step.safetensors")
    for a, b in zip(own(LOGITS, LABELS), again(LOGITS, LABELS), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert [(one.name, one.role) for one in te.list_composites(again.graph)] == [(NAME, "forward"), (NAME, "backward")]


def test_an_assignment_passes_no_derivative_on():
    w = te.Variable(np.float32(3), name="w")

    @te.function
    def f(x):
        before = w * 2.0
        w.assign(x * 10.0)
        loss = before + w * w
        return te.gradients(loss, [x, w])

    for run in (f, f.strict):
        w.assign(3.0)
        x_bar, w_bar = run(np.float32(1))
        assert x_bar == 0 and w_bar == 2 + 2 * 10
