"""What users read when they ask for a gradient that does not exist."""

import numpy as np
import pytest

import tensorexpr as te

X = te.placeholder((3,), "float64", name="x")
Y = te.compute((3,), lambda i: X[i] * 2.0, name="y")
H = te.placeholder((3,), "float64", name="H")
N = te.compute((3,), lambda i: te.cast(X[i], "int64"), name="n")
HERE = __file__


def message(call, *arguments, **options) -> list[str]:
    with pytest.raises(te.DifferentiationError) as caught:
        call(*arguments, **options)
    return str(caught.value).splitlines()


def test_a_head_is_missing():
    lines = message(te.gradient, Y, [X])
    assert lines[0] == "expected a head for the output y, which is no scalar, got none"
    assert lines[1].startswith("  in:   y: f64[3] (") and HERE in lines[1]
    assert lines[2] == (
        "  hint: head=te.placeholder(y.shape, 'float64', name='y_bar'), or differentiate a scalar; te.jacobian gives all derivatives"
    )


def test_a_head_does_not_fit():
    wrong = te.placeholder((4,), "float64", name="wrong")
    assert message(te.gradient, Y, [X], head=wrong)[0] == "expected the head of y to be f64[3], got f64[4]"
    single = te.placeholder((3,), "float32", name="single")
    assert message(te.gradient, Y, [X], head=single)[0] == "expected the head of y to be f64[3], got f32[3]"
    assert message(te.gradient, Y, [X], head=[H, H])[0] == "expected one head per output, got 2 for 1"
    assert message(te.gradient, Y, [X], head=1.0)[0] == "expected the head of y to be a tensor f64[3], got 1.0"


def test_integers_have_no_gradient():
    lines = message(te.gradient, N, [X], head=H)
    assert lines[0] == "expected output to be floating, got n of dtype int64"
    assert lines[1].startswith("  in:   n: i64[3] (") and HERE in lines[1]
    ids = te.placeholder((3,), "int32", name="ids")
    lines = message(te.gradient, Y, [ids], head=H)
    assert lines[0] == "expected wrt to be floating, got ids of dtype int32"
    assert lines[2] == '  hint: only floating tensors have gradients: te.cast(..., "float32"), or leave ids out'


def test_what_is_no_tensor():
    assert message(te.gradient, Y, ["x"], head=H)[0] == "expected wrt to be a tensor or a list of tensors, got 'x'"
    assert message(te.gradient, Y, [], head=H)[0] == "expected wrt to be a tensor or a list of tensors, got nothing"
    assert message(te.gradient, Y[0], [X])[0].startswith("expected output to be a tensor or a list of tensors, got ")
    lines = message(te.gradient, Y, [X, np.zeros(3)], head=H)
    assert lines[0] == "expected wrt to be a tensor or a list of tensors, got an array of shape (3,)"
    assert lines[1].startswith("  in:   (") and HERE in lines[1]
    large = np.zeros((100, 3))
    assert message(te.gradient, Y, large, head=H)[0] == "expected wrt to be a tensor or a list of tensors, got an array of shape (100, 3)"
    assert message(te.gradient, Y, X, head=large)[0] == "expected the head of y to be a tensor f64[3], got an array of shape (100, 3)"
    assert message(te.jvp, Y, X, large)[0] == "expected the tangent of x to be f64[3], got an array of shape (100, 3)"
    assert message(te.gradient, "Y", X)[0] == "expected output to be a tensor or a list of tensors, got 'Y'"


def test_unknown_tensors():
    other = te.placeholder((3,), "float64", name="other")
    gradient = te.gradient(Y, [X], head=H)
    assert message(lambda: gradient.adjoints[other])[0] == "expected a tensor of the graph that was differentiated, got 'other'"
    assert message(lambda: gradient.contributions[other])[0] == "expected a tensor of the graph that was differentiated, got 'other'"
    lines = message(lambda: gradient.contributions[X][other])
    assert lines[0] == "expected a consumer of x (y), got 'other'" and lines[1].startswith("  in:   x: f64[3] (")
    assert lines[2] == "  hint: gradient.contributions[x] has the tensors that read it, on the way from the outputs"
    assert message(lambda: gradient.contributions[X]["y"])[0] == "expected a consumer of x (y), got 'y'"
    assert message(lambda: gradient.contributions[Y][X])[0] == "expected a consumer of y (none), got 'x'"


