"""The law of whole numbers in lanes (`test_whole_numbers`) is itself tested: faults planted in what emits index arithmetic are found.

A mutant is one function of the emitter with a piece of its text replaced: a limit a bit too far, a bound of the wrong corner, a case
forgotten. `make test-seeds` plants them all; a run plants the first few. What changes nothing that can be computed is listed, with
the reason, in `EQUIVALENT`, where only the text to be replaced is looked for.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tensorexpr.codegen.llvm.emitter import expressions as emit_expressions
from tensorexpr.codegen.llvm.emitter import integers as emit_integers
from tensorexpr.codegen.llvm.emitter import ops as emit_ops
from tensorexpr.codegen.llvm.emitter import statements as emit_statements
from tensorexpr.codegen.llvm.emitter.module import ModuleEmitter
from tensorexpr.codegen.llvm.text import builder, values
from tensorexpr.codegen.llvm.text import casts as emit_casts
from tests.codegen.llvm.below import machines
from tests.codegen.llvm.test_whole_numbers import assert_law
from tests.seeds import is_campaign

Mutant = tuple[Any, str, str, str]
"""Where a function stands, its name, a piece of its text and what takes its place."""
B, E, S = builder.Builder, emit_expressions.Expressions, emit_statements.Statements
MUTANTS: list[Mutant] = [
    (emit_integers, "_by_constant", "low // divisor) == high // divisor", "low // divisor) >= high // divisor - 1"),
    (values, "sum_of", "a.low + b.low, a.high + b.high", "a.low + b.low, a.high + b.low"),
    (S, "_piece", "start.high + width - 1", "start.high"),
    (B, "halved", "limit = 1 << 31", "limit = 1 << 32"),
    (values, "fits", "1 << (bits - 1)", "1 << bits"),
    (values, "bounded", "high > _LIMIT", "high > _LIMIT << 9"),
    (B, "wrapping", "value.low is not None and value.high is not None", "True"),
    (B, "wrapping", "value.multiple & -value.multiple", "value.multiple"),
    (E, "_may_wrap", "return not open_", "return False"),
    (E, "_may_wrap", "isinstance(n, Access | Cast)", "False"),
    (emit_casts, "cast", "(source.is_signed or value.low >= 0)", "True"),
    (emit_integers, "_by_constant", "not dtype.is_signed and (x.low is None or x.low < 0)", "False"),
    (emit_integers, "_by_constant", "if divisor <= 1 << 63", "if True"),
    (emit_integers, "_by_constant", "high < 1 << 31 and divisor < 1 << 31", "high < 1 << 33 and divisor < 1 << 31"),
    (emit_integers, "_by_constant", "high < 1 << 31 and divisor < 1 << 31", "high < 1 << 31 and divisor < 1 << 40"),
    (emit_integers, "_by_constant", "if divisor < 1 << 31:", "if divisor < 1 << 40:"),
    (emit_integers, "_by_constant", "(low is not None and low >= 0)", "(low is not None and low >= -8)"),
    (emit_integers, "_by_constant", "(b.sub(x, turns * divisor) if turns else x)", "x"),
    (emit_integers, "_ramp_by_constant", "0 <= reach < common", "0 <= reach <= common"),
    (emit_integers, "_ramp_by_constant", "0 <= reach < common", "reach < common"),
    (emit_integers, "_ramp_by_constant", "x.stride % divisor == 0", "x.stride % 2 == 0"),
    (emit_ops, "_decide", "high < least else False", "high <= least else False"),
    (emit_ops, "_decide", "high <= least else False if low > greatest", "high <= least else False if low >= greatest"),
    (emit_ops, "_compare_lanes", "x.low is None or y.low is None", "False"),
    (emit_ops, "_compare_lanes", "distance, -1)", "distance, 0)"),
    (emit_ops, "_compare_lanes", ", x.lanes)\n    numbers", ", x.lanes - 1)\n    numbers"),
    (emit_ops, "_extreme", "(x.low >= y.high) if greater", "(x.high >= y.high) if greater"),
    (emit_ops, "_extreme", "(y.low >= x.high) if greater", "(y.high >= x.high) if greater"),
    (emit_ops, "_abs", "max(-x.low, x.high)", "x.high"),
    (emit_ops, "_abs", "max(x.low, -x.high, 0)", "max(x.low, -x.high, 1)"),
    (values, "product_of", "for x in (a.low, a.high)", "for x in (a.high,)"),
    (values, "difference_of", "a.low - b.high, a.high - b.low", "a.low - b.low, a.high - b.high"),
    (B, "select", "min(a.low, b.low)", "a.low"),
    (B, "select", "max(a.high, b.high)", "a.high"),
    (emit_casts, "_integer_to_integer", "low = int(source.least)", "low = 0"),
    (emit_casts, "_integer_to_integer", "int(dtypes.int32.greatest)", "int(dtypes.uint32.greatest)"),
    (S, "counted", "stop.high - step", "stop.high - step - 1"),
    (B, "sub", "a.stride - b.stride", "a.stride + b.stride"),
    (B, "mul", "a.multiple * abs(factor)", "a.multiple * 2 * abs(factor)"),
    (B, "add", "gcd(a.multiple, b.multiple)", "max(a.multiple, b.multiple)"),
    (B, "half", 'self._steps("i32", value.lanes, value.stride, 0)', 'self._steps("i32", value.lanes, 1, 0)'),
    (ModuleEmitter, "_size_value", "high=MOST_SIZE", "high=1 << 30"),
]
EQUIVALENT: list[Mutant] = [
    # A bound is within the limit already, and so is its negative.
    (values, "negated", "value.low is None else bounded(-value.high, -value.low)", "value.low is None else (-value.high, -value.low)"),
]


def changed(owner: Any, name: str, old: str, new: str) -> Callable[..., Any]:
    """The function with a piece of its text replaced."""
    found = owner.__dict__[name]
    text = textwrap.dedent(inspect.getsource(inspect.unwrap(getattr(found, "__func__", found))))
    assert old in text, f"{name}: expected {old!r} in its text"
    module = owner if inspect.ismodule(owner) else sys.modules[owner.__module__]
    made: dict[str, Any] = {}
    exec(compile(text.replace(old, new), f"{name} with {new!r}", "exec"), module.__dict__, made)
    return made[name]


@contextlib.contextmanager
def planted(owner: Any, name: str, old: str, new: str) -> Iterator[None]:
    """The mutant in place of the function, wherever a module of the emitter has it."""
    found, mutant = owner.__dict__[name], changed(owner, name, old, new)
    users = [owner]
    if inspect.ismodule(owner):
        rooms = [m for n, m in sorted(sys.modules.items()) if n.startswith("tensorexpr.codegen.llvm")]
        users += [m for m in rooms if m is not owner and m.__dict__.get(name) is found]
    for user in users:
        setattr(user, name, mutant)
    try:
        yield
    finally:
        for user in users:
            setattr(user, name, found)


PLANTED = MUTANTS if is_campaign() else MUTANTS[:3]


@pytest.mark.parametrize("mutant", PLANTED[:1] + PLANTED[3:], ids=lambda m: f"{m[1]}: {m[3]}")
def test_planting_alone_changes_nothing(mutant: Mutant) -> None:
    owner, name, old, _ = mutant
    with planted(owner, name, old, old):
        assert_law(0, 40, machines()[0])


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda m: f"{m[1]}: {m[3]}")
def test_the_law_finds(mutant: Mutant) -> None:
    with planted(*mutant):
        for number in range(40):
            try:
                assert_law(number, 120, machines()[number % len(machines())])
            except Exception:
                return
    pytest.fail("expected the law of whole numbers to fail with the mutant planted, it holds")


@pytest.mark.parametrize("mutant", EQUIVALENT, ids=lambda m: f"{m[1]}: {m[3]}")
def test_what_is_equivalent_is_there(mutant: Mutant) -> None:
    assert changed(*mutant) is not None
