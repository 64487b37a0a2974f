"""Routines: what text in Python's syntax computes as machine code is what Python computes; what is no routine is refused with its line."""

from __future__ import annotations

import ctypes

import pytest

from tensorexpr.codegen.llvm import host
from tensorexpr.codegen.llvm.process.jit import NativeModule
from tensorexpr.codegen.llvm.text.routines import Routines
from tensorexpr.errors import InternalError

SEARCH = """
def te_search(a, n, m):
    found = -1
    for i in range(n):
        if a.i64[i] == m:
            continue
        k = i
        while True:
            k += 1
            if k >= n or a.i64[k] - a.i64[i] > 3 and not a.i64[k] == m:
                break
        if k < n:
            found = 100 * i + k
            break
    else_found = 7 if found < 0 else found
    return else_found if n != 0 else -n - 1
"""
SUMS = """
def te_sums(a, n, m):
    total = 0
    for i in range(n):
        for j in range(i):
            if j == m:
                break
            if (i ^ j) & 1 == 0:
                continue
            total = total + (a.i64[i] << 1) - a.i64[j] * 3
        total = max(total, -1000) if i != 2 else min(total, ~m)
    return total
"""


class Words(list):
    """An array as routines see it."""

    @property
    def i64(self):
        return self


def compiled(source, passes, **values):
    return NativeModule.compiled(Routines(source, values), host(), passes)


@pytest.mark.parametrize("passes", ["none", "registers"])
@pytest.mark.parametrize("source", [SEARCH, SUMS], ids=["search", "sums"])
def test_values_are_pythons(source, passes):
    names: dict = {}
    exec(source, names)
    (name,) = (n for n in names if n.startswith("te_"))
    module = compiled(source.replace("(a, n, m)", "(a: ptr, n: i64, m: i64) -> i64"), passes)
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(module.address(name))
    for seed in range(200):
        words = [(seed * 7919 + k * k * 31) % 11 - 5 for k in range(seed % 9)]
        given = (ctypes.c_int64 * max(1, len(words)))(*words)
        for m in (-4, 0, 3):
            assert run(ctypes.addressof(given), len(words), m) == names[name](Words(words), len(words), m)


def test_memory_and_atomic_operations():
    source = """
def malloc(size: i64) -> ptr: ...
def free(block: ptr): ...
count: line(i32) = -1
kept: array(i32, MANY)
words: text = "ab"

def te_put(value: i32) -> i64:
    if not atomic_exchange(count, -1, 0, seq_cst, monotonic):
        atomic_add(count, 1, seq_cst)
    kept.i32[count] = value
    block = malloc(16)
    (block + 8).i8 = i8(value)
    block.i64[0] = i64((block + 8).i8)
    found = block.i64[0] + u64(value) - i64(value) + i64(words.i8[1])
    free(block)
    return found

def te_swap(value: i32) -> i32:
    return atomic_swap(kept.i32[count], value, acq_rel)
"""
    module = compiled(source, "none", MANY=4)
    put = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int32)(module.address("te_put"))
    swap = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(module.address("te_swap"))
    assert put(5) == 5 + ord("b") and swap(9) == 5 and swap(1) == 9
    assert put(-300) == -44 + 2**32 + ord("b") and swap(0) == -300


@pytest.mark.parametrize(
    "body, message",
    [
        ("    return n + None", "expected operands of one type, got n + None in line 3"),
        ("    x = y", "expected something that lies in memory, got y in line 3"),
        ("    return n\n    n = 2", "expected nothing behind a jump, got n = 2 in line 4"),
        ("    m = n", "expected a result at the end, got def te_f(n: i64) -> i64:"),
        ("    with n: pass", "expected a statement of routines, got with n:"),
        ("    return n ** 2", "expected an operation of routines, got n ** 2 in line 3"),
        ("    return g(n)", "expected a function that routines know, got g(n) in line 3"),
    ],
)
def test_what_is_refused(body, message):
    with pytest.raises(InternalError) as raised:
        Routines(f"\ndef te_f(n: i64) -> i64:\n{body}\n", {}).text()
    assert message in str(raised.value)
