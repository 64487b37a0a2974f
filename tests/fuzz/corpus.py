"""Programs that once broke a law of the fuzzer, made small: by what was wrong."""

from tests.fuzz.plan import Plan
from tests.random_programs import Sample

FOUND = {
    "a guard that is dropped around a reduction in a reduction": Plan(
        Sample("""a = 2
b = 2
X4 = te.placeholder((3, 4), 'float32', name='X4')
X5 = te.placeholder((a,), 'float32', name='X5')
T7 = te.compute((b + 2,), lambda i: te.where(i < 1, te.sum(lambda v: te.sum(lambda u: X4[i, u] * X5[v], 4), a), 0.0) + 1.0, name='T7')
inputs = [X4, X5]
outputs = [T7]""")
    ),
    "the same in a gradient, of a maximum in a maximum": Plan(
        Sample("""b = 1
c = 2
d = 2
X1 = te.placeholder((b, 4), 'float64', name='X1')
X2 = te.placeholder((c,), 'float64', name='X2')
T3 = te.compute((d,), lambda i: te.where(i < b, te.max(lambda v: te.max(lambda u: X1[i, u] * X2[v], 2), c), 0.5), name='T3')
inputs = [X1, X2]
outputs = [T3]"""),
        (),
        ("gradient",),
    ),
    "addresses of an index array that do not dominate their uses": Plan(
        Sample(
            """a = te.dim('a')
b = 0
X1 = te.placeholder((b, a), 'float32', name='X1')
K3 = te.placeholder((a, 2), 'int64', name='K3')
T4 = te.compute((a, a), lambda t, i: X1[K3[t, 1], i], name='T4')
inputs = [X1, K3]
outputs = [T4]
below = {'K3': b}""",
            {"a": 0},
        )
    ),
    "the same in a gradient": Plan(
        Sample(
            """a = te.dim('a')
X1 = te.placeholder((a, a), 'float64', name='X1')
K2 = te.placeholder((a,), 'int16', name='K2')
T3 = te.compute((2, a), lambda i, j: X1.read(1, j, outside='clamp') / X1[j, K2[j]], name='T3')
inputs = [X1, K2]
outputs = [T3]
below = {'K2': a}""",
            {"a": 3},
        ),
        (),
        ("gradient",),
    ),
    "a condition on data in front of a loop that is empty": Plan(
        Sample(
            """a = te.dim('a')
c = te.dim('c')
X1 = te.placeholder((4, a), 'float64', name='X1')
X2 = te.placeholder((c,), 'float64', name='X2')
T4 = te.compute((2, c), lambda i, j: te.where(X1[i, te.clip(i, 0, a - 1)] != 0, te.cast(j % 7, 'float64'), 2.0), name='T4')
inputs = [X1, X2]
outputs = [T4]""",
            {"a": 3, "c": 2},
        )
    ),
    "a tile of loops whose copies stand beside each other": Plan(
        Sample(
            """X1 = te.placeholder((16, 46), 'float32', name='X1')
K2 = te.placeholder((46, 47), 'int32', name='K2')
T3 = te.compute(
    (46, 16),
    lambda i, j: te.where(j > 1, te.max(lambda k: X1[te.clip(K2[i, k], 0, 15), i], 47, where=lambda k: i % 3 == 1), 0.5),
    name='T3',
)
T5 = te.compute((16, 46), lambda i, j: te.max(lambda k, l: X1.read(i + k - 1, j + l - 1, outside='clamp'), (2, 2)), name='T5')
inputs = [X1, K2]
outputs = [T3, T5]
below = {'K2': 16}""",
            seed=1900100094,
        ),
        ("searched",),
    ),
    "kernels of no iteration": Plan(
        Sample(
            """a, b = 0, te.dim('b')
X1 = te.placeholder((a, a), 'float32', name='X1')
K2 = te.placeholder((b,), 'int64', name='K2')
K3 = te.placeholder((b,), 'int64', name='K3')
T4 = te.compute((b, a), lambda t, i: te.where(K3[t] == 1, X1[K2[t], i], 2.0), name='T4')
X5 = te.placeholder((a, b), 'float32', name='X5')
K6 = te.placeholder((a,), 'int16', name='K6')
X7 = te.placeholder((b, a), 'float32', name='X7')
count = lambda i: te.reduce(lambda x, y: (x[0] + y[0], x[1] + y[1]), (0.0, 0), lambda k: (X1[a - 1 - i, i], 1), a)[0]
inner = lambda i, j: te.where((i + 2 * j + 2 >= 0) & (i + 2 * j + 2 < a), T4[j, i + 2 * j + 2], 2.0)
lower = lambda i, j: te.where(j + 1 >= 0, X5[i, K6[i]] - te.cast(i % 7, 'float32'), count(i))
upper = lambda i, j: te.where(j >= i, inner(i, j), X7.read(j + 2, i + j - 1, outside='wrap'))
T8 = te.compute((a, b), lambda i, j: te.where(K6[i] > 0, upper(i, j), lower(i, j)), name='T8')
inputs = [X1, K2, K3, X5, K6, X7]
outputs = [T8]
below = {'K2': a, 'K3': b, 'K6': b}""",
            {"b": 64},
            seed=1900200026,
        ),
        ("searched",),
    ),
    "an index divided by the extent of an empty tensor": Plan(
        Sample(
            """b = 0
X1 = te.placeholder((b,), 'float64', name='X1')
T2 = te.compute((b,), lambda i: X1[(i - 2) % b], name='T2')
T6 = te.compute((b // 2, 2), lambda i, j: T2[i * 2 + j], name='T6')
inputs = [X1]
outputs = [T6]""",
            seed=777054,
        ),
        ("searched",),
    ),
    "a buffer that is computed in a loop and read behind it, under one declaration": Plan(
        Sample(
            """a = 2
X5 = te.placeholder((1, a, a), 'float64', name='X5')
T7 = te.compute((1,), lambda p: te.sum(lambda j, l: X5[p, j, l], (a, a)) + X5.read(p, 1, 1, outside='clamp'), name='T7')
inputs = [X5]
outputs = [T7]""",
            seed=1795879558397,
        ),
        ("random",),
    ),
    "a kernel that has no iteration, with an index that is divided": Plan(
        Sample(
            """a = 0
c = 0
X1 = te.placeholder((2, a), 'float64', name='X1')
T2 = te.compute((2, c), lambda i, j: te.reduce(lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), (1.0, 0.0), lambda k: \
    (te.clip(X1[i, k], -1, 1), X1[i, te.clip((i + k + 3) % 3, 0, a - 1)]), a)[1], name='T2')
inputs = [X1]
outputs = [T2]""",
            seed=1795898988079,
        ),
        ("searched",),
    ),
    "rows in blocks that overlap, in another order": Plan(
        Sample(
            """a = 17
b = 32
X3 = te.placeholder((a, a), 'float32', name='X3')
X4 = te.placeholder((b, a), 'float32', name='X4')
X5 = te.placeholder((b, a), 'float32', name='X5')
T6 = te.compute((a, b), lambda i, j: te.sum(lambda r: X3[i, r] * X4[j, r], a) * 0.25, name='T6')
T7 = te.compute((a,), lambda i: te.sum(lambda j: T6[i, j], b), name='T7')
T8 = te.compute((a, b), lambda i, j: T6[i, j] - T7[i], name='T8')
T9 = te.compute((a,), lambda i: te.sum(lambda j: T8[i, j], b), name='T9')
T10 = te.compute((a, a), lambda i, r: te.sum(lambda j: T8[i, j] * X5[j, r], b) / T9[i], name='T10')
inputs = [X3, X4, X5]
outputs = [T10]""",
            seed=2700001106,
        ),
        ("tuned",),
    ),
}
