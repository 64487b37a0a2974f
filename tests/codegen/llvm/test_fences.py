"""Masked loads and stores touch no lane that is off, whatever is computed: rows of open extents that end, or begin, at a protected page.

LLVM folds such loads into masked arithmetic, and took them apart again as loads of whole vectors where an operand lived on.
"""

from __future__ import annotations

import ctypes
import random
import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.compiled.arguments import address
from tensorexpr.codegen.llvm import NativeModule, host
from tensorexpr.codegen.llvm.process.jit import object_code
from tensorexpr.codegen.llvm.text.fences import fenced
from tests.codegen.llvm.nests import guarded
from tests.seeds import share_of

_TYPES = {"float32": ("float", "f32"), "float64": ("double", "f64"), "int8": ("i8", "i8"), "int16": ("i16", "i16"), "int32": ("i32", "i32")}


def _module(lanes: int, element: str, tag: str, otherwise: str) -> str:
    """te_test(x, y, n): a masked load and a choice by its mask, of operands that are needed later.

    y[0] = x * y[1] + y[2] in the first n lanes, and `otherwise` in the others: zeros, y[1] ("%v") or y[2] ("%w"); y[3] = y[1] * y[2].
    """
    vector, mask = f"<{lanes} x {element}>", f"<{lanes} x i1>"
    steps = ", ".join(f"i32 {lane}" for lane in range(lanes))
    if element in ("float", "double"):
        used = f"%u = call {vector} @llvm.fma.v{lanes}{tag}({vector} %a, {vector} %v, {vector} %w)"
        product, declared = "fmul", f"declare {vector} @llvm.fma.v{lanes}{tag}({vector}, {vector}, {vector})"
    else:
        used, product, declared = f"%t = mul {vector} %a, %v\n  %u = add {vector} %t, %w", "mul", ""
    places = "\n".join(f"  %y{k} = getelementptr {element}, ptr %y, i64 {k * lanes}" for k in (1, 2, 3))
    return f"""
target triple = "{host().triple}"
declare {vector} @llvm.masked.load.v{lanes}{tag}.p0(ptr, {mask}, {vector})
{declared}
define void @te_test(ptr noalias %x, ptr noalias %y, i32 %n) "prefer-vector-width"="512" {{
entry:
  %s = insertelement <{lanes} x i32> poison, i32 %n, i64 0
  %b = shufflevector <{lanes} x i32> %s, <{lanes} x i32> poison, <{lanes} x i32> zeroinitializer
  %m = icmp sgt <{lanes} x i32> %b, <{steps}>
{places}
  %v = load {vector}, ptr %y1, align 1
  %w = load {vector}, ptr %y2, align 1
  %a = call {vector} @llvm.masked.load.v{lanes}{tag}.p0(ptr align 1 %x, {mask} %m, {vector} zeroinitializer)
  {used}
  %c = select {mask} %m, {vector} %u, {vector} {otherwise}
  store {vector} %c, ptr %y, align 1
  %e = {product} {vector} %v, %w
  store {vector} %e, ptr %y3, align 1
  ret void
}}
"""


