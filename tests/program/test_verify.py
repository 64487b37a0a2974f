"""The verifier: accepts every random program, refuses each broken invariant by its name."""

from dataclasses import replace

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.errors import InternalError
from tensorexpr.ir import (
    Access,
    Axis,
    Combiner,
    Const,
    Constant,
    Define,
    Index,
    Input,
    Param,
    Program,
    Reduce,
    Scan,
    Scatter,
    Size,
    TensorType,
    apply,
    const,
)
from tensorexpr.parse import parse_expr, parse_program
from tensorexpr.verify import verify
from tests.random_programs import random_program
from tests.seeds import share_of

F32 = dtypes.float32
BASE = parse_program("""\
sizes(n)
A: f32[n, 3] = input()
ids: i64[4] = input()
B[i, j]: f32[n, 3] = A[i, j] * 2.0
S[i]: f32[n] = sum(B[i, k] for k in range(3) if k < i)
Y: f32[5] = scatter({ids[t]: 1.0 for t in range(4)})
for t in range(4):
    s: f32[n] = state(S)
    g[i]: f32[n] = s[i] + f32(t)
    H[t] = s = g
return H, Y""")


def with_definition(definition) -> Program:
    return replace(BASE, definitions=(*BASE.definitions, definition), outputs=("D",))


def with_value(value, *axes: Axis) -> Program:
    return with_definition(Define("D", axes, value))


def axis(name: str, stop=3, start=0) -> Axis:
    return Axis(name, const(start), const(stop) if isinstance(stop, int) else stop)


def read(tensor: str, *indices, dtype=F32) -> Access:
    return Access(tensor, indices, dtype)


def reduction(name: str, value, where=None, component: int = 0) -> Reduce:
    return Reduce(Combiner(name), (value,), (axis("k"),), where, component)


def scan(**changes) -> Program:
    return with_definition(
        replace(BASE.definitions[-1], **{"names": ("D",), "body": (), "states": (("z", s_type()),), "nexts": ("z",)} | changes)
    )


def s_type() -> TensorType:
    return TensorType((Size("n"),), F32)


def scatter(**changes) -> Program:
    return with_definition(replace(BASE.definitions[2], **{"name": "D"} | changes))


def mistyped() -> Program:
    broken = apply("add", const(1), const(2))
    object.__setattr__(broken, "dtype", F32)
    return with_value(broken)


def wrong_operands() -> Program:
    broken = apply("add", const(1), const(2))
    object.__setattr__(broken, "args", (const(1), Const(2.0, F32)))
    return with_value(broken)


A, B = Param("a", F32), Param("b", F32)
ONE = Const(1.0, F32)


def combined(left=(A,), right=(B,), results=None, identity=(ONE,)) -> Program:
    results = (apply("mul", A, B),) if results is None else results
    return with_value(Reduce(Combiner("mine", left, right, results, identity), (ONE,), (axis("k"),)))


