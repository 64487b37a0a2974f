"""Gradients as users read them: clean mathematics."""

import tensorexpr as te
from tensorexpr.ir import Program
from tensorexpr.language import names_of, program_of

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
s_bar[i]: f32[8] = -sum(p_bar[i, k] * (p[i, k] / s[i]) for k in range(10))
e_bar[i, k]: f32[8, 10] = p_bar[i, k] / s[i] + s_bar[i]
m_argmax[i]: i64[8] = argmax(x[i, k] for k in range(10))
m_bar[i]: f32[8] = -sum(e_bar[i, k] * e[i, k] for k in range(10))
x_bar[i, k]: f32[8, 10] = e_bar[i, k] * e[i, k] + where(m_argmax[i] == k, m_bar[i], 0.0)
return x_bar
""")
