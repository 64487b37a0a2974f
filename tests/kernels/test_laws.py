"""Every law on every row of the case table.

Compiled code equals the interpreter and the independent reference; forward mode, reverse mode and finite differences agree; gathers
equal scatters; reads that are affine are gathers at the exact number of iterations; programs and gradients print, parse back and are
simplified already; nothing of the size of a Jacobian is stored; float32 is as accurate as float32 can be.

The tests of a row run one after the other (`conftest`), so what several of them need is made once and kept for a moment: what the row
is as a program, its gradient, and what the interpreter makes of both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.autodiff import jvp as push_forward
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Const, Program
from tensorexpr.op.check import Check
from tensorexpr.op.trees import leaves
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tests.autodiff.clean import smells
from tests.kernels.case import Case, as_float32, flat
from tests.kernels.table import ALL
from tests.seeds import is_campaign
from tests.tex import reads_as_latex

NAMES = [case.name for case in ALL]
ROWS = dict(zip(NAMES, ALL))
each_case = pytest.mark.parametrize("case", ALL, ids=NAMES)
SMOOTH = [case.name for case in ALL if case.differentiable and not case.kinks]
differentiable = pytest.mark.parametrize("case", [c for c in ALL if c.differentiable], ids=lambda c: c.name)
IN_FLOAT32 = [case.name for case in ALL if case.float32 is not None][:: 1 if is_campaign() else 3]


Made = TypeVar("Made")


def kept(make: Callable[..., Made]) -> Callable[..., Made]:
    """The function with its last few results kept, by the names of rows."""

    @lru_cache(maxsize=8)
    def by_name(name: str, *rest: Any) -> Made:
        return make(ROWS[name], *rest)

    @wraps(make)
    def found(case: Case, *rest: Any) -> Made:
        return by_name(case.name, *rest)

    return found


def floating(arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [a for a in arrays if a.dtype.kind == "f"]


def heads_of(case: Case) -> Any:
    """A head for each floating output, the same on every call: a bare one for a single output."""
    rng = np.random.default_rng(11)
    result = traced(case)[1]
    made = tuple(rng.standard_normal([int(n) for n in t.shape]).astype(t.dtype.numpy) for t in leaves(result) if t.dtype.is_float)
    return made if isinstance(result, tuple) else made[0]


def close(got: Any, expected: Any, relative: float) -> None:
    """Equal within `relative` of the largest value of each array."""
    ours, theirs = flat(got), flat(expected)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        finite = np.abs(other[np.isfinite(other)]) if other.dtype.kind == "f" else np.abs(other.astype(np.float64))
        np.testing.assert_allclose(mine, other, rtol=relative, atol=relative * max(1e-3, float(finite.max(initial=0.0))))


@kept
def traced(case: Case) -> tuple[list[te.Tensor], Any, list[te.Tensor]]:
    """Placeholders for the inputs, the results on them, and the floating placeholders."""
    return placed(case)


def placed(case: Case, floats: str = "float64") -> tuple[list[te.Tensor], Any, list[te.Tensor]]:
    """The row as tensors, as `traced`, its floats in a dtype."""
    counter = iter(range(1000))

    def place(tree: Any) -> Any:
        if isinstance(tree, tuple):
            return tuple(map(place, tree))
        if tree is None:
            return None
        return te.placeholder(tree.shape, floats if tree.dtype.kind == "f" else tree.dtype.name, name=f"in_{next(counter)}")

    inputs = [place(tree) for tree in case.arrays()]
    result = case.op(*inputs, **case.static)
    placeholders = [t for t in leaves(inputs) if t is not None]
    return placeholders, result, [t for t in placeholders if t.dtype.is_float]


@kept
def derived(case: Case, lowering: str | None = None) -> tuple[te.Gradient, Program]:
    """The gradient by all floating inputs, and its program: inputs, then a head for each floating output."""
    inputs, result, wrt = traced(case)
    outputs = [t for t in leaves(result) if t.dtype.is_float]
    heads = [te.placeholder(t.shape, t.dtype.name, name=f"head_{k}") for k, t in enumerate(outputs)]
    gradient = te.gradient(outputs, wrt, heads, lowering=lowering)
    return gradient, te.program_of(list(gradient), [*inputs, *heads])


@kept
def values(case: Case) -> tuple[np.ndarray, ...]:
    """The results as the interpreter has them."""
    inputs, outputs, _ = traced(case)
    return evaluated(te.program_of(list(leaves(outputs)), inputs), case.arrays())


@kept
def gradients(case: Case) -> tuple[np.ndarray, ...]:
    """The gradient by all floating inputs under the heads of `heads_of`, as the interpreter has it."""
    return evaluated(derived(case)[1], (*case.arrays(), heads_of(case)))


def evaluated(program: Program, arrays: Any) -> tuple[np.ndarray, ...]:
    found = evaluate_program(program, dict(zip([item.name for item in program.inputs], flat(arrays), strict=True)))
    return tuple(found[name] for name in program.outputs)


@each_case
def test_value(case: Case) -> None:
    """Compiled in float64, but for the rows whose values and gradients `test_float32` compiles as one function."""
    arrays, result = case.arrays(), values(case)
    if is_campaign() or case.name not in IN_FLOAT32:
        result = tuple(flat(case.op(*arrays, **case.static)))
        close(result, values(case), 1e-12)
    if case.numpy is not None:
        close(result, case.numpy(*[a for a in arrays if a is not None]), 1e-11)


@differentiable
def test_derivatives(case: Case) -> None:
    """Compiled gradients are those of the interpreter (those of rows that `test_float32` takes are compiled there alone, unless in a
    campaign); forward mode equals reverse mode, and both equal finite differences where the operation is smooth. Forward mode is compiled
    for every eighth of the smooth rows, through `te.check_gradient`."""
    arrays, heads = case.arrays(), heads_of(case)
    compiled = is_campaign() or case.name not in IN_FLOAT32
    pulled: Any = gradients(case)
    if compiled:
        pulled = flat(te.vjp(case.op)(*arrays, heads, **case.static))
        close(pulled, gradients(case), 1e-9)
    if not case.kinks and SMOOTH.index(case.name) % 8 == 0:
        te.check_gradient(case.op, *arrays, **case.static)
        return
    rng = np.random.default_rng(5)
    moves = flat(tuple(_like(tree, rng) for tree in arrays if floating(flat(tree))))
    forward = sum(np.vdot(h, t) for h, t in zip(flat(heads), tangents(case, moves), strict=True))
    reverse = sum(np.vdot(m, g) for m, g in zip(moves, pulled, strict=True))
    assert abs(forward - reverse) <= 1e-9 * max(1.0, abs(forward), abs(reverse))
    if not case.kinks:
        check = Check(case.op, *case.op.arrays(arrays, case.static))
        numeric, uncertainty = check.numeric(check.directions)
        bare = tuple(check.heads) if check.several else check.heads[0]
        moves = [move for move in leaves(check.directions) if move is not None]
        moved = te.vjp(case.op)(*arrays, bare, **case.static) if compiled else evaluated(derived(case)[1], (*arrays, bare))
        slope = sum(np.vdot(m, g) for m, g in zip(moves, flat(moved), strict=True))
        assert abs(slope - numeric) <= check.tolerance(uncertainty, numeric, slope)


def tangents(case: Case, moves: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The derivative of the floating results along a direction, as the interpreter has it."""
    inputs, result, wrt = traced(case)
    directions = [te.placeholder(t.shape, t.dtype.name, name=f"move_{k}") for k, t in enumerate(wrt)]
    outputs = [t for t in leaves(result) if t.dtype.is_float]
    program = te.program_of(list(push_forward(outputs, wrt, directions)), [*inputs, *directions])
    return evaluated(program, (*case.arrays(), *moves))


