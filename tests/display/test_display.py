"""What objects show of themselves: `repr` in a line, HTML and LaTeX in notebooks; true, well-formed, escaped and bounded."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.cost import spell
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import Buffer, Kernel, LoopNest, Store
from tensorexpr.codegen.schedule import schedule
from tensorexpr.dtypes import float32
from tensorexpr.ir import Access, Define, Input, Program, TensorType, apply
from tensorexpr.markup import LONGEST, MOST_ROWS, amount, listed, table
from tensorexpr.records import replace
from tests.display.reading import read_html
from tests.random_programs import random_program
from tests.seeds import share_of
from tests.tex import reads_as_latex

A, B = te.placeholder((8, 16), name="a"), te.placeholder((16, 4), name="b")
C = te.compute((8, 4), lambda i, j: te.sum(lambda k: A[i, k] * B[k, j], 16), name="c")
NEST = LoopNest("main", (Buffer("x", float32, (), "parameter"), Buffer("y", float32, (), "parameter")), (), (), (), ("y",))
HOSTILE = '<script>alert("x")</script> & $x$ \\(y\\)'


@te.op
def product(a, b):
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], a.shape[1]), name="c")


class Layer(te.Module):
    def __init__(self) -> None:
        super().__init__(name="layer")
        self.w = te.Variable(np.ones((16, 4), np.float32), name="w")

    @te.function
    def __call__(self, x):
        return product(x, self.w)


def shown(value) -> tuple[str, str | None, str | None]:
    """What an object shows, checked: its text, its HTML, its formulas."""
    text = repr(value)
    assert text == repr(value) and len(text) <= 500 and ("\n" not in text or isinstance(value, te.Tensor)), text
    found = []
    for way, check in (("_repr_html_", read_html), ("_repr_latex_", read_latex)):
        made = getattr(value, way)() if hasattr(type(value), way) else None
        if made is not None:
            check(made)
            assert made == getattr(value, way)()
        found.append(made)
    return text, *found


def read_latex(text: str) -> None:
    """Formulas between `$$`, of commands that we mean to use, and not too long."""
    assert text.startswith("$$\n") and text.endswith("\n$$") and len(text) < 20_000
    reads_as_latex(text.removeprefix("$$\n").removesuffix("\n$$"))


def objects_of(program: te.Program) -> list:
    """A program, what it is lowered to, and what its text was made to be."""
    plain = schedule(program)
    handles = [plain[name] for name in plain.stages]
    return [program, plain, lower(plain), *handles, *te.lift(program, {}).values()]


# ---------------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("seed", share_of(range(18)))
def test_every_program_is_shown(seed):
    for value in objects_of(random_program(seed)):
        shown(value)


def test_every_object_is_shown():
    a, b = np.ones((8, 16), np.float32), np.ones((16, 4), np.float32)
    layer, compiled = Layer(), te.build(C)
    assert "not called on arrays yet" in shown(layer.__call__)[1] and "not called on arrays yet" in shown(product)[1]
    layer(a)
    product(a, b)
    total = te.compute((), lambda: te.sum(lambda i, j: C[i, j], (8, 4)), name="total")
    gradient = te.gradient(total, [A, B])
    method = te.compile_method(layer.__call__, te.placeholder((8, 16), name="x"))
    texts = {
        "<te.op product(a, b)>": product,
        "<te.op vjp(product)(a, b, head)>": te.vjp(product),
        "a: f32[8, 16]": A,
        "c[i, j]: f32[8, 4] = sum(a[i, k] * b[k, j] for k in range(16))": C,
        "<program of c: 2 inputs, 1 definition>": te.program_of([C]),
        "<gradients a_bar, b_bar>": gradient,
        "<for each of a, b, total, c>": gradient.adjoints,
        "<report on 3 reads: 3 substitute>": gradient.report(),
        "<schedule for cpu of c: 0 calls>": te.schedule(C),
        "<loops of c: i, j, k>": te.schedule(C)["c"],
        "<nest of 1 kernel: c>": compiled.nest,
        "<kernel c>": compiled.nest.kernels[0],
        "<compiled c(a: float32[8, 16], b: float32[16, 4]) -> c: float32[8, 4]>": compiled,
        "<context of nothing>": compiled.context(),
        "<module layer (Layer): 1 variable>": layer,
        "<summary of 1 module: 1 variable, 64 elements (64 trainable), 256 bytes>": te.summary(layer),
        "<te.function Layer.__call__(x)>": layer.__call__,
        "<compiled method c(x: float32[8, 16], w: float32[16, 4]) -> (c: float32[8, 4])>": method,
        "<generator generator of seed 7>": te.Generator(7),
        "<graph of __call__: 1 input, 2 nodes>": layer.__call__.graph(a),
        "<compiled step of __call__: 1 function, 1 kernel>": layer.__call__.compiled(a),
        "<sharding of c: 3 rules>": product.sharding(a, b),
        f"<cost of main: {spell(te.schedule(C).cost.nanoseconds)}>": te.schedule(C).cost,
    }
    assert {shown(value)[0] for value in texts.values()} == set(texts)
    without = [te.Generator, type(gradient.adjoints), type(te.schedule(C)["c"]), type(compiled.context())]
    without.append(type(compiled.nest.kernels[0]))
    assert all(any(shown(value)[1:]) for value in texts.values() if type(value) not in without)
    assert "finite differences" in shown(te.check_gradient(product, a.astype(float), b.astype(float)))[1]


def test_tensors_of_one_name_are_told_apart():
    """What has no name is called `t`, like an index of the user's; two tensors may have one name."""
    unnamed = te.compute((8,), lambda t: A[t, 0])
    assert repr(te.compute((8,), lambda t: unnamed[t] * 2.0)) == "t_1[t]: f32[8] = t_2[t] * 2.0"
    again = te.compute((8,), lambda i: te.placeholder((8,), name="a")[i] + A[i, 0], name="a")
    assert repr(again) == "a[i]: f32[8] = a_1[i] + a_2[i, 0]"
    steps = te.scan(lambda t, s: te.compute((8,), lambda j: s[j] + A[j, t]), unnamed, 3, name="steps")
    assert "state(t_1)" in repr(steps) and "steps[t] = s = t_2" in repr(steps)
    read_latex(steps._repr_latex_())