def test_adjoints_and_contributions_are_mappings():
    other = te.placeholder((3,), "float64", name="other")
    gradient = te.gradient(Y, [X], head=H)
    assert gradient.adjoints.get(other) is None and gradient.contributions.get(other, 3) == 3
    assert other not in gradient.contributions and X in gradient.contributions
    parts = gradient.contributions[X]
    assert Y in parts and other not in parts and parts.get(other) is None and list(parts) == [Y] and len(parts) == 1
    assert parts.get(Y).shape == X.shape


def test_overrides_that_do_not_fit():
    z = te.compute((3,), lambda i: X[i] + 1.0, name="z")

    def rule(*results):
        return lambda output, inputs, head: list(results)

    assert message(te.gradient, Y, [X], head=H, override={z: rule(X)})[0] == (
        "expected override= for tensors of the graph, got z, which the outputs do not depend on"
    )
    assert message(te.gradient, Y, [X], head=H, override={X: rule()})[0] == "expected override= for computed tensors, got x, which is given"
    inside = []
    states = te.scan(lambda t, s: inside.append(te.compute((3,), lambda i: s[i] + 1.0, name="q")) or inside[0], X, 2, name="s")
    lines = message(te.gradient, states, [X], head=te.placeholder((2, 3), X.dtype), override={inside[0]: rule(X)})
    assert lines[0] == "expected override= for tensors of their own, got q, which belongs to the body of a scan"
    assert lines[2] == "  hint: an op has its rule inside of scans, too: te.op(gradient=rule); or override what te.scan returns"
    lines = message(te.gradient, Y, [X], head=H, override={Y: ([X, z], rule(X, X))})
    assert lines[0] == "expected the inputs of the rule of y to be tensors that it is computed from, got z"
    assert (
        lines[1].startswith("  in:   z: f64[3] (") and lines[2] == "  hint: what y does not depend on receives nothing from it: leave z out"
    )
    assert message(te.gradient, Y, [X], head=H, override=3)[0] == "expected override= to map tensors to rules, got 3"
    assert message(te.gradient, Y, [X], head=H, override={Y: 3})[0] == (
        "expected override= to map tensors to rules, got y[i]: f64[3] = x[i] * 2.0: 3"
    )
    lines = message(te.gradient, Y, [X], head=H, override={Y: rule(H, H)})
    assert lines[0] == "expected the rule of y to give 1 gradients, got 2"
    assert lines[2] == "  hint: one for each of x; None where nothing flows"
    wide = te.placeholder((4,), "float64", name="wide")
    assert message(te.gradient, Y, [X], head=H, override={Y: rule(wide)})[0] == "expected the rule of y to give f64[3] for x, got f64[4]"
    assert message(te.gradient, Y, [X], head=H, override={Y: rule(1.0)})[0] == "expected the rule of y to give f64[3] for x, got 1.0"


def test_inputs_of_an_override_that_come_later():
    later = te.compute((3,), lambda i: Y[i] + 1.0, name="later")
    lines = message(te.gradient, later, [X], head=H, override={Y: ([later], lambda output, inputs, head: [head])})
    assert lines[0] == "expected the inputs of the rule of y to come before it, got later, which depends on it"
    assert lines[1].startswith("  in:   later: f64[3] (") and HERE in lines[1]
    assert lines[2] == "  hint: override={y: (inputs, rule)} makes all between the inputs and y one unit"


