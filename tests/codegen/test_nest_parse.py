"""Loop nests parse back from their text, which hides nothing that is compiled; what is no nest is refused in its place."""

import random
import re
from contextlib import suppress

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.benchmarks.workloads import specs
from tensorexpr.codegen.cuda.emitter.nest import emit as cuda_text
from tensorexpr.codegen.llvm import emit as llvm_text
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import Ahead, LoopNest
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest.text import print_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.plain import plain_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import H200
from tensorexpr.errors import DefinitionError, InternalError
from tensorexpr.language import program_of
from tensorexpr.op.trees import leaves
from tensorexpr.ops import OPS
from tensorexpr.records import fields
from tensorexpr.simplify import simplify
from tensorexpr.text import digest
from tests.codegen.llvm.random_nests import random_nest
from tests.codegen.programs import WIDE, statements
from tests.kernels.table import ALL
from tests.kernels.test_laws import derived, placed
from tests.random_programs import random_program
from tests.random_programs.schedules import decided, shuffled, wandered
from tests.seeds import share_of

MACHINE = Machine("x86_64-unknown-linux-gnu", "znver4", "+avx512f", 512)
EVERYTHING = '''\
"my nest"(n, x, y, z, precision="tf32", tensor_cores=False)
n: size
x: parameter(f32[n, 32], prefetched=256)
y: parameter(f32[n], written, streamed)
z: parameter(f32[()], written, atomic)
W: constant(f32[3]) = [1.0, 0.1, -inf]
t: workspace(i64[n], prefetched=8, within=(-1, n - 1))

def kernel_0() -> together(y, z):
    for i in parallel(range(0, n)):
        acc: local(f32[()])
        late: local(i32[4, 2], within=(0, 7))
        acc[()] = 0.0
        if ahead(i + 1 < n):
            late[0, 1] = 7
        else:
            pass_1: local(f32[2])
        del late
        for k in vectorize(range(0, 4)):
            check(t[i], 3, 0)
            acc[()] = acc[()] + x[i, k] * W[t[i]]
        y[i] = acc[()]
        del acc
        for q in tensorize(range(0, 16), "dot it"(y[0], x[i, 0])):
            if not isnan(y[i]):
                pass
    for i in parallel(range(0, 2)):
        z[()] = z[()] + 1.0

def kernel_1() -> (a, b):
    pass

def kernel_2() -> "in one":
    for i in block.x(range(0, 2)):
        for j in thread.z(range(i, 2)):
            pass

check_0 = site("W[t[i]]", tensor="W", axis=0, definition="y", location="a:b.py:7")
check_1 = site('x["\\n"]', tensor="x", axis=1, definition="y", unsigned=True)

instruction("dot it"(c, "a b"), body="""  %c = load float, ptr %a
  ret void""", declarations={"llvm.fma": "float (float, float, float)"})
'''


def everything(nest: LoopNest) -> list[str]:
    """All fields of a nest and of its kernels, those that equality leaves out as well."""
    return [repr(getattr(one, f.name)) for one in (nest, *nest.kernels) for f in fields(one)]


def assert_parses_back(nest: LoopNest) -> str:
    """Checks the law for one nest; gives its text."""
    text, data = print_nest(nest), {c.name: c.data for c in nest.constants}
    again = parse_nest(text, data)
    assert again == nest and everything(again) == everything(nest) and print_nest(again) == text, text
    return text


def without_lines(code: str) -> str:
    """Code without the lines of the user's files: an element that was read from text stands in the text."""
    return re.sub(r"<program>:\d+", "", code)


def test_all_that_a_nest_says_is_in_its_text():
    nest = verify_nest(parse_nest(EVERYTHING))
    text = assert_parses_back(nest)
    assert text == EVERYTHING
    assert any(isinstance(s, Ahead) for s in statements(nest.kernels))
    assert (nest.name, nest.precision, nest.tensor_cores, nest.writes) == ("my nest", "tf32", False, ("y", "z"))
    assert nest.ahead == (("x", 256), ("t", 8)) and nest.kernels[0].together and nest.kernels[2].name == "in one"


@pytest.mark.parametrize("seed", share_of(range(36)))
def test_nests_of_random_programs_under_any_schedule_parse_back(seed):
    written, rng = random_program(seed), random.Random(seed)
    program = simplify(written)
    assert_parses_back(plain_nest(written))
    assert_parses_back(lower(shuffled(schedule(program, WIDE), rng)))
    assert_parses_back(lower(shuffled(schedule(program, H200), rng)))
    tuned, _ = decided(program, wandered(program, rng, WIDE, 2), WIDE)
    for made, emitted in ((autoschedule(program, WIDE), lambda n: llvm_text(n, MACHINE)), (autoschedule(program, H200), cuda_text)):
        nest = verify_nest(lower(made))
        again = parse_nest(assert_parses_back(nest), {c.name: c.data for c in nest.constants})
        assert without_lines(str(emitted(again))) == without_lines(str(emitted(nest)))
    assert_parses_back(lower(tuned))