@pytest.mark.parametrize("name", _TYPES)
@pytest.mark.parametrize("otherwise", ["zeroinitializer", "%v", "%w"])
def test_arithmetic_on_masked_loads(name: str, otherwise: str) -> None:
    """A load, arithmetic under the same mask, and operands that are needed later."""
    for lanes in (1, 3, 4, 16, 17, 64):
        code = object_code(_module(lanes, *_TYPES[name], otherwise), host(), "registers")
        module = NativeModule(code, host())
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)(module.address("te_test"))
        for count in sorted({0, 1, lanes // 2, lanes - 1, lanes}):
            x = guarded(np.arange(1, count + 1).astype(name))
            y = np.zeros((4, lanes), name)
            y[1], y[2] = np.arange(lanes) % 3, np.arange(lanes) % 5
            off = {"zeroinitializer": np.zeros(lanes), "%v": y[1], "%w": y[2]}[otherwise]
            call(x.ctypes.data, y.ctypes.data, count)
            assert np.array_equal(y[0], [*(x * y[1, :count] + y[2, :count]), *off[count:]])
            assert np.array_equal(y[3], y[1] * y[2])


def test_every_masked_load_has_its_fence() -> None:
    """Also those that LLVM's passes name and number, with attributes behind them; other lines stay as they are."""
    text = """define <4 x i8> @f(ptr %p, <4 x i1> %m, <8 x double> %z) {
  %0 = tail call <4 x i8> @llvm.masked.load.v4i8.p0(ptr align 1 %p, <4 x i1> %m, <4 x i8> zeroinitializer), !alias.scope !3
  %"a b" = call fast <8 x double> @llvm.masked.load.v8f64.p0(ptr %p, <8 x i1> undef, <8 x double> %z) #1
  ret <4 x i8> %0
}"""
    found = fenced(text)
    assert re.findall(r"= (?:.*) @llvm\.(\S+?)\(", found) == [
        "masked.load.v4i8.p0",
        "arithmetic.fence.v1f32",
        "masked.load.v8f64.p0",
        "arithmetic.fence.v8f64",
    ]
    assert "%0 = bitcast <1 x float> " in found
    assert '%"a b" = call <8 x double> @llvm.arithmetic.fence.v8f64(' in found
    assert fenced("define void @f() {\n  ret void\n}\n") == "define void @f() {\n  ret void\n}\n"


CUTS = [("i32", "i16", 16), ("i32", "i8", 16), ("i64", "i32", 8), ("i64", "i16", 8), ("i16", "i8", 32), ("i32", "i16", 8), ("i64", "i8", 8)]


@pytest.mark.parametrize(("source", "target", "lanes"), CUTS)
@pytest.mark.parametrize("form", ["mask", "test", "choice", "shuffle"])
def test_stores_of_cut_numbers_are_as_wide_as_these(source: str, target: str, lanes: int, form: str) -> None:
    """te_k(p, x) stores lane k of x, cut: by a mask, by a test that is known, and as a choice between new and old elements."""
    vector, given = f"<{lanes} x {target}>", f"<{lanes} x {source}>"
    steps = ", ".join(f"i32 {k}" for k in range(lanes))
    align = int(target[1:]) // 8
    functions = []
    for lane in range(lanes):
        mask = "<" + ", ".join(f"i1 {str(k == lane).lower()}" for k in range(lanes)) + ">"
        order = ", ".join(f"i32 {k if k == lane else lanes + k}" for k in range(lanes))
        old, back = f"%o = load {vector}, ptr %p, align {align}", f"store {vector} %u, ptr %p, align {align}"
        store = f"call void @llvm.masked.store.v{lanes}{target}.p0({vector} %t, ptr align {align} %p, <{lanes} x i1>"
        lines = {
            "mask": f"{store} {mask})",
            "test": f"%m = icmp eq <{lanes} x i32> <{steps}>, splat (i32 {lane})\n  {store} %m)",
            "choice": f"{old}\n  %u = select <{lanes} x i1> {mask}, {vector} %t, {vector} %o\n  {back}",
            "shuffle": f"{old}\n  %u = shufflevector {vector} %t, {vector} %o, <{lanes} x i32> <{order}>\n  {back}",
        }[form]
        functions.append(f"""
define void @te_{lane}(ptr %p, ptr %x) {{
  %v = load {given}, ptr %x, align 1
  %s = lshr {given} %v, splat ({source} 3)
  %t = trunc {given} %s to {vector}
  {lines}
  ret void
}}""")
    text = f'target triple = "{host().triple}"\n' + "\n".join(functions)
    data = np.random.default_rng(0).integers(0, 1 << 15, lanes).astype(f"uint{source[1:]}")
    cut = (data >> 3).astype(f"uint{target[1:]}")
    for passes in ("none", "registers"):
        module = NativeModule(object_code(text, host(), passes), host())
        for lane in range(lanes):
            call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(module.address(f"te_{lane}"))
            # Under a mask nothing may be touched behind the element; a choice writes old elements back.
            count = lane + 1 if form in ("mask", "test") else lanes
            found = guarded(np.full(count, 7, cut.dtype))
            call(found.ctypes.data, data.ctypes.data)
            assert found.tolist() == [cut[k] if k == lane else 7 for k in range(count)]


@pytest.mark.parametrize("kind", ["sext", "zext"])
@pytest.mark.parametrize(("lanes", "kept"), [(8, 4), (16, 4)])
def test_parts_of_products_of_widened_bits_of_floats(kind: str, lanes: int, kept: int) -> None:
    """LLVM ends the process over such a part, unless it takes the bits for integers (see `fences`)."""
    full, wide, held = f"<{lanes} x i32>", f"<{lanes} x i64>", f"<{lanes} x float>"
    order = ", ".join(f"i32 {k}" for k in range(kept))
    text = f"""
target triple = "{host().triple}"
define void @te_test(ptr noalias %x, ptr noalias %y, ptr noalias %z) "prefer-vector-width"="512" {{
  %a = load {held}, ptr %x, align 4
  %twice = fadd {held} %a, %a
  %bits = bitcast {held} %twice to {full}
  %u = {kind} {full} %bits to {wide}
  %b = load {full}, ptr %y, align 4
  %v = {kind} {full} %b to {wide}
  %w = mul {wide} %u, %v
  %part = shufflevector {wide} %w, {wide} poison, <{kept} x i32> <{order}>
  store <{kept} x i64> %part, ptr %z, align 8
  ret void
}}
"""
    module = NativeModule(object_code(text, host(), "registers"), host())
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(module.address("te_test"))
    x, y, z = np.arange(lanes, dtype="float32") - 2.5, np.arange(lanes, dtype="int32") - 3, np.zeros(kept, "int64")
    call(x.ctypes.data, y.ctypes.data, z.ctypes.data)
    kinds = ("int32", "int64") if kind == "sext" else ("uint32", "uint64")
    u, v = (numbers.view(kinds[0]).astype(kinds[1]) for numbers in (x + x, y))
    assert np.array_equal(z.view(kinds[1]), (u * v)[:kept])


@pytest.mark.parametrize("shape", [(12,), (3, 4), (4, 5), (2, 3, 4), (3, 9), (41,)])
def test_products_of_int32_as_int64(shape: tuple[int, ...]) -> None:
    """Whose last vector is loaded under a mask, behind a fence."""
    x = np.random.default_rng(0).integers(-9, 9, shape).astype("int32")
    op = te.op(lambda x: te.compute((), lambda: te.prod(lambda *i: te.cast(x[i], "int64"), x.shape)))
    assert op(x | 1) == (x | 1).astype("int64").prod()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "int32", "bool"])
