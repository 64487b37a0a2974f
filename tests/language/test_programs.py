"""Programs from graphs and back: names, order, inputs, copies of outputs, `lift`, `evaluate`."""

import time

import numpy as np
import pytest

from tensorexpr import language as te
from tensorexpr.errors import ArgumentError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.text import print_program
from tensorexpr.verify import verify
from tests.language.messages import refused
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of

A = te.placeholder((3,), name="A")


def text(*outputs, inputs=None):
    program = te.program_of(list(outputs), inputs)
    verify(program)
    return print_program(program)


def test_names_are_pretty_and_unique():
    c = te.constant([1.0, 2.0, 3.0])
    first = te.compute(3, lambda i: A[i] + te.cast(c[i], "float32"))
    second = te.compute(3, lambda i: first[i] * 2.0, name="C")
    third = te.compute(3, lambda i: first[i] + second[i], name="C")
    assert text(third) == (
        "A: f32[3] = input()\n"
        "c0: f64[3] = constant([1.0, 2.0, 3.0])\n"
        "t0[i]: f32[3] = A[i] + f32(c0[i])\n"
        "C[i]: f32[3] = t0[i] * 2.0\n"
        "C_1[i]: f32[3] = t0[i] + C[i]\n"
        "return C_1"
    )
    names = te.names_of([third])
    assert names[third.key] == "C_1" and names[A.key] == "A"


def test_a_name_used_twice():
    other = te.placeholder((3,), name="A")
    both = te.compute(3, lambda i: A[i] + other[i])
    message = refused(lambda: te.program_of([both]))
    assert "expected a name for each input of a program, got A twice" in message and __file__ in message
    assert "also the name of an input" in message and "give te.placeholder another name=" in message


def test_an_input_that_has_the_name_of_a_size_is_numbered():
    n = te.dim("A")
    sized, first = te.placeholder((n,), name="B"), te.placeholder((3,), name="A_1")
    assert text(te.compute(n, lambda i: sized[i] + A[0] + first[0], name="C")).splitlines() == [
        "sizes(A)", "B: f32[A] = input()", "A_2: f32[3] = input()", "A_1: f32[3] = input()",
        "C[i]: f32[A] = B[i] + A_2[0] + A_1[0]", "return C",
    ]  # fmt: skip
    w = te.placeholder((te.dim("w"),), name="w")
    whole = te.compute(w.shape, lambda i: w[i] * te.cast(i, "float32"), name="y")
    np.testing.assert_array_equal(te.evaluate(whole, {w: np.ones(3, np.float32)}), [0, 1, 2])
    assert parse_program(text(whole)) == te.program_of([whole])


def test_unnamed_inputs_are_numbered():
    p, q = te.placeholder(2), te.placeholder(2)
    assert text(te.compute(2, lambda i: q[i] - p[i])).startswith(
        "x0: f32[2] = input()\nx1: f32[2] = input()\nt0[i]: f32[2] = x0[i] - x1[i]"
    )
    assert te.program_of([te.compute(2, lambda i: q[i] - p[i])], [p, q]).inputs[1].name == "x1"


def test_inputs_can_be_given():
    middle = te.compute(3, lambda i: A[i] + 1.0, name="middle")
    out = te.compute(3, lambda i: middle[i] * 2.0, name="out")
    assert text(out, inputs=[middle]) == "middle: f32[3] = input()\nout[i]: f32[3] = middle[i] * 2.0\nreturn out"
    unused = te.placeholder((9,), name="unused")
    assert [i.name for i in te.program_of([out], [unused, A]).inputs] == ["unused", "A"]
    message = refused(lambda: te.program_of([out], [unused]))
    assert (
        "expected every placeholder that is read among the inputs, got none for A" in message and "the inputs given are unused" in message
    )
    assert "expected tensors as outputs, got 1" in refused(lambda: te.program_of([1]))


