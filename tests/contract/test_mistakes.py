"""Ninety mistakes as users make them: each is an error of ours that says what was expected, what came, where, and what to do."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import interop, kernels

A, B = te.placeholder((4, 6), name="A"), te.placeholder((6, 5), name="B")
V, S, IDS = te.placeholder((6,), name="v"), te.placeholder((), name="s"), te.placeholder((4,), "int64", name="ids")
N = te.dim("n")
OPEN = te.placeholder((N, 6), name="O")
a = np.ones((4, 6), np.float32)
C = te.compute((4, 6), lambda i, j: A[i, j] * 2, name="C")
R = te.compute((4,), lambda i: te.sum(lambda j: A[i, j], 6), name="R")
M = te.compute((4, 5), lambda i, j: te.sum(lambda k: A[i, k] * B[k, j], 6), name="M")
HEAD = te.placeholder((4,), name="h")


@te.op
def twice(x):
    return te.compute(x.shape, lambda i, j: x[i, j] * 2)


@te.op
def squares(x):
    return te.compute((), lambda: te.sum(lambda i, j: x[i, j] ** 2, x.shape))


@te.op
def product(x, y):
    return te.compute((x.shape[0], y.shape[1]), lambda i, j: te.sum(lambda k: x[i, k] * y[k, j], x.shape[1]))


def each(body):
    return te.compute((4, 6), body)


def op(body, *arrays):
    return te.op(body)(*arrays)


def loops(name="M"):
    return te.schedule(M)[name]


DEFINITIONS = {
    "a shape in two": (lambda: te.compute(4, 6, lambda i, j: A[i, j]), "a shape is one argument, a tuple"),
    "a tensor for a body": (lambda: te.compute((4, 6), A), "write lambda i, j"),
    "one index at a time": (lambda: each(lambda i, j: A[i][j]), "indexed at all its axes at once: A[i, j]"),
    "nothing returned": (lambda: each(lambda i, j: None), "a function body needs a return"),
    "a float extent": (lambda: te.compute((4.0, 6), lambda i, j: A[i, j]), "n // 2 divides to an integer"),
    "a negative extent": (lambda: te.compute((4, -1), lambda i, j: A[i, 0]), "te.maximum(n - 2, 0)"),
    "a Python if": (lambda: each(lambda i, j: A[i, j] if j > 2 else 0), "write te.where(condition, a, b)"),
    "a Python and": (lambda: each(lambda i, j: A[i, j] and 1), "& | ~ for and, or, not"),
    "a chained comparison": (lambda: each(lambda i, j: 0 < A[i, j] < 1), "(a <= i) & (i < b)"),
    "a divided index": (lambda: each(lambda i, j: A[i, j / 2]), "i // 2 divides to an integer"),
    "an index from the end": (lambda: each(lambda i, j: A[i, -1]), "the last one is A.shape[1] - 1"),
    "a slice": (lambda: each(lambda i, j: A[i, :]), "te.compute((m,), lambda i: x[i + start]) makes a slice"),
    "an ellipsis": (lambda: each(lambda i, j: A[..., j]), "one element at a time"),
    "an index in quotes": (lambda: each(lambda i, j: A["i", j]), "an index is a number, a parameter of the body"),
    "Python's sum": (lambda: each(lambda i, j: sum(A[i, k] for k in range(j))), "te.sum(lambda k: ..., n)"),
    "float()": (lambda: each(lambda i, j: float(A[i, j])), 'te.cast(x, "float32")'),
    "NumPy's sum": (lambda: each(lambda i, j: np.sum(A[i, j])), "te.sum(lambda k: A[k], n) reduces a tensor"),
    "no extent": (lambda: te.compute((4,), lambda i: te.sum(lambda k: A[i, k])), "for instance te.sum(lambda j: A[i, j], 3)"),
    "a generator": (lambda: te.compute((4,), lambda i: te.sum(A[i, k] for k in range(6))), "a function of one index for each extent"),
    "a range as extent": (lambda: te.compute((4,), lambda i: te.sum(lambda k: A[i, k], range(6))), "loops begin at 0: 6"),
    "a range that begins": (lambda: te.compute((4,), lambda i: te.sum(lambda k: A[i, k], range(1, 6))), "loops go from 0 in steps of 1"),
    "one too far": (lambda: te.compute((4,), lambda i: te.sum(lambda k: A[i, k], 7)), "outside=0"),
    "an extent too many": (lambda: te.compute((4,), lambda i: te.sum(lambda k: A[i, k], (2, 3))), "one index per axis"),
    "a number as condition": (lambda: each(lambda i, j: te.where(A[i, j], 1.0, 0.0)), "compare with something: x != 0"),
    "no alternative": (lambda: each(lambda i, j: te.where(A[i, j] > 0, A[i, j])), "for instance te.where("),
    "a text": (lambda: each(lambda i, j: A[i, j] + "1"), "scalars are Python and NumPy numbers"),
    "a whole tensor": (lambda: each(lambda i, j: A[i, j] + V), "write one with an index"),
    "a tensor without axes": (lambda: each(lambda i, j: S * A[i, j]), "s[()]"),
    "a float as place": (lambda: each(lambda i, j: A[IDS[i] + 0.5, j]), 'te.cast(x, "int64")'),
    "another border": (lambda: each(lambda i, j: A.read(i - 1, j, outside="edge")), "did you mean clamp?"),
    "another keyword": (lambda: each(lambda i, j: A.read(i - 1, j, mode="clamp")), "did you mean outside?"),
    "a dtype": (lambda: te.compute((4, 6), lambda i, j: A[i, j], dtype="float16"), "te.cast(value, dtype) in the body"),
    "a name with a blank": (lambda: te.compute((4, 6), lambda i, j: A[i, j], name="my result"), "letters, digits and underscores"),
    "an assignment": (lambda: A.__setitem__((0, 0), 0), "te.compute defines all elements of a new tensor"),
    "a loop over rows": (lambda: list(C), "loops over indices are reductions"),
    "a size too open": (lambda: te.compute((N,), lambda i: A[i, 0]), "te.where(condition, A[i, 0], 0)"),
    "a shape of a placeholder in two": (lambda: te.placeholder(4, 6, name="X"), "te.placeholder: expected a dtype behind the shape, got 6"),
    "not of a float": (lambda: each(lambda i, j: ~A[i, j]), "te.cast gives another dtype"),
    "a scan from a number": (lambda: te.scan(lambda t, s: s, 0, 5), "a recurrence needs a base"),
    "state before step": (
        lambda: te.scan(lambda s, t: te.compute((6,), lambda j: s[j] + A[t, j]), te.compute((6,), lambda j: V[j]), 4),
        "s is a scalar, which has no elements; te.scan calls its body with the step, then the state",
    ),
    "another combiner": (lambda: te.scatter((6,), lambda i, j: (IDS[i], A[i, j]), (4, 6), combine="add"), "did you mean sum?"),
    "ragged rows": (lambda: te.constant([[1, 2], [3]]), "one array without gaps, and an array of where each begins"),
    "another fact": (lambda: te.dim("n", minimum=1), "did you mean min?"),
}

CALLS = {
    "one array too many": (lambda: twice(a, a), "several tensors for x are one argument, a tuple"),
    "no array": (lambda: twice(), "twice: expected 1 tensor argument (x), got 0"),
    "another rank": (lambda: twice(np.ones(4, np.float32)), "one index per axis of the shape"),
    "a list": (lambda: twice([[1.0, 2.0]]), "np.asarray(x) makes an array"),
    "complex numbers": (lambda: twice(a.astype(complex)), "a pair of floats"),
    "texts": (lambda: twice(np.array([["a"]])), "use one of bool, int8"),
    "shapes that do not fit": (lambda: product(a, a), "expected an index in range(4) on axis 0, got k from 0 to 5"),
    "no result": (lambda: op(lambda x: None, a), "return what te.compute, te.scatter or te.scan gives"),
    "a method of arrays": (lambda: op(lambda x: x.sum(), a), "tensorexpr.kernels.sum takes whole tensors"),
    "NumPy on a tensor": (lambda: op(lambda x: np.exp(x), a), "te.exp(x[i, j])"),
    "arithmetic on a tensor": (lambda: op(lambda x: 2 * x, a), "says it for each element"),
    "a size as argument": (lambda: op(lambda x, k: te.compute((k,), lambda i: x[i, 0]), a, 3), "a static argument of an op, behind *"),
    "an array read": (lambda: op(lambda x: te.compute(x.shape, lambda i, j: x[i, j] * a[i, j]), a), "a = te.constant(a)"),
    "out with tensors": (lambda: twice(A, out=a), "out is for calls on arrays"),
    "out of another shape": (lambda: twice(a, out=np.ones((4, 5), np.float32)), "np.empty((4, 6), 'float32') fits"),
    "out of another dtype": (lambda: twice(a, out=np.ones((4, 6))), "np.empty((4, 6), 'float32') fits"),
    "another parameter": (lambda: twice(y=a), "twice: expected arrays for x, got one for y"),
    "a kernel misspelt": (lambda: kernels.softmx(a), "did you mean softmax?"),
    "an axis too many": (lambda: kernels.softmax(a, axis=2), "softmax: expected an axis of x between -2 and 1, got 2"),
    "tensors to join": (lambda: kernels.concatenate(a, a), "several tensors for tensors are one argument, a tuple"),
    "no function": (lambda: te.op(5), "@te.op stands above the def"),
    "a name of another library": (lambda: interop.as_torch, "from tensorexpr.interop.torch import as_torch"),
}

DERIVATIVES = {
    "no head": (lambda: te.gradient(C, A), "head=te.placeholder(C.shape, 'float32', name='C_bar')"),
    "an array for a head": (lambda: te.gradient(R, A, np.ones(4)), "head=te.placeholder(R.shape"),
    "a head of another dtype": (
        lambda: te.gradient(R, A, te.placeholder((4,), "float64", name="h")),
        "expected the head of R to be f32[4]",
    ),
    "a name for a tensor": (lambda: te.gradient(R, "A", HEAD), "te.vjp and te.grad on ops"),
    "another lowering": (lambda: te.gradient(R, A, HEAD, lowering="atomic"), "did you mean atomics?"),
    "a pullback without head": (lambda: te.vjp(twice)(a), "te.grad needs none for a scalar loss"),
    "a gradient of a matrix": (lambda: te.grad(twice)(a), "te.vjp takes a head"),
    "a gradient of integers": (lambda: te.grad(squares)(a.astype(np.int32)), "integers have no derivatives"),
    "another input": (lambda: te.vjp(twice, wrt="y")(a, a), "wrt: expected one of x, or a position, got y"),
    "JAX's keyword": (lambda: te.grad(squares, argnums=0), "did you mean wrt?"),
    "no tangent": (lambda: te.jvp(twice)(a), "jvp(twice)(x, x_tangent)"),
    "nowhere to check": (lambda: te.check_gradient(twice), "te.check_gradient: expected arrays to differentiate at, got none"),
}

SCHEDULES = {
    "another definition": (lambda: loops("N"), "definitions: M"),
    "no factor": (lambda: loops().split("i"), "split: expected a value for factor, got none"),
    "a factor of nothing": (lambda: loops().split("i", 0), "the number of iterations of the inner loop"),
    "another tail": (lambda: loops().split("i", 2, tail="pad"), "peel, a loop of its own, is the default"),
    "British spelling": (lambda: loops().vectorise("j"), "did you mean vectorize?"),
    "a sum in parallel": (lambda: loops().parallel("k"), "rfactor gives its iterations results of their own"),
    "a loop that is not there": (lambda: loops().reorder("i", "z"), "loops: i, j, k"),
    "loops apart": (lambda: loops().fuse("i", "k"), "reorder first"),
    "in itself": (lambda: loops().compute_at("M", "i"), "the program has no other"),
    "no reduction": (lambda: loops().rfactor("i"), "loops that do: k"),
    "another buffer": (lambda: loops().cache("Z", "i"), "it touches A, B, M"),
    "an input": (lambda: te.schedule(M)[A], "A is an input, which no loops compute"),
    "an op": (lambda: te.schedule(twice), "op.compile(*specs) is the function"),
}

BUILDS = {
    "an input missing": (lambda: te.build(M, [A]), "the inputs given are A"),
    "inputs apart": (lambda: te.build(C, A, B), "the inputs of te.build are one list"),
    "another target": (lambda: te.build(C, [A], target="gpu"), "did you mean cuda?"),
    "a number of threads": (lambda: te.build(C, [A], threads=2), "TENSOREXPR_NUM_THREADS"),
    "an input twice": (lambda: te.build(C, [A, A]), "a function takes an array once"),
    "a name as input": (lambda: te.build(C, ["A"]), "the tensors themselves, not their names"),
    "another dtype": (lambda: te.build(C, [A])(a.astype(float)), "A.astype('float32')"),
    "a keyword": (lambda: te.build(C, [A])(A=a), "expected arrays by position (A) and out"),
    "another stage": (lambda: te.build(C, [A]).source("ptx"), "te.build(..., target='cuda') has it"),
    "another size": (lambda: te.build(te.compute((N,), lambda i: OPEN[i, 0]), [OPEN]).at(m=3), "by name: n=100"),
    "no values": (lambda: te.evaluate(C), "give it as {A: array}"),
    "a name misspelt": (lambda: te.biuld(C), "did you mean build?"),
    "a kernel without its rank": (lambda: kernels.conv, "did you mean conv1d or conv2d or conv3d?"),
    "no module": (lambda: te.summary(twice), "expected a module, for its variables by path, got an Op"),
    "a function by position": (lambda: te.export(twice, "there"), "te.export: expected functions by name, got one by position"),
}

ELSEWHERE = {
    "a class that functions make": (lambda: te.Schedule(C), "te.schedule(C) makes the schedule of tensors"),
    "a tensor of a shape": (lambda: te.Tensor((4, 6)), "te.placeholder is an input"),
    "an op by its class": (lambda: te.Op(lambda x: x), "@te.op above the def"),
    "arrays to compile": (lambda: te.compile(a), "an op takes arrays as they are"),
    "arrays as inputs": (lambda: te.build(C, [a]), "an op takes arrays as they are"),
    "a schedule as a keyword": (lambda: te.build(C, [A], schedule="fast"), "a schedule has its tensors: te.build(s)"),
    "a keyword misspelt for one of others": (lambda: te.build(C, [A], thread=2), "TENSOREXPR_NUM_THREADS=1"),
    "a name before the shape": (lambda: te.placeholder("X", (4, 6)), 'the name of a tensor is given by name="X"'),
    "a name with a blank as extent": (lambda: te.placeholder(("n m", 6)), "extents are integers, sizes te.dim(...)"),
    "the gradient of an op as a method": (lambda: squares.backward(), "te.vjp(op) is the op that gives its gradients"),
    "a schedule of an op": (lambda: squares.shedule, "te.schedule(op(x, w)) of placeholders"),
    "a method misspelt": (lambda: te.build(C, [A]).profle(a), "did you mean profile?"),
    "the gradient of what is compiled": (lambda: te.build(C, [A]).grad(a), "te.vjp(op), or te.gradient(C, [A]) of tensors"),
    "the gradient of a function": (lambda: te.function(lambda x: x).grad, "te.gradients(loss, variables) inside of it"),
    "an attribute of gradients": (lambda: te.gradient(R, [A], HEAD).reprt(), "did you mean report?"),
    "modulo by name": (lambda: each(lambda i, j: te.mod(A[i, j], 2)), "a % b, of scalars"),
    "NumPy's name of a function": (lambda: each(lambda i, j: te.arcsinh(A[i, j])), "did you mean asinh?"),
    "an axis of TVM": (lambda: te.reduce_axis((0, 6)), "a reduction has indices of its own"),
    "a size of TVM": (lambda: te.size_var("n"), 'te.dim("n") is a size'),
    "optimizers": (lambda: te.optim, "from tensorexpr.graph import optimizers"),
    "a part of a name": (lambda: te.make_schedule, "did you mean schedule?"),
    "a generator to sum": (lambda: te.sum(A[0, k] for k in range(6)), "takes a function of one index for each extent"),
    "an array in place of a dict": (lambda: te.evaluate(C, a), "te.evaluate(C, {A: a, B: b})"),
    "operations by another name": (lambda: te.build(C, [A]).cost.flops, "f.cost.operations counts them"),
    "counts of a prediction": (lambda: te.schedule(C).cost.flops, "f.cost.operations and f.cost.bytes"),
    "an argument that is none": (lambda: te.vjp(product, wrt="z"), None),
    "an axis that is none": (lambda: A.shape[2], None),
    "an array in place of an output": (lambda: te.jacobian(a, [A]), "call it once for each output"),
}

EVERY = DEFINITIONS | CALLS | DERIVATIVES | SCHEDULES | BUILDS | ELSEWHERE


@pytest.mark.parametrize("name", EVERY)
def test_an_error_says_what_to_do(name):
    use, told = EVERY[name]
    with pytest.raises(te.TensorExprError) as caught:
        use()
    text = str(caught.value)
    assert re.match(r"([\w.()]+: )*(\S+: )?(expected|.*: expected) ", text) and ", got " in text
    assert told is None or told in text
    assert caught.value.location is not None and caught.value.location.file == __file__


def test_there_are_ninety():
    assert len(EVERY) >= 90


def test_a_class_that_functions_make_refuses_calls():
    with pytest.raises(te.CallError, match=r"te\.Schedule: expected an object that a function made, got a call of its class"):
        te.Schedule(C)


def test_messages_show_large_values_by_their_kind():
    for use in (lambda: te.evaluate(C, a), lambda: te.jacobian(a, [A]), lambda: te.compile(a)):
        with pytest.raises(te.TensorExprError, match=r"got an array of shape \(4, 6\)"):
            use()
