"""Formulas: what is printed for the usual kernels, word for word, and that no program gives text that LaTeX refuses."""

from __future__ import annotations

import pytest

import tensorexpr as te
from tensorexpr.dtypes import bool_, float32, int64
from tensorexpr.errors import DefinitionError
from tensorexpr.ir import Access, Apply, Index
from tensorexpr.latex import latex_expr
from tensorexpr.latex.names import symbol
from tensorexpr.ops import OPS
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.random_programs import random_program
from tests.seeds import share_of
from tests.tex import reads_as_latex

X = te.placeholder((8, 3, 32), name="x")
W = te.placeholder((16, 3, 5), name="w")


@te.op
def conv1d(x, w):
    (n, c, l), (k, _, r) = x.shape, w.shape
    return te.compute((n, k, (l - r) // 2 + 1), lambda n, k, o: te.sum(lambda c, i: x[n, c, 2 * o + i] * w[k, c, i], (c, r)), name="y")


def formulas(value) -> list[str]:
    """The rows between the types of the tensors and the end."""
    lines = te.latex(value).splitlines()
    assert (lines[0], lines[-1]) == (r"\begin{aligned}", r"\end{aligned}")
    return [line.removesuffix(r" \\") for line in lines[1:-1] if not line.startswith("& ")]


def value_of(expression: str, inputs: str = "x: f32[n, n] = input()\nt: i64[n] = input()\n") -> str:
    """The right side of a definition over i, j < n."""
    program = parse_program(f"sizes(n)\n{inputs}y[i, j]: f32[n, n] = {expression}\nreturn y")
    (row,) = formulas(program)
    return row.removeprefix("y_{i, j} &= ")


def test_a_matrix_product():
    a, b = te.placeholder((te.dim("n"), 64), name="a"), te.placeholder((64, 16), name="b")
    y = te.compute((te.dim("n"), 16), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 64), name="y")
    assert te.latex(y) == "\n".join([
        r"\begin{aligned}",
        r"& a \in \mathbb{R}^{n \times 64},\quad b \in \mathbb{R}^{64 \times 16},\quad y \in \mathbb{R}^{n \times 16} \\",
        r"y_{i, j} &= \sum_{k = 0}^{63} a_{i, k} \, b_{k, j}",
        r"\end{aligned}",
    ])  # fmt: skip


def test_a_strided_convolution_and_its_gradient():
    y = conv1d(X, W)
    assert formulas(y) == [r"y_{n, k, o} &= \sum_{c = 0}^{2} \sum_{i = 0}^{4} x_{n, c, 2 o + i} \, w_{k, c, i}"]
    gradient = te.gradient(y, [X, W], te.placeholder(y.shape, name="y_bar"))
    assert formulas(gradient) == [
        r"\bar{x}_{n, c, p} &= \sum_{k = 0}^{15} \sum_{o = \max(\lfloor (p + 1) / 2 \rfloor - 2, 0)}^{\min(\lfloor p / 2 \rfloor, 13)} "
        r"\bar{y}_{n, k, o} \, w_{k, c, p - 2 o}",
        r"\bar{w}_{k, c, i} &= \sum_{n = 0}^{7} \sum_{o = 0}^{13} \bar{y}_{n, k, o} \, x_{n, c, i + 2 o}",
    ]


def test_a_softmax():
    n, m = 4, te.dim("m")
    x = te.placeholder((n, m), name="x")
    top = te.compute((n,), lambda i: te.max(lambda k: x[i, k], m), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    y = te.compute((n, m), lambda i, j: e[i, j] / te.sum(lambda k: e[i, k], m), name="y")
    assert formulas(y) == [
        r"\mathrm{top}_{i} &= \max_{0 \le k < m} x_{i, k}",
        r"e_{i, j} &= \exp(x_{i, j} - \mathrm{top}_{i})",
        r"y_{i, j} &= \frac{e_{i, j}}{\sum_{k = 0}^{m - 1} e_{i, k}}",
    ]


def test_a_pool_that_leaves_out_what_is_beyond_the_border():
    x = te.placeholder((9, 9), name="x")
    y = te.compute(
        (5, 5),
        lambda i, j: te.max(lambda r, s: x[2 * i + r, 2 * j + s], (2, 2), where=lambda r, s: (2 * i + r < 9) & (2 * j + s < 9)),
        name="y",
    )
    assert formulas(y) == [r"y_{i, j} &= \max_{\substack{0 \le r < 2 \\ 0 \le s < 2 \\ 2 i + r < 9 \\ 2 j + s < 9}} x_{2 i + r, 2 j + s}"]
    padded = te.compute((9,), lambda i: te.where((i > 0) & (i < 8), x[i - 1, i + 1], -1.5), name="z")
    assert formulas(padded) == [r"z_{i} &= \begin{cases} x_{i - 1, i + 1} & \text{if } 0 < i < 8 \\ -1.5 & \text{otherwise} \end{cases}"]


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("x[i, j] * 2.0 + x[j, i] * -3.0", r"2 x_{i, j} - 3 x_{j, i}"),
        ("(x[i, j] + 1.0) * (x[j, i] - 1.0)", r"(x_{i, j} + 1) \, (x_{j, i} - 1)"),
        ("x[i, j] / (x[j, i] + 1e-5)", r"\frac{x_{i, j}}{x_{j, i} + 10^{-5}}"),
        ("(x[i, j] / 2.0) ** 2.0", r"\left( \frac{x_{i, j}}{2} \right)^{2}"),
        ("x[i, j] - (x[j, i] - x[i, i])", r"x_{i, j} - (x_{j, i} - x_{i, i})"),
        ("-(x[i, j] * x[j, i]) + 1.0", r"-x_{i, j} \, x_{j, i} + 1"),
        ("x[i, j] * 2.5e-7", r"2.5 \cdot 10^{-7} \, x_{i, j}"),
        ("sum(x[i, k] for k in range(j))", r"\sum_{k = 0}^{j - 1} x_{i, k}"),
        ("sum(x[i, k] for k in range(j, n) if k % 2 == 0)", r"\sum_{\substack{k = j \\ k \bmod 2 = 0}}^{n - 1} x_{i, k}"),
        ("sum(-x[i, k] for k in range(n)) * x[i, j]", r"-\left( \sum_{k = 0}^{n - 1} x_{i, k} \right) \, x_{i, j}"),
        ("prod(x[i, k] + 1.0 for k in range(n))", r"\prod_{k = 0}^{n - 1} (x_{i, k} + 1)"),
        ("min(x[k, l] for k in range(2) for l in range(k + 1))", r"\min_{\substack{0 \le k < 2 \\ 0 \le l < k + 1}} x_{k, l}"),
        ("x[(i + 3) // 2 - 1, (2 * j) % n]", r"x_{\lfloor (i + 3) / 2 \rfloor - 1, (2 j) \bmod n}"),
        ("x[-((i * -2 + 1) // 3), j]", r"x_{\lceil (2 i - 1) / 3 \rceil, j}"),
        ("x[minimum(i, minimum(j, n - 1)), j]", r"x_{\min(i, j, n - 1), j}"),
        ("x[t[i], t[j] + 1]", r"x[t_{i}, t_{j} + 1]"),
        ("where(x[i, j] > 0.0, x[i, j], 0.0) + 1.0", r"\mathbf{1}[x_{i, j} > 0] \, x_{i, j} + 1"),
        ("where(i == j, 0.0, x[i, j])", r"\mathbf{1}[i \ne j] \, x_{i, j}"),
        (
            "where(i < j, x[i, j], where(i == j or i == 3, 1.0, x[j, i]))",
            r"\begin{cases} x_{i, j} & \text{if } i < j \\ 1 & \text{if } i = j \lor i = 3 \\ x_{j, i} & \text{otherwise} \end{cases}",
        ),
        ("exp(-abs(x[i, j])) * sqrt(x[i, i])", r"\exp(-\lvert x_{i, j} \rvert) \, \sqrt{x_{i, i}}"),
        ("sigmoid(x[i, j] / 2.0)", r"\sigma\left( \frac{x_{i, j}}{2} \right)"),
        ("log1p(x[i, j]) + exp2(x[i, i])", r"\log(1 + x_{i, j}) + 2^{x_{i, i}}"),
        ("maximum(x[i, j], inf) + erf(x[i, j])", r"\max(x_{i, j}, \infty) + \operatorname{erf}(x_{i, j})"),
        ("f32(x[i, j] > 0.5 and not isnan(x[j, i]))", r"\mathbf{1}[x_{i, j} > 0.5 \land \lnot \operatorname{isnan}(x_{j, i})]"),
        ("f32(f16(x[i, j])) + f32(i)", r"\mathrm{f16}(x_{i, j}) + i"),
        ("f32(t[i] << 2 & 7)", r"(t_{i} \ll 2) \mathbin{\&} 7"),
        ("f32(argmax(x[i, k] for k in range(n)))", r"\operatorname*{arg\,max}_{0 \le k < n} x_{i, k}"),
    ],
)
def test_expressions(text, formula):
    assert value_of(text) == formula