def test_random_nests_parse_back():
    for seed in share_of(range(60)):
        assert_parses_back(random_nest(seed))


BENCHMARK = specs(tiny=True)


@pytest.mark.parametrize("number", share_of(range(len(BENCHMARK)))[::3], ids=lambda k: BENCHMARK[k].name)
def test_nests_of_the_benchmark_parse_back(number):
    inputs, spec = BENCHMARK[number].placeholders(), BENCHMARK[number]
    y = spec.op(*inputs, **spec.static)
    programs = [program_of([y], inputs)]
    if spec.differentiable:
        head = te.placeholder(y.shape, y.dtype.name, name="head")
        programs.append(program_of(list(te.gradient(y, [x for x in inputs if x.dtype.is_float], head)), [*inputs, head]))
    for program in map(simplify, programs):
        for target in (WIDE, H200):
            assert_parses_back(lower(autoschedule(program, target)))


@pytest.mark.parametrize("case", share_of(range(len(ALL)))[5::24], ids=lambda k: ALL[k].name)
def test_nests_of_the_library_parse_back(case):
    inputs, result, wrt = placed(ALL[case])
    programs = [program_of(list(leaves(result)), inputs)]
    programs += [derived(ALL[case])[1]] if ALL[case].differentiable and wrt else []
    for program in map(simplify, programs):
        for target in (WIDE, H200):
            assert_parses_back(lower(autoschedule(program, target)))


def test_large_constants_are_given_beside_the_text():
    data = np.arange(40, dtype=np.float32)
    text = f'main(y)\ny: parameter(f32[2], written)\nW: constant(f32[40]) = "{digest(data)}"\n'
    assert print_nest(parse_nest(text, {"W": data})) == text
    with pytest.raises(DefinitionError, match=r"expected the data of W in constants, got none") as raised:
        parse_nest(text)
    assert raised.value.at == "line 3, column 24" and raised.value.hint == "parse_nest(text, constants={'W': array})"
    with pytest.raises(DefinitionError, match=r"expected data of f32\[41\], got f32\[40\]"):
        parse_nest(text.replace("f32[40]", "f32[41]"), {"W": data})


