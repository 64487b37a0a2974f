"""Habits of NumPy, PyTorch and JAX: what users read who write them, and that what the hints name exists."""

import math

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.errors import ArgumentError, CallError, DefinitionError, ScheduleError, UnknownNameError
from tensorexpr.language.core import habits
from tests.messages import said

A = te.placeholder((4, 5), name="A")
B = te.placeholder((5, 3), name="B")
X = te.placeholder((6,), name="x")
S = te.placeholder((), name="s")
IDS = te.placeholder((6,), "int32", name="ids")
W, WEIGHTS, TABLE = np.arange(6.0), [1.0, 2.0, 3.0], {0: 1.0}


def body(f):
    """The lines of the error of a definition of six elements, or of one for each element of `A` where `f` takes two indices."""
    return said(DefinitionError, lambda: te.compute((6,) if f.__code__.co_argcount == 1 else (4, 5), f))


def place(lines):
    """What stands before the location in the line of the term."""
    return next(line for line in lines if line.startswith("  in: ")).removeprefix("  in:   ").rpartition(" (")[0]


@pytest.mark.parametrize(
    ("definition", "term", "hint"),
    [
        (lambda i: W[i] * X[i], "W[i]", "make it a tensor: W = te.constant(W), then W[i]"),
        (lambda i: WEIGHTS[i] * X[i], "WEIGHTS[i]", "make it a tensor: WEIGHTS = te.constant(WEIGHTS), then WEIGHTS[i]"),
        (lambda i: (1.0, 2.0)[i + 1], "(1.0, 2.0)[i + 1]", "make it a tensor: c = te.constant((1.0, 2.0)), then c[i + 1]"),
        (lambda i, j: np.ones((4, 5))[i, j], "np.ones((4, 5))[i, j]", "make it a tensor: c = te.constant(np.ones((4, 5))), then c[i, j]"),
    ],
)
def test_arrays_and_lists_indexed_by_a_loop_index(definition, term, hint):
    lines = body(definition)
    assert place(lines) == term and lines[-1] == f"  hint: {hint}"
    assert lines[0].endswith(", got an expression of the language, which has no value until it runs")


def test_a_dict_looked_up_by_a_loop_index():
    lines = body(lambda i: TABLE[i] * X[i])
    assert lines[0] == "expected a tensor where something is looked up by an index, got a dict: no key i"
    assert lines[-1] == "  hint: a table that is read as it runs is a tensor: te.constant(array)"
    with pytest.raises(KeyError, match="'own'"):
        te.compute((6,), lambda i: {}["own"])


def test_an_op_called_undecorated():
    def scaled(a, b):
        return te.compute(a.shape, lambda i: a[i] * b[i])

    lines = said(DefinitionError, lambda: scaled(W, W))
    assert place(lines) == "a[i]"
    assert lines[-1] == "  hint: a is an argument of scaled: decorate scaled with @te.op to call it on arrays (a table is te.constant(a))"
    np.testing.assert_array_equal(te.op(scaled)(W, W), W * W)


@pytest.mark.parametrize(
    ("definition", "term", "hint"),
    [
        (lambda i: max(X[i], 0), "max(X[i], 0)", "te.maximum(a, b) is the greater of two scalars, te.max(lambda k: A[k], n) the greatest"),
        (lambda i: min(X[i], 1.0), "min(X[i], 1.0)", "te.minimum(a, b) is the lesser of two scalars"),
        (lambda i: any(X[k] > 0 for k in range(6)), "any((X[k] > 0 for k in range(6)))", "te.any(lambda k: A[k] > 0, n) says whether one"),
        (lambda i: sum(X[k] for k in range(i)), "range(i)", "loops over indices are reductions: te.sum(lambda k: ..., n)"),
        (lambda i: math.exp(X[i]), "math.exp(X[i])", "te.exp takes scalars of the language"),
        (lambda i: math.pow(X[i], 2), "math.pow(X[i], 2)", "here it is te.power"),
        (lambda i: np.float32(X[i]), "np.float32(X[i])", "scalars are computed with operators and the functions of te"),
        (lambda i: X[i] if X[i] > 0 else 0.0, "x[i] > 0.0", "write te.where(condition, a, b) for a choice, & | ~ for and, or, not"),
        (lambda i: te.where(X[i] > 0 and X[i] < 1, 1.0, 0.0), "x[i] > 0.0", "write te.where(condition, a, b) for a choice"),
        (lambda i: X[int(X[i])], "x[i]", "te.cast(x, dtype) converts within the language"),
        (lambda i: np.exp(X[i]), "x[i]", "te.exp takes scalars of the language"),
        (lambda i: round(X[i], 2), "x[i]", "te.round(x * 100) / 100 keeps two digits"),
    ],
)
def test_python_and_numpy_on_scalars(definition, term, hint):
    lines = body(definition)
    assert place(lines) == term and lines[-1].startswith(f"  hint: {hint}")


