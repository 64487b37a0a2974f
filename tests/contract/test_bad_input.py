"""Bad input as a stranger gives it: every mistake is a `TensorExprError` with the user's line, and nothing else escapes."""

import contextlib

import numpy as np
import pytest

import tensorexpr as te
from tests.contract.running import both

A = te.placeholder((4, 5), "float64", name="A")
I = te.placeholder((4,), "int32", name="I")
C = te.compute((4,), lambda i: A[i, 0], name="C")
N = te.dim("n")
ZERO = te.compute((3,), lambda j: 0.0)


class Strange:
    """An object of the user's that has nothing to do here."""


def junk():
    """Values of every kind, most of them wrong wherever they are put."""
    return [
        None, "x", "", b"b", 1.5, float("nan"), float("inf"), -1, 0, 3, 10**30, 10**400, 2**63, -(2**63) - 1, True, 3 + 4j, [], (), {},
        set(), [1, [2]], [None], ("a", "b"), [N, 3], {1: 2}, range(3), slice(0, 1), ..., object(), Strange(), int, lambda: 1,
        lambda x: x, lambda *a: None, iter([1]), (x for x in range(3)), np.zeros(3), np.zeros(()), np.array(["a"]),
        np.array([1.5, None]), np.float32(1.5), np.int64(3), np.bool_(True), np.complex64(1), np.datetime64("2020-01-01"), A, I, N,
    ]  # fmt: skip


@te.op
def square(x):
    return te.compute(x.shape, lambda *i: x[i] * x[i])


@te.op
def total(x, *, p=2):
    return te.compute((), lambda: te.sum(lambda i: x[i] ** p, 4))