BROKEN = {
    "a name twice": (with_definition(Define("A", (), ONE)), "'names': expected each tensor to be named once, got A twice"),
    "a local name twice": (scan(states=(("B", s_type()),)), "'names': expected each tensor to be named once, got B twice"),
    "no identifier": (with_definition(Define("a b", (), ONE)), "'names': expected an identifier for a tensor, got 'a b'"),
    "keyword as index": (with_value(ONE, axis("for")), "'names': expected an identifier for an index, got 'for'"),
    "literal as index": (with_value(ONE, axis("inf")), "'names': expected an identifier for an index, got 'inf'"),
    "no size name": (replace(BASE, sizes=("n", "nan")), "'names': expected an identifier for a size, got 'nan'"),
    "size twice": (replace(BASE, sizes=("n", "n")), "'sizes': expected each size once, got n, n"),
    "unknown size": (with_value(Size("m")), "'sizes': expected a size of the program, got m"),
    "unknown size of an input": (
        Program((Input("X", TensorType((Size("m"),), F32)),), (), (), ()),
        "expected a size of the program, got m",
    ),
    "later tensor": (with_value(read("Q")), "'order': expected a tensor defined before, got Q"),
    "itself": (with_value(read("D")), "'order': expected a tensor defined before, got D"),
    "state outside": (with_value(read("s", const(0))), "'order': expected a tensor defined before, got s"),
    "unknown init": (scan(inits=("Q",)), "'order': expected a tensor defined before, got Q"),
    "rank": (with_value(read("A", const(0))), "'ranks': expected 2 indices, got 1"),
    "index dtype": (with_value(read("Y", Const(1, dtypes.int32))), "'index types': expected int64, got int32"),
    "bound dtype": (
        with_value(Reduce(Combiner("sum"), (ONE,), (axis("k", Const(3, dtypes.int32)),))),
        "'index types': expected int64, got int32",
    ),
    "access dtype": (with_value(read("Y", const(1), dtype=dtypes.float64)), "'element types': expected float32, got float64"),
    "unbound": (with_value(Index("i")), "'scope': expected a bound index, got i"),
    "unbound after its reduction": (
        with_value(apply("add", reduction("sum", Index("k")), Index("k"))),
        "'scope': expected a bound index, got k",
    ),
    "unbound in an earlier bound": (
        with_value(Reduce(Combiner("sum"), (ONE,), (axis("k", Index("l")), axis("l")))),
        "'scope': expected a bound index, got l",
    ),
    "shadowing": (with_value(reduction("sum", ONE), axis("k")), "'scope': expected an index that is not bound yet, got k again"),
    "shadowing the step": (scan(body=(Define("D2", (axis("t"),), ONE),)), "'scope': expected an index that is not bound yet, got t again"),
    "size's name": (with_value(ONE, axis("n")), "'scope': expected an index that has no size's name, got n"),
    "stray parameter": (with_value(A), "'scope': expected a parameter of the combiner around it, got a"),
    "start": (with_value(ONE, axis("i", 3, 1)), "'shapes': expected an axis that starts at 0, got 1"),
    "data in a shape": (
        with_value(ONE, axis("i", read("ids", const(0), dtype=dtypes.int64))),
        r"'shapes': expected an extent over sizes and constants, got ids\[0\]",
    ),
    "index in a shape": (with_value(ONE, axis("i"), axis("j", Index("i"))), "'scope': expected a bound index, got i"),
    "recorded dtype": (mistyped(), "'operands': expected int64 as the dtype of add, got float32"),
    "operands": (wrong_operands(), "'operands': add: expected operands of one dtype, got int64 and float32"),
    "literal": (with_value(Const(300, dtypes.uint8)), "'literals': expected a value of uint8, got 300"),
    "unknown combiner": (with_value(reduction("mean", ONE)), "'reductions': expected one of sum, prod, .*, got mean"),
    "two values": (
        with_value(Reduce(Combiner("sum"), (ONE, ONE), (axis("k"),))),
        "'reductions': expected 1 values to reduce by sum, got 2",
    ),
    "component": (with_value(reduction("sum", ONE, component=1)), "'reductions': expected a component below 1, got 1"),
    "sum of bools": (with_value(reduction("sum", Const(True, dtypes.bool_))), "'reductions': expected numbers to reduce by sum, got bool"),
    "all of numbers": (with_value(reduction("all", ONE)), "'reductions': expected bools to reduce by all, got float32"),
    "where": (with_value(reduction("sum", ONE, where=ONE)), "'reductions': expected a bool for where, got float32"),
    "combiner lengths": (combined(left=()), "'combiners': expected left parameters of float32, got "),
    "combiner dtypes": (combined(identity=(const(1),)), "'combiners': expected identity of float32, got int64"),
    "combiner results": (combined(results=(const(1),)), "'combiners': expected results of float32, got int64"),
    "combiner names": (combined(right=(A,)), "'combiners': expected parameters that differ, got a, a"),
    "combiner identity": (
        combined(identity=(apply("neg", ONE),)),
        r"'combiners': expected a literal in the identity, got neg\(f32\(1.0\)\)",
    ),
    "combiner reads": (combined(results=(read("Y", const(0)),)), r"'combiners': expected an expression over the parameters, got Y\[0\]"),
    "combiner of another": (combined(results=(Param("c", F32),)), "'scope': expected a parameter of the combiner around it, got c"),
    "combine": (scatter(combine="mean"), "'scatters': expected combine to be one of sum, prod, max, min, got mean"),
    "lowering": (scatter(lowering="magic"), "'scatters': expected lowering to be one of segments, atomics, got magic"),
    "scatter rank": (scatter(indices=()), "'scatters': expected 1 indices, got 0"),
    "scatter index": (scatter(indices=(ONE,)), "'index types': expected int64, got float32"),
    "scatter value": (scatter(value=const(1)), "'scatters': expected a value of float32, got int64"),
    "scatter where": (scatter(where=const(1)), "'scatters': expected a bool for where, got int64"),
    "scatter of bools": (
        scatter(type=TensorType((const(5),), dtypes.bool_), value=Const(True, dtypes.bool_)),
        "'scatters': expected numbers to combine by sum, got bool",
    ),
    "scan counts": (scan(nexts=()), "'scans': expected as many names, states, inits and nexts, at least one of each"),
    "empty scan": (
        scan(names=(), states=(), inits=(), nexts=()),
        "'scans': expected as many names, states, inits and nexts, at least one of each",
    ),
    "scan init": (scan(inits=("ids",)), r"'scans': expected ids of the type of its state, f32\[n\], got i64\[4\]"),
    "scan next": (scan(nexts=("A",)), r"'scans': expected A of the type of its state, f32\[n\], got f32\[n, 3\]"),
    "scan next of another extent": (
        scan(states=(("z", TensorType((const(5),), F32)),), inits=("Y",), body=(Define("w", (axis("i", 4),), ONE),), nexts=("w",)),
        r"expected w of the type of its state, f32\[5\], got f32\[4\]",
    ),
    "output": (replace(BASE, outputs=("Q",)), "'outputs': expected the name of a tensor of the program, got Q"),
    "local output": (replace(BASE, outputs=("g",)), "'outputs': expected the name of a tensor of the program, got g"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_broken_invariant_is_named(case):
    program, message = BROKEN[case]
    with pytest.raises(InternalError, match=message) as caught:
        verify(program)
    assert "please report" in str(caught.value)


def test_the_message_quotes_the_definition():
    with pytest.raises(InternalError) as caught:
        verify(with_value(read("A", const(0))))
    assert caught.value.term == "D: f32 = A[0]"


@pytest.mark.parametrize("options", [{}, {"differentiable": True}, {"floats_only": True}])
def test_random_programs_satisfy_all_invariants(options):
    for seed in share_of(range(300)):
        verify(random_program(seed, **options))


def test_long_chains_of_definitions_need_no_recursion():
    text = ["X0: f32[2] = input()"] + [f"X{k + 1}[i]: f32[2] = X{k}[i] + 1.0" for k in range(3000)] + ["return X3000"]
    program = parse_program("\n".join(text))
    verify(program)
    assert str(program) == "\n".join(text)


def test_constants_and_expressions_of_every_form_pass():
    assert isinstance(BASE.definitions[-1], Scan) and isinstance(BASE.definitions[2], Scatter)
    verify(BASE)
    verify(Program((), (Constant("W", np.zeros((0, 2))),), (Define("D", (), parse_expr("sum(1 for k in range(-1, 2))")),), ("D", "W", "D")))
