"""Kernels that differ in numbers alone share code: the same bits as code of their own, failures as before, and few modules for LLVM."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.llvm.process import background, native, numbers
from tensorexpr.codegen.llvm.process.numbers import Code, Numbers
from tensorexpr.codegen.memo import forget
from tensorexpr.errors import OutOfBoundsError
from tests.random_programs import random_inputs, random_program
from tests.seeds import share_of


@pytest.fixture(autouse=True)
def in_units(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every nest is compiled kernel by kernel."""
    monkeypatch.setattr(native, "MOST_TOGETHER", 0)
    forget()
    yield
    forget()


def alone(*given: object) -> None:
    """No code for several texts."""


def shared() -> list[Code]:
    """The code of all units that take numbers from a table."""
    return [unit.code for family in numbers._families.values() for unit in family.units.values() if unit.code.values]


def products(extents: list[int], rows: int = 24) -> tuple[list[te.Tensor], list[te.Tensor]]:
    """Products whose inner extents differ, and with them a stride and the length of a loop."""
    inputs, outputs = [], []
    for number, extent in enumerate(extents):
        a, b = te.placeholder((rows, extent), name=f"a{number}"), te.placeholder((extent, 64), name=f"b{number}")
        inputs += [a, b]
        outputs.append(te.compute((rows, 64), lambda i, j, a=a, b=b, n=extent: te.sum(lambda k: a[i, k] * b[k, j], n), name=f"c{number}"))
    return inputs, outputs


def test_code_of_several_gives_the_bits_of_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = products([96, 160, 224, 352, 96, 288, 544, 416])
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(tuple(map(int, t.shape)), np.float32) for t in inputs]
    found = te.build(outputs, inputs)(*arrays)
    codes = shared()
    assert len(codes) > len({code.symbol for code in codes}) > 0
    forget()
    monkeypatch.setattr(numbers, "_shared", alone)
    for one, other in zip(found, te.build(outputs, inputs)(*arrays), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not shared()


@pytest.mark.parametrize("seed", share_of(range(12)))
def test_programs_at_several_sizes_share_code(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random programs behind each other in one process, each as code of its own and as what others have left."""
    for number in range(seed * 3, seed * 3 + 3):
        program = random_program(number, most=4)
        inputs = random_inputs(program, number)
        arrays = [inputs[item.name] for item in program.inputs]
        found = []
        for sharing in (True, False):
            with monkeypatch.context() as patch:
                if not sharing:
                    forget()
                    patch.setattr(numbers, "_shared", alone)
                try:
                    found.append(build_program(program)(*arrays))
                except te.TensorExprError as error:
                    found.append(str(error))
        one, other = found
        assert type(one) is type(other)
        if isinstance(one, str):
            assert one == other
            continue
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_failed_check_tells_its_own_numbers() -> None:
    at = te.placeholder((4,), "int64", name="at")
    xs = [te.placeholder((extent, 40), name=f"x{extent}") for extent in (50, 70, 90)]
    ys = [te.compute((4, 40), lambda i, j, x=x: x[at[i], j] * 2, name=f"y{x.shape[0]}") for x in xs]
    f = te.build(ys, [at, *xs])
    arrays = [np.ones((extent, 40), np.float32) for extent in (50, 70, 90)]
    assert len(f(np.array([0, 1, 2, 49]), *arrays)) == 3
    with pytest.raises(OutOfBoundsError, match="50"):
        f(np.array([0, 1, 2, 50]), *arrays)
    with pytest.raises(OutOfBoundsError, match="-91"):
        f(np.array([0, 1, 2, -91]), *arrays)


def test_threads_that_compile_at_once_share_code() -> None:
    found: dict[int, np.ndarray] = {}

    def compiled(extent: int) -> None:
        (a, b), (c,) = products([extent])
        found[extent] = te.build(c, [a, b])(np.ones((24, extent), np.float32), np.ones((extent, 64), np.float32))

    extents = [96, 160, 224, 288, 352, 416]
    threads = [threading.Thread(target=compiled, args=(extent,)) for extent in extents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for extent in extents:
        np.testing.assert_array_equal(found[extent], np.full((24, 64), extent, np.float32))


TEXT = """define hidden void @te.unit(ptr noalias align 8 %x.0, ptr noalias readonly %numbers) noinline {
entry:
  %t1 = getelementptr inbounds i64, ptr %x.0, i64 A
  %t2 = load i64, ptr %t1, align 8
  %t3 = mul i64 %t2, B
  %t4 = add i64 %t3, -7
  %t5 = sub i64 C, %t4
  store i64 %t5, ptr %x.0, align 8
  ret void
}
"""


def written(a: int, b: int, c: int) -> str:
    return TEXT.replace("A", str(a)).replace("B", str(b)).replace("C", str(c))


def code_of(text: str) -> Code:
    return numbers.unit_of(text, False, native.host(), "registers").code


def test_what_follows_from_another_number_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "taken_back", lambda job: False)
    assert code_of(written(2, 6, 5)).values == ()
    second = code_of(written(3, 9, 5))
    assert second.values == (3,)
    assert "mul i64 %number..0, 3" in second.job.text
    assert code_of(written(7, 21, 5)) == second._replace(values=(7,))
    assert code_of(written(2, 6, 5)).values == ()  # it has code of its own
    other = code_of(written(7, 22, 5))
    assert other.symbol != second.symbol and other.values == (7, 22)
    assert code_of(written(4, 12, 5)).symbol in {second.symbol, other.symbol}
    last = code_of(written(4, 12, 6))
    assert last.values == (4, 6, 12)


def test_numbers_that_are_too_many_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "MOST_VALUES", 2)
    assert code_of(written(2, 3, 5)).values == () == code_of(written(3, 5, 11)).values
    assert code_of(written(3, 3, 11)).values == ()


def test_members_that_llvm_has_not_begun_go_over() -> None:
    unit = numbers.unit_of(written(2, 6, 5), False, native.host(), "registers")
    first = unit.code
    second = code_of(written(3, 9, 5))
    assert unit.code == second._replace(values=(2,))
    background.submit(second.job)
    assert background.image_of(second.job)
    assert background.taken_back(first.job)  # nobody has asked for it
    assert not background.taken_back(second.job)


def test_a_function_without_a_table_keeps_its_numbers() -> None:
    def text(number: int) -> str:
        return written(1, 2, 3) + f"\ndefine internal i64 @f(i64 %x) {{\nentry:\n  %y = add i64 %x, {number}\n  ret i64 %y\n}}\n"

    assert code_of(text(4)).values == () == code_of(text(5)).values


def test_which_numbers_differ_and_how_they_follow() -> None:
    members: list[Numbers] = [(4, 8, 0, 3), (6, 12, 0, 3), (10, 20, 0, 3)]
    assert numbers._terms(members) == {0: (0, 1), 1: (0, 2)}
    assert numbers._terms([(1, 4097), (2, 8194)]) == {0: (0, 1), 1: (1, 1)}  # no multiple that is found often
    assert numbers._terms([(0, 0), (2, -4)]) == {0: (0, 1), 1: (1, 1)}  # none is told from nothing