def test_every_output_is_a_definition():
    out = te.compute(3, lambda i: A[i] + 1.0, name="out")
    assert text(A, out, out) == (
        "A: f32[3] = input()\nout[i]: f32[3] = A[i] + 1.0\nA_1[i0]: f32[3] = A[i0]\nout_1[i0]: f32[3] = out[i0]\nreturn A_1, out, out_1"
    )


def test_keys_are_kept_on_request():
    out = te.compute(3, lambda i: A[i] + 1.0, name="out")
    program = te.program_of([out], keys=True)
    verify(program)
    assert program.outputs == (out.key,) and program.inputs[0].name == A.key and program.definitions[0] is not None


def test_sizes_are_listed_in_order_and_renamed_around():
    n, i = te.dim("n"), te.dim("i")
    t = te.placeholder((i, n), name="T")
    plain = te.compute(3, lambda i: A[i], name="P")
    out = te.compute(3, lambda k: plain[k] + te.sum(lambda p, q: t[p, q], (i, n)), name="out")
    program = te.program_of([out])
    verify(program)
    assert program.sizes == ("i", "n")
    assert "P[i_1]: f32[3] = A[i_1]" in str(program)


def test_long_chains():
    start = time.perf_counter()
    tensor = A
    for _ in range(2500):
        tensor = te.compute(3, lambda i, t=tensor: t[i] + 1.0)
    program = te.program_of([tensor])
    assert len(program.definitions) == 2500 and program.outputs == ("t2499",)
    assert repr(tensor) and time.perf_counter() - start < 20


def test_lift_gives_the_program_back():
    for seed in share_of(range(60)):
        program = random_program(seed)
        table = te.lift(program, {})
        again = te.program_of([table[name] for name in program.outputs], [table[i.name] for i in program.inputs])
        inputs, sizes = random_inputs(program, seed, sizes=random_sizes(program, seed)), random_sizes(program, seed)
        expected = te.program_of([table[n] for n in program.outputs], [table[i.name] for i in program.inputs], keys=True)
        verify(again)
        verify(expected)
        assert len(again.definitions) == len(expected.definitions)
        given = {table[name]: array for name, array in inputs.items()}
        found = te.evaluate([table[name] for name in program.outputs], given, sizes)
        reference = evaluate_program(program, inputs, sizes)
        for name, array in zip(program.outputs, found, strict=True):
            np.testing.assert_array_equal(array, reference[name])


def test_lift_reads_what_is_known():
    out = te.compute(3, lambda i: A[i] + 1.0, name="out")
    program = te.program_of([te.compute(3, lambda i: out[i] * A[i], name="double")])
    table = te.lift(program, {"A": A, "out": out})
    assert table["double"].sources == (out, A) and table["out"] is out
    assert repr(table["double"]) == "double[i]: f32[3] = out[i] * A[i]"


def test_evaluate():
    out = te.compute(3, lambda i: A[i] * 2.0, name="out")
    a = np.arange(3, dtype=np.float32)
    assert te.evaluate(out, {A: a}).tolist() == [0, 2, 4]
    assert te.evaluate([out], {A: a})[0].tolist() == [0, 2, 4] and te.evaluate((out, A), {A: [1, 2, 3]})[1].tolist() == [1, 2, 3]
    assert te.evaluate(out, {out: a}).tolist() == a.tolist()
    n = te.dim("n")
    assert te.evaluate(te.compute(n, lambda i: i), {}, sizes={"n": 3}).tolist() == [0, 1, 2]
    with pytest.raises(ArgumentError, match=r"te\.evaluate: expected an array for A, got none"):
        te.evaluate(out, {})
    with pytest.raises(ArgumentError, match=r"te\.evaluate: expected tensors as keys, got 'A'"):
        te.evaluate(out, {"A": a})
    with pytest.raises(ArgumentError, match="A: expected dtype float32, got float64"):
        te.evaluate(out, {A: np.zeros(3)})
    with pytest.raises(ArgumentError):
        te.evaluate(out, {A: np.zeros(4, np.float32)})