def test_tails_of_one_element_end_with_it(dtype: str) -> None:
    """Sums of rows whose one element is all there is: what was stored of a bfloat16 were four bytes."""
    a = te.dim("a")
    X = te.placeholder((a, a, a), dtype, name="X")
    ones = te.compute((a,), lambda i: i % 2, name="ones")
    if dtype == "bool":
        Y = te.compute((a, a), lambda k, l: te.any(lambda j: X[j, l, k], a), name="Y")
    else:
        Y = te.compute((a, a), lambda k, l: te.cast(te.sum(lambda j: X[j, l, k] * te.cast(ones[j], dtype), a), dtype), name="Y")
    made = te.build([te.compute((a,), lambda i: ones[i], name="same"), Y], [X])
    for n in (1, 2, 3, 5, 15, 16, 17):
        data = guarded((np.arange(n**3) % 3 == 1).reshape(n, n, n).astype(X.dtype.numpy))
        layout = made.layout(((n, n, n),))
        results = [guarded(np.zeros(shape, kind)) for shape, kind in layout.outputs]
        space = guarded(np.zeros(layout.workspace + -layout.workspace % 64, np.uint8))
        made.enter([address(data)], list(map(address, results)), layout, address(space))
        wanted = data.any(0) if dtype == "bool" else data[1::2].astype(float).sum(0)
        np.testing.assert_array_equal(results[1].astype(float), wanted.T)


