"""Every planted fault that a run shows is found by the verifier: a finding that the sound nest does not have."""

import random
from functools import cache

import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import Alloc, Buffer, For, Kernel, LoopNest, Store
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.ir import Access, Const, Index, apply, const
from tensorexpr.language import program_of
from tensorexpr.op.trees import leaves
from tensorexpr.simplify import simplify
from tests.codegen.programs import WIDE
from tests.codegen.proofs.faults import KINDS, arrays_for, planted, trace
from tests.kernels.table import ALL
from tests.kernels.test_laws import derived, placed
from tests.seeds import share_of

SMALL = 120  # lines of a nest that is run element by element
FEW = 12  # faults of each kind, so that all kinds are met


@cache
def nest_of(number: int, gradient: bool, plain: bool) -> LoopNest:
    """A nest of the library."""
    case = ALL[number % len(ALL)]
    inputs, result, wrt = placed(case)
    program = derived(case)[1] if gradient and case.differentiable and wrt else program_of(list(leaves(result)), inputs)
    return lower((schedule if plain else autoschedule)(simplify(program, inline=not plain), WIDE))


def findings(nest):
    return {(f.kind, f.statement, f.about) for f in prove(nest).findings}


@pytest.mark.parametrize("kind", KINDS)
def test_planted_faults_are_found(kind):
    shown = 0
    for seed in share_of(range(6 * FEW)):
        rng = random.Random(f"{kind} {seed}")
        nest = nest_of(rng.randrange(len(ALL)) // 7 * 7, rng.random() < 0.5, rng.random() < 0.5)
        made = planted(nest, rng, kind) if len(str(nest).splitlines()) < SMALL else None
        if made is None:
            continue
        fault = trace(made[1], arrays_for(nest, seed)) or trace(made[1], arrays_for(nest, seed, 0, 50))
        if fault is not None:
            shown += 1
            assert findings(made[1]) - findings(nest), f"{fault}, in\n{made[1]}"
        if shown == FEW:
            break


@pytest.mark.parametrize("seed", share_of(range(30)))
def test_a_run_shows_nothing_of_nests_that_are_sound(seed):
    rng = random.Random(seed)
    nest = nest_of(rng.randrange(len(ALL)), rng.random() < 0.5, rng.random() < 0.5)
    assert prove(nest).is_clean
    if len(str(nest).splitlines()) < SMALL:
        assert trace(nest, arrays_for(nest, seed)) is None


def test_a_run_shows_each_kind_of_fault():
    i, one = Index("i"), Const(1.0, dtypes.float32)
    y, acc = (Buffer(name, dtypes.float32, (const(4),), memory) for name, memory in (("Y", "parameter"), ("acc", "local")))

    def shown(*body):
        return trace(LoopNest("test", (y,), (), (), (Kernel("Y", body),), ("Y",)), {})

    def over(*body, kind="serial", stop=4):
        return For("i", const(0), const(stop), body, kind)

    assert shown(over(Store("Y", (i,), one))) is None
    assert shown(over(Store("Y", (i,), one), stop=5)) == "Y[4] is outside"
    assert shown(over(Store("Y", (i,), one), stop=3)) == "nothing has written Y[3]"
    assert shown(Alloc(acc, (over(Store("Y", (i,), Access("acc", (i,), dtypes.float32))),))) == "nothing has written acc[0]"
    half = Store("Y", (apply("floordiv", i, const(2)),), Access("Y", (const(3),), dtypes.float32))
    assert shown(over(Store("Y", (i,), one)), over(half, kind="parallel")) is None  # equal values
    own = over(Store("Y", (i,), Access("Y", (const(0),), dtypes.float32)), kind="parallel")
    assert shown(over(Store("Y", (i,), one)), own) == "iterations meet at Y[0]"


@pytest.mark.parametrize("seed", share_of(range(30)))
def test_a_quick_proof_refuses_what_the_whole_one_refuses_but_for_some_early_reads(seed):
    """Its steps are bounded: where it has found one fault it need not come to the others."""
    rng = random.Random(seed)
    nest = nest_of(rng.randrange(len(ALL)), rng.random() < 0.5, rng.random() < 0.5)
    for made in (None, *(planted(nest, rng) for _ in range(4))):
        one = nest if made is None else made[1]
        quick, whole = prove(one, quick=True).refuted, prove(one).refuted
        assert set(quick) <= set(whole) and (quick or all(f.kind == "initial" for f in whole))