def test_names_are_text():
    layer = Layer()
    setattr(layer, HOSTILE, te.Variable(np.ones(3), name="v"))
    layer.more = {HOSTILE: Layer()}
    reader = read_html(layer._repr_html_())
    assert [row[0] for row in reader.rows] == ["path", "(self)", f"more.{HOSTILE}"] and f"{HOSTILE}: f64[3]" in reader.rows[1][2]
    assert HOSTILE in read_html(table((HOSTILE,), [HOSTILE], lambda text: (text,))).rows[1]


# ---------------------------------------------------------------------------------------------------- what is shown


def test_a_nest_says_what_its_levels_cost():
    words = read_html(te.schedule(C)._repr_html_()).words
    assert [words[words.index(f"for {index} in range(0, {n}):") + 2] for index, n in (("i", 8), ("j", 4), ("k", 16))] == ["8", "32", "512"]
    assert words[words.index("kernel 0: c") + 2] == "1,024" == f"{te.build(C).cost.operations:,}"
    t = te.placeholder((100, 100), name="t")
    below = te.compute((100,), lambda i: te.sum(lambda k: t[i, k] * t[k, i], i + 1), name="below")
    words = read_html(te.schedule(below)._repr_html_()).words
    at = words.index("for k in range(0, i + 1):")
    assert (words[at + 2], words[at + 4]) == ("5,050", "10,100")


def test_what_nobody_counts_is_left_blank():
    n = te.dim("n")
    x, ends = te.placeholder((n,), name="x"), te.placeholder((4,), "int64", name="ends")
    doubled = te.compute((n,), lambda i: x[i] * 2.0, name="y")
    assert "for i in range(0, n):" in (html := te.schedule(doubled)._repr_html_()) and ">n</text>" not in html
    fixed = te.placeholder((9,), name="x")
    sums = te.compute((4,), lambda i: te.sum(lambda k: te.where(k < 9, fixed[te.minimum(k, 8)], 0.0), ends[i]), name="s")
    words = read_html(te.schedule(sums)._repr_html_()).words
    assert words[words.index("for i in range(0, 4):") + 2] == "4"
    assert not any(word.isdigit() for word in words[words.index("for k in range(0, minimum(ends[i], 9)):") :])