X = np.ones(4)
USES = {
    "placeholder shape": te.placeholder,
    "placeholder extent": lambda j: te.placeholder((3, j)),
    "placeholder dtype": lambda j: te.placeholder((3,), j),
    "placeholder name": lambda j: te.placeholder((3,), name=j),
    "constant": te.constant,
    "dim": te.dim,
    "compute shape": lambda j: te.compute(j, lambda *i: 1.0),
    "compute extent": lambda j: te.compute((j,), lambda i: 1.0),
    "compute body": lambda j: te.compute((3,), j),
    "compute result": lambda j: te.compute((3,), lambda i: j),
    "compute results": lambda j: te.compute((3,), lambda i: (j, 1.0)),
    "compute name": lambda j: te.compute((3,), lambda i: 1.0, name=j),
    "sum body": lambda j: te.compute((3,), lambda i: te.sum(j, 4)),
    "max result": lambda j: te.compute((3,), lambda i: te.max(lambda k: j, 4)),
    "argmax extent": lambda j: te.compute((3,), lambda i: te.argmax(lambda k: A[i, 0], j)),
    "prod extents": lambda j: te.compute((3,), lambda i: te.prod(lambda k: A[i, 0], (j,))),
    "any where": lambda j: te.compute((3,), lambda i: te.any(lambda k: A[i, 0], 4, where=j)),
    "min where": lambda j: te.compute((3,), lambda i: te.min(lambda k: A[i, 0], 4, where=lambda k: j)),
    "reduce combine": lambda j: te.compute((3,), lambda i: te.reduce(j, 0.0, lambda k: A[i, k], 4)),
    "reduce combined": lambda j: te.compute((3,), lambda i: te.reduce(lambda a, b: j, 0.0, lambda k: A[i, k], 4)),
    "reduce identity": lambda j: te.compute((3,), lambda i: te.reduce(lambda a, b: a + b, j, lambda k: A[i, k], 4)),
    "reduce body": lambda j: te.compute((3,), lambda i: te.reduce(lambda a, b: a + b, 0.0, lambda k: j, 4)),
    "index": lambda j: te.compute((3,), lambda i: A[j, i]),
    "only index": lambda j: te.compute((3,), lambda i: A[j]),
    "read index": lambda j: te.compute((3,), lambda i: A.read(j, i, outside=0.0)),
    "outside": lambda j: te.compute((3,), lambda i: A.read(i, i - 1, outside=j)),
    "plus": lambda j: te.compute((3,), lambda i: A[i, 0] + j),
    "reflected minus": lambda j: te.compute((3,), lambda i: j - A[i, 0]),
    "index plus": lambda j: te.compute((3,), lambda i: i + j),
    "power": lambda j: te.compute((3,), lambda i: A[i, 0] ** j),
    "divided": lambda j: te.compute((3,), lambda i: I[i] // j),
    "and": lambda j: te.compute((3,), lambda i: I[i] & j),
    "less": lambda j: te.compute((3,), lambda i: A[i, 0] < j),
    "equal": lambda j: te.compute((3,), lambda i: A[i, 0] == j),
    "size plus": lambda j: N + j,
    "exp": te.exp,
    "maximum": lambda j: te.compute((3,), lambda i: te.maximum(A[i, 0], j)),
    "where condition": lambda j: te.compute((3,), lambda i: te.where(j, 1.0, 2.0)),
    "where branch": lambda j: te.compute((3,), lambda i: te.where(i > 0, j, 2.0)),
    "clip": lambda j: te.compute((3,), lambda i: te.clip(A[i, 0], j, 1.0)),
    "cast value": lambda j: te.compute((3,), lambda i: te.cast(j, "float32")),
    "cast dtype": lambda j: te.compute((3,), lambda i: te.cast(A[i, 0], j)),
    "scatter shape": lambda j: te.scatter(j, lambda i: (i, 1.0), 3),
    "scatter body": lambda j: te.scatter((3,), j, 3),
    "scatter result": lambda j: te.scatter((3,), lambda i: j, 3),
    "scatter place": lambda j: te.scatter((3,), lambda i: (j, 1.0), 3),
    "scatter value": lambda j: te.scatter((3,), lambda i: (i, j), 3),
    "scatter extents": lambda j: te.scatter((3,), lambda i: (0, 1.0), j),
    "scatter combine": lambda j: te.scatter((3,), lambda i: (i, 1.0), 3, combine=j),
    "scan state": lambda j: te.scan(lambda t, s: j, ZERO, 3),
    "scan init": lambda j: te.scan(lambda t, s: s, j, 3),
    "scan length": lambda j: te.scan(lambda t, s: te.compute((3,), lambda i: s[i]), ZERO, j),
    "evaluate output": lambda j: te.evaluate(j, {A: np.ones((4, 5))}),
    "evaluate arrays": lambda j: te.evaluate(C, j),
    "evaluate array": lambda j: te.evaluate(C, {A: j}),
    "evaluate sizes": lambda j: te.evaluate(C, {A: np.ones((4, 5))}, sizes=j),
    "evaluate size": lambda j: te.evaluate(C, {A: np.ones((4, 5))}, sizes={"n": j}),
    "build outputs": lambda j: te.build(j, [A]),
    "build output": lambda j: te.build([j], [A]),
    "build inputs": lambda j: te.build(C, j),
    "build input": lambda j: te.build(C, [A, j]),
    "build target": lambda j: te.build(C, [A], j),
    "schedule": te.schedule,
    "autoschedule": te.autoschedule,
    "gradient output": lambda j: te.gradient(j, A),
    "gradient wrt": lambda j: te.gradient(C, j, C),
    "gradient head": lambda j: te.gradient(C, A, j),
    "gradient heads": lambda j: te.gradient([C], [A], [j]),
    "gradient override": lambda j: te.gradient(C, A, C, override=j),
    "gradient rule": lambda j: te.gradient(C, A, C, override={C: (j, lambda o, i, h: [])}),
    "gradient override of one": lambda j: te.gradient(C, A, C, override={C: j}),
    "gradient of rule": lambda j: te.gradient(C, A, C, override={C: lambda o, i, h: j}),
    "gradient lowering": lambda j: te.gradient(C, A, C, lowering=j),
    "adjoints": lambda j: te.gradient(C, A, C).adjoints[j],
    "contributions": lambda j: te.gradient(C, A, C).contributions[j],
    "jvp output": lambda j: te.jvp(j, A, A),
    "jvp wrt": lambda j: te.jvp(C, j, A),
    "jvp tangents": lambda j: te.jvp(C, A, j),
    "jacobian output": lambda j: te.jacobian(j, A),
    "jacobian wrt": lambda j: te.jacobian(C, j),
    "op function": te.op,
    "op gradient": lambda j: te.op(gradient=j)(lambda x: te.compute((4,), lambda i: x[i])),
    "dynamic": lambda j: square.trace(((4,), "float32"), dynamic=j),
    "dynamic axes": lambda j: square.trace(((4,), "float32"), dynamic={"x": j}),
    "op static": lambda j: total(X, p=j),
    "op out": lambda j: square(X, out=j),
    "vjp": te.vjp,
    "vjp head": lambda j: te.vjp(square)(X, j),
    "grad wrt": lambda j: te.grad(total, wrt=j)(X),
    "jvp tangent": lambda j: te.jvp(square)(X, j),
    "trace": lambda j: square.trace((j, "float32")),
    "trace dtype": lambda j: te.placeholder((4,), j),
    "compile target": lambda j: square.compile(((4,), "float32"), target=j),
}


@pytest.mark.parametrize("use", USES)
def test_nothing_but_our_errors_escapes(use):
    for value in junk():
        try:
            USES[use](value)
        except te.TensorExprError as error:
            text = str(error)
            assert not isinstance(error, te.InternalError), (value, text)
            assert "expected" in text and len(text.splitlines()) <= 4 and __file__ in text, (value, text)
        except Exception as error:
            raise AssertionError(f"{use}({value!r}) gave {type(error).__name__}: {error}") from error


def refused(error, text, use):
    """Checks the class and the message of what `use` raises, and that the user's line stands in it."""
    with pytest.raises(error) as caught:
        use()
    assert text in str(caught.value) and __file__ in str(caught.value)


def test_numpy_scalars_are_numbers():
    n = np.int64(4)
    P = te.placeholder((n,), "float32", name="P")
    D = te.compute((n,), lambda i: te.sum(lambda k: P[k] * np.float32(2), np.int32(4)) + P[np.int64(1)], name="D")
    assert P.shape == (4,) and D.dtype == "float32"
    np.testing.assert_allclose(both(D, {P: np.arange(4, dtype="f4")}), 13.0)


def test_names():
    for name in ("for", "None", "inf", "nan", "", "x y", "1a", "a-b", "a.b", "a\n", '"', "x²", 3):
        refused(te.DefinitionError, "expected a name that is a Python identifier", lambda: te.placeholder((3,), name=name))  # noqa: B023
        refused(te.DefinitionError, "expected a name that is a Python identifier", lambda: te.dim(name))  # noqa: B023
    for name in (
        "sum",
        "where",
        "range",
        "input",
        "return_",
        "i",
        "main",
        "kernel_0",
        "D_sum",
        "f32",
        "é",
        "Ω",
        "µ",
        "match",
        "_",
        "A" * 300,
    ):
        P = te.placeholder((4,), "float64", name=name)
        D = te.compute((4,), lambda i: te.sum(lambda k: P[k], i + 1), name="D")  # noqa: B023
        program = te.program_of([D])
        assert te.parse_program(str(program)) == program
        np.testing.assert_array_equal(te.build(D, [P])(np.ones(4)), [1, 2, 3, 4])


def test_a_name_used_twice():
    P, Q = te.placeholder((4,), name="P"), te.placeholder((4,), name="P")
    D = te.compute((4,), lambda i: P[i] + Q[i], name="D")
    for use in (
        lambda: te.build(D, [P, Q]),
        lambda: te.program_of([D]),
        lambda: te.evaluate(D, {P: np.ones(4, "f4"), Q: np.ones(4, "f4")}),
    ):
        refused(te.DefinitionError, "expected a name for each input of a program, got P twice", use)
    same = [te.compute((4,), lambda i, k=k: P[i] * k, name="Q") for k in (1, 2)]
    one, two = both(same, {P: np.ones(4, "f4")})
    assert one[0] == 1 and two[0] == 2


def test_recursion_without_a_base():
    def fibonacci(i):
        return te.where(i < 2, 1, fibonacci(i - 1) + fibonacci(i - 2))

    refused(te.DefinitionError, "got one that calls itself without a base", lambda: te.compute((4,), fibonacci))
    refused(te.DefinitionError, "te.scan", lambda: te.compute((4,), lambda i: F[i - 1], name="F"))  # noqa: F821


def test_the_cases_of_the_issue():
    P = te.placeholder((4,), "float64", name="P")
    D = te.compute((4,), lambda i: P[i] * 2, name="D")
    head = te.placeholder((5,), "float64", name="H")
    cases = (
        (te.DefinitionError, "P: expected 1 index, one per axis, got 2", lambda: te.compute((4,), lambda i: P[i, i])),
        (te.DefinitionError, "expected extents that are not negative, got -1", lambda: te.placeholder((-1,))),
        (te.DefinitionError, "expected a dtype of the language, got 'complex64'", lambda: te.placeholder((3,), "complex64")),
        (
            te.DefinitionError,
            "expected an index in range(4) on axis 0, got i + 1 from 1 to 4",
            lambda: te.compute((4,), lambda i: P[i + 1]),
        ),
        (te.DefinitionError, "got a reduction over nothing", lambda: te.compute((), lambda: te.max(lambda k: P[k], 0))),
        (
            te.DefinitionError,
            "got a reduction over nothing",
            lambda: te.compute((), lambda: te.argmin(lambda k: P[k], 4, where=lambda k: k > 9)),
        ),
        (te.DefinitionError, "expected a function of 1 index, got one of 2 parameters", lambda: te.compute((4,), lambda i, j: 1.0)),
        (te.DefinitionError, "expected the body to return a scalar, got None", lambda: te.compute((4,), lambda i: None)),
        (te.DefinitionError, "expected an integer index, got a float64", lambda: te.compute((4,), lambda i: P[i / 1])),
        (te.DefinitionError, "expected an integer index, got a bool", lambda: te.compute((4,), lambda i: P[i > 0])),
        (te.DefinitionError, "expected an integer index, got a bool", lambda: te.compute((4,), lambda i: P[True])),
        (te.DefinitionError, "expected a function of the language, got numpy.exp", lambda: te.compute((4,), lambda i: np.exp(P[i]))),
        (te.DefinitionError, "expected scalars, got the tensor P of 1 axis", lambda: np.sum(P)),
        (te.DefinitionError, "+: expected scalars, got the tensor P of 1 axis", lambda: P + 1),
        (te.DefinitionError, "expected the next s to have shape", lambda: te.scan(lambda t, s: te.compute((5,), lambda j: 1.0), ZERO, 3)),
        (te.DefinitionError, "expected the next s to be float64", lambda: te.scan(lambda t, s: te.compute((3,), lambda j: 1), ZERO, 3)),
        (te.DefinitionError, "expected an index in range(3)", lambda: te.scatter((3,), lambda i: (i, 1.0), 5)),
        (te.DefinitionError, "te.parse_program: expected the text of a program, got NoneType", lambda: te.parse_program(None)),
        (te.DifferentiationError, "expected the head of D to be f64[4], got f64[5]", lambda: te.gradient(D, P, head)),
        (te.DifferentiationError, "expected a head for the output D, which is no scalar", lambda: te.gradient(D, P)),
        (te.DifferentiationError, "expected wrt to be floating", lambda: te.gradient(D, I, D)),
        (te.DifferentiationError, "expected one floating scalar output", lambda: te.grad(square)(np.ones(3))),
        (te.ArgumentError, "expected extent 4, got 5", lambda: te.build(D, [P])(np.ones(5))),
        (te.ArgumentError, "expected dtype float64, got float32", lambda: te.build(D, [P])(np.ones(4, "f4"))),
    )
    for error, text, use in cases:
        refused(error, text, use)


def test_indices_states_and_steps_that_escape():
    P = te.placeholder((4,), "float64", name="P")
    kept = []
    with contextlib.suppress(te.DefinitionError):
        te.compute((4,), lambda i: kept.append(i) or 1.0)
        te.compute((4,), lambda i: te.sum(lambda k: kept.append(k) or P[k], 4))
        te.scan(lambda t, s: kept.append(t) or te.compute((3,), lambda j: s[j]), ZERO, 3)
    assert len(kept) == 3
    for escaped in kept:
        refused(te.DefinitionError, "expected indices of this definition", lambda: te.compute((4,), lambda j: P[j] * escaped))  # noqa: B023
    te.scan(lambda t, s: kept.append(s) or te.compute((3,), lambda j: s[j]), ZERO, 3)
    refused(te.DefinitionError, "which belongs to the body of a scan", lambda: te.compute((3,), lambda j: kept[-1][j]))


def test_long_sums_and_long_chains():
    P = te.placeholder((4,), "float64", name="P")

    def unrolled(terms):
        return te.compute((4,), lambda i: sum((P[i] * k for k in range(terms)), 0.0))

    for terms in (60, 1000):  # what is too deep for one expression is taken apart
        np.testing.assert_array_equal(both(unrolled(terms), {P: np.arange(4.0)}), np.arange(4.0) * sum(range(terms)))
    stage = P
    for _ in range(2000):
        stage = te.compute((4,), lambda i, x=stage: x[i] + 1.0)
    np.testing.assert_array_equal(te.evaluate(stage, {P: np.ones(4)}), 2001)


def test_gradients_of_long_chains():
    P = te.placeholder((4,), "float64", name="P")
    stage = P
    for _ in range(300):
        stage = te.compute((4,), lambda i, x=stage: te.sin(x[i]))
    gradient = te.gradient(te.compute((), lambda: te.sum(lambda i: stage[i], 4)), P)[0]
    x, product = np.full(4, 0.5), np.ones(4)
    for _ in range(300):
        product, x = product * np.cos(x), np.sin(x)
    np.testing.assert_allclose(te.build(gradient, [P])(np.full(4, 0.5)), product)
