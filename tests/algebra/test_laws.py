"""Law: reductions over random polyhedra with random terms are the same over running tables, wherever some can be made."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import counts, recurrences, with_recurrences
from tensorexpr.autodiff.sweep import reverse
from tensorexpr.interpret import evaluate_program
from tensorexpr.language import program_of
from tensorexpr.simplify import simplify
from tests.seeds import share_of

Form = Callable[[tuple], Any]
DTYPES = {"prod": ("float64",), "all": ("bool",), "any": ("bool",), "user": ("int64", "float64"), "argmax": ("float64", "int32")}
OTHERS = ("float64", "int32", "float32", "float16")


@pytest.fixture
def always(monkeypatch):
    """Tables wherever they can be made, also where they cost more."""
    monkeypatch.setattr(counts.Count, "pays", True)
    monkeypatch.setattr(recurrences, "MOST_COPIES", 1 << 20)


def linear(factors: list[int], constant: int, divisor: int = 1) -> Form:
    """An affine form of indices, or its quotient."""

    def form(at: tuple) -> Any:
        value = sum((f * i for f, i in zip(factors, at, strict=False) if f), constant)
        return value if divisor == 1 else value // divisor

    return form


def bound(draw: random.Random, names: int) -> Form:
    return linear([draw.choice((0, 0, 1, 1, -1, 2)) for _ in range(names)], draw.randint(-2, 4), draw.choice((1, 1, 1, 1, 2, 3)))


def least(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else te.minimum(a, b)


def greatest(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else te.maximum(a, b)


def bounds_of_axis(draw: random.Random, names: int) -> Callable[[tuple], tuple[Any, Any]]:
    """Start and stop of an axis: prefixes, suffixes, windows, clipped or not, and what is none of these."""
    f, g, n, w, clip = bound(draw, names), bound(draw, names), draw.randint(1, 7), draw.randint(1, 5), draw.random() < 0.5
    match draw.choice(("prefix", "prefix", "suffix", "window", "free")):
        case "prefix":
            return lambda at: (0, least(f(at), n) if clip else f(at))
        case "suffix":
            return lambda at: (greatest(f(at), 0) if clip else f(at), n)
        case "window":
            return lambda at: (greatest(f(at), 0), least(f(at) + w, n)) if clip else (f(at), f(at) + w)
    return lambda at: (f(at), g(at))


def random_reduction(seed: int, within: Callable[..., te.Tensor] = te.compute) -> tuple[te.Tensor, dict[te.Tensor, np.ndarray]] | None:
    """A definition that reduces over one or two axes, with data; None where it would have no point, or too many."""
    draw, generator = random.Random(seed), np.random.default_rng(seed)
    shape = tuple(draw.randint(1, 6) for _ in range(draw.randint(1, 3)))
    axes = [bounds_of_axis(draw, len(shape) + at) for at in range(draw.choice((1, 1, 1, 2)))]
    names = len(shape) + len(axes)
    reads = [[subscript(draw, len(shape), len(axes)) for _ in range(draw.choice((1, 1, 2)))] for _ in range(draw.choice((1, 1, 2)))]
    condition = bound(draw, names) if draw.random() < 0.3 else None
    points = list(itertools.product(*map(range, shape)))
    for axis in axes:
        points = [(*at, k) for at in points for k in range(*axis(at))]
    if not 0 < len(points) < 2000:
        return None
    kinds = ("sum", "sum", "prod", "max", "min", "all", "any") + (("argmax", "user") if len(axes) == 1 else ())
    kind = draw.choice(kinds)
    dtype = draw.choice(DTYPES.get(kind, OTHERS))
    data: dict[te.Tensor, np.ndarray] = {}
    sources = []
    for number, forms in enumerate(reads):
        low = [min(map(f, points)) for f in forms]
        extents = tuple(max(map(f, points)) - a + 1 for f, a in zip(forms, low, strict=True))
        if np.prod(extents) > 2000:
            return None
        tensor = te.placeholder(extents, dtype, name=f"x{number}")
        array = generator.choice([1.0, -1, 2, 0.5], extents) if kind == "prod" else generator.integers(-3, 4, extents)
        data[tensor] = array = array.astype(dtype)
        if dtype.startswith("float") and kind != "user" and draw.random() < 0.2:
            array.flat[generator.integers(array.size)] = draw.choice((np.nan, np.inf, -np.inf))
        sources.append((tensor, forms, low))

    def term(at: tuple) -> Any:
        first, *others = (t[tuple(f(at) - a for f, a in zip(forms, low, strict=True))] for t, forms, low in sources)
        for other in others:
            first = first & other if dtype == "bool" else first * other
        return first

    def reduced(at: tuple, left: list) -> Any:
        start, stop = left[0](at)
        given = {"where": lambda k: condition((*at, k + start)) >= 0} if condition and len(left) == 1 else {}
        if kind == "user":
            pair = [lambda k: term((*at, k + start)), lambda k: term((*at, k + start)) + 1]
            return te.reduce(composed, (1, 0), lambda k: tuple(part(k) for part in pair), stop - start, **given)[1]
        inner = (lambda k: reduced((*at, k + start), left[1:])) if left[1:] else (lambda k: term((*at, k + start)))
        return getattr(te, kind)(inner, stop - start, **given)

    try:
        return within(shape, lambda *at: reduced(at, axes)), data
    except te.DefinitionError:  # a maximum over nothing
        return None


def composed(a: tuple, b: tuple) -> tuple:
    """One affine function after another: associative, and the order matters."""
    return a[0] * b[0], a[0] * b[1] + a[1]


def subscript(draw: random.Random, outer: int, inner: int) -> Form:
    factors = [draw.choice((0, 0, 1, 0, -1)) for _ in range(outer)] + [draw.choice((0, 1, 1, -1, 2)) for _ in range(inner)]
    return linear(factors, 0)


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    return np.array_equal(np.asarray(found, np.float64), np.asarray(expected, np.float64), equal_nan=True)


ONCE_WRONG = (1189, 2057, 21210)
"""Terms apart read under the mask of the other direction; a fold that cannot be differentiated; a window clipped at each row."""


@pytest.mark.parametrize("seed", [*share_of(range(360)), *ONCE_WRONG])
def test_tables_keep_every_value(seed, always):
    made = random_reduction(seed)
    if made is None:
        return
    tensor, data = made
    program = program_of([tensor], list(data))
    tabled = with_recurrences(simplify(program))
    assert with_recurrences(tabled) is tabled
    arrays = {i.name: array for i, array in zip(program.inputs, data.values(), strict=True)}
    (expected,) = evaluate_program(program, arrays).values()
    (found,) = evaluate_program(tabled, arrays).values()
    assert same(found, expected)


def in_steps(shape: tuple, value: Callable[..., Any]) -> te.Tensor:
    """States that are a value from the second step on: under a condition on steps, beside a state."""
    start = te.compute(shape, lambda *at: te.cast(0, te.compute(shape, value).dtype))
    return te.scan(lambda t, state: te.compute(shape, lambda *at: te.where(t >= 1, value(*at), state[at])), start, 3)


@pytest.mark.parametrize("seed", share_of(range(4000, 4240)))
def test_tables_in_steps_of_a_scan_keep_every_value(seed, always):
    made = random_reduction(seed, in_steps)
    if made is None:
        return
    tensor, data = made
    program = program_of([tensor], list(data))
    tabled = with_recurrences(simplify(program))
    arrays = {i.name: array for i, array in zip(program.inputs, data.values(), strict=True)}
    (expected,) = evaluate_program(program, arrays).values()
    (found,) = evaluate_program(tabled, arrays).values()
    assert same(found, expected)
    if seed % 8 == 0:
        assert same(te.build(tensor, list(data))(*data.values()), expected)


@pytest.mark.parametrize("seed", share_of(range(2000, 2240)))
def test_gradients_of_tables_are_those_of_the_reductions(seed, always, monkeypatch):
    """Products, extremes (the first winner of equals) and folds, differentiated as tables and as they are written."""
    made = random_reduction(seed)
    if made is None or made[0].dtype.name != "float64" or not all(np.isfinite(array).all() for array in made[1].values()):
        return
    tensor, data = made
    head = te.placeholder(tensor.shape, "float64", name="head")
    arrays = {t.name: array for t, array in (*data.items(), (head, np.random.default_rng(seed).integers(1, 4, tensor.shape) * 1.0))}

    def gradients() -> list[np.ndarray]:
        program = program_of(list(te.gradient(tensor, list(data), head)), [*data, head])
        return list(evaluate_program(program, arrays).values())

    try:
        found = gradients()
        monkeypatch.setattr(reverse, "running_table", lambda *_: None)
        expected = gradients()
    except te.DifferentiationError:  # a fold whose steps have no bound as it is written
        return
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", share_of(range(1000, 1030)))
def test_tables_are_compiled(seed, always):
    made = random_reduction(seed)
    if made is None:
        return
    tensor, data = made
    program = program_of([tensor], list(data))
    (expected,) = evaluate_program(program, {i.name: a for i, a in zip(program.inputs, data.values(), strict=True)}).values()
    assert same(te.build(tensor, list(data))(*data.values()), expected)
