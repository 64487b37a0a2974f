"""Kernels compiled by themselves, in the background: the same values and failures as in one module, equal kernels once."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.building import collecting
from tensorexpr.building.collecting import collecting_less
from tensorexpr.codegen.bundle.elf_object import read_object
from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.llvm.emitter import module
from tensorexpr.codegen.llvm.process import background, native, units
from tensorexpr.codegen.llvm.process.compilers import free_compiler
from tensorexpr.codegen.memo import forget
from tensorexpr.errors import InternalError, OutOfBoundsError
from tests.random_programs import random_inputs, random_program
from tests.seeds import share_of


@pytest.fixture
def in_units(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every nest is compiled kernel by kernel."""
    monkeypatch.setattr(native, "MOST_TOGETHER", 0)
    forget()
    yield
    forget()


def chain(count: int, name: str = "x") -> tuple[te.Tensor, te.Tensor]:
    """Rows and columns summed in turn, so that each sum is a kernel."""
    x = y = te.placeholder((33, 33), name=name)
    for number in range(count):
        y = te.compute((33, 33), lambda i, j, y=y: te.sum(lambda k: y[k, i] * x[j, k], 33) * 0.1, name=f"{name}{number}")
    return x, y


@pytest.mark.parametrize("seed", share_of(range(16)))
def test_units_compute_what_one_module_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = random_program(seed, most=5)
    inputs = random_inputs(program, seed)
    arrays = [inputs[item.name] for item in program.inputs]
    found = []
    for most in (1 << 30, 0):
        monkeypatch.setattr(native, "MOST_TOGETHER", most)
        forget()
        try:
            found.append(build_program(program)(*arrays))
        except te.TensorExprError as error:
            found.append(str(error))
    whole, apart = found
    assert type(whole) is type(apart)
    if isinstance(whole, str):
        assert whole == apart
        return
    for one, other in zip(whole, apart, strict=True):
        np.testing.assert_array_equal(one, other)


def test_equal_kernels_are_one_unit(in_units: None) -> None:
    x, y = chain(12)
    function = te.build(y, [x])
    code = native.nest_code(function.nest)
    assert len(function.nest.kernels) >= 12
    assert len(code.others) <= 4
    x2, z = chain(12, name="other")
    assert native.nest_code(te.build(z, [x2]).nest).others == code.others
    value = np.random.default_rng(0).standard_normal((33, 33)).astype(np.float32)
    np.testing.assert_array_equal(function(value), te.build(z, [x2])(value))


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_squares_are_turned_by_a_function_that_is_there_once(in_units: None, dtype: str) -> None:
    tensors = [te.placeholder((32 * n, 48), dtype, name=f"x{n}") for n in (1, 2, 3)]
    turned = []
    for n, x in zip((1, 2, 3), tensors, strict=True):
        y = te.compute((48, 32 * n), lambda i, j, x=x: x[j, i])
        s = te.schedule(y)
        s[y].split("j", 16)
        s[y].split("i", 16)
        s[y].reorder("i_o", "j_o", "j_i", "i_i")
        s[y].unroll("j_i")
        s[y].vectorize("i_i")
        turned.append(s)
    codes = [native.nest_code(s.nest) for s in turned]
    for s, code in zip(turned, codes, strict=True):
        called = [image for image in code.others if b"te.turned." in image]
        assert len(code.others) == len(called) == 2  # the kernel and what it calls
        drawn = np.random.default_rng(0).standard_normal((s.program.inputs[0].type.shape[0].value, 48))
        value = drawn > 0 if dtype == "bool" else drawn.astype(dtype)
        np.testing.assert_array_equal(te.build(s)(value), value.T)
    assert len(set.intersection(*(set(code.others) for code in codes))) == 1


