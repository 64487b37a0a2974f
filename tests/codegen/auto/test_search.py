"""The search over nests: what it gives computes what the program means, is the same each time, and is rebuilt by its calls."""

import pytest

from tensorexpr.codegen.auto.candidate import plain
from tensorexpr.codegen.auto.machine import SAPPHIRE_RAPIDS
from tensorexpr.codegen.auto.search import searched
from tensorexpr.codegen.nest_text import print_nest
from tests.codegen.llvm.nests import run
from tests.codegen.rewrites.law import UNITS, kept_of, near
from tests.seeds import share_of

FACTS = SAPPHIRE_RAPIDS


@pytest.mark.parametrize("seed", share_of(range(240)))
def test_random_programs_keep_their_values(seed):
    kept = kept_of(seed)
    if kept is None:
        return
    found = searched(kept.program, FACTS)
    kept.check(found.nest, UNITS)
    again = plain(kept.program)
    for call in found.calls:
        again = again.then(call.word, *call.arguments)
    assert print_nest(again.nest) == print_nest(found.nest)
    if seed % 4:
        return
    for (arrays, sizes), expected in zip(kept.cases, kept.expected, strict=True):
        if expected is not None:
            values = run(found.nest, arrays, sizes)
            for name, parameter in zip(kept.program.outputs, found.nest.writes, strict=True):
                near(values[parameter], expected[name], UNITS, f"{sizes}: {name} of\n{kept.program}\n{found.nest}")