HEAD = "main(x, y)\nx: parameter(f32[4])\ny: parameter(f32[4], written)\n"
KERNEL = HEAD + "def kernel_0() -> y:\n    "
MANY = "0x" + "f" * 9000
REFUSED = [
    ("", "expected what looks like main(n, x, y), got nothing", "line 1, column 1"),
    ("main(", "expected the text of a loop nest, got a syntax error: '(' was never closed", "line 1, column 5"),
    ("main(y)\n" + HEAD[11:], "expected the sizes and parameters x, y, got y", "line 1, column 1"),
    ("main(x, y, fast=True)\n" + HEAD[11:],
     'expected what looks like main(n, x, y, precision="tf32", tensor_cores=False), got main(x, y, fast=True)', "line 1, column 1"),
    (HEAD + "n: size = 4", "expected a declaration, a kernel, a site or an instruction, got n: size = 4", "line 4, column 1"),
    (HEAD + "x: size", "expected distinct names of buffers and sizes, got x twice", "line 4, column 1"),
    (HEAD + "z: disk(f32[4])", "expected what looks like x: parameter(f32[4]), got z: disk(f32[4])", "line 4, column 1"),
    (HEAD + "z: workspace(f32[4], written)",
     "expected atomic or prefetched=n or within=(low, high) beside the type of a workspace, got written", "line 4, column 1"),
    (HEAD + "z: workspace(i64[4], within=(0, 1), within=(0, 2))",
     "expected what looks like x: parameter(f32[4]), got z: workspace(i64[4], within=(0, 1), within=(0, 2))", "line 4, column 1"),
    (HEAD + "W: constant(f32[1], atomic) = [1.0]", "expected nothing beside the type of a constant, got atomic", "line 4, column 1"),
    (HEAD + "W: constant(f32[2])", "expected what looks like W: constant(f32[2]) = [1.0, 2.0], got W: constant(f32[2])",
     "line 4, column 1"),
    (HEAD + "W: constant(f32[0, 4611686018427387904, 4]) = []",
     "expected a shape of an array, got f32[0, 4611686018427387904, 4]", "line 4, column 47"),
    (HEAD + "W: constant(f32[1000000000000]) = []", "expected 1000000000000 values, got 0", "line 4, column 35"),
    (HEAD + "def kernel_1() -> y:\n    pass", "expected what looks like def kernel_0() -> y:, got def kernel_1() -> y:",
     "line 4, column 1"),
    (HEAD + "check_0 = site('x')", 'expected what looks like check_0 = site("x[t[i]]", tensor="x", axis=0, ', "line 4, column 1"),
    (HEAD + f"check_0 = site('x', tensor='x', axis=0, definition='y', location='f:{'9' * 5000}')",
     'expected what looks like check_0 = site("x[t[i]]", tensor="x", axis=0, ', "line 4, column 1"),
    (HEAD + "instruction(dot(c), body=3)",
     "expected what looks like instruction(dot(c, a, b), body=..., declarations={...}), got instruction(dot(c), body=3)",
     "line 4, column 1"),
    (HEAD + "instruction(3, body='')", "expected what looks like dot(c, a, b), got 3", "line 4, column 13"),
    (HEAD + "instruction(dot(c), body='')\n" * 2, "expected one instruction of the name dot, got two", "line 5, column 1"),
    (KERNEL + "y[0] += 1.0", "expected a loop, a condition, a store, a local buffer or a check, got y[0] += 1.0", "line 5, column 5"),
    (KERNEL + f"foo({MANY})",
     "expected a loop, a condition, a store, a local buffer or a check, got a number of thousands of digits", "line 5, column 5"),
    (KERNEL + f"y[0] = {MANY}", "expected a literal of float32, got 2^35999 or more", "line 5, column 12"),
    (KERNEL + "y[0] = f64(1.0)", "expected a value of float32, got float64", "line 5, column 12"),
    (KERNEL + "y[0] = sum(x[k] for k in range(4))", "expected a loop as a statement of its own, got a reduction", "line 5, column 25"),
    (KERNEL + "z[0] = 1.0", "expected a tensor defined before, got z", "line 5, column 5"),
    (KERNEL + "check(0, 1, f32(0.5))", "expected a whole number, got f32(0.5)", "line 5, column 17"),
    (KERNEL + "a: local(f32[4])\n    del a\n    y[0] = a[0]", "expected a tensor defined before, got a", "line 7, column 12"),
    (KERNEL + "del x", "expected del of a local buffer of this block, got del x", "line 5, column 5"),
    (KERNEL + "for i in range(4):\n        pass",
     "expected what looks like for i in parallel(range(0, n)):, got for i in range(4):", "line 5, column 5"),
    (KERNEL + "for i in wild(range(0, 4)):\n        pass", "expected a kind of loop, got wild", "line 5, column 5"),
    (KERNEL + "for i in tensorize(range(0, 4), dot(y[0])):\n        pass",
     "expected an instruction that the text defines, got dot", "line 5, column 37"),
    (KERNEL + "for i in tensorize(range(0, 4), dot(y[0])):\n        pass\ninstruction(dot(c, a), body='')",
     "expected 2 operands of dot, got 1", "line 5, column 37"),
    (KERNEL + "for i in tensorize(range(0, 4), dot(i)):\n        pass\ninstruction(dot(c), body='')",
     "expected an element such as c[0], got i", "line 5, column 41"),
    (KERNEL + "y[0] = " + "not " * 400 + "x[0]", "expected the text of a loop nest, got one that nests deeper", "line 5, column 5"),
    (KERNEL + "y[0] = " + "-" * 50_000 + "x[0]", "expected the text of a loop nest, got one that nests deeper than can be read", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "place"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_nest_is_refused_where_it_stands(text, message, place):
    with pytest.raises(DefinitionError, match=re.escape(message)) as raised:
        parse_nest(text)
    assert raised.value.at == place


def test_what_is_no_text_is_refused():
    with pytest.raises(DefinitionError, match="parse_nest: expected the text of a loop nest, got int"):
        parse_nest(3)


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")  # Python's own, of `0x1for` and `"\ "`
def test_text_with_faults_is_a_nest_or_refused():
    """Pieces of a nest's text left out, doubled or exchanged."""
    pieces = re.findall(r"\w+|\s+|[^\w\s]", EVERYTHING)
    for seed in share_of(range(600)):
        rng = random.Random(seed)
        faulty = list(pieces)
        for _ in range(rng.randint(1, 3)):
            at, other = rng.randrange(len(faulty)), rng.choice(faulty)
            faulty[at : at + 1] = rng.choice(
                ([], [faulty[at]] * 2, [other], [faulty[at], other], [rng.choice(("None", "0x1f", "*", "9" * 30))])
            )
        try:
            found = parse_nest("".join(faulty))
        except DefinitionError as error:
            assert error.message.startswith(("expected ", *OPS)), error
            continue
        with suppress(InternalError):
            assert_parses_back(verify_nest(found))