def test_functions_of_numpy_that_make_arrays_of_scalars():
    lines = body(lambda i: np.where(X[i] > 0, X[i], 0))
    assert lines[0] == "numpy.where: expected arrays, got the scalar x[i] > 0.0, which has no value until it runs"
    assert lines[-1] == "  hint: te.where takes scalars of the language"
    assert body(lambda i: np.max(X[i]))[-1] == "  hint: a scalar is one element; te.max(lambda k: A[k], n) reduces a tensor"
    assert body(lambda i: f"{X[i]:.3f}")[0] == (
        "expected a number to write as '.3f', got an expression of the language, which has no value until it runs"
    )


@pytest.mark.parametrize(
    ("use", "hint"),
    [
        (lambda: A @ B, "tensorexpr.kernels.matmul takes whole tensors; with indices, te.compute says it element by element"),
        (
            lambda: A + 1,
            "te.compute(A.shape, lambda i, j: A[i, j] + ...) says it for each element; tensorexpr.kernels has functions of whole",
        ),
        (lambda: np.exp(A), "te.compute(A.shape, lambda i, j: te.exp(A[i, j])) says it for each element"),
        (lambda: np.ones(4) + S, "te.compute(s.shape, lambda: ...) says it for each element"),
        (lambda: np.mean(A), "tensorexpr.kernels.mean takes whole tensors"),
        (lambda: len(A), "the extent of the first axis is A.shape[0]"),
        (lambda: len(S), "it has no axes"),
        (lambda: list(A), "loops over indices are reductions: te.sum(lambda k: ..., n); extents are in A.shape"),
        (lambda: 3 in X, "te.any(lambda i: x[i] == value, x.shape) says whether one is there"),
        (lambda: A[1:3], "a tensor is read one element at a time; te.compute((m,), lambda i: x[i + start]) makes a slice"),
        (lambda: A[...], "a tensor is read one element at a time; te.compute((m,), lambda i: x[i + start]) makes a slice"),
        (lambda: A[0][1], "a tensor is indexed at all its axes at once: A[i, j]"),
        (lambda: X[[0, 1]], "indices that are data are read one by one, too: ids = te.constant(...), and x[ids[t]]"),
        (lambda: X[IDS], "indices that are data are read one by one, too: ids = te.constant(...), and x[ids[t]]"),
        (lambda: X[0.5], 'i // 2 divides to an integer; te.cast(x, "int64") makes one'),
        (lambda: te.sum(A), "te.sum(lambda i, j: A[i, j], A.shape) is that of all elements; tensorexpr.kernels.sum takes whole tensors"),
        (lambda: te.max(A, axis=0), "te.max(lambda i, j: A[i, j], A.shape) is that of all elements"),
        (lambda: te.sum(6, lambda k: X[k]), "te.sum(lambda k: A[k], n) takes a function of one index for each extent"),
        (lambda: te.compute(lambda i: X[i], (6,)), "the shape comes before the body: te.compute(shape, lambda i, j: ...)"),
        (lambda: te.compute(lambda i: X[i]), "the shape comes before the body: te.compute(shape, lambda i, j: ...)"),
        (lambda: te.compute((6 / 2,), lambda i: X[i]), "n // 2 divides to an integer"),
        (lambda: te.compute((A, 3), lambda i, j: 0.0), "the extents of a tensor are A.shape"),
        (lambda: te.compute((4, 5), lambda i, j: A[-1, j]), "indices count from 0 and do not wrap around: the last one is A.shape[0] - 1"),
    ],
)
def test_whole_tensors(use, hint):
    assert said(DefinitionError, use)[-1].startswith(f"  hint: {hint}")


