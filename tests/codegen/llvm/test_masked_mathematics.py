"""Functions in lanes of which some are off: rows of every length behind every offset, whatever stands in the others.

A function is computed in all lanes at once, with steps for numbers of which one is rare (angles beyond the plain reduction, denormals);
those that are off hold zeros, or anything that memory has. On lanes give the bits of the function of one number, the others keep what was
there, and nothing around is touched.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import compile_nest
from tensorexpr.codegen.llvm.emitter.ops import operations
from tensorexpr.codegen.nest import Block, If, Kernel, LoopNest
from tensorexpr.ir import Index, Size, apply, const
from tensorexpr.ops import OPS
from tests.codegen.llvm.below import machines
from tests.codegen.llvm.nests import buffer, guarded, loop, read, specials, write
from tests.seeds import share_of

LANES = 8
LONGEST = 2 * LANES + 1
NAMES = sorted(n for n in operations() if OPS[n].operands == "float" or n in ("floordiv", "mod", "pow", "maximum", "sign"))
TYPES = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
SETS = 4
o, lane, i, n, f = Index("o"), Index("l"), Index("i"), Size("n"), Size("f")


def masked(names: list[str], dtype: dtypes.DType) -> LoopNest:
    """Y[f + i] = name(X0[f + i], X1[f + i]) where M[i], for i < n, in lanes; a kernel for each name."""
    reach = apply("add", n, f)
    x = [buffer(f"X{k}", dtype, reach) for k in range(2)]
    marks, kernels, targets = buffer("M", dtypes.bool_, n), list[Kernel](), []
    place = apply("add", apply("mul", o, const(LANES)), lane)
    for name in names:
        at = apply("add", f, place)
        value = apply(name, *(read(one, at) for one in x[: OPS[name].arity]))
        targets.append(buffer(f"Y_{name}", value.dtype, reach))
        body: Block = (If(apply("lt", place, n), (If(read(marks, place), (write(targets[-1], [at], value),)),)),)
        trips = apply("floordiv", apply("add", n, const(LANES - 1)), const(LANES))
        kernels.append(Kernel(name, (loop("o", trips, loop("l", LANES, *body, kind="vectorize")),)))
    return LoopNest("masked", (*x, marks, *targets), (), (), tuple(kernels), tuple(y.name for y in targets), ("n", "f"))


def single(names: list[str], dtype: dtypes.DType, count: int) -> LoopNest:
    """Y[i] = name(X0[i], X1[i]), one after the other."""
    x = [buffer(f"X{k}", dtype, count) for k in range(2)]
    values = [apply(name, *(read(one, i) for one in x[: OPS[name].arity])) for name in names]
    targets = [buffer(f"Y_{name}", value.dtype, count) for name, value in zip(names, values, strict=True)]
    kernels = [Kernel(y.name, (loop("i", count, write(y, [i], value)),)) for y, value in zip(targets, values, strict=True)]
    return LoopNest("single", (*x, *targets), (), (), tuple(kernels), tuple(y.name for y in targets))


@pytest.mark.parametrize("number", share_of(range(12)))
def test_lanes_that_are_on_give_the_bits_of_one_number(number: int) -> None:
    draw = random.Random(number)
    dtype, machine = TYPES[number // 3 % len(TYPES)], machines()[number // 3 % len(machines())]
    names, count = draw.sample(NAMES, 4), LONGEST + LANES
    made, alone = masked(names, dtype), compile_nest(single(names, dtype, count), machine)
    function, types = compile_nest(made, machine), [y.dtype.numpy for y in made.parameters[3:]]
    generator = np.random.default_rng(number)
    inputs = [[specials(dtype, count, 2 * number + 99 * k + part) for part in range(2)] for k in range(SETS)]
    wanted = [[np.zeros(count, type_) for type_ in types] for _ in range(SETS)]
    for given, want in zip(inputs, wanted, strict=True):
        assert alone([a.ctypes.data for a in (*given, *want)], []) is None
    for length in range(LONGEST + 1):
        for offset in range(LANES):
            at, reach = draw.randrange(SETS), length + offset
            on = generator.random(length) < draw.choice((0.0, 0.5, 1.0))
            before = [np.full(reach, 1, type_) for type_ in types]
            arrays = [guarded(a, draw.random() < 0.5) for a in (*(x[:reach] for x in inputs[at]), on, *before)]
            assert function([a.ctypes.data for a in arrays], [length, offset], 0) is None
            for name, found, kept, want in zip(names, arrays[3:], before, wanted[at], strict=True):
                kept[offset:][on] = want[offset:reach][on]
                assert found.tobytes() == kept.tobytes(), f"{name} of {dtype}, {machine.cpu}: {length} behind {offset}: {found} {kept}"
