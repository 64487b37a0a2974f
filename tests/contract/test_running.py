"""As an outside checker reads the documents: compiled functions, their arguments, schedules, bits and threads."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import tensorexpr as te

RNG = np.random.default_rng(0)
N, M = te.dim("n"), te.dim("m")
A, B = te.placeholder((N, M), "float64", name="A"), te.placeholder((M,), "float64", name="B")
C = te.compute((N,), lambda i: te.sum(lambda k: A[i, k] * B[k], M), name="C")


@pytest.fixture(scope="module")
def product():
    return te.build(C, [A, B], target="cpu")


def test_one_tensor_gives_an_array_and_a_list_a_tuple(product):
    a, b = RNG.normal(size=(5, 7)), RNG.normal(size=7)
    np.testing.assert_allclose(product(a, b), a @ b)
    for outputs in ([C], (C,)):
        found = te.build(outputs, [A, B])(a, b)
        assert isinstance(found, tuple) and len(found) == 1
        np.testing.assert_allclose(found[0], a @ b)


def test_out_is_filled_and_returned(product):
    a, b = RNG.normal(size=(5, 7)), RNG.normal(size=7)
    for out in (np.empty(5), np.empty(10)[::2], np.empty(5)[::-1]):
        assert product(a, b, out=out) is out
        np.testing.assert_allclose(out, a @ b)
    several = te.build([C], [A, B])
    out = np.empty(5)
    assert several(a, b, out=(out,))[0] is out
    np.testing.assert_allclose(out, a @ b)


def test_any_strides_read_only_and_empty_arrays(product):
    a, b = RNG.normal(size=(6, 8)), RNG.normal(size=8)
    views = (a[::-1], a[:, ::-1], np.asfortranarray(a), np.repeat(a, 2, 1)[:, ::2], np.broadcast_to(b, (4, 8)), a[1:5], a[::3])
    for view in views:
        np.testing.assert_allclose(product(view, b[::-1]), view @ b[::-1])
    a.flags.writeable = b.flags.writeable = False
    np.testing.assert_allclose(product(a, b), a @ b)
    assert product(np.empty((0, 8)), b).shape == (0,)
    np.testing.assert_array_equal(product(np.empty((3, 0)), np.empty(0)), np.zeros(3))


def test_arrays_without_axes_and_scalars():
    S = te.placeholder((), "float64", name="S")
    f = te.build(te.compute((), lambda: S[()] * 2), [S])
    for value in (3.0, np.float64(3), np.array(3.0), 3):
        assert f(value) == 6 and f(value).shape == ()


def test_wrong_arguments_name_the_argument_and_both_sides(product):
    a, b = RNG.normal(size=(5, 7)), RNG.normal(size=7)
    locked, block = np.empty(5), np.empty(40)
    locked.flags.writeable = False
    cases = (
        ("expected 2 arguments (A, B), got 1", lambda: product(a)),
        ("argument A: expected 2 axes, got 1", lambda: product(b, b)),
        ("argument B: expected extent 7 (m = 7 from axis 1 of A), got 6", lambda: product(a, b[:6])),
        ("argument A: expected dtype float64, got float32", lambda: product(a.astype("f4"), b)),
        ("argument A: expected a NumPy array, got a list", lambda: product(a.tolist(), b)),
        ("argument A: expected a NumPy array, got None", lambda: product(None, b)),
        ("out: expected shape [5], got [6]", lambda: product(a, b, out=np.empty(6))),
        ("out: expected dtype float64, got float32", lambda: product(a, b, out=np.empty(5, "f4"))),
        ("out: expected a writeable array, got a read-only one", lambda: product(a, b, out=locked)),
        ("got an array that overlaps argument A", lambda: product(block[:35].reshape(5, 7), b, out=block[10:15])),
    )
    for text, call in cases:
        with pytest.raises(te.ArgumentError) as caught:
            call()
        assert text in str(caught.value) and __file__ in str(caught.value)


def test_what_a_compiled_function_shows(product):
    assert te.parse_program(str(product.program)) == product.program
    assert str(product.schedule) and str(product.nest) == product.source("nest")
    assert "define" in product.source("llvm") and len(product.source("asm")) > 100
    assert (product.cost.operations(n=5, m=7), product.cost.bytes(n=5, m=7)) == (70, 8 * (35 + 7 + 5))
    X = te.placeholder((3, 4), name="X")
    assert te.build(te.compute((4, 3), lambda i, j: X[j, i]), [X]).cost == (0, 2 * 48)
    for stage in ("cuda", "ptx", "python", None):
        with pytest.raises(te.TargetError, match="expected a stage"):
            product.source(stage)
    for target in ("cuda", "gpu", None):
        with pytest.raises(te.TargetError, match="expected a target"):
            te.build(C, [A, B], target=target)


def test_a_function_outlives_what_made_it():
    def made():
        X = te.placeholder((3,), "float64", name="X")
        return te.build(te.compute((3,), lambda i: X[i] + 1), [X])

    np.testing.assert_array_equal(made()(np.zeros(3)), 1)


def test_many_threads_at_once(product):
    a, b = RNG.normal(size=(200, 300)), RNG.normal(size=300)
    wanted, wrong = product(a, b), []

    def work():
        for _ in range(50):
            if not np.array_equal(product(a, b), wanted):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


BITS = """
import hashlib
import numpy as np
import tensorexpr as te
rng = np.random.default_rng(0)
x = rng.normal(size=(301, 517)).astype("f4")
X = te.placeholder(x.shape, name="X")
total = te.compute((), lambda: te.sum(lambda i, j: te.exp(X[i, j]), x.shape))
rows = te.compute((301,), lambda i: te.sum(lambda j: X[i, j] * X[i, j], 517))
best = te.compute((517,), lambda j: te.argmax(lambda i: X[i, j], 301))
bar = te.gradient(te.compute((), lambda: te.sum(lambda i: te.log(rows[i]), 301)), X)[0]
found = te.build([total, rows, best, bar], [X])(x)
print(hashlib.sha256(b"".join(y.tobytes() for y in found)).hexdigest())
"""


def test_the_same_bits_for_every_number_of_threads_and_hash_seed():
    bits = set()
    for threads, seed in (("1", "0"), ("7", "2")):
        env = {**os.environ, "TENSOREXPR_NUM_THREADS": threads, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", BITS], env=env, capture_output=True, text=True, timeout=120, check=True)
        bits.add(done.stdout)
    assert len(bits) == 1


# -------------------------------------------------------------------------------------------------------- schedules


def test_schedules_are_values_that_print_and_rebuild():
    a, b = RNG.normal(size=(50, 70)), RNG.normal(size=70)
    plain, chosen = te.schedule(C, "cpu"), te.autoschedule(C, "cpu")
    assert plain.as_python() == "" and "for i in range(0, n)" in str(plain)
    rebuilt = te.schedule(C, "cpu")
    exec(chosen.as_python(), {"s": rebuilt})
    assert rebuilt == chosen and str(rebuilt) == str(chosen)
    outer, inner = plain[C].split("i", 32)
    plain[C].reorder(outer, "k", inner)
    plain[C].parallel(outer)
    again = te.schedule(C)
    exec(plain.as_python(), {"s": again})
    assert again == plain and plain[C].loops == (outer, "k", inner)
    for schedule in (plain, chosen, again):
        np.testing.assert_allclose(te.build(schedule, [A, B])(a, b), a @ b)


def test_illegal_schedules_are_refused_with_the_reason():
    s = te.schedule(C)
    before = str(s)
    cases = (
        ("expected a loop of C, got 'z'", lambda: s[C].split("z", 3)),
        ("expected a positive int as the factor, got 0", lambda: s[C].split("k", 0)),
        ("expected a definition of the program, got 'Q'", lambda: s["Q"]),
        ("expected a constant extent of at most 256 to vectorize k", lambda: s[C].vectorize("k")),
        ("got the output C", lambda: s[C].inline()),
    )
    for text, use in cases:
        with pytest.raises(te.ScheduleError) as caught:
            use()
        assert text in str(caught.value)
    assert str(s) == before


# -------------------------------------------------------------------------------------------------------------- ops


@te.op
def conv2d(x, w, *, stride=1):
    n, c, h, l = x.shape
    k, _, r, s = w.shape
    return te.compute(
        (n, k, (h - r) // stride + 1, (l - s) // stride + 1),
        lambda b, o, y, z: te.sum(lambda i, dy, dx: x[b, i, y * stride + dy, z * stride + dx] * w[o, i, dy, dx], (c, r, s)),
    )


@te.op
def rowsum(x):
    return te.compute((x.shape[0],), lambda i: te.sum(lambda k: x[i, k], x.shape[1]))


def test_the_convolution_of_the_design():
    x, w = RNG.normal(size=(2, 3, 7, 8)), RNG.normal(size=(4, 3, 3, 2))
    wanted = np.stack(
        [np.stack([np.einsum("bchw,ochw->bo", x[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2], w) for j in range(4)], -1) for i in range(3)],
        -2,
    )
    for y in (conv2d(x, w, stride=2), conv2d(x=x, w=w, stride=np.int64(2)), conv2d(x, w=w, stride=2)):
        np.testing.assert_allclose(y, wanted)
    out = np.empty(wanted.shape)
    assert conv2d(x, w, stride=2, out=out) is out
    np.testing.assert_allclose(out, wanted)
    assert conv2d(x.astype("f4"), w.astype("f4")).dtype == np.float32
    np.testing.assert_allclose(conv2d(x[..., ::-1], w[..., ::-1], stride=2).shape, wanted.shape)


def test_ops_compose_on_tensors():
    X = te.placeholder((3, 4), "float64", name="X")
    sums = rowsum(X)
    assert isinstance(sums, te.Tensor) and sums.shape == (3,)
    x = RNG.normal(size=(3, 4))
    np.testing.assert_allclose(te.evaluate(te.compute((3,), lambda i: sums[i] * 2), {X: x}), 2 * x.sum(1))


def test_trace_and_compile_take_specs_of_every_kind():
    X = te.placeholder((3, 4), "float64")
    programs = [rowsum.trace(spec) for spec in (((3, 4), "float64"), ((3, 4), np.float64), np.ones((3, 4)), X)]
    assert all(isinstance(p, te.Program) and p == programs[0] for p in programs)
    for f in (
        rowsum.compile(((3, 4), "float64"), dynamic={"x": (0,)}),
        rowsum.compile(np.ones((3, 4)), target="cpu", dynamic={0: 0}),
        rowsum.compile(te.placeholder((te.dim("n"), 4), "float64")),
    ):
        for n in (0, 1, 9):
            np.testing.assert_array_equal(f(np.ones((n, 4))), np.full(n, 4.0))
        with pytest.raises(te.ArgumentError, match="axis 1 of x"):
            f(np.ones((3, 5)))
    gradient = te.vjp(rowsum).compile(te.placeholder((te.dim("n"), te.dim("m")), "float64"), te.placeholder((te.dim("n"),), "float64"))
    np.testing.assert_array_equal(gradient(np.ones((2, 3)), np.array([1.0, 2]))[0], [[1, 1, 1], [2, 2, 2]])


def test_importing_loads_no_compiler():
    code = "import sys, tensorexpr; print([m for m in ('llvmlite', 'sympy', 'cupy', 'torch', 'jax') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
