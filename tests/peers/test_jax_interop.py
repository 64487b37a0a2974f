"""Ops in JAX: every transform against JAX's own, gradients checked to second order in both modes. Skipped by name without JAX."""

from __future__ import annotations

import concurrent.futures
import functools
import gzip
import json
import re

import numpy as np
import pytest

import tensorexpr as te

jax = pytest.importorskip("jax", reason="JAX is not installed (make test-peers installs it)")
jnp = jax.numpy
check_grads = pytest.importorskip("jax.test_util").check_grads

from tensorexpr.interop.jax import as_jax  # noqa: E402


@pytest.fixture(autouse=True)
def _wide_types():
    """JAX with 64-bit types, where a test does not ask for others."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", True)


# ---------------------------------------------------------------------------------------------------- operations and what they are in JAX


@te.op
def layer(x, w, b, *, slope=0.25):
    """Several inputs, a static argument, a kink."""
    (n, k), (_, m) = x.shape, w.shape
    z = te.compute((n, m), lambda i, j: te.sum(lambda r: x[i, r] * w[r, j], k) + b[j])
    return te.compute((n, m), lambda i, j: te.where(z[i, j] > 0, z[i, j], slope * z[i, j]) + te.sin(z[i, j]))


def jax_layer(x, w, b, *, slope=0.25):
    z = x @ w + b
    return jnp.where(z > 0, z, slope * z) + jnp.sin(z)


@te.op
def conv(x, w):
    (n, c, l), (k, _, r) = x.shape, w.shape
    return te.compute((n, k, (l - r) // 2 + 1), lambda n, k, o: te.sum(lambda c, i: x[n, c, 2 * o + i] * w[k, c, i], (c, r)))


def jax_conv(x, w):
    return jax.lax.conv_general_dilated(x, w, (2,), "VALID")


@te.op
def softmax(x):
    n, m = x.shape
    top = te.compute((n,), lambda i: te.max(lambda j: x[i, j], m))
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]))
    return te.compute((n, m), lambda i, j: e[i, j] / te.sum(lambda k: e[i, k], m))


@te.op
def gather(table, ids):
    return te.compute((ids.shape[0], table.shape[1]), lambda i, d: table[ids[i], d] ** 2)


def jax_gather(table, ids):
    return table[ids] ** 2


@te.op
def decay(x, a):
    """A recurrence."""
    return te.scan(
        lambda t, s: te.compute((x.shape[1],), lambda d: te.tanh(a[d] * s[d]) + x[t, d]),
        te.compute((x.shape[1],), lambda d: 0.0 * a[d]),
        x.shape[0],
    )


def jax_decay(x, a):
    def step(s, row):
        s = jnp.tanh(a * s) + row
        return s, s

    return jax.lax.scan(step, jnp.zeros_like(a), x)[1]


@te.op
def moments(x):
    """Several results, one of them an integer."""
    (n,) = x.shape
    mean = te.compute((), lambda: te.sum(lambda i: x[i], n) / n)
    return mean, te.compute((n,), lambda i: te.square(x[i] - mean[()])), te.compute((), lambda: te.argmax(lambda i: x[i], n))


def jax_moments(x):
    return x.mean(), (x - x.mean()) ** 2, jnp.argmax(x)


jax.config.update("jax_enable_x64", True)  # before the first array


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng((seed, *shape)).standard_normal(shape))


CASES = {
    "layer": (layer, jax_layer, (normal(3, 4), normal(4, 5), normal(5))),
    "conv": (conv, jax_conv, (normal(2, 3, 9), normal(4, 3, 3))),
    "softmax": (softmax, jax.nn.softmax, (normal(3, 5),)),
    "decay": (decay, jax_decay, (normal(6, 3), normal(3))),
}
each = pytest.mark.parametrize("name", CASES)


def close(ours, theirs, tolerance=1e-9):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------------------------------------- transforms


@each
def test_value_with_and_without_jit(name):
    op, reference, arrays = CASES[name]
    ours = as_jax(op)
    expected = reference(*arrays)
    close(ours(*arrays), expected)
    close(jax.jit(ours)(*arrays), expected)
    close(jax.jit(jax.jit(lambda *a: ours(*a) + ours(*a)))(*arrays), 2 * expected)
    assert isinstance(ours(*arrays), jax.Array)


@each
def test_gradients_to_second_order_in_both_modes(name):
    op, _, arrays = CASES[name]
    check_grads(as_jax(op), arrays, order=2, modes=("fwd", "rev"), rtol=1e-4, atol=1e-4)


@each
def test_gradients_equal_those_of_jax(name):
    op, reference, arrays = CASES[name]
    everything = tuple(range(len(arrays)))

    def loss(function):
        return lambda *a: (jnp.cos(function(*a)) * function(*a)).sum()

    ours, theirs = loss(as_jax(op)), loss(reference)
    close(jax.grad(ours, everything)(*arrays), jax.grad(theirs, everything)(*arrays))
    close(jax.jit(jax.value_and_grad(ours, everything))(*arrays), jax.jit(jax.value_and_grad(theirs, everything))(*arrays))
    close(jax.grad(ours)(*arrays), jax.grad(theirs)(*arrays))  # of one argument alone
    close(jax.hessian(ours)(*arrays), jax.hessian(theirs)(*arrays), 1e-8)
    close(jax.jacrev(as_jax(op))(*arrays), jax.jacrev(reference)(*arrays))
    close(jax.jacfwd(as_jax(op))(*arrays), jax.jacfwd(reference)(*arrays))


def test_third_order():
    x = normal(2, 3)

    def thrice(function):
        return lambda x: jax.grad(lambda x: jax.grad(lambda x: jax.grad(lambda x: (function(x) ** 3).sum())(x).sum())(x).sum())(x)

    close(thrice(as_jax(softmax))(x), thrice(jax.nn.softmax)(x), 1e-7)


@each
def test_vmap_and_its_nestings(name):
    op, reference, arrays = CASES[name]
    ours = as_jax(op)
    many = [jnp.stack([array, 2 * array, -array]) for array in arrays]
    close(jax.vmap(ours)(*many), jax.vmap(reference)(*many))
    # One argument alone, at the end; the others are shared.
    axes = (arrays[0].ndim, *[None] * (len(arrays) - 1))
    last = jnp.moveaxis(many[0], 0, -1)
    close(jax.vmap(ours, axes)(last, *arrays[1:]), jax.vmap(reference, axes)(last, *arrays[1:]))
    twice = [jnp.stack([array, array + 1]) for array in many]
    close(jax.vmap(jax.vmap(ours))(*twice), jax.vmap(jax.vmap(reference))(*twice))
    close(jax.jit(jax.vmap(jax.jit(ours)))(*many), jax.vmap(reference)(*many))


@each
def test_gradient_and_vmap_in_either_order(name):
    op, reference, arrays = CASES[name]
    everything = tuple(range(len(arrays)))
    axes = (0, *[None] * (len(arrays) - 1))
    many = (jnp.stack([arrays[0], 2 * arrays[0]]), *arrays[1:])

    def of(function):
        single = jax.grad(lambda *a: (function(*a) ** 2).sum(), everything)
        whole = jax.grad(lambda *a: (jax.vmap(function, axes)(*a) ** 2).sum(), everything)
        second = jax.grad(lambda *a: sum(g.sum() for g in whole(*a)))
        return jax.vmap(single, axes)(*many), whole(*many), second(*many)

    close(of(as_jax(op)), of(reference), 1e-8)


def test_the_batch_of_a_linear_call_is_transposed():
    x, v = normal(3, 5), normal(4, 3, 5)

    def of(function):
        pushed = jax.vmap(lambda v: jax.jvp(function, (x,), (v,))[1])
        pulled = jax.vmap(lambda h: jax.vjp(function, x)[1](h)[0])
        return [jax.linear_transpose(linear, v)(v)[0] for linear in (pushed, pulled)]

    close(of(as_jax(softmax)), of(jax.nn.softmax))


def test_scan_while_cond_and_remat():
    w = normal(4, 4)

    def chain(function, steps):
        def loss(x, w):
            x, _ = jax.lax.scan(lambda x, _: (steps(function)(x @ w), None), x, None, length=5)
            return (x**2).sum()

        return jax.jit(jax.grad(loss, (0, 1)))(normal(3, 4), w)

    plain, remat = (lambda f: f), jax.checkpoint
    close(chain(as_jax(softmax), plain), chain(jax.nn.softmax, plain))
    close(chain(as_jax(softmax), remat), chain(jax.nn.softmax, plain))

    def looped(function, x):
        x = jax.lax.fori_loop(0, 3, lambda _, x: function(x), x)
        x = jax.lax.while_loop(lambda x: x.sum() > 100, lambda x: function(x), x)
        return jax.lax.cond(x[0, 0] > 0, function, lambda x: x, x)

    close(jax.jit(functools.partial(looped, as_jax(softmax)))(w), looped(jax.nn.softmax, w))


def test_linearize_and_partial_derivatives():
    _, _, (x, w, b) = CASES["layer"]
    value, push = jax.linearize(lambda w: as_jax(layer)(x, w, b), w)
    value_, push_ = jax.linearize(lambda w: jax_layer(x, w, b), w)
    close((value, push(w)), (value_, push_(w)))


# ---------------------------------------------------------------------------------------------------- forms of arguments and results


def test_static_arguments():
    arrays = CASES["layer"][2]
    for slope in (0.25, 0.5):
        ours = functools.partial(as_jax(layer), slope=slope)
        close(jax.jit(ours)(*arrays), jax_layer(*arrays, slope=slope))
        check_grads(ours, arrays, order=1)
    with pytest.raises(te.ArgumentError, match="layer: expected the static arguments slope, got steepness"):
        as_jax(layer)(*arrays, steepness=1)
    with pytest.raises(te.ArgumentError, match="static argument slope: expected a hashable value, got an ArrayImpl"):
        as_jax(layer)(*arrays, slope=jnp.ones(2))


def test_several_results_and_integers_among_them():
    x = normal(7)
    close(as_jax(moments)(x), jax_moments(x))
    close(jax.vmap(as_jax(moments))(jnp.stack([x, -x])), jax.vmap(jax_moments)(jnp.stack([x, -x])))

    def loss(function):
        return lambda x: (lambda m, v, i: m * v.sum() + v[i])(*function(x))

    close(jax.grad(loss(as_jax(moments)))(x), jax.grad(loss(jax_moments))(x))
    primal, tangent = jax.jvp(as_jax(moments), (x,), (x,))
    assert tangent[2].dtype == jax.dtypes.float0 and primal[2].dtype == jnp.int64
    # One of the results alone has a head.
    close(jax.grad(lambda x: as_jax(moments)(x)[1][2])(x), jax.grad(lambda x: jax_moments(x)[1][2])(x))


def test_integer_arguments_have_no_tangents():
    table, ids = normal(5, 3), jnp.array([1, 4, 1, 0])
    close(as_jax(gather)(table, ids), jax_gather(table, ids))
    check_grads(lambda t: as_jax(gather)(t, ids), (table,), order=2)
    gradient, none = jax.grad(lambda t, i: as_jax(gather)(t, i).sum(), (0, 1), allow_int=True)(table, ids)
    close(gradient, jax.grad(lambda t: jax_gather(t, ids).sum())(table))
    assert none.dtype == jax.dtypes.float0
    many = jnp.stack([ids, ids[::-1]])
    of = [jax.grad(lambda t, f=f: (jax.vmap(f, (None, 0))(t, many) ** 2).sum())(table) for f in (as_jax(gather), jax_gather)]
    close(*of)


def test_trees_and_arguments_left_out():
    @te.op
    def weighted(pair, scale=None):
        a, b = pair
        factor = 1.0 if scale is None else scale
        total = te.compute(a.shape, lambda i: a[i] * b[i])
        return (total, (te.compute(a.shape, lambda i: total[i] * (factor if scale is None else scale[i])),))

    a, b = normal(4), normal(4, seed=1)
    total, (scaled,) = as_jax(weighted)((a, b), a)
    close((total, scaled), (a * b, a * b * a))
    total, (same,) = jax.jit(as_jax(weighted))((a, b))
    close((total, same), (a * b, a * b))
    gradients = jax.grad(lambda pair, s: as_jax(weighted)(pair, s)[1][0].sum(), (0, 1))((a, b), a)
    close(gradients, ((b * a, a * a), a * b))


def test_numbers_and_arrays_of_numpy_among_the_arguments():
    @te.op
    def axpy(a, x, y):
        return te.compute(x.shape, lambda i: a[()] * x[i] + y[i])

    x = jnp.arange(4.0, dtype="float32")
    result = as_jax(axpy)(2.0, x, np.ones(4, "float32"))
    close(result, 2 * x + 1)
    close(axpy(2.0, x, np.ones(4, "float32")), result)  # the op itself, on arrays of JAX
    close(jax.jit(axpy)(jnp.float32(2), x, x), 3 * x)


@pytest.mark.parametrize(
    "name", ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"]
)
def test_dtypes(name):
    @te.op
    def doubled(x):
        return te.compute(x.shape, lambda i: x[i] | x[i] if name == "bool" else x[i] + x[i])

    x = jnp.array([0, 1, 1, 0, 1]).astype(name)
    result = as_jax(doubled)(x)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(result, "float64"), [0, 1, 1, 0, 1] if name == "bool" else [0, 2, 2, 0, 2])


def test_without_types_of_64_bits():
    jax.config.update("jax_enable_x64", False)
    x = jnp.linspace(-1, 1, 7)
    mean, spread, top = as_jax(moments)(x)
    assert (mean.dtype, spread.dtype, top.dtype) == ("float32", "float32", "int32")
    assert int(top) == 6

    @te.op
    def wide(x):
        return te.compute(x.shape, lambda i: te.cast(x[i], "float64") ** 2)

    assert as_jax(wide)(x).dtype == "float32"
    close(jax.grad(lambda x: as_jax(wide)(x).sum())(x), 2 * x, 1e-6)
    assert as_jax(wide)(np.arange(3)).tolist() == [0, 1, 4]  # integers of 64 bits that 32 hold
    for given in (np.array([1, 2**40]), np.uint64(2**63)):
        got = f"wide: argument x: expected integers that u?int32 holds, in which JAX computes here, got {np.max(given)}"
        with pytest.raises(te.ArgumentError, match=got):
            as_jax(wide)(given)
    check_grads(as_jax(layer), [a.astype("float32") for a in CASES["layer"][2]], order=1, modes=("fwd", "rev"), rtol=1e-2, atol=1e-2)
    jax.config.update("jax_enable_x64", True)
    assert as_jax(wide)(x).dtype == "float64"


def test_empty_and_0d_arrays():
    @te.op
    def total(x):
        return te.compute((), lambda: te.sum(lambda i: x[i], x.shape[0])), te.compute(x.shape, lambda i: -x[i])

    close(as_jax(total)(jnp.zeros(0)), (jnp.array(0.0), jnp.zeros(0)))
    close(jax.vmap(as_jax(total))(jnp.zeros((0, 3))), (jnp.zeros(0), jnp.zeros((0, 3))))

    @te.op
    def square(x):
        return te.compute((), lambda: x[()] * x[()])

    assert jax.grad(as_jax(square))(3.0) == 6.0
    assert jax.grad(jax.grad(as_jax(square)))(3.0) == 2.0


def test_a_result_that_is_an_argument_or_no_argument_at_all():
    @te.op
    def both(x):
        return x, te.compute((2,), lambda i: te.cast(i, "float64"))

    close(as_jax(both)(jnp.ones(3)), (jnp.ones(3), jnp.arange(2.0)))
    close(jax.jacrev(as_jax(both))(jnp.ones(2)), (jnp.eye(2), jnp.zeros((2, 2))))


def test_own_gradient_rules_serve_every_transform():
    def rule(output, inputs, head):
        (x,) = inputs
        return [te.compute(x.shape, lambda i: 10.0 * head[i] * x[i])]

    @te.op(gradient=rule)
    def odd(x):
        return te.compute(x.shape, lambda i: te.floor(x[i]))

    x = normal(4)
    close(jax.grad(lambda x: as_jax(odd)(x).sum())(x), 10 * x)
    close(jax.grad(lambda x: jax.vmap(as_jax(odd))(x).sum())(jnp.stack([x, x])), 10 * jnp.stack([x, x]))
    close(jax.vmap(jax.grad(lambda x: as_jax(odd)(x).sum()))(jnp.stack([x, x])), 10 * jnp.stack([x, x]))
    close(jax.jvp(as_jax(odd), (x,), (x,))[1], 10 * x * x)
    close(jax.grad(lambda x: jax.grad(lambda x: as_jax(odd)(x).sum())(x).sum())(x), jnp.full(4, 10.0))


# ---------------------------------------------------------------------------------------------------- what is refused


def test_an_op_without_derivative_is_refused_by_name():
    @te.op(differentiable=False)
    def rounded(x):
        return te.compute(x.shape, lambda i: te.round(x[i]))

    x = normal(3)
    close(as_jax(rounded)(x), jnp.round(x))
    for transform in (lambda f: jax.grad(lambda x: f(x).sum())(x), lambda f: jax.jvp(f, (x,), (x,)), lambda f: jax.jit(jax.jacfwd(f))(x)):
        with pytest.raises(te.DifferentiationError, match="rounded"):
            transform(as_jax(rounded))


def test_arguments_that_do_not_fit():
    arrays = CASES["layer"][2]
    with pytest.raises(te.ArgumentError, match=r"layer: expected 3 tensor arguments \(x, w, b\), got 2"):
        as_jax(layer)(*arrays[:2])
    with pytest.raises(te.ArgumentError, match="layer: argument b: expected an array of JAX, got a str"):
        as_jax(layer)(*arrays[:2], "b")
    with pytest.raises(te.ArgumentError, match=r"softmax: argument x: .*complex"):
        as_jax(softmax)(arrays[0].astype("complex64"))
    with pytest.raises(te.ArgumentError, match="softmax: argument x: expected an array of numbers, got key<fry>"):
        as_jax(softmax)(jax.random.key(0))
    with pytest.raises(te.ArgumentError, match=r"softmax: argument x: expected a dtype of the language, got object"):
        as_jax(softmax)(np.array([[None]]))
    with pytest.raises(te.ArgumentError, match="softmax: expected no out with arrays of JAX, got one"):
        softmax(arrays[0], out=np.empty(arrays[0].shape))
    with pytest.raises(te.DefinitionError, match="softmax: expected arguments that its body is written for"):
        jax.jit(as_jax(softmax))(jnp.ones(3))
    with pytest.raises(te.DefinitionError, match=r"as_jax: expected a te.op, got an int"):
        as_jax(3)


@pytest.mark.parametrize("wide", [True, False])
def test_dtypes_that_the_language_does_not_have_are_refused_by_name(wide):
    jax.config.update("jax_enable_x64", wide)

    @te.op
    def both(a, b):
        return te.compute(a.shape, lambda i: a[i] * b[i])

    f, x = as_jax(both), jnp.ones(3)
    for _ in range(2):  # the second time by the short way of plain arrays
        for call in (f, jax.jit(f), both):
            with pytest.raises(te.ArgumentError, match=r"both: argument b: expected a dtype of the language, got .*complex64"):
                call(x, jnp.ones(3, "complex64"))
        assert (f(x, x) == x).all()


def test_errors_name_the_users_line():
    with pytest.raises(te.ArgumentError) as error:
        jax.jit(lambda x: as_jax(softmax)("x"))(1.0)
    assert error.value.location.file == __file__


def test_open_extents_and_other_platforms_are_refused_by_name():
    export = pytest.importorskip("jax.export")
    (n,) = export.symbolic_shape("n")
    with pytest.raises(te.TargetError, match=r"softmax: argument x: expected constant extents, got \(n, 3\)"):
        export.export(jax.jit(as_jax(softmax)))(jax.ShapeDtypeStruct((n, 3), "float64"))
    with pytest.raises(te.TargetError, match="softmax: expected arrays of JAX on the cpu or on GPUs of CUDA, got a program for tpu"):
        jax.jit(as_jax(softmax)).trace(CASES["softmax"][2][0]).lower(lowering_platforms=("tpu",))


def test_transposing_what_may_not_be_linear_is_refused():
    with pytest.raises(te.DifferentiationError, match="softmax: expected an operation that is linear in x, got one that may not be"):
        jax.linear_transpose(as_jax(softmax), normal(3, 5))(normal(3, 5))


def test_an_index_outside_ends_the_program_with_our_words():
    table, ids = normal(5, 3), jnp.array([1, 5])
    with pytest.raises(jax.errors.JaxRuntimeError, match="expected an index of table from 0 to 4, got 5") as error:
        jax.block_until_ready(jax.jit(as_jax(gather))(table, ids))
    assert "OUT_OF_RANGE" in str(error.value) and "axis 0 of table" in str(error.value) and __file__ in str(error.value)
    with pytest.raises(jax.errors.JaxRuntimeError, match="expected no access to table, which has no elements, got index 1"):
        jax.block_until_ready(jax.jit(as_jax(gather))(table[:0], ids))
    # And nothing is broken for the next call.
    close(as_jax(gather)(table, jnp.array([1, 4])), table[jnp.array([1, 4])] ** 2)


# ---------------------------------------------------------------------------------------------------- what the program is


def test_the_program_has_no_python_in_it_and_is_the_same_in_every_process():
    x = CASES["softmax"][2][0]
    gradient = jax.jit(jax.grad(lambda x: (as_jax(softmax)(x) ** 2).sum()))
    text = gradient.lower(x).as_text()
    assert text.count("custom_call @tensorexpr.kernel") == 2 and "callback" not in text
    assert text == jax.jit(jax.grad(lambda x: (as_jax(softmax)(x) ** 2).sum())).lower(x).as_text()
    jaxpr = str(jax.make_jaxpr(jax.grad(lambda x: as_jax(softmax)(x).sum()))(x))
    assert "tensorexpr[call=softmax_vjp_x]" in jaxpr


def test_donated_memory_is_not_written_before_it_is_read():
    x = normal(64, 64)
    expected = np.asarray(jax.nn.softmax(x)) + np.asarray(x)
    result = jax.jit(lambda x: as_jax(softmax)(x) + x, donate_argnums=0)(x)
    np.testing.assert_allclose(result, expected, rtol=1e-9)


def test_constants_of_a_definition():
    weights = np.random.default_rng(0).standard_normal((5, 3))

    @te.op
    def project(x):
        w = te.constant(weights)
        return te.compute((x.shape[0], 3), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j], 5))

    x = normal(4, 5)
    close(as_jax(project)(x), x @ weights)
    close(jax.vmap(jax.grad(lambda x: as_jax(project)(x[None]).sum()))(x), jnp.broadcast_to(weights.sum(1), (4, 5)))


def test_eight_threads():
    _, reference, arrays = CASES["layer"]
    ours = as_jax(layer)
    function = jax.jit(jax.grad(lambda x, w, b: (ours(x, w, b) ** 2).sum()))
    expected = np.asarray(function(*arrays))

    def work(number):
        fresh = jax.jit(lambda x: ours(x * number, *arrays[1:]))  # compiling at the same time
        close(fresh(arrays[0]), reference(arrays[0] * number, *arrays[1:]))
        return all(np.array_equal(np.asarray(function(*arrays)), expected) for _ in range(100))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_programs_and_profiles_of_xla_have_the_names_of_operations(tmp_path):
    def loss(x):
        return as_jax(softmax)(x).max()

    gradient, x = jax.jit(jax.grad(loss)), jnp.ones((3, 5))
    found = re.findall(r'%(\w+)[.\d]* = \S+ custom-call.*op_name="([^"]*)"', gradient.lower(x).compile().as_text())
    assert [name for name, _ in found] == ["softmax", "softmax_vjp_x"] and all(path.endswith(f"/{name}") for name, path in found), found
    with jax.profiler.trace(tmp_path):
        jax.block_until_ready(gradient(x))
        jax.block_until_ready(softmax(x))
    (trace,) = tmp_path.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    names = [event["name"].partition(".")[0] for event in events if "hlo_op" in event.get("args", {})]
    assert names.count("softmax") == 2 and names.count("softmax_vjp_x") == 1 and "tensorexpr" not in names, names
