"""Random programs for laws that ask the IR: small ones, and some that are gradients, with sort plans and scatters in any order.

`meaning` says what a program computes and how far rounding may take a correct result from it (exactly that where the numbers are small
integers, which `random_inputs` draws by default), `assert_agrees` compares. `assert_same_bits` compares with what a pass made of a program.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Collection, Mapping

import numpy as np

import tensorexpr as te
from tensorexpr.errors import DifferentiationError, OutOfBoundsError
from tensorexpr.interpret import evaluate_program, extent_value
from tensorexpr.ir import Expr, Program, const
from tensorexpr.traversal import size_names
from tensorexpr.verify import verify
from tests.random_programs.bounds import Near, agrees
from tests.random_programs.patterns import Patterns
from tests.random_programs.reference import TooMuch, evaluate
from tests.random_programs.sample import Sample, arrays_for
from tests.random_programs.writer import Options, Refused

_KINKS = ("step", "casts", "data", "prod", "combiner", "scatter", "scan", "zero", "gradients", "winner", "argmax", "argmin", "min")
"""What smooth programs leave out, beside dtypes other than float64."""
_POINTS = 250
_BELOW: dict[str, Expr] = {}
"""The extents that index arrays of the programs made so far stay below, by the names of these inputs, each used once."""


def random_sample(seed: int, options: Options | None = None) -> Sample:
    """The random program of a seed, as text: the same for the same seed and options."""
    options = Options() if options is None else options
    for attempt in range(100):
        rng = random.Random(f"{seed} {attempt}")
        try:
            writer = Patterns(rng, options)
            writer.write(min(rng.choice((1, 1, 2, 2, 3, options.most)), options.most))
            return writer.sample(seed)
        except Refused:
            continue
    raise AssertionError(f"seed {seed}: expected a program in a hundred attempts")


def random_program(
    seed: int, *, floats_only: bool = False, differentiable: bool = False, without: Collection[str] = (), most: int = 3
) -> Program:
    """The random program of a seed, small enough for the interpreter. `differentiable` keeps to smooth functions of float64; one in
    ten programs is the gradient of one, unless "gradients" are left out. `most` bounds the patterns in a row."""
    left_out = frozenset(without) | (frozenset(_KINKS) if differentiable else frozenset())
    tag = f"_{zlib.crc32(repr((seed, floats_only, differentiable, sorted(left_out), most)).encode()) & 0xFFFFF:x}"
    options = Options(_POINTS, floats_only or differentiable, ("float64",) if differentiable else (), 0.25, left_out, most, tag)
    sample = random_sample(seed, options)
    traced = sample.traced()
    _BELOW.update(traced.below)
    if "gradients" in left_out or floats_only or random.Random(f"gradient {seed}").random() > 0.1:
        return traced.program
    outputs, wrt = ([t for t in some if t.dtype.is_float] for some in (traced.outputs, traced.inputs))
    if not outputs or not wrt:
        return traced.program
    heads = [te.placeholder(t.shape, t.dtype, name=f"H{k}") for k, t in enumerate(outputs)]
    try:
        found = te.gradient(outputs, wrt, heads, lowering=random.Random(seed).choice((None, None, "segments", "atomics")))
    except DifferentiationError:
        return traced.program
    return te.program_of(list(found), [*traced.inputs, *heads])


def random_sizes(program: Program, seed: int | random.Random, least: int = 0) -> dict[str, int]:
    """Values for the symbolic sizes of a program, from `least` to 5, at which no extent is negative."""
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)
    extents = [e for type_ in program.types.values() for e in type_.shape if size_names(e)]
    sizes: dict[str, int] = {}
    for attempt in range(30):
        sizes = {name: rng.randint(max(least, min(attempt // 4, 5)), 5) for name in program.sizes}
        if all(extent_value(e, sizes) >= 0 for e in extents):
            break
    return sizes


def random_inputs(
    program: Program, seed: int | random.Random, *, exact: bool = True, sizes: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Arrays for the inputs of a program; floats are small integers if `exact`, else normally distributed. Index arrays stay below
    their extents: those of random programs, and inputs of programs as text that are called `pick3_...` below 3."""
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)
    sizes = random_sizes(program, rng) if sizes is None else sizes
    told = {i.name: const(int(i.name[4 : i.name.index("_")])) for i in program.inputs if i.name.startswith("pick")}
    return arrays_for(program, _BELOW | told, sizes, rng.getrandbits(32), exact)


def meaning(program: Program, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None) -> dict[str, Near] | None:
    """The outputs of a program by name; None where an index leaves its tensor, or where the reference does not say what they are."""
    try:
        return evaluate(program, inputs, sizes)
    except (OutOfBoundsError, TooMuch):
        return None


def assert_agrees(program: Program, found: Mapping[str, np.ndarray], expected: Mapping[str, Near], remark: object = "") -> None:
    """Every output is what it is, as exactly as rounding lets it be."""
    for name in program.outputs:
        dtype = program.types[name].dtype
        assert found[name].dtype == dtype.numpy
        same = agrees(found[name], expected[name], dtype)
        assert np.all(same), f"{name}: expected {expected[name].value}, got {found[name]}\n{remark}\n{program}"


def assert_same_bits(program: Program, other: Program, seed: int) -> None:
    """A program that was made of another one is sound, and gives the same bits for random data (where no index leaves its tensor)."""
    verify(other)
    sizes = random_sizes(program, seed)
    arrays = random_inputs(program, seed, exact=False, sizes=sizes)
    with np.errstate(all="ignore"):
        try:
            expected = evaluate_program(program, arrays, sizes)
        except IndexError:
            return
        found = evaluate_program(other, arrays, sizes)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
