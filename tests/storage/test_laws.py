"""Laws over random programs: folding, freezing, contexts and bundles change no value; the linker settles every relocation."""

from __future__ import annotations

import ctypes
import random
import struct

import numpy as np
import pytest

import tensorexpr as te
import tensorexpr_runtime
from tensorexpr.codegen.bundle.elf_shared import Input, shared_object
from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.folding import fold
from tensorexpr.codegen.llvm import host
from tensorexpr.codegen.llvm.process.jit import object_code
from tensorexpr.errors import InternalError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program
from tensorexpr.parse import parse_program
from tensorexpr.verify import verify
from tests.random_programs import assert_agrees, meaning, random_inputs, random_program
from tests.seeds import share_of

SEEDS = share_of(range(40))


def run(part: Program, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    return build_program(part)(*arrays)


@pytest.mark.parametrize("seed", SEEDS)
def test_folding_and_freezing_keep_every_value(seed):
    """All inputs, or some of them, made constants: what is compiled then gives what the interpreter gives with them as inputs."""
    program = random_program(seed)
    inputs = random_inputs(program, seed)
    expected = meaning(program, inputs)
    if expected is None:
        return
    names = [i.name for i in program.inputs]
    for chosen in (names, random.Random(seed).sample(names, len(names) // 2)):
        frozen = te.freeze(program, te.Context({name: inputs[name] for name in chosen}))
        verify(frozen)
        folded = fold(frozen, run)
        verify(folded)
        assert [i.name for i in folded.inputs] == [n for n in names if n not in chosen] and folded.outputs == program.outputs
        f = te.compile(frozen)
        results = f.run(te.Context({name: inputs[name] for name in names if name not in chosen}))
        assert_agrees(program, dict(zip(program.outputs, results, strict=True)), expected, frozen)
        assert fold(folded, run) == folded


@pytest.mark.parametrize("seed", SEEDS)
def test_bundles_give_the_bits_of_the_jit(seed, tmp_path):
    program = random_program(seed)
    inputs = random_inputs(program, seed)
    arrays = [inputs[i.name] for i in program.inputs]
    frozen = te.freeze(program, te.Context({i.name: inputs[i.name] for i in program.inputs[::2]}))
    functions = {"whole": te.compile(program), "frozen": te.compile(frozen), "built": build_program(program)}
    te.export(tmp_path / "b", **functions)
    loaded = tensorexpr_runtime.load(tmp_path / "b")
    for name, function in functions.items():
        given = [inputs[i.name] for i in frozen.inputs] if name == "frozen" else arrays
        for found, wanted in zip(loaded[name](*given), function(*given), strict=True):
            assert found.tobytes() == wanted.tobytes(), f"{name} of\n{program}"


EIGHT = "[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]"
FOLDED = (
    # A guarded read stays where it is: computed everywhere it would leave the table.
    ("c: f32[4] = constant([1.0, 2.0, 3.0, 4.0])\ny[i]: f32[8] = where(i < 4, x[i] + exp(c[i] * 2.0), x[i])", 0),
    # Inside of a sum, over its axis.
    (f"c: f32[8] = constant({EIGHT})\ny: f32 = sum(x[k] * exp(neg(c[k])) for k in range(8))", 1),
    # A whole reduction.
    (f"c: f32[8] = constant({EIGHT})\ny[i]: f32[8] = x[i] * sum(c[k] * c[i] for k in range(8))", 1),
)


@pytest.mark.parametrize(("text", "count"), FOLDED)
def test_what_is_folded_inside_of_a_definition(text, count):
    program = parse_program(f"x: f32[8] = input()\n{text}\nreturn y")
    folded = fold(program, run)
    assert len([c for c in folded.constants if c.name.startswith("folded")]) == count
    inputs = random_inputs(program, 3)
    np.testing.assert_allclose(build_program(folded)(*inputs.values())[0], evaluate_program(program, inputs)["y"], rtol=1e-6)


def test_what_would_take_more_memory_is_not_folded():
    c = te.constant(np.arange(512, dtype=np.float32), name="c")
    outer = te.compute((512, 512), lambda i, j: te.sin(c[i] * c[j]), name="outer")
    x = te.placeholder((512,), name="x")
    f = te.compile(te.compute((512,), lambda i: te.sum(lambda j: outer[i, j] * x[j], 512)), [x])
    assert list(f.constants) == ["c"]


def test_a_folded_part_that_would_fail_fails_when_it_runs():
    table, ids = te.constant(np.ones(3, np.float32), name="table"), te.constant(np.array([0, 5]), name="ids")
    x = te.placeholder((2,), name="x")
    f = te.compile(te.compute((2,), lambda i: x[i] * table[ids[i]], name="y"), [x])
    with pytest.raises(IndexError, match="expected an index of table from 0 to 2, got 5"):
        f(np.ones(2, np.float32))


def test_long_expressions_over_constants():
    c = te.constant(np.ones(4, np.float32), name="c")
    x = te.placeholder((4,), name="x")

    def chain(i):
        value = x[i]
        for _ in range(45):
            value = value + c[i] * 0.5
        return value

    y = te.compute((4,), chain, name="y")
    np.testing.assert_allclose(te.compile(y, [x])(np.zeros(4, np.float32)), 22.5)


PARTS = (
    """@table = internal constant [2 x ptr] [ptr @double, ptr @other]
@count = internal global i64 7, align 8
@zeros = internal global [3 x i64] zeroinitializer, align 64
define internal i64 @double(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }
declare i64 @other(i64)
define i64 @pick(i64 %k, i64 %x) {
  %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %k
  %f = load ptr, ptr %p
  %r = call i64 %f(i64 %x)
  %c = load i64, ptr @count
  %n = add i64 %c, 1
  store i64 %n, ptr @count
  %z = getelementptr [3 x i64], ptr @zeros, i64 0, i64 1
  %o = load i64, ptr %z
  %s = add i64 %r, %n
  %t = add i64 %s, %o
  ret i64 %t
}
declare double @fma(double, double, double)
define double @fused(double %x) { %y = call double @fma(double %x, double %x, double 1.0) ret double %y }
""",
    "define i64 @other(i64 %x) { %y = mul i64 %x, %x ret i64 %y }",
)


def test_pointers_data_zeros_and_calls_between_objects(tmp_path):
    codes = [object_code(text, host(), "none").image for text in PARTS]
    image = shared_object(
        [Input(c, {"other": "te_other"}) for c in codes], ["pick", "fused", "te_other"], "libparts.so", {"fma": "libm.so.6"}, []
    )
    (tmp_path / "parts.so").write_bytes(image)
    library = ctypes.CDLL(str(tmp_path / "parts.so"))
    library.pick.restype, library.pick.argtypes = ctypes.c_int64, [ctypes.c_int64] * 2
    assert [library.pick(0, 5), library.pick(1, 5), library.pick(0, 5)] == [10 + 8, 25 + 9, 10 + 10]
    library.fused.restype, library.fused.argtypes = ctypes.c_double, [ctypes.c_double]
    assert library.fused(3.0) == 10.0
    with pytest.raises(AttributeError):
        library.double  # noqa: B018
    assert struct.unpack_from("<H", image, 16) == (3,)


def test_what_the_linker_refuses():
    codes = [object_code(text, host(), "none").image for text in PARTS]
    cases = (
        ("bundle: expected code that calls what there is, got a call of fma", [Input(c, {}) for c in codes], ["pick"], {}),
        ("bundle: expected each function once, got other twice", [Input(codes[1], {}), Input(codes[1], {})], [], {}),
        ("bundle: expected nothing to be defined", [Input(codes[1], {})], ["nothing"], {}),
        ("bundle: expected a relocatable object for x86-64, got other code", [Input(b"text", {})], [], {}),
    )
    for message, inputs, exports, libraries in cases:
        with pytest.raises(InternalError) as caught:
            shared_object(inputs, exports, "lib.so", libraries, [])
        assert str(caught.value).startswith(message)
