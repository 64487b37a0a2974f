"""Gradients as users read them: clean mathematics."""

import pytest

import tensorexpr as te
from tensorexpr.ir import Program
from tensorexpr.language import names_of, program_of
from tensorexpr.parse import parse_program
from tensorexpr.simplify import Options, narrow_domains, remove_dead_definitions
from tests.autodiff.clean import smells
from tests.autodiff.reads import random_read

F32 = "float32"


def printed(gradient, given) -> str:
    """The definitions that the gradient adds to the forward pass."""
    program = program_of(list(gradient))
    names = set(names_of(list(gradient)).values()) and {name for d in program_of(given).definitions for name, _ in d.results}
    own = tuple(d for d in program.definitions if not any(name in names for name, _ in d.results))
    return str(Program((), (), own, program.outputs, program.sizes))


def lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def test_matrix_product():
    a, b = te.placeholder((64, 32), name="A"), te.placeholder((32, 16), name="B")
    c = te.compute((64, 16), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 32), name="C")
    gradient = te.gradient(c, [a, b], head=te.placeholder((64, 16), name="C_bar"))
    assert printed(gradient, [c]) == lines("""
A_bar[i, k]: f32[64, 32] = sum(C_bar[i, j] * B[k, j] for j in range(16))
B_bar[k, j]: f32[32, 16] = sum(C_bar[i, j] * A[i, k] for i in range(64))
return A_bar, B_bar
""")


def test_strided_dilated_convolution():
    x, w = te.placeholder((2, 3, 20, 20), name="x"), te.placeholder((4, 3, 3, 3), name="w")
    y = te.compute(
        (2, 4, 9, 16),
        lambda n, o, i, j: te.sum(lambda c, r, s: x[n, c, 2 * i + r, j + 2 * s] * w[o, c, r, s], (3, 3, 3)),
        name="y",
    )
    gradient = te.gradient(y, [x, w], head=te.placeholder((2, 4, 9, 16), name="y_bar"))
    assert printed(gradient, [y]) == lines("""
x_bar[n, c, p, q]: f32[2, 3, 20, 20] = sum(
    y_bar[n, o, i, q - s * 2] * w[o, c, p - i * 2, s]
    for o in range(4)
    for i in range(maximum((p - 1) // 2, 0), minimum(p // 2 + 1, 9))
    for s in range(maximum(q // 2 - 7, 0), minimum(q // 2 + 1, 3))
)
w_bar[o, c, r, s]: f32[4, 3, 3, 3] = sum(
    y_bar[n, o, i, j] * x[n, c, r + i * 2, s * 2 + j]
    for n in range(2)
    for i in range(9)
    for j in range(16)
)
return x_bar, w_bar
""")


def test_maximum_pool():
    x = te.placeholder((3, 8, 8), name="x")
    y = te.compute((3, 4, 4), lambda c, i, j: te.max(lambda r, s: x[c, 2 * i + r, 2 * j + s], (2, 2)), name="y")
    gradient = te.gradient(y, [x], head=te.placeholder((3, 4, 4), name="y_bar"))
    assert printed(gradient, [y]) == lines("""
y_argmax[c, i, j]: i64[3, 4, 4] = argmax(x[c, i * 2 + r, j * 2 + s] for r in range(2) for s in range(2))
x_bar[c, p, q]: f32[3, 8, 8] = where(y_argmax[c, p // 2, q // 2] == p % 2 * 2 + q % 2, y_bar[c, p // 2, q // 2], 0.0)
return x_bar
""")


def test_softmax():
    x = te.placeholder((8, 10), name="x")
    m = te.compute((8,), lambda i: te.max(lambda k: x[i, k], 10), name="m")
    e = te.compute((8, 10), lambda i, k: te.exp(x[i, k] - m[i]), name="e")
    s = te.compute((8,), lambda i: te.sum(lambda k: e[i, k], 10), name="s")
    p = te.compute((8, 10), lambda i, k: e[i, k] / s[i], name="p")
    gradient = te.gradient(p, [x], head=te.placeholder((8, 10), name="p_bar"))
    assert printed(gradient, [p]) == lines("""
s_bar[i]: f32[8] = -(sum(p_bar[i, k] * p[i, k] for k in range(10)) / s[i])
e_bar[i, k]: f32[8, 10] = p_bar[i, k] * (1.0 / s[i]) + s_bar[i]
x_bar[i, k]: f32[8, 10] = e_bar[i, k] * e[i, k]
return x_bar
""")


