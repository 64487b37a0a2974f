"""What the kernels of one and of several tensors refuse, and what the user reads."""

import math

import pytest

import tensorexpr as te
from tensorexpr import kernels

X, Y, Q = (te.placeholder(shape, name=name) for shape, name in (((3, 4), "x"), ((2, 4), "y"), ((3, 3), "q")))
U, V, S = (te.placeholder(shape, name=name) for shape, name in (((3,), "u"), ((4,), "v"), ((), "s")))
B = te.placeholder((2, 3, 4), name="b")
I, M = te.placeholder((3,), "int64", name="i"), te.placeholder((3, 4), "bool", name="m")
L = te.placeholder((3, 5), "int64", name="l")
O, O1 = te.placeholder((te.dim("n"), 4), name="x"), te.placeholder((te.dim("n"),), name="x")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        # activations
        (lambda: kernels.hardtanh(X, min_val=1.0, max_val=0.0), "hardtanh: expected a min_val of at most max_val, got 1.0 and 0.0"),
        (lambda: kernels.prelu(X, X), "prelu: expected a weight of at most 1 axis, got 2"),
        (lambda: kernels.prelu(X, U), "prelu: expected 1 weight or 4, one per channel, got 3"),
        (lambda: kernels.softshrink(X, lambd=-1), "softshrink: lambd: expected a number of at least 0, got -1"),
        (lambda: kernels.celu(X, alpha=0), "celu: expected an alpha other than 0, got 0"),
        (lambda: kernels.gelu(X, approximate="erf"), "gelu: approximate: expected one of 'none', 'tanh', got 'erf'"),
        (lambda: kernels.softplus(X, beta=0), "softplus: beta: expected a number above 0, got 0"),
        (lambda: kernels.softcap(X, cap=-1.0), "softcap: cap: expected a number above 0, got -1.0"),
        (lambda: kernels.glu(U), "glu: expected an even extent along axis 0, got 3"),
        (lambda: kernels.abs((1, 2)), "abs: expected a tensor for x, got a tuple"),
        (lambda: kernels.normalize(X, p="mean"), "normalize: expected a number for p, got 'mean'"),
        (lambda: kernels.reshape(X, shape="C"), "reshape: shape: expected a tuple of extents, got 'C'"),
        (lambda: kernels.unflatten(X, axis=0, sizes=3), "unflatten: sizes: expected a tuple of extents, got 3"),
        # broadcasting
        (lambda: kernels.add(X, Y), "add: expected shapes that broadcast, got (3, 4) and (2, 4)"),
        (lambda: kernels.add(X, te.placeholder((te.dim("n"), 4), name="z")), "add: expected shapes that broadcast, got (3, 4) and (n, 4)"),
        # elementwise
        (lambda: kernels.clamp(X), "clamp: expected min or max or both, got neither"),
        (lambda: kernels.logit(X, eps=0.7), "logit: expected an eps between 0 and 0.5, got 0.7"),
        (lambda: kernels.polymul(te.placeholder((0,), name="p"), U), "polymul: expected at least one coefficient of each, got 0 and 3"),
        (lambda: kernels.mode(te.placeholder((0,), name="e")), "mode: expected at least one element on axis 0 of x, got shape (0,)"),
        (lambda: kernels.insert(U, X, obj=1), "insert: expected values of at most 1 axes, got 2"),
        (lambda: kernels.insert(U, O1, obj=1), "insert: expected a known number of slices of values, got n"),
        (lambda: kernels.histc(U, min="0", max=1), "histc: expected numbers for the ends of the range, got '0' and 1"),
        # axes
        (lambda: kernels.sum(X, axis=2), "sum: expected an axis of x between -2 and 1, got 2"),
        (lambda: kernels.sum(X, axis=(0, -2)), "sum: expected different axes of x, got (0, -2)"),
        # what NumPy has
        (lambda: kernels.fft(X, n=0), "fft: expected a known length of at least 1 along axis 1, got 0"),
        (lambda: kernels.rfft(O, axis=0), "rfft: expected a known length of at least 1 along axis 0, got n"),
        (lambda: kernels.fft(O, n=4, axis=0), "fft: expected a known extent along axis 0, got shape (n, 4)"),
        (lambda: kernels.full_like(X, fill_value="1"), "full_like: fill_value: expected a number, got '1'"),
        (lambda: kernels.unsqueeze(X, axis=(0, 0)), "unsqueeze: axis: expected different places between -4 and 3, got (0, 0)"),
        (lambda: kernels.unwrap(X, period=0), "unwrap: period: expected a number above 0, got 0"),
        (lambda: kernels.fftshift(O), "fftshift: expected known extents along axes (0, 1), got (n, 4)"),
        (lambda: kernels.fft2(X, axes=(0, -2)), "fft2: expected two axes, got (0, -2)"),
        (lambda: kernels.polyval(O1, X), "polyval: expected a known number of coefficients, at most 256, got n"),
        (lambda: kernels.vander(U, n=-1), "vander: n: expected a number of powers, got -1"),
        (lambda: kernels.interp(X, O1, O1), "interp: expected a known number of points, at least 1, got n"),
        (lambda: kernels.sum(X, U), "sum: where: expected a shape that broadcasts to (3, 4), got (3,)"),
        (lambda: kernels.sum(I, initial=0.5), "sum: initial: expected a number of int64, got 0.5"),
        (lambda: kernels.amax(X, M), "amax: expected initial beside where, got none"),
        (lambda: kernels.convolve(U, O1), "convolve: expected vectors of known lengths, at least 1, got 3 and n elements"),
        (lambda: kernels.gradient(S), "gradient: expected a tensor with axes, got x without any"),
        (
            lambda: kernels.gradient(X, spacing=(1, 2, 3)),
            "gradient: spacing: expected a number other than 0, or one for each of 2 axes, got (1, 2, 3)",
        ),
        (
            lambda: kernels.gradient(O, axis=0),
            "gradient: expected a known number of elements on axis 0 of x, at least 2, got shape (n, 4)",
        ),
        (lambda: kernels.bitwise_and(X, X), "bitwise_and: expected integers or bools, got x of float32"),
        (lambda: kernels.bitwise_left_shift(M, I), "bitwise_left_shift: expected integers, got m of bool"),
        (
            lambda: kernels.multi_margin_loss(te.placeholder((2, 0), name="x"), te.placeholder((2,), "int64", name="t")),
            "multi_margin_loss: expected at least one class, got none",
        ),
        # reductions
        (
            lambda: kernels.amax(te.placeholder((3, 0), name="e"), axis=1),
            "amax: expected at least one element along the axes (1,), got none",
        ),
        (
            lambda: kernels.norm(te.placeholder((3, 0), name="e"), p=math.inf, axis=1),
            "norm: expected at least one element along the axes (1,), got none",
        ),
        (lambda: kernels.var(X, correction="none"), "var: correction: expected a number, got 'none'"),
        (lambda: kernels.var_mean(I), "var_mean: expected a floating tensor, got i of int64"),
        (lambda: kernels.norm(X, p="nuc"), "norm: expected a number p, or 'fro', got 'nuc'"),
        (lambda: kernels.norm(X, ord="nuc"), "norm: expected ord 1, -1, inf, -inf or 'fro' for matrices, got 'nuc'"),
        (
            lambda: kernels.norm(te.placeholder((2, 3, 4), name="e"), ord=1),
            "norm: expected one axis or two for ord, got 3",
        ),
        (lambda: kernels.round(X, decimals=0.5), "round: expected a whole number of decimals, got 0.5"),
        (lambda: kernels.round(I, decimals=2), "round: expected a floating i to round to 2 decimals, got int64"),
        # softmax
        (lambda: kernels.softmax(X, temperature=0), "softmax: temperature: expected a number above 0, got 0"),
        (lambda: kernels.masked_softmax(X, X), "masked_softmax: expected a bool mask, got float32"),
        (lambda: kernels.masked_softmax(U, M), "masked_softmax: expected a mask that broadcasts to (3,), got (3, 4)"),
        # linear
        (lambda: kernels.matmul(X, X), "matmul: expected the last axis of x and the last but one of y of equal extents, got 4 and 3"),
        (lambda: kernels.matmul(X, S), "matmul: expected tensors of at least 1 axis, got 2 and 0"),
        (lambda: kernels.bmm(X, X), "bmm: expected x with 3 axes, got 2"),
        (lambda: kernels.bmm(B, te.placeholder((3, 4, 5), name="c")), "bmm: expected batches of equal extents, got 2 and 3"),
        (
            lambda: kernels.addmm(X, X, te.placeholder((4, 1), name="c")),
            "addmm: expected an input that broadcasts to the product, got (3, 4) and (3, 1)",
        ),
        (lambda: kernels.baddbmm(B, X, X), "baddbmm: expected x with 3 axes, got 2"),
        (lambda: kernels.linear(X, B), "linear: expected b with 1 or 2 axes, got 3"),
        (lambda: kernels.linear(S, X), "linear: expected an x of at least 1 axis, got 0"),
        (lambda: kernels.linear(X, te.placeholder((5, 4), name="w"), V), "linear: expected a bias of shape (5,), got (4,)"),
        (lambda: kernels.bilinear(X, Y, B), "bilinear: expected inputs with the same leading axes, got (3, 4) and (2, 4)"),
        (lambda: kernels.bilinear(X, X, X), "bilinear: expected x with 3 axes, got 2"),
        (lambda: kernels.bilinear(X, X, te.placeholder((2, 4, 4), name="w"), U), "bilinear: expected a bias of shape (2,), got (3,)"),
        (lambda: kernels.bilinear(X, X, B), "bilinear: expected the last axis of x1 and axis 1 of weight of equal extents, got 4 and 3"),
        (lambda: kernels.dot(X, U), "dot: expected the last axes of equal extents, got 4 and 3"),
        (lambda: kernels.dot(X, Y), "dot: expected the last axis of x and the last but one of y of equal extents, got 4 and 2"),
        # solving
        (lambda: kernels.det(X), "det: expected square matrices along the last two axes, got x of shape (3, 4)"),
        (lambda: kernels.inv(U), "inv: expected square matrices along the last two axes, got u of shape (3,)"),
        (lambda: kernels.cholesky(X), "cholesky: expected square matrices along the last two axes, got x of shape (3, 4)"),
        (lambda: kernels.solve(Q, V), "solve: expected right-hand sides of 3 rows for matrices of 3, got v of shape (4,)"),
        (
            lambda: kernels.solve_triangular(Q, S, upper=True),
            "solve_triangular: expected right-hand sides of 3 rows for matrices of 3, got s of shape ()",
        ),
        # polynomials
        (lambda: kernels.polyadd(U, O1), "polyadd: expected known numbers of coefficients, got 3 and n"),
        (lambda: kernels.polyder(O1), "polyder: expected a known number of coefficients, got n"),
        (lambda: kernels.polyint(U, m=2, k=(1,)),
            "polyint: expected a known number of coefficients and 2 constants, got shape (3,) and (1,)"),
        # histograms
        (lambda: kernels.histc(U, bins=0), "histc: bins: expected an integer of at least 1, got 0"),
        (lambda: kernels.histc(U, min=2, max=1), "histc: expected a range of finite numbers that does not fall, got 2 and 1"),
        (lambda: kernels.histogram(U, range=(0,)), "histogram: range: expected two numbers, got (0,)"),
        (lambda: kernels.histogram(U, V), "histogram: v: expected shape (3,) (a weight for each element), got (4,)"),
        (
            lambda: kernels.bincount(I),
            "bincount: expected num_bins (minlength), the length of the result, got none",
        ),
        # gammas, statistics
        (lambda: kernels.multigammaln(X, p=0), "multigammaln: p: expected an integer of at least 1, got 0"),
        (lambda: kernels.angle(M), "angle: expected numbers, got bools"),
        (lambda: kernels.bitwise_count(U), "bitwise_count: expected integers or bools, got u of float32"),
        # places
        (lambda: kernels.take(X, I, mode="warp"), "take: mode: expected one of 'raise', 'wrap', 'clip', got 'warp'"),
        (lambda: kernels.delete(U, obj=3), "delete: expected places between -3 and 2, got 3"),
        (lambda: kernels.delete(O1, obj=0), "delete: expected a known extent of axis 0 of x, got n"),
        (lambda: kernels.insert(U, V, obj=0.5), "insert: obj: expected an integer or several, got 0.5"),
        (lambda: kernels.insert(U, S, obj=4), "insert: expected places between -3 and 3, got 4"),
        (lambda: kernels.insert(X, U, obj=(0, 1), axis=1), "insert: expected values that broadcast to (3, 2), got (3,)"),
        (lambda: kernels.fill_diagonal(U, value=0), "fill_diagonal: expected a matrix, or equal extents of more axes, got shape (3,)"),
        (lambda: kernels.put_along_axis(X, I, S, axis=0), "put_along_axis: index: expected the rank of x, 2, got 1"),
        (
            lambda: kernels.put_along_axis(X, L, V, axis=1),
            "put_along_axis: values: expected a shape that broadcasts to (3, 5), got (4,)",
        ),
        (
            lambda: kernels.sliding_window_view(U, window_shape=4),
            "sliding_window_view: window_shape: expected windows that fit into shape (3,), got 4",
        ),
        (
            lambda: kernels.sliding_window_view(X, window_shape=2),
            "sliding_window_view: window_shape: expected one extent per axis of (0, 1), got 2",
        ),
        (lambda: kernels.combinations(O1), "combinations: expected a known number of elements, got n"),
        (lambda: kernels.cartesian_prod((U, X)), "cartesian_prod: x: expected 1 axes, got 2 (shape (3, 4))"),
        # running, orders
        (lambda: kernels.cumsum(X, exclusive=True, include_initial=True), "cumsum: include_initial: expected exclusive=False, got both"),
        (lambda: kernels.partition(U, kth=3), "partition: kth: expected places from -3 to 2, got 3"),
        (lambda: kernels.renorm(X, p=2, axis=0, maxnorm=-1), "renorm: maxnorm: expected a number of at least 0, got -1"),
        (lambda: kernels.logsumexp(X, U), "logsumexp: expected factors b that broadcast to (3, 4), got (3,)"),
        (lambda: kernels.vdot(X, Y), "vdot: expected tensors of one shape, got (3, 4) and (2, 4)"),
        (lambda: kernels.vecdot(X, X, axis=2), "vecdot: expected an axis between -2 and 1, got 2"),
        (lambda: kernels.inner(X, U), "inner: expected the last axes of equal extents, got 4 and 3"),
        (lambda: kernels.tensordot(X, X, axes=3), "tensordot: expected a number of axes from 0 to 2, got 3"),
        (lambda: kernels.tensordot(X, X, axes=(0,)), "tensordot: expected an integer or two sequences of axes, got (0,)"),
        (
            lambda: kernels.tensordot(X, X, axes=((0, 1), (0,))),
            "tensordot: expected as many different axes of x as of y, got ((0, 1), (0,))",
        ),
        (lambda: kernels.tensordot(X, X, axes=((0,), (1,))), "tensordot: expected axes 0 of x and 1 of y of equal extents, got 3 and 4"),
        (lambda: kernels.cross(X, X), "cross: expected extents of 3 along axis 1, got 4 and 4"),
        (lambda: kernels.cross(X, B), "cross: expected tensors with one number of axes, at least 1, got 2 and 3"),
        (lambda: kernels.matrix_power(X, n=2), "matrix_power: expected square matrices, got shape (3, 4)"),
        (lambda: kernels.matrix_power(Q, n=-1), "matrix_power: expected an integer n of at least 0, got -1"),
        (lambda: kernels.multi_dot((X,)), "multi_dot: expected at least 2 tensors, got 1"),
        (lambda: kernels.multi_dot((X, B, X)), "multi_dot: expected b with 2 axes, got 3"),
        # matrices
        (lambda: kernels.diagonal(X, axis1=1, axis2=-1), "diagonal: expected two different axes, got 1 and -1"),
        (lambda: kernels.diagonal(X, offset=0.5), "diagonal: expected an integer offset, got 0.5"),
        (lambda: kernels.diag_embed(S), "diag_embed: expected an x of at least 1 axis, got 0"),
        (lambda: kernels.diag_embed(V, axis1=3), "diag_embed: expected axes of the result between -2 and 1, got 3"),
        (lambda: kernels.diag_embed(V, axis1=1, axis2=-1), "diag_embed: expected two different axes, got 1 and -1"),
        (lambda: kernels.diag(B), "diag: expected a vector or a matrix, got 3 axes"),
        (lambda: kernels.triu(V), "triu: expected an x of at least 2 axes, got 1"),
        # searching
        (lambda: kernels.searchsorted(S, X), "searchsorted: expected a tensor with axes, got x without any"),
        (
            lambda: kernels.searchsorted(X, te.placeholder((4,), name="v")),
            "searchsorted: values: expected 2 axes, as x has, got 1",
        ),
        (
            lambda: kernels.searchsorted(X, te.placeholder((2, 9), name="v")),
            "searchsorted: values, axis 0: expected an extent of 3, got 2",
        ),
        (lambda: kernels.searchsorted(V, X, side="middle"), "searchsorted: side: expected one of None, 'left', 'right', got 'middle'"),
        # einsum
        (lambda: kernels.einsum("ij,jk", X), "einsum 'ij,jk': expected 2 operands, got 1"),
        (lambda: kernels.einsum("ij->ik", X), "einsum 'ij->ik': expected result labels of the operands, got 'k'"),
        (lambda: kernels.einsum("ij->ii", X), "einsum 'ij->ii': expected each label once in the result, got 'ii'"),
        (lambda: kernels.einsum("i;j", X), "einsum 'i;j': expected letters, ',', '...' and '->', got ';'"),
        (lambda: kernels.einsum("i", X), "einsum 'i': expected x with 1 axes for 'i', got 2"),
        (lambda: kernels.einsum("i...jk", X), "einsum 'i...jk': expected x with at least 3 axes for 'i...jk', got 2"),
        (lambda: kernels.einsum("ii", X), "einsum 'ii': expected equal extents on the diagonal 'i' of x, got 3 and 4"),
        (lambda: kernels.einsum("ij,kj", X, Q), "einsum 'ij,kj': expected one extent for 'j', got 4 and 3"),
        (lambda: kernels.einsum("...,...", X, Y), "einsum '...,...': expected one extent for the ellipsis, got 3 and 2"),
        (lambda: kernels.einsum((X,), equation=3), "einsum: expected an equation as text, got 3"),
        # losses
        (lambda: kernels.mse_loss(X, X, reduction="median"), "mse_loss: reduction: expected one of 'mean', 'sum', 'none', got 'median'"),
        (lambda: kernels.smooth_l1_loss(X, X, beta=-1), "smooth_l1_loss: expected a beta of at least 0, got -1"),
        (lambda: kernels.huber_loss(X, X, delta=0), "huber_loss: expected a delta above 0, got 0"),
        (lambda: kernels.sigmoid_focal_loss(X, X, alpha=2), "sigmoid_focal_loss: expected an alpha between 0 and 1, or None, got 2"),
        (lambda: kernels.gaussian_nll_loss(X, X, X, eps=0), "gaussian_nll_loss: expected an eps above 0, got 0"),
        (
            lambda: kernels.kl_div(S, S, reduction="batchmean"),
            "kl_div: expected a batch along axis 0 for the reduction 'batchmean', got a number",
        ),
        # classification
        (lambda: kernels.nll_loss(S, I), "nll_loss: expected an input of at least 1 axis (classes), got 0"),
        (lambda: kernels.nll_loss(X, U), "nll_loss: expected a target of integers (classes), got float32"),
        (
            lambda: kernels.nll_loss(X, te.placeholder((4,), "int64", name="t")),
            "nll_loss: expected a target of shape (3,), one class per place, got (4,)",
        ),
        (lambda: kernels.nll_loss(X, I, U), "nll_loss: expected a weight of shape (4,), one per class, got (3,)"),
        (lambda: kernels.cross_entropy(X, I, label_smoothing=1.5), "cross_entropy: expected a label_smoothing between 0 and 1, got 1.5"),
        (lambda: kernels.cross_entropy(X, U), "cross_entropy: expected probabilities of shape (3, 4), got (3,)"),
        (lambda: kernels.multi_margin_loss(B, I), "multi_margin_loss: expected an input of 1 or 2 axes, got 3"),
        (lambda: kernels.multi_margin_loss(X, I, p=3), "multi_margin_loss: p: expected one of 1, 2, got 3"),
        (
            lambda: kernels.multilabel_margin_loss(X, X),
            "multilabel_margin_loss: expected an input of 1 or 2 axes and a target of integers of its shape, got (3, 4) and float32 (3, 4)",
        ),
        (lambda: kernels.multilabel_soft_margin_loss(S, S), "multilabel_soft_margin_loss: expected an input of at least 1 axis, got 0"),
        (lambda: kernels.dice_loss(V, V), "dice_loss: expected an input of at least 2 axes and a target of its shape, got (4,) and (4,)"),
        # margins
        (lambda: kernels.pairwise_distance(S, S), "pairwise_distance: expected vectors along the last axis, got numbers"),
        (lambda: kernels.cosine_similarity(X, X, axis=2), "cosine_similarity: expected an axis between -2 and 1, got 2"),
        # ctc
        (
            lambda: kernels.ctc_loss(B, te.placeholder((2, 5), "int64", name="t"), I, I),
            "ctc_loss: expected targets of shape (3, S), one row per item of the batch, got (2, 5)",
        ),
        (lambda: kernels.ctc_loss(X, X, I, I), "ctc_loss: expected log_probs of 3 axes (time, batch, classes), got 2"),
        (lambda: kernels.ctc_loss(B, X, I, I), "ctc_loss: x: expected integers (labels and lengths of ctc_loss), got float32"),
        (
            lambda: kernels.ctc_loss(B, te.placeholder((3, 5), name="l"), I, I),
            "ctc_loss: l: expected integers (labels and lengths of ctc_loss), got float32",
        ),
        (lambda: kernels.ctc_loss(B, L, te.placeholder((2,), "int64", name="n"), I), "ctc_loss: expected n of shape (3,), got (2,)"),
        (lambda: kernels.ctc_loss(B, L, I, I, blank=4), "ctc_loss: expected a blank that is one of the 4 classes, got 4"),    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(te.ArgumentError) as caught:
        call()
    assert caught.value.message == message
    assert caught.value.location is not None and caught.value.location.file == __file__


def test_tuples_where_tensors_are_meant():
    with pytest.raises(te.ArgumentError, match="layer_norm: expected a tensor for weight, got a tuple") as caught:
        kernels.layer_norm(X, (X, X))
    assert caught.value.location is not None and caught.value.location.file == __file__
    with pytest.raises(te.ArgumentError, match="relu: expected a tensor for x, got a tuple"):
        kernels.relu((X, Y))


def test_where_python_fails_in_a_kernel_is_the_line_of_the_call():
    with pytest.raises(te.DefinitionError, match="layer_norm: expected arguments that its body is written for, got ") as caught:
        kernels.layer_norm(X, normalized_shape=1.5)
    assert caught.value.location is not None and caught.value.location.file == __file__