def test_what_whole_tensors_say_first():
    lines = said(DefinitionError, lambda: np.mean(A))
    assert lines[0] == "numpy.mean: expected scalars, got the tensor A of 2 axes"
    assert said(DefinitionError, lambda: 3 in X)[0] == "expected something to look into, got the tensor x"
    assert said(DefinitionError, lambda: te.sum(A))[0] == "te.sum: expected a function of indices to reduce, got the tensor A"
    assert said(DefinitionError, lambda: X[IDS])[0] == "axis 0 of x: expected an integer index, got the tensor ids"
    assert said(DefinitionError, lambda: X["i"])[0] == "axis 0 of x: expected an integer index, got a str"
    assert np.shape(A) == (4, 5) and np.ndim(A) == 2


@pytest.mark.parametrize(
    ("use", "hint"),
    [
        (lambda: A.T, "te.compute((A.shape[1], A.shape[0]), lambda i, j: A[j, i]) is the transpose; tensorexpr.kernels.transpose takes"),
        (lambda: A.sum(), "te.sum(lambda i, j: A[i, j], A.shape) is that of all elements; tensorexpr.kernels.sum takes whole tensors"),
        (lambda: S.max(), "te.max(lambda: s[()], s.shape) is that of all elements"),
        (lambda: A.mean(), "tensorexpr.kernels.mean takes whole tensors"),
        (lambda: A.reshape(20), "tensorexpr.kernels.reshape takes whole tensors"),
        (lambda: A.exp(), "te.compute(A.shape, lambda i, j: te.exp(A[i, j]))"),
        (lambda: A.astype("int32"), "te.compute(A.shape, lambda i, j: te.cast(A[i, j], dtype))"),
        (lambda: A.numpy(), "a tensor has no elements until it runs: te.evaluate or a compiled function gives arrays"),
        (lambda: A.size, "A.shape has the extents, A.ndim their number"),
        (lambda: A.at, "tensors are never written: te.compute defines all elements of a new one, te.scatter sends values to places"),
        (lambda: A.shpe, "did you mean shape? the tensor A has shape, dtype, ndim, name, read"),
        (lambda: A[0, 0].exp(), "te.exp(A[0, 0])"),
        (lambda: A[0, 0].astype("int32"), "te.cast(A[0, 0], dtype)"),
        (lambda: A[0, 0].item(), "a scalar has no value until it runs: te.evaluate or a compiled function gives arrays of tensors"),
        (lambda: A[0, 0].sum(), "a scalar is one element of a tensor; te.sum(lambda k: A[k], n) and its kin reduce"),
        (lambda: A[0, 0].dtyp, "did you mean dtype?"),
    ],
)
def test_attributes_of_other_libraries(use, hint):
    assert said(UnknownNameError, use)[-1].startswith(f"  hint: {hint}")


def test_attributes_inside_of_ops_say_the_same():
    @te.op
    def transposed(a):
        return a.T

    lines = said(UnknownNameError, lambda: transposed(np.ones((2, 3))))
    assert lines[0] == "expected an attribute of the tensor a, got T"
    assert not hasattr(A, "T") and getattr(A, "shpe", None) is None and not hasattr(A[0, 0], "_repr_html_")


def test_keywords_of_other_libraries():
    lines = said(CallError, lambda: te.sum(lambda k: X[k], axis=6))
    assert lines[0] == "te.sum: expected keywords among body, extents, where, got axis"
    assert lines[-1].startswith("  hint: a reduction has an extent for each index of its body: te.compute((n,), lambda i: te.sum(")
    lines = said(CallError, lambda: te.compute((6,), lambda i: X[i], dtype="float32"))
    assert lines[-1] == "  hint: te.cast(value, dtype) in the body chooses a dtype"
    assert said(CallError, lambda: X.read(0, mode="clamp"))[-1] == "  hint: did you mean outside?"
    assert said(CallError, lambda: X.read(0))[0] == "read: expected a value for outside, got none"


def test_what_the_hints_name_exists():
    assert all(hasattr(te, name) for name in (*habits.FUNCTIONS, *habits.REDUCTIONS))
    assert all(name == "/" or hasattr(te, name) for name in habits.SPELLED.values())
    assert [name for name in habits.KERNELS.values() if name not in kernels.__all__] == []