def test_a_long_sum_is_broken_at_its_signs():
    terms = " + ".join(f"x[i, {k}] * x[j, {k}]" for k in range(12))
    program = parse_program(f"x: f32[12, 12] = input()\ny[i, j]: f32[12, 12] = {terms} - x[i, j]\nreturn y")
    rows = formulas(program)
    assert rows[0].startswith("y_{i, j} &= x_{i, 0} \\, x_{j, 0} + ")
    assert rows[1].startswith("&\\quad{} + x_{i, ")
    assert rows[-1].endswith(" - x_{i, j}")


def test_scatters_scans_plans_and_combiners():
    x = te.placeholder((5,), name="x")
    ids = te.placeholder((5,), "int64", name="ids")
    histogram = te.scatter((3,), lambda t: ((ids[t],), 2.0 * x[t]), (5,), name="h")
    assert formulas(histogram) == [r"h[\mathrm{ids}_{t}] &\mathrel{+}= 2 x_{t} \quad \text{for } 0 \le t < 5"]
    highest = te.scatter((3,), lambda t: ((ids[t],), x[t]), (5,), combine="max", name="h")
    assert formulas(highest) == [r"h[\mathrm{ids}_{t}] &\leftarrow \max(h[\mathrm{ids}_{t}], x_{t}) \quad \text{for } 0 \le t < 5"]
    start = te.placeholder((3,), name="s_0")
    states = te.scan(lambda t, s: te.compute((3,), lambda i: te.tanh(s[i] + x[t]), name="g"), start, 5)
    assert formulas(parse_program(str(te.program_of([states])).replace("t0", "h"))) == [
        r"h_{-1, i} &= s^{(0)}_{i}",
        r"h_{t, i} &= \tanh(h_{t - 1, i} + x_{t}) \quad \text{for } 0 \le t < 5",
    ]
    mean = te.compute((), lambda: te.reduce(lambda a, b: (a[0] + b[0], a[1] * b[1]), (0.0, 1.0), lambda k: (x[k], x[k]), 5)[1], name="m")
    assert formulas(mean) == [
        r"m &= \left[ \bigoplus_{0 \le k < 5} (x_{k}, x_{k}) \right]_{1}",
        r"(a_{0}, a_{1}) \oplus (b_{0}, b_{1}) &= (a_{0} + b_{0}, a_{1} \, b_{1})",
    ]
    plan = "ids: i64[5] = input()\noffsets, order = segments[3](ids[t] for t in range(5))\nreturn offsets, order"
    assert formulas(parse_program(plan)) == [
        r"(\mathrm{offsets}, \mathrm{order}) &= \operatorname{segments}(\mathrm{ids}_{t}) \quad \text{for } 0 \le t < 5"
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x", "x"),
        ("x_bar", r"\bar{x}"),
        ("x_bar_1", r"\bar{x}^{(1)}"),
        ("alpha", r"\alpha"),
        ("sigma_hat", r"\hat{\sigma}"),
        ("head_bar", r"\overline{\mathrm{head}}"),
        ("t12", "t^{(12)}"),
        ("W_out", r"W^{\mathrm{out}}"),
        ("max_pool", r"\mathrm{max\_pool}"),
        ("max_pool_bar", r"\overline{\mathrm{max\_pool}}"),
        ("_", r"\mathrm{\_}"),
        ("größe", r"\mathrm{größe}"),
    ],
)
def test_names_of_tensors(name, expected):
    assert symbol(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("i", "i"), ("k_1", "k_{1}"), ("dy", r"\mathit{dy}"), ("p_o", "p_{o}"), ("o2", "o_{2}"), ("beta", r"\beta")]
)
def test_names_of_indices(name, expected):
    assert symbol(name, index=True) == expected


def test_every_operation_has_a_formula():
    for op in OPS.values():
        dtype = next(d for d in (float32, int64, bool_) if op.accepts(d))
        args = [Access(f"x{k}", (Index("i"),), dtype) for k in range(op.arity)]
        if op.name == "where":
            args[0] = Access("c", (Index("i"),), bool_)
        reads_as_latex("\\begin{aligned}& " + latex_expr(Apply(op, tuple(args))) + "\\end{aligned}")


def test_what_is_no_tensor_is_refused():
    with pytest.raises(DefinitionError, match=r"te\.latex: expected a program, a tensor or a list of tensors, got int"):
        te.latex(3)


@pytest.mark.parametrize("seed", share_of(range(150)))
def test_random_programs_give_text_that_latex_reads(seed):
    program = random_program(seed)
    reads_as_latex(te.latex(program))
    reads_as_latex(te.latex(simplify(program)))


def test_an_expression_alone():
    assert (
        latex_expr(parse_program("x: f32[3] = input()\ny[i]: f32[3] = x[i] * x[2 - i]\nreturn y").definitions[0].value)
        == r"x_{i} \, x_{2 - i}"
    )