def _like(tree: Any, rng: np.random.Generator) -> Any:
    """A tangent per floating leaf."""
    if isinstance(tree, tuple):
        return tuple(_like(item, rng) for item in tree if floating(flat(item)))
    return rng.standard_normal(tree.shape)


@differentiable
def test_reads_are_turned_around_exactly(case: Case) -> None:
    """Affine reads become gathers that visit exactly the reads; nothing of the size of a Jacobian is stored; scatters agree (of every
    second row, unless in a campaign)."""
    gradient, program = derived(case)
    rows = gradient.report().rows
    data_dependent = [row for row in rows if row.lowering in ("segments", "atomics")]
    assert bool(data_dependent) == case.scatters, f"expected scatters: {case.scatters}, got {[(r.access, r.lowering) for r in rows]}"
    for row in rows:
        if row not in data_dependent:
            assert row.iterations == row.reads, row
    inputs, result, _ = traced(case)
    largest_in, largest_out = (max(int(np.prod(t.shape)) for t in tensors) for tensors in (inputs, list(leaves(result))))
    if min(largest_in, largest_out) > 16:
        for definition in program.definitions:
            for name, type_ in definition.results:
                extents = [n.value for n in type_.shape if isinstance(n, Const)]
                assert np.prod(extents) < largest_in * largest_out, f"{name} has the size of a Jacobian"

    if is_campaign() or NAMES.index(case.name) % 2 == 0:
        forced = derived(case, "segments")[1]
        close(gradients(case), evaluated(forced, (*case.arrays(), heads_of(case))), 1e-9)


