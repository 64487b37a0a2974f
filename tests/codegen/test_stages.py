"""A default schedule whose kernels would take long to compile is not taken: code grows with the program, not with its copies."""

import warnings

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen import stages
from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.memo import forget
from tensorexpr.codegen.nest.walks import operations_written
from tensorexpr.codegen.stages import PLAIN, default_schedule
from tensorexpr.codegen.target import H200, host_target
from tensorexpr.parse import parse_program
from tests.random_programs import random_program
from tests.seeds import share_of

CLASSES = """
sizes(n)
x: f64[n, n] = input()
y[j, i]: f64[n, n] = (
{terms}
)
return y
"""
TERM = (
    "    {sign} where(j % {by} == {rest}, sum(where(x[k, i] > {rest}.0, x[j, k] * x[k, (i + {rest}) % n], x[k, j]) for k in range(n)), 0.0)"
)


@pytest.fixture(autouse=True)
def nothing_made_before():
    forget()
    yield
    forget()


def of_classes(*periods):
    """A sum of terms of which each is there in one class of rows: their copies are as many as the periods have in common."""
    terms = [TERM.format(sign="+" if k else " ", by=by, rest=k % by) for k, by in enumerate(periods)]
    return parse_program(CLASSES.format(terms="\n".join(terms)))


def longest(schedule):
    nest = schedule.nest if schedule.origin == PLAIN else lowered(schedule)
    return max(operations_written(kernel.body) for kernel in nest.kernels)


@pytest.mark.parametrize("target", [host_target(), H200], ids=["cpu", "gpu"])
@pytest.mark.parametrize("periods", [(2, 3), (2, 3) * 4, (2, 3) * 8], ids=["2", "8", "16"])
def test_no_kernel_of_a_default_schedule_is_long(periods, target, monkeypatch):
    for name in ("MOST_WRITTEN", "MOST_WRITTEN_GPU"):
        monkeypatch.setattr(stages, name, 20_000)  # the copies of the classes of two terms are 31,000
    program = of_classes(*periods)
    schedule = default_schedule(program, target)
    assert longest(schedule) <= stages.MOST_WRITTEN


def test_the_gradient_of_a_product_keeps_its_tiles_on_a_gpu(monkeypatch):
    """A tile of registers that loops are written out for is 75,000 operations, nearly all of them indices: no reason for plain loops, be
    they too many for a CPU."""
    monkeypatch.setattr(stages, "MOST_WRITTEN", 50_000)
    a, b, head = (te.placeholder((4096, 4096), name=name) for name in ("a", "b", "head"))
    y = te.compute((4096, 4096), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 4096), name="y")
    schedule = default_schedule(te.program_of([y, *te.gradient(y, [a, b], head)], [a, b, head]), H200)
    assert schedule.origin != PLAIN and longest(schedule) > stages.MOST_WRITTEN


@pytest.mark.parametrize("seed", share_of(range(20)))
def test_the_plain_schedule_is_the_default_where_kernels_would_be_long(seed, monkeypatch):
    program = random_program(seed)
    monkeypatch.setattr(stages, "faster", lambda program, planned, planners: None)
    wanted = longest(default_schedule(program, host_target()))
    monkeypatch.setattr(stages, "MOST_WRITTEN", wanted)
    assert default_schedule(program, host_target()).origin != PLAIN
    monkeypatch.setattr(stages, "MOST_WRITTEN", wanted - 1)
    schedule = default_schedule(program, host_target())
    assert schedule.origin == PLAIN
    made, _ = stages.made_of_program(program, host_target(), lambda found: None)
    assert made.failure is None and made.schedule.origin == PLAIN and made.nest == schedule.nest


def test_code_that_would_be_long_is_right_and_says_nothing(monkeypatch):
    monkeypatch.setattr(stages, "MOST_WRITTEN", 10)
    x = te.placeholder((37, 19), name="x")
    y = te.compute((37,), lambda i: te.sum(lambda k: te.where(i % 3 == 1, x[i, k], 2 * x[i, k]), 19), name="y")
    data = np.arange(37 * 19, dtype=np.float32).reshape(37, 19)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert te.autoschedule(y).origin == PLAIN
        found = te.build(y, [x])(data)
    np.testing.assert_array_equal(found, te.evaluate(y, {x: data}))