def test_tensors_in_the_body_of_a_scan():
    inner = []

    def body(t, s):
        inner.append(s)
        return te.compute((3,), lambda i: s[i] * X[i])

    states = te.scan(body, X, 2)
    last = te.compute((), lambda: states[1, 0])
    for what, use in (("wrt", (last, inner)), ("output", (inner[0], [X]))):
        lines = message(te.gradient, *use)
        assert lines[0] == f"expected {what} to be a tensor of its own, got s, which belongs to the body of a scan"
        assert lines[1].startswith("  in:   s: f64[3] (") and HERE in lines[1]
        assert lines[2] == "  hint: only what te.scan returns leaves its body: make it one of the states"
    assert message(te.jvp, last, inner, [X])[0].startswith("expected wrt to be a tensor of its own, got s")
    assert message(te.jacobian, last, inner[0])[0].startswith("expected wrt to be a tensor of its own, got s")


def test_an_unknown_lowering():
    assert message(te.gradient, Y, [X], head=H, lowering="scatter")[0] == (
        "te.gradient: expected lowering= to be None, 'segments' or 'atomics', got 'scatter'"
    )


def test_tangents_that_do_not_fit():
    assert message(te.jvp, Y, [X], [H, H])[0] == "expected one tangent per tensor of wrt, got 2 for 1"
    wide = te.placeholder((4,), "float64", name="wide")
    lines = message(te.jvp, Y, [X], [wide])
    assert lines[0] == "expected the tangent of x to be f64[3], got f64[4]"
    assert lines[2] == "  hint: te.placeholder(x.shape, 'float64', name='x_dot')"


def test_a_jacobian_of_one_output():
    assert message(te.jacobian, [Y], X)[0].startswith("te.jacobian: expected one output tensor, got ")


def test_a_fold_over_axes_that_nothing_limits():
    lengths = te.placeholder((3,), "int64", name="lengths")
    ragged = te.compute(
        (3,),
        lambda i: te.reduce(lambda a, b: a + b + a * b, 0.0, lambda k: te.where(k < 3, X[te.minimum(k, 2)], 0.0), lengths[i]),
        name="ragged",
    )
    lines = message(te.gradient, ragged, [X], head=H)
    assert lines[0] == ("expected the axes of a reduction by 'reduce' to have a bound known beforehand, got one that depends on data alone")
    assert lines[1].startswith("  in:   ragged (") and HERE in lines[1]
    assert lines[2] == (
        "  hint: its steps are stored, so their number must have a limit: read a tensor at every point, or te.minimum(extent, limit)"
    )


def test_a_scatter_over_an_axis_that_nothing_limits():
    lengths = te.placeholder((3,), "int64", name="lengths")
    highest = te.scatter((3,), lambda i, k: (i, X[te.clip(k, 0, 2)]), (3, lengths[0]), combine="max", name="highest")
    lines = message(te.gradient, highest, [X], head=H)
    assert lines[0] == "expected the axes of a scatter by max to have a bound known beforehand, got one that depends on data alone"
    assert lines[1].startswith("  in:   highest (") and HERE in lines[1]
    assert lines[2] == (
        "  hint: its points are numbered, so their number must have a limit: read a tensor at every point, or te.minimum(extent, limit)"
    )


def test_a_computed_tensor_that_the_output_does_not_know() -> None:
    x, unused, head = (te.placeholder((3,), "float64", name=n) for n in ("x", "unused", "head"))
    known = te.compute((3,), lambda i: x[i] * 2.0, name="known")
    stranger = te.compute((3,), lambda i: x[i] * 5.0, name="stranger")
    y = te.compute((3,), lambda i: known[i] * 3.0, name="y")
    with pytest.raises(te.DifferentiationError) as caught:
        te.gradient(y, [x, stranger], head)
    text = str(caught.value)
    assert "expected wrt to be inputs or tensors that the output is computed from, got stranger, which it does not know" in text
    assert "in:   stranger: f64[3]" in text and "test_messages.py" in text
    assert "hint: compute the output from stranger; a tensor that is made again from the same text is another one" in text
    first = te.gradient(y, [known, unused], head)
    again = te.gradient(first[0], [known, unused], head)  # of a linear function: zeros, for it was derived from them
    assert not any(te.evaluate(g, {head: np.ones(3)}).any() for g in again)