@each_case
def test_programs_print_parse_and_are_simplified(case: Case) -> None:
    inputs, result, _ = traced(case)
    programs = [te.program_of(list(leaves(result)), inputs)]
    if case.differentiable:
        programs.append(derived(case)[1])
    for program in programs:
        constants = {c.name: c.data for c in program.constants}
        assert parse_program(print_program(program), constants) == program
        simple = simplify(program)
        assert simplify(simple) is simple


@differentiable
def test_gradients_have_nothing_superfluous(case: Case) -> None:
    """They are clean formulas: an oracle that tries all points finds nothing superfluous in any of them."""
    _, program = derived(case)
    _, result, _ = traced(case)
    forward = frozenset(name for d in te.program_of(list(leaves(result))).definitions for name, _ in d.results)
    assert smells(program, forward) == []


@each_case
def test_formulas(case: Case) -> None:
    """LaTeX reads them."""
    _, outputs, _ = traced(case)
    reads_as_latex(te.latex(list(leaves(outputs))))
    if case.differentiable:
        reads_as_latex(te.latex(derived(case)[0]))


@pytest.mark.parametrize("case", [ROWS[name] for name in IN_FLOAT32], ids=lambda c: c.name)
def test_float32(case: Case) -> None:
    """Values and gradient as one function: the generated code is that of float64 in other vectors, so a run takes every third row."""
    assert case.float32 is not None
    inputs, result, wrt = placed(case, "float32")
    outputs = list(leaves(result))
    assert all(t.dtype.name == "float32" for t in outputs if t.dtype.is_float)
    floating = [t for t in outputs if t.dtype.is_float]
    heads = [te.placeholder(t.shape, t.dtype.name, name=f"head_{k}") for k, t in enumerate(floating)] if case.differentiable else []
    slopes = list(te.gradient(floating, wrt, heads)) if heads else []
    arrays = flat(case.arrays()) + (flat(heads_of(case)) if heads else [])
    found = te.build([*outputs, *slopes], [*inputs, *heads])(*map(as_float32, arrays))
    close(found[: len(outputs)], values(case), case.float32)
    if heads:
        close(found[len(outputs) :], gradients(case), 10 * case.float32)


def test_names_are_unique_and_every_kernel_has_a_row() -> None:
    assert len(set(NAMES)) == len(NAMES)
    used = {case.op.name for case in ALL}
    missing = [name for name in kernels.__all__ if isinstance(getattr(kernels, name), te.Op) and name not in used]
    assert not missing, f"expected a row in tests/kernels/table for {', '.join(missing)}"