class Rows:
    """T[j] = the sum (or the largest) over i of terms of rows of X (b, a), some of them under conditions on i that do not always hold."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.dtype = self.random.choice(("float32", "float32", "float64", "int32"))
        self.terms = [self.term() for _ in range(self.random.randint(1, 2))]
        a, b = te.dim("a"), te.dim("b")
        self.X = te.placeholder((b, a), self.dtype, name="X")
        reduce = self.random.choice((te.sum, te.sum, te.max))
        self.largest = reduce is te.max
        self.T = te.compute(
            (a,), lambda j: reduce(lambda i: self.value(self.X, te.where, i, j), b if not self.largest else b + 1), name="T"
        )

    def term(self) -> tuple[int, int, float, bool]:
        """The row of a read, the first i at which it is done, what stands for it before, and whether it is multiplied with X[i, j]."""
        row, instead = self.random.randint(0, 2), self.random.randint(1, 3)
        return row, row + self.random.randint(0, 1), instead if self.dtype == "int32" else instead / 2, self.random.random() < 0.8

    def value(self, X, where, i, j):
        read = (lambda *at: X.read(*at, outside=0)) if self.largest else (lambda *at: X[at])
        found = []
        for row, first, instead, times in self.terms:
            factor = where(i >= first, read(row, j), te.cast(instead, self.dtype))
            found.append(read(i, j) * factor if times else factor)
        return found[0] if len(found) == 1 else found[0] + found[1]

    def wanted(self, x: np.ndarray) -> np.ndarray:
        b, a = x.shape
        rows, lines = np.concatenate([x, np.zeros((4, a), x.dtype)]), np.zeros((b + self.largest, a), x.dtype)
        for i, line in enumerate(lines):
            for row, first, instead, times in self.terms:
                factor = rows[row] if i >= first else x.dtype.type(instead)
                line += rows[i] * factor if times else factor
        return lines.max(0) if self.largest else lines.sum(0, dtype=x.dtype)


@pytest.mark.parametrize("seed", share_of(range(24)))
def test_rows_read_under_conditions(seed: int) -> None:
    case = Rows(seed)
    made = te.build(case.T, [case.X])
    data = np.random.default_rng(seed)
    for a in (0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65):
        for b in range(4):
            x = data.integers(-4, 5, (b, a)).astype(case.dtype)
            np.testing.assert_array_equal(made(guarded(x, before=(a + b) % 3 == 0)), case.wanted(x))


def test_a_row_read_behind_the_first_step_of_a_sum() -> None:
    """X (b, a) of fewer columns than lanes, of which a sum reads row 1 from i = 1 on: row 0 was read a whole vector wide."""
    a, b = te.dim("a"), te.dim("b")
    X = te.placeholder((b, a), name="X")
    made = te.build(te.compute((a,), lambda j: te.sum(lambda i: X[i, j] * te.where(i - 1 >= 0, X[1, j], 1.5), b)), [X])
    for columns in (0, 1, 2, 15, 63, 64, 65):
        for rows in (0, 1, 2, 3):
            x = np.random.default_rng(columns).integers(-4, 5, (rows, columns)).astype(np.float32)
            wanted = sum((line * (x[1] if i else 1.5) for i, line in enumerate(x)), np.zeros(columns, np.float32))
            for before in (False, True):
                np.testing.assert_array_equal(made(guarded(x, before)), wanted)
