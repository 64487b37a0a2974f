"""Which programs share records: by text, with numbers by class."""

import pytest

import tensorexpr as te
from tensorexpr.codegen.tuning.operation import operation_of, shape_class
from tensorexpr.simplify import simplify
from tests.random_programs import random_program
from tests.seeds import share_of


def matmul(n: int, k: int, m: int, scale: float = 1.0, name: str = "c", dtype: str = "float32") -> str:
    a, b = te.placeholder((n, k), dtype, name="a"), te.placeholder((k, m), dtype, name="b")
    c = te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k) * scale, name=name)
    return operation_of(simplify(te.program_of([c]))).text


def test_the_text_says_what_is_shared():
    assert matmul(1000, 777, 3, 2.5) == (
        "a: f32[~512, ~512] = input() b: f32[~512, 3] = input() c[i, j]: f32[~512, 3] = sum(a[i, r] * b[r, j] for r in range(~512)) * # "
        "return c"
    )


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "0"),
        (3, "3"),
        (16, "16"),
        (17, "~16"),
        (31, "~16"),
        (32, "~32*"),
        (777, "~512"),
        (1000, "~512"),
        (1008, "~512*"),
        (1024, "~1024*"),
    ],
)
def test_classes(number, name):
    assert shape_class(number) == name


def test_extents_of_a_class_are_shared_and_others_are_not():
    base = matmul(1000, 777, 300)
    assert matmul(900, 513, 511) == base
    assert len({base, matmul(1024, 777, 300), matmul(1000, 784, 300), matmul(1000, 777, 3), matmul(1000, 777, 4)}) == 5


def test_values_of_constants_are_shared_and_dtypes_and_names_are_not():
    base = matmul(100, 100, 100, 2.5)
    assert matmul(100, 100, 100, 0.125) == base
    assert matmul(100, 100, 100, 2.5, dtype="float64") != base
    assert matmul(100, 100, 100, 2.5, name="d") != base


def test_tables_are_shared_by_their_types():
    def scaled(values: list[float]) -> str:
        x, table = te.placeholder((4,), name="x"), te.constant(values, name="table")
        return operation_of(simplify(te.program_of([te.compute((4,), lambda i: x[i] * table[i], name="y")]))).text

    assert scaled([1.0, 2.0, 3.5, 4.0]) == scaled([0.5, 2.0, 3.5, 9.0])
    assert "table: f64[4] = constant()" in scaled([1.0, 2.0, 3.5, 4.0])


def test_digests_are_of_the_text():
    seen: dict[str, str] = {}
    for seed in share_of(range(60)):
        operation = operation_of(random_program(seed))
        assert operation == operation_of(random_program(seed))
        assert seen.setdefault(operation.digest, operation.text) == operation.text
