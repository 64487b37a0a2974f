"""The generator of random programs: the same seed gives the same program, every construct occurs, options are kept."""

import pytest

from tensorexpr import dtypes
from tensorexpr.ir import Access, Apply, Cast, Const, Index, Program, Reduce, Scan, Scatter, Segments
from tensorexpr.ops import OPS
from tensorexpr.traversal import expressions, walk
from tests.generators import CONSTRUCTS, random_inputs, random_program
from tests.seeds import share_of


def constructs(program: Program) -> set[str]:
    """What a program contains, in the words of the generator's options, and the names of its operations."""
    found = {"symbolic"} if program.sizes else set()
    found |= {"constant"} if program.constants else set()
    for definition in program.definitions:
        found |= {name for name, form in {"scatter": Scatter, "scan": Scan, "segments": Segments}.items() if isinstance(definition, form)}
        for expr in expressions(definition):
            for node in walk(expr):
                match node:
                    case Reduce():
                        found.add(node.combiner.name if node.combiner.is_builtin else "combiner")
                        found |= {"mask"} if node.where is not None else set()
                        found |= {"nested"} if any(isinstance(n, Reduce) for v in node.values for n in walk(v)) else set()
                        found |= {"dependent"} if any(not isinstance(a.start, Const) for a in node.axes) else set()
                    case Access(indices=indices):
                        found |= {"data"} if any(isinstance(n, Access | Reduce) for i in indices for n in walk(i)) else set()
                        found |= {n.op.name for i in indices for n in walk(i) if isinstance(n, Apply)}
                    case Cast(arg=arg):
                        found |= {"casts"} if not isinstance(arg, Index) else set()
                    case Apply(op):
                        found.add(op.name)
    return found


def test_the_same_seed_gives_the_same_program_and_inputs():
    for seed in range(50):
        program = random_program(seed)
        assert random_program(seed) == program
        first, second = random_inputs(program, seed), random_inputs(program, seed)
        assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_every_construct_occurs():
    named = {"guard", "divmod", "clamp", "zero"}  # seen by the operations and extents that they write
    functions = {name for name, op in OPS.items() if op.operands == "float" and op.infix is None}  # each has tests of its own
    wanted = set(CONSTRUCTS) - named | {"where", "ge", "floordiv", "mod", "maximum", "minimum"} | set(OPS) - functions - {"recompute"}
    wanted |= {"floor", "ceil", "round", "trunc", "sqrt", "rsqrt", "exp", "log", "sin", "cos", "tanh", "atan", "sigmoid", "erf"}
    missing, seed = set(wanted), 0
    while missing and seed < 1500:
        missing -= constructs(random_program(seed, exact=seed % 2 == 0))
        seed += 1
    assert not missing
    kinds = {t.dtype for seed in range(300) for t in random_program(seed).types.values()}
    assert kinds == set(dtypes.DTYPES)


@pytest.mark.parametrize(
    "left_out", ["scatter", "scan", "combiner", "symbolic", "data", "casts", "constant", "nested", "argmax", "prod", "segments"]
)
def test_constructs_can_be_left_out(left_out):
    assert all(left_out not in constructs(random_program(seed, without=[left_out])) for seed in share_of(range(200)))


def test_differentiable_programs_stay_with_sums_and_maxima_of_float64():
    for seed in share_of(range(200)):
        program = random_program(seed, differentiable=True)
        assert {t.dtype for t in program.types.values()} == {dtypes.float64}
        assert not constructs(program) & {"scatter", "scan", "combiner", "data", "argmax", "prod", "all", "any"}
