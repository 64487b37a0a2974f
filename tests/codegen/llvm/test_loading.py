"""Loading: what is wrong is refused before LLVM sees it, code is freed with its module, passes are chosen by content."""

from __future__ import annotations

import gc
import json
import re
import time
import weakref

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import Interface, NativeCode, NativeFunction, compile_nest, emit, host, load, nest_assembly, nest_code
from tensorexpr.codegen.llvm.process import load as loading
from tensorexpr.codegen.llvm.process.jit import object_code
from tensorexpr.codegen.llvm.process.load import passes_for
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.dtypes import DType
from tensorexpr.errors import InternalError
from tensorexpr.ir import Index, apply, const
from tests.codegen.llvm.nests import buffer, loop, nest, read, write


def _copy(kind: str, count: int = 64) -> LoopNest:
    x, y = buffer("X", dtypes.float32, count), buffer("Y", dtypes.float32, count)
    return nest([x, y], [y], (loop("i", count, write(y, [Index("i")], apply("exp", read(x, Index("i")))), kind=kind),))


CASES = [
    (True, True, dtypes.float32, "registers"),
    (True, False, dtypes.float32, "loops"),
    (True, True, dtypes.int32, "loops"),  # whose order does not matter, so LLVM makes vectors
    (False, True, dtypes.float32, "loops"),
]


@pytest.mark.parametrize(
    "text", ["define i32 @f( {", "define i32 @f() {\nentry:\n  ret i64 0\n}", "define void @f() {\n  call void @g()\n  ret void\n}"]
)
def test_invalid_text_is_an_internal_error(text: str) -> None:
    with pytest.raises(InternalError, match="llvm: expected valid IR, got "):
        load(text)


def test_an_unknown_external_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="llvm: expected code that links, got "):
        load("declare void @nowhere()\ndefine void @f() {\n  call void @nowhere()\n  ret void\n}")


def test_assembly() -> None:
    assert re.search(r"^te_test:", nest_assembly(_copy("vectorize")), re.MULTILINE)


def test_object_code_is_good_for_another_link() -> None:
    made = _copy("vectorize")
    code = nest_code(made)
    interface = Interface.from_data(json.loads(json.dumps(Interface.of(made).as_data())))
    assert interface == Interface.of(made)
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    results = [np.zeros_like(x) for _ in range(2)]
    for y in results:
        assert NativeFunction(NativeCode(interface, code, host()), [])([x.ctypes.data, y.ctypes.data]) is None
    assert np.array_equal(*results)
    assert np.allclose(results[0], np.exp(x))


def test_code_is_freed_with_its_module() -> None:
    made = compile_nest(_copy("vectorize"))
    gone = weakref.ref(made.module)
    del made
    gc.collect()
    assert gone() is None


def test_passes_follow_the_content() -> None:
    assert passes_for(_copy("vectorize")) == "registers"
    assert passes_for(_copy("serial")) == "loops"
    assert passes_for(_copy("unroll")) == "registers"


@pytest.mark.parametrize(("many", "summed", "dtype", "passes"), CASES)
def test_long_kernels_of_sums_are_left_as_they_are(many: bool, summed: bool, dtype: DType, passes: str) -> None:
    x, y = buffer("X", dtype, 64), buffer("Y", dtype, 64)
    place = const(3) if summed else Index("i")
    one = loop("i", 64, write(y, [place], apply("add", read(y, place), read(x, Index("i")))))
    made = nest([x, y], [y], (one,) * (loading.MOST_OF_SUMS if many else 1))
    assert passes_for(made) == passes


def test_scalar_loops_are_vectorized_by_llvm() -> None:
    if host().vector_bits == 512 and host().architecture == "x86_64":
        assert "zmm" in nest_assembly(_copy("serial"))


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_narrower_machines(bits: int) -> None:
    """The text for a machine with shorter vectors runs here as well."""
    machine = Machine(host().triple, host().cpu, host().features, min(bits, host().vector_bits))
    x = np.linspace(-5, 5, 100, dtype=np.float32)
    made = _copy("vectorize", 100)
    function = compile_nest(made, machine)
    y = np.zeros_like(x)
    assert function([x.ctypes.data, y.ctypes.data]) is None
    assert np.allclose(y, np.exp(x), rtol=2e-7)


def test_a_machine_without_fused_multiply_add() -> None:
    """Still right: the C library's fma stands in (slowly)."""
    if host().architecture != "x86_64":
        return
    machine = Machine(host().triple, "x86-64-v2", "", 128)
    made = _copy("vectorize", 100)
    function = compile_nest(made, machine)
    assert "zmm" not in nest_assembly(made, machine)
    x = np.linspace(-80, 80, 100, dtype=np.float32)
    y = np.zeros_like(x)
    assert function([x.ctypes.data, y.ctypes.data]) is None
    assert np.allclose(y, np.exp(x.astype(np.float64)), rtol=2e-7)


def test_functions_called_often_are_not_copied_and_give_the_same_bits() -> None:
    """A chain of a thousand exponentials compiles in the time of a thousand calls."""

    def calls(count: int) -> LoopNest:
        x, y = buffer("X", dtypes.float32, 16), buffer("Y", dtypes.float32, count, 16)
        body = [write(y, [const(k), Index("i")], apply("exp", read(x, Index("i")))) for k in range(count)]
        return nest([x, y], [y], (loop("i", 16, *body, kind="vectorize"),))

    few, many = emit(calls(4), host()), emit(calls(400), host())
    assert "@te.exp.v16f32(<16 x float> %x0) nounwind alwaysinline {" in few
    assert "@te.exp.v16f32(<16 x float> %x0) nounwind noinline {" in many
    x = np.linspace(-5, 5, 16, dtype=np.float32)
    results = []
    for count in (4, 400):
        y = np.zeros((count, 16), np.float32)
        assert compile_nest(calls(count))([x.ctypes.data, y.ctypes.data]) is None
        results.append(y)
    assert (results[1] == results[0][0]).all()


def test_modules_are_independent() -> None:
    first = compile_nest(_copy("serial"))
    second = compile_nest(_copy("serial", 32))
    assert first.address != second.address
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    assert second([x.ctypes.data, y.ctypes.data]) is None
    assert y.sum() == 32


def test_an_unknown_operation_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorexpr.codegen.llvm.emitter import ops as emit_ops  # noqa: PLC0415

    rows = {name: row for name, row in emit_ops._ROWS.items() if name != "add"}
    monkeypatch.setattr(emit_ops, "_ROWS", rows)
    x, y = buffer("X", dtypes.float32, 4), buffer("Y", dtypes.float32, 4)
    body = loop("i", 4, write(y, [Index("i")], apply("add", read(x, Index("i")), read(x, const(0)))))
    with pytest.raises(InternalError, match="llvm: expected an operation that the emitter knows, got 'add'"):
        emit(nest([x, y], [y], (body,)), host())


def test_the_hundredth_module_takes_no_longer_than_the_first():
    """A builder of passes that served all modules called 10 us of callbacks more for each: three times as long after 300 modules."""
    text = "define i64 @f(i64 %x) {\n  %y = add i64 %x, 1\n  ret i64 %y\n}\n"

    def seconds() -> float:
        start = time.thread_time()
        for _ in range(10):
            object_code(text, host(), "registers")
        return time.thread_time() - start

    seconds()
    first = min(seconds() for _ in range(5))
    for _ in range(35):
        seconds()
    assert min(seconds() for _ in range(5)) < 2 * first