def test_an_op_shows_what_it_was_compiled_for():
    square = te.op(lambda x: te.compute(x.shape, lambda i: x[i] * x[i], name="y"))
    for n in (3, 4):
        square(np.ones(n, np.float32))
    rows = read_html(square._repr_html_()).rows
    assert rows == [["compiled for", "gives"], ["x: float32[4]", "y: float32[4]"], ["x: float32[3]", "y: float32[3]"]]
    assert r"\mathbb{R}^{4}" in square._repr_html_()


# ---------------------------------------------------------------------------------------------------- bounds and refusals


def test_large_objects_are_cut_and_say_so():
    tensor = A
    for number in range(100):
        tensor = te.compute((8, 16), lambda i, j, t=tensor: t[i, j] + 1.0, name=f"t{number}")
        if number == 40:
            total = te.compute((), lambda t=tensor: te.sum(lambda i, j: t[i, j], (8, 16)), name="total")
    program = te.program_of([tensor])
    assert repr(program) == "<program of t99: 1 input, 100 definitions>"
    assert r"\text{... and 77 more types}" in shown(program)[2] and r" more definitions}" in shown(program)[2]
    assert te.gradient(total, [A])._repr_latex_() is None
    inputs = [te.placeholder((2,), name=f"x{k}") for k in range(9)]
    summed = te.compute((2,), lambda i: sum((x[i] for x in inputs[1:]), inputs[0][i]), name="y")
    assert repr(te.build(summed, inputs)).endswith("x7: float32[2], 1 more) -> y: float32[2]>")
    assert listed(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, 2 more" and amount(1200, "row") == "1,200 rows"
    rows = read_html(table(("n", "long"), range(100), lambda n: (n, "x" * 1000))).rows
    assert len(rows) == MOST_ROWS + 1 and len(rows[1][1]) == LONGEST


def test_large_formulas_are_left_out():
    value = Access("x", (), float32)
    for _ in range(200):  # 2^200 nodes when written out
        value = apply("mul", value, value)
    program = Program((Input("x", TensorType((), float32)),), (), (Define("y", (), value),), ("y",))
    assert r"\text{... and 1 more definition}" in shown(program)[2]
    nest = replace(NEST, kernels=(Kernel("y", (Store("y", (), value),) * (2 * MOST_ROWS)),))
    words = read_html(nest._repr_html_()).words
    assert words.count("y[...] = ...") == MOST_ROWS - 1 and f"... and {MOST_ROWS + 1} more lines" in words


def test_deep_sums_are_cut():
    deep = te.compute((8,), lambda i: sum((A[i, 0] * float(k) for k in range(60)), A[i, 1]), name="deep")
    assert repr(deep) == "deep[i]: f32[8] = t[i] + a[i, 0] * 58.0 + a[i, 0] * 59.0"  # the terms before are in t
    assert "deep_{i} &= t_{i} + 58 a" in shown(deep)[2].replace("\\mathrm{deep}", "deep")
    x = np.random.default_rng(0).random((8, 16), np.float32)
    np.testing.assert_allclose(te.build(deep, [A])(x), x[:, 1] + x[:, 0] * 1770, rtol=1e-5)


def test_what_is_refused_is_said():
    layer = Layer()
    layer.w.delete()
    assert "which was deleted" in layer._repr_html_()
    layer = Layer()
    layer.inner = layer
    assert "expected modules that do not hold themselves" in shown(layer)[1]
    assert repr(Layer.__new__(Layer)) == "<module Layer, not initialized>"
    inner = te.compute((8,), lambda j: A[j, 0] * 2.0, name="inner")
    handled = te.schedule(te.compute((8,), lambda i: inner[i] + 1.0, name="outer"))
    handle = handled["inner"]
    handle.inline()
    assert repr(handle) == "<loops of inner, which has none of its own any more>" and shown(handled)[0].endswith("of outer: 1 call>")