def pooled(c, i, j, x):
    return te.max(lambda r, s: x[c, 2 * i + r, 2 * j + s], (3, 3))


def convolution(shape, filters, out, body, extents):
    x, w = te.placeholder(shape, name="x"), te.placeholder(filters, name="w")
    y = te.compute(out, lambda n, o, i: te.sum(lambda c, r: body(x, n, c, i, r) * w[o, c, r], extents), name="y")
    return y, [x, w]


def unary(shape, out, body, name="x"):
    x = te.placeholder(shape, name=name)
    return te.compute(out, body(x), name="y"), [x]


def layer_norm():
    x, g = te.placeholder((8, 10), name="x"), te.placeholder((10,), name="g")
    mu = te.compute((8,), lambda i: te.sum(lambda k: x[i, k], 10) / 10.0, name="mu")
    v = te.compute((8,), lambda i: te.sum(lambda k: (x[i, k] - mu[i]) ** 2, 10) / 10.0, name="v")
    return te.compute((8, 10), lambda i, k: (x[i, k] - mu[i]) / te.sqrt(v[i] + 1e-5) * g[k], name="y"), [x, g]


def pairwise():
    a, b = te.placeholder((6, 3), name="a"), te.placeholder((7, 3), name="b")
    return te.compute((6, 7), lambda i, j: te.sum(lambda d: (a[i, d] - b[j, d]) ** 2, 3), name="y"), [a, b]


def circular():
    x, w = te.placeholder((12,), name="x"), te.placeholder((3,), name="w")
    return te.compute((12,), lambda i: te.sum(lambda d: x[(i + d - 1) % 12] * w[d], 3), name="y"), [x, w]