def test_objects_may_be_loaded_at_any_distance(in_units: None) -> None:
    """Objects name one another only by calls, for which the linker makes jumps, and by places in the offset table: never by a distance
    of 32 bits, since a large process has no room for them side by side."""
    x, w = te.placeholder((2,), name="x"), te.placeholder((4096,), name="w")
    y = te.compute((4096,), lambda i: te.exp(w[i]) * x[0])
    z = te.compute((4096,), lambda i: te.sum(lambda k: x[1] * w[k], i // 64))
    function = te.build((y, z), [x, w])
    assert any(kernel.together for kernel in function.nest.kernels)
    named = set()
    for image in native.nest_code(function.nest).images:
        found = read_object(image)
        for section in found.sections.values():
            for relocation in section.relocations:
                symbol = found.symbols[relocation.symbol]
                if symbol.section is None:
                    named.add((symbol.name, relocation.kind))
    calls, slots = {4}, {9, 41, 42}  # R_X86_64_PLT32; R_X86_64_GOTPCREL, GOTPCRELX, REX_GOTPCRELX
    assert {kind for _, kind in named} <= calls | slots
    assert {kind for name, kind in named if name == "te.together"} <= slots and "te.together" in dict(named)


def test_many_calls_have_functions_of_some(in_units: None, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = chain(12)
    value = np.random.default_rng(0).standard_normal((33, 33)).astype(np.float32)
    expected = te.build(y, [x])(value)
    forget()
    monkeypatch.setattr(units, "MOST_CALLS", 3)
    monkeypatch.setattr(module, "MOST_CALLS", 3)
    np.testing.assert_array_equal(te.build(y, [x])(value), expected)


def test_functions_of_some_calls_without_a_check(in_units: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last of the functions has something to stop for."""
    x, y = chain(12)
    at = te.placeholder((4,), "int64", name="at")
    z = te.compute((4, 33), lambda i, j: y[at[i], j])
    value, rows = np.random.default_rng(0).standard_normal((33, 33)).astype(np.float32), np.array([0, 32, 5, 5])
    expected = te.build(z, [x, at])(value, rows)
    forget()
    monkeypatch.setattr(units, "MOST_CALLS", 3)
    monkeypatch.setattr(module, "MOST_CALLS", 3)
    f = te.build(z, [x, at])
    np.testing.assert_array_equal(f(value, rows), expected)
    with pytest.raises(OutOfBoundsError, match="33"):
        f(value, rows + 1)


def test_a_failed_check_ends_the_call(in_units: None) -> None:
    x, at = te.placeholder((5,), name="x"), te.placeholder((4,), "int64", name="at")
    first = te.compute((5,), lambda i: te.sum(lambda k: x[k] * x[i], 5), name="first")
    y = te.compute((4,), lambda i: te.sum(lambda k: first[at[i]] * x[k], 5), name="y")
    f = te.build([y, first], [x, at])
    value = np.arange(5, dtype=np.float32)
    assert f(value, np.array([0, 1, 2, 4]))[0].shape == (4,)
    with pytest.raises(OutOfBoundsError, match="7"):
        f(value, np.array([0, 1, 7, 4]))


def test_open_sizes(in_units: None) -> None:
    n = te.dim("n")
    x = te.placeholder((n, n), name="x")
    y = te.compute((n, n), lambda i, j: te.sum(lambda k: x[i, k] * x[k, j], n), name="y")
    z = te.compute((n,), lambda i: te.sum(lambda k: y[i, k] * y[k, i], n), name="z")
    f = te.build([y, z], [x])
    for size in (0, 1, 7, 40):
        value = np.random.default_rng(size).standard_normal((size, size)).astype(np.float32)
        np.testing.assert_allclose(f(value)[0], value @ value, rtol=1e-4, atol=1e-4)


def test_what_llvm_refuses_is_raised_and_asked_again() -> None:
    job = background.Job("define i64 @f() {\nentry:\n  ret i32 0\n}\n", native.host(), "registers")
    background.submit(job)
    with pytest.raises(InternalError, match="expected valid IR"):
        background.image_of(job)
    job.text = "define i64 @f() {\nentry:\n  ret i64 0\n}\n"
    background.submit(job)
    assert background.image_of(job)


def test_a_job_that_is_done_runs_no_longer() -> None:
    """Whoever waited may submit it again at once: that is for nothing while it is among those that run."""
    for _ in range(30):
        job = background.Job("not a module", native.host(), "registers")
        background.submit(job)
        while True:
            with background._lock:
                if job.done.is_set():
                    assert job not in background._running
                    break


def test_jobs_that_have_not_begun_are_taken_back() -> None:
    text = "define i64 @f{}() {{\nentry:\n  ret i64 0\n}}\n"
    jobs = [background.Job(text.format(k), native.host(), "registers") for k in range(50)]
    for job in jobs:
        background.submit(job)
    background.withdraw(jobs)
    background.submit(jobs[-1])
    assert background.image_of(jobs[-1])
    for job in jobs:
        background.submit(job)
    assert all(background.image_of(job) for job in jobs)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_compiles_what_its_parent_had_begun() -> None:
    job = background.Job("define i64 @f() {\nentry:\n  ret i64 1\n}\n", native.host(), "registers")
    child = os.fork()
    if child == 0:
        background.submit(job)
        os._exit(0 if background.image_of(job) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_second_thread_helps_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def run(job: background.Job) -> None:
        both.wait(10)  # ends only where two threads are at it
        job.image = b"code"
        job.done.set()

    monkeypatch.setattr(background.Job, "run", run)
    monkeypatch.setattr(background, "_cores", lambda: 2)
    jobs = [background.Job("", native.host(), "registers") for _ in range(2)]
    for job in jobs:
        background.submit(job)
    assert background.image_of(jobs[0]) == b"code" and jobs[1].done.wait(10)


def test_compilers_work_side_by_side() -> None:
    met = threading.Barrier(2)
    contexts = []

    def work() -> None:
        with free_compiler() as compiler, closing(compiler.parsed("define i64 @f() {\nentry:\n  ret i64 1\n}\n")) as module:
            met.wait(10)
            compiler.run_passes(module, native.host(), "registers")
            assert compiler.emit_object(module, native.host(), 2)
            contexts.append(compiler)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, contexts))) == 2


def test_turns_are_short_while_llvm_works(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = sys.getswitchinterval(), []
    monkeypatch.setattr(background.Job, "run", lambda job: (seen.append(sys.getswitchinterval()), job.done.set()))
    sys.setswitchinterval(0.003)
    try:
        job = background.Job("", native.host(), "registers")
        background.submit(job)
        assert job.done.wait(60)
        for thread in threading.enumerate():
            if thread.name == "tensorexpr-llvm":
                thread.join(60)
        assert seen[0] < 0.001
        assert sys.getswitchinterval() == pytest.approx(0.003)
    finally:
        sys.setswitchinterval(before)


def test_collection_is_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with collecting_less(), collecting_less():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
    gc.set_threshold(0)
    try:
        with collecting_less():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_what_a_compilation_leaves_is_old_and_not_looked_at_until_there_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    seen: list[int] = []
    monkeypatch.setattr(collecting, "_aged", 0)
    before = gc.get_threshold()
    gc.unfreeze()  # what the tests froze
    gc.collect()
    gc.set_threshold(700, 10, 10)
    gc.callbacks.append(lambda phase, about: seen.append(about["generation"]))
    try:
        with collecting_less():
            left = [weakref.ref(Cycle()) for _ in range(5000)]
        assert not seen
        assert all(one() is not None for one in left)
        assert gc.get_count()[0] < 1000
        assert gc.get_freeze_count() == 0
        monkeypatch.setattr(collecting, "_MOST_AGED", 5000)
        with collecting_less():
            left += [weakref.ref(Cycle()) for _ in range(5000)]
        assert seen
        assert all(one() is None for one in left)
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*before)
        gc.freeze()