def test_kernels_know_their_names():
    lines = said(UnknownNameError, lambda: kernels.sofmax)
    assert lines[0] == "expected an attribute of tensorexpr.kernels, got sofmax" and "  hint: did you mean softmax?" in lines
    assert not hasattr(kernels, "nothing") and not hasattr(kernels, "_nothing")


def test_functions_of_torch_on_what_is_being_defined():
    torch = pytest.importorskip("torch")
    lines = body(lambda i, j: torch.exp(A[i, j]))
    assert lines[0] == "expected a function of the language, got torch.exp" and lines[-1] == "  hint: te.exp takes scalars of the language"
    lines = said(DefinitionError, lambda: torch.matmul(A, B))
    assert lines[-1] == "  hint: tensorexpr.kernels.matmul takes whole tensors, te.compute says it by element"


@pytest.mark.parametrize(
    ("wrong", "error", "message", "hint"),
    [
        (
            lambda: te.compute((6,), lambda i: X[i] @ X[i]),
            DefinitionError,
            "expected a tensor to multiply by @",
            "te.sum(lambda k: A[i, k]",
        ),
        (
            lambda: te.compute((6,), lambda i: te.cast("int32", X[i])),
            DefinitionError,
            "te.cast: expected a dtype behind the scalar, got x[i]",
            "te.cast(x[i], 'int32')",
        ),
        (
            lambda: float(A),
            DefinitionError,
            "expected a Python number, got the tensor A, which has no elements until it runs",
            "te.evaluate or a compiled function",
        ),
        (lambda: te.scan(lambda s: s, X, 5), DefinitionError, "te.scan: expected a function of the step", "lambda t, state: ..."),
        (lambda: te.reduce(lambda x: x, 0, lambda k: X[k], 6), DefinitionError, "te.reduce, combine: expected", "lambda x, y: ..."),
        (lambda: te.scatter((4,), lambda k: (k, 1), 4, combine="mean"), DefinitionError, "te.scatter: expected combine", "a mean is a sum"),
        (
            lambda: te.schedule(kernels.relu.trace(A)),
            DefinitionError,
            "te.schedule: expected a te tensor or a list of them, got the Program",
            "an op that is called with placeholders gives tensors",
        ),
        (lambda: te.evaluate(A, A=W), CallError, "te.evaluate: expected keywords", "for instance te.evaluate(total, {A:"),
        (lambda: te.schedule(te.compute((6,), lambda i: X[i]))[3], ScheduleError, "expected a tensor or the name", "definitions: t"),
        (
            lambda: te.intrinsic("wrong", 3, ""),
            ScheduleError,
            "intrinsic wrong: expected a tensor or a program, got an int",
            "what the instruction means",
        ),
        (
            lambda: kernels.cross_entropy(np.ones((4, 6)), np.ones(4)),
            ArgumentError,
            "cross_entropy: expected probab",
            "one of labels has int",
        ),
        (
            lambda: te.schedule(te.compute((6,), lambda i: X[i])).cost.at(thread=2),
            ArgumentError,
            "cost: expected an open size among none, got thread",
            "threads?",
        ),
    ],
)
def test_what_was_expected_and_what_to_do(wrong, error, message, hint):
    lines = said(error, wrong)
    assert lines[0].startswith(message) and hint in lines[-1]


def test_dtypes_of_torch_are_named():
    torch = pytest.importorskip("torch")
    assert said(DefinitionError, lambda: te.placeholder((3,), torch.float64))[-1].startswith("  hint: did you mean float64?")


def test_loops_are_given_one_by_one_and_tensors_as_they_are():
    C = te.compute((4, 3), lambda i, j: te.sum(lambda k: A[i, k] * B[k, j], 5), name="C")
    s = te.schedule(C)
    lines = said(ScheduleError, lambda: s[C].reorder(["k", "j"]))
    assert lines[0] == "expected loops one by one, got ['k', 'j']" and lines[-1] == "  hint: without the brackets: 'k', 'j'"
    assert "reorder('j', 'i')" in said(ScheduleError, lambda: s[C].reorder("k"))[-1]
    wanted = "expected the arguments of the rewrite split(loop, factor, tail, names), got 1: missing a required argument: 'factor'"
    assert said(ScheduleError, lambda: s.rewrite("split", "i"))[0] == wanted
    s[C].cache(A, "i")
    assert s.as_python().strip() == "s['C'].cache('A', 'i')"