def linear(x):
    return lambda p: te.where(p % 2 == 0, x[p // 2], 0.5 * x[p // 2] + 0.5 * x[te.minimum(p // 2 + 1, 4)])


def rotary():
    x, c, s = te.placeholder((6, 8), name="x"), te.placeholder((6, 4), name="c"), te.placeholder((6, 4), name="s")
    turned = te.compute(
        (6, 8),
        lambda t, d: x[t, d] * c[t, d % 4] + te.where(d < 4, -x[t, (d + 4) % 8], x[t, (d + 4) % 8]) * s[t, d % 4],
        name="y",
    )
    return turned, [x]


FORMULAS = {
    "convolution, stride 2, padded": (
        lambda: convolution((2, 3, 9), (4, 3, 3), (2, 4, 5), lambda x, n, c, i, r: x.read(n, c, 2 * i + r - 1, outside=0.0), (3, 3)),
        """
x_bar[n, c, p]: f32[2, 3, 9] = sum(
    y_bar[n, o, i] * w[o, c, p - i * 2 + 1]
    for o in range(4)
    for i in range(p // 2, (p + 1) // 2 + 1)
)
w_bar[o, c, r]: f32[4, 3, 3] = sum(
    y_bar[n, o, i] * x[n, c, r + i * 2 - 1]
    for n in range(2)
    for i in range(-((r - 1) // 2), 5 - r // 2)
)
return x_bar, w_bar
""",
    ),
    "convolution, kernel 2, stride 3": (
        lambda: convolution((2, 3, 20), (4, 3, 2), (2, 4, 6), lambda x, n, c, i, r: x[n, c, 3 * i + r], (3, 2)),
        """
x_bar[n, c, p]: f32[2, 3, 20] = where(
    p % 3 < 2 and p < 18,
    sum(y_bar[n, o, p // 3] * w[o, c, p % 3] for o in range(4)),
    0.0
)
w_bar[o, c, r]: f32[4, 3, 2] = sum(y_bar[n, o, i] * x[n, c, r + i * 3] for n in range(2) for i in range(6))
return x_bar, w_bar
""",
    ),
    "maximum pool, overlapping": (
        lambda: unary((3, 9, 9), (3, 4, 4), lambda x: lambda c, i, j: pooled(c, i, j, x)),
        """
y_argmax[c, i, j]: i64[3, 4, 4] = argmax(x[c, i * 2 + r, j * 2 + s] for r in range(3) for s in range(3))
x_bar[c, p, q]: f32[3, 9, 9] = sum(
    y_bar[c, i, j]
    for i in range(maximum((p - 1) // 2, 0), minimum(p // 2 + 1, 4))
    for j in range(maximum((q - 1) // 2, 0), minimum(q // 2 + 1, 4))
    if y_argmax[c, i, j] == p * 3 + q - i * 6 - j * 2
)
return x_bar
""",
    ),
    "average pool, overlapping": (
        lambda: unary((9,), (4,), lambda x: lambda i: te.sum(lambda r: x[2 * i + r], 3) / 3.0),
        "\nx_bar[p]: f32[9] = sum(y_bar[i] for i in range(maximum((p - 1) // 2, 0), minimum(p // 2 + 1, 4))) / 3.0\nreturn x_bar\n",
    ),
    "layer norm": (
        layer_norm,
        """
y_bar_1[i, k]: f32[8, 10] = y_bar[i, k] * g[k] * (1.0 / sqrt(v[i] + 1e-05))
v_bar[i]: f32[8] = (
    sum(y_bar[i, k] * g[k] * (x[i, k] - mu[i]) for k in range(10))
    / sqrt(v[i] + 1e-05)
    / sqrt(v[i] + 1e-05)
    / sqrt(v[i] + 1e-05)
    * -0.5
)
mu_bar[i]: f32[8] = -sum(y_bar_1[i, k] + v_bar[i] / 5.0 * (x[i, k] - mu[i]) for k in range(10))
x_bar[i, k]: f32[8, 10] = y_bar_1[i, k] + v_bar[i] / 5.0 * (x[i, k] - mu[i]) + mu_bar[i] / 10.0
g_bar[k]: f32[10] = sum(y_bar[i, k] * ((x[i, k] - mu[i]) * (1.0 / sqrt(v[i] + 1e-05))) for i in range(8))
return x_bar, g_bar
""",
    ),
    "pairwise distances": (
        pairwise,
        """
a_bar[i, d]: f32[6, 3] = sum(y_bar[i, j] * (a[i, d] - b[j, d]) for j in range(7)) * 2.0
b_bar[j, d]: f32[7, 3] = sum(y_bar[i, j] * (a[i, d] - b[j, d]) for i in range(6)) * -2.0
return a_bar, b_bar
""",
    ),
    "circular convolution": (
        circular,
        """
x_bar[p]: f32[12] = sum(y_bar[(p - d + 1) % 12] * w[d] for d in range(3))
w_bar[d]: f32[3] = sum(y_bar[i] * x[(d + i - 1) % 12] for i in range(12))
return x_bar, w_bar
""",
    ),
    "linear interpolation": (
        lambda: unary((5,), (9,), linear),
        """
x_bar[q]: f32[5] = y_bar[q * 2] + where(q < 4, y_bar[q * 2 + 1] * 0.5, 0.0) + where(q >= 1, y_bar[q * 2 - 1] * 0.5, 0.0)
return x_bar
""",
    ),
    "unfold": (
        lambda: unary((3, 6, 7), (27, 20), lambda x: lambda r, p: x[r // 9, p // 5 + r // 3 % 3, p % 5 + r % 3]),
        """
x_bar[q, u, v]: f32[3, 6, 7] = sum(
    y_bar[q * 9 + u * 3 + v - p_1 - p_2 * 3, p_1 + p_2 * 5]
    for p_1 in range(maximum(v - 2, 0), minimum(v + 1, 5))
    for p_2 in range(maximum(u - 2, 0), minimum(u + 1, 4))
)
return x_bar
""",
    ),
    "reshape": (
        lambda: unary((4, 6), (3, 8), lambda x: lambda i, j: x[(i * 8 + j) // 6, (i * 8 + j) % 6]),
        "\nx_bar[p, q]: f32[4, 6] = y_bar[(p * 6 + q) // 8, (p * 6 + q) % 8]\nreturn x_bar\n",
    ),
    "channel shuffle": (
        lambda: unary((6, 5), (6, 5), lambda x: lambda k, i: x[k % 3 * 2 + k // 3, i]),
        "\nx_bar[p, i]: f32[6, 5] = y_bar[p % 2 * 3 + p // 2, i]\nreturn x_bar\n",
    ),
    "reflection": (
        lambda: unary((5,), (9,), lambda x: lambda i: x.read(i - 2, outside="reflect")),
        """
x_bar[p]: f32[5] = (
    y_bar[p + 2] + where(p >= 2 and p < 4, y_bar[10 - p], 0.0) + where(p >= 1 and p < 3, y_bar[2 - p], 0.0)
)
return x_bar
""",
    ),
    "rotary embedding": (
        rotary,
        """
x_bar[t, d]: f32[6, 8] = (
    where(d < 4, y_bar[t, d + 4] * s[t, d], -(y_bar[t, d - 4] * s[t, d - 4])) + y_bar[t, d] * c[t, d % 4]
)
return x_bar
""",
    ),
    "off the diagonal": (
        lambda: unary((4, 4), (4, 4), lambda x: lambda i, j: te.where(i != j, x[i, j], 0.0)),
        "\nx_bar[i, j]: f32[4, 4] = where(i != j, y_bar[i, j], 0.0)\nreturn x_bar\n",
    ),
    "every third, halved": (
        lambda: unary((33,), (20,), lambda x: lambda i: te.sum(lambda k: x[(3 * i + 1) // 2 + k], 3)),
        """
x_bar[p]: f32[33] = sum(
    y_bar[p - q - k]
    for q in range(maximum(p - 21, p // 3), minimum((p + 1) // 3 + 1, 11))
    for k in range(maximum(maximum(p - q - 19, 0), p - q * 3), minimum(minimum(p - q + 1, 3), p - q * 3 + 2))
)
return x_bar
""",
    ),
    "mixed radix of an uneven extent": (
        lambda: unary((24,), (30,), lambda x: lambda i: x[i % 6 * 4 + i // 6 % 4]),
        """
x_bar[p]: f32[24] = sum(y_bar[p % 4 * 6 + p // 4 + i * 24] for i in range(2 - (p % 4 * 6 + p // 4 + 18) // 24))
return x_bar
""",
    ),
    "clip": (
        lambda: unary((5,), (5,), lambda x: lambda i: te.maximum(te.minimum(x[i], 1.0), -1.0)),
        """
x_bar[i]: f32[5] = where(
    x[i] > -1.0,
    where(x[i] < 1.0, y_bar[i], where(x[i] == 1.0, y_bar[i] * 0.5, 0.0)),
    where(x[i] == -1.0, y_bar[i] * 0.5, 0.0)
)
return x_bar
""",
    ),
    "differences": (
        lambda: unary((9,), (8,), lambda x: lambda i: x[i + 1] - x[i]),
        "\nx_bar[i]: f32[9] = where(i >= 1, y_bar[i - 1], 0.0) - where(i < 8, y_bar[i], 0.0)\nreturn x_bar\n",
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name):
    output, wrt = FORMULAS[name][0]()
    gradient = te.gradient(output, wrt, head=te.placeholder(output.shape, name="y_bar"))
    assert printed(gradient, [output]) == lines(FORMULAS[name][1])


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_have_nothing_superfluous(name):
    """By trying all points: no guard that is always true, no loop of one iteration, no literals side by side (see `clean`)."""
    output, wrt = FORMULAS[name][0]()
    program = program_of(list(te.gradient(output, wrt, head=te.placeholder(output.shape, name="y_bar"))))
    forward = frozenset(name for d in program_of([output]).definitions for name, _ in d.results)
    assert smells(program, forward) == []
    options = Options(signed_zeros=False, factor=True, derived=True)
    own = tuple(d for d in program.definitions if d.results[0][0] not in forward)
    assert [d for d in narrow_domains(program, options).definitions if d.results[0][0] not in forward] == list(own)
    assert remove_dead_definitions(program) is program


LEFT = ("in vain", "one iteration")
"""What reads that no kernel has may leave: loops around loops that are mostly empty, loops of one point whose bounds depend on others."""


@pytest.mark.parametrize("seed", range(16))
def test_gradients_of_random_reads_have_nothing_superfluous(seed):
    case = random_read(seed)
    gradient = te.gradient(case.output, [case.x], head=te.placeholder(case.output.shape, "float64", name="y_bar"))
    found = smells(program_of(list(gradient)), frozenset({"y"}))
    assert [smell for smell in found if not smell.split(": ")[1].startswith(LEFT)] == []


def test_the_oracle_of_smells():
    """Every kind of smell is found."""
    program = parse_program("""
X: f32[4, 6] = input()
A[i]: f32[4] = where(i < 4, X[i, 0], 0.0) + where(i > 5, X[i, 0], 0.0)
B[i]: f32[4] = sum(-X[i, k] for k in range(maximum(0, i - 9), 6) if k >= 0)
C[i]: f32[4] = sum(X[i, k] for k in range(i, i + 1)) * 2.0 * 3.0
D[i]: f32[4] = X[i % 4, i // 4] + X[i, 0] * 1.0
E[i]: f32[4] = X[i, 0] - -X[i, 1] + where(i > 1, where(i < 3, X[i, 2], 0.0), 0.0)
F[i]: f32[4] = where(i > 1, X[i, 0], X[i, 0]) + (X[i, 1] + X[i, 1])
H[i]: f32[4] = where(i < 2, sum(X[i, k] for k in range(i, 2)), 0.0)
I[i]: f32[4] = where(i < 2, X[i, 0], 0.0) + X[i, 1] + where(i > 2, X[i, 0], 0.0) + where(i < 1, X[i, 2], where(i > 2, X[i, 2], 0.0))
J[i]: f32[4] = sum(X[k, l] for k in range(4) for l in range(i, k - 1))
G[i]: f32[4] = 2.0 * X[i, 0] + where(i > 0 and (i < 3 and X[i, 0] > 0.0), X[i, 1], f32(i64(3)))
return A, B, C, D, E, F, G, H, I, J
""")
    found = smells(program)
    for kind in (
        "A: always true: i < 4", "A: never true: i > 5", "B: sign inside", "B: decided: maximum(0, i - 9)", "B: always true: k >= 0",
        "C: one iteration of k", "C: two literals", "D: no division: i % 4", "D: no division: i // 4", "D: neutral: X[i, 0] * 1.0",
        "E: sign", "E: nested selections", "F: the same in both branches", "F: twice the same", "G: literal first",
        "G: nested conjunction", "G: literal cast",
        "H: around nothing: i < 2", "I: pieces that could be one", "I: one selection twice", "J: in vain 13 times of 16",
    ):  # fmt: skip
        assert any(smell.startswith(kind) for smell in found), (kind, found)


@pytest.mark.parametrize("name", [None, "state"])
def test_states_that_nothing_reads_have_names_of_their_own(name):
    """Names are the same in each process, so compiled code is found again: keys of tensors are not."""
    x = te.placeholder((9, 4), name="x")
    start = te.compute((4,), lambda i: te.cast(1, x.dtype))

    def step(t, s):
        return te.compute((4,), lambda i: s[0][i] * te.exp(x[t, i])), te.compute((4,), lambda i: s[1][i] + s[0][i])

    _, total = te.scan(step, (start, start), 9, **({} if name is None else {"name": (name, "total")}))
    first = te.gradient(te.compute((), lambda: te.sum(lambda i: total[8, i], 4)), [x])
    second = te.gradient(te.compute((), lambda: te.sum(lambda t, i: te.square(first[0][t, i]), (9, 4))), [x])
    for outputs in (first, second):
        text = str(te.program_of(list(outputs)))
        assert "__" not in text and "back" in text
