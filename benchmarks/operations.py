"""The operations that are timed and are not in the library of kernels, in index notation."""

from __future__ import annotations

import tensorexpr as te


@te.op
def matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """a[i, k] b[k, j]."""
    (n, k), (_, m) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k))


@te.op
def matmul_at(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """a[k, i] b[k, j]: the first operand transposed."""
    (k, n), (_, m) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[r, i] * b[r, j], k))


@te.op
def matmul_bt(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """a[i, k] b[j, k]: the second operand transposed."""
    (n, k), (m, _) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[j, r], k))


@te.op
def conv2d(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    """3 x 3 convolution, stride 1, no padding, NCHW."""
    n, c, h, l = x.shape
    k, _, r, s = w.shape
    return te.compute(
        (n, k, h - r + 1, l - s + 1),
        lambda n, k, y, z: te.sum(lambda c, i, j: x[n, c, y + i, z + j] * w[k, c, i, j], (c, r, s)),
    )


@te.op
def conv2d_nhwc(x: te.Tensor, w: te.Tensor, *, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1) -> te.Tensor:
    """Convolution with channels last: x[n, y, z, c] with w[i, j, c, k], one group or one channel per group."""
    n, h, l, channels = x.shape
    r, s, inner, filters = w.shape
    rows, columns = ((extent + 2 * padding - dilation * (taps - 1) - 1) // stride + 1 for extent, taps in ((h, r), (l, s)))

    def tap(n: te.Scalar, y: te.Scalar, z: te.Scalar, k: te.Scalar, i: te.Scalar, j: te.Scalar, c: te.Scalar) -> te.Scalar:
        channel = c if groups == 1 else k // (filters // channels)
        at = (n, y * stride + i * dilation - padding, z * stride + j * dilation - padding, channel)
        return x.read(*at, outside=0.0) * w[i, j, c, k]

    return te.compute((n, rows, columns, filters), lambda n, y, z, k: te.sum(lambda i, j, c: tap(n, y, z, k, i, j, c), (r, s, inner)))


@te.op
def conv_transpose2d_nhwc(x: te.Tensor, w: te.Tensor, *, stride: int = 1, padding: int = 0, output_padding: int = 0) -> te.Tensor:
    """Transposed convolution with channels last: each x[n, y, z, c] w[i, j, c, k] goes to row y stride + i - padding."""
    n, h, l, channels = x.shape
    r, s, _, filters = w.shape
    rows, columns = ((extent - 1) * stride + taps - 2 * padding + output_padding for extent, taps in ((h, r), (l, s)))

    def tap(n: te.Scalar, y: te.Scalar, z: te.Scalar, k: te.Scalar, i: te.Scalar, j: te.Scalar, c: te.Scalar) -> te.Scalar:
        return x.read(n, (y + padding - i) // stride, (z + padding - j) // stride, c, outside=0.0) * w[i, j, c, k]

    return te.compute(
        (n, rows, columns, filters),
        lambda n, y, z, k: te.sum(
            lambda i, j, c: tap(n, y, z, k, i, j, c),
            (r, s, channels),
            where=lambda i, j, c: ((y + padding - i) % stride == 0) & ((z + padding - j) % stride == 0),
        ),
    )


@te.op
def softmax(x: te.Tensor) -> te.Tensor:
    """exp(x - max) / sum along the last axis."""
    n, m = x.shape
    top = te.compute((n,), lambda i: te.max(lambda k: x[i, k], m), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(lambda k: e[i, k], m), name="total")
    return te.compute((n, m), lambda i, j: e[i, j] / total[i])


@te.op
def max_pool(x: te.Tensor) -> te.Tensor:
    """The maximum of each 2 x 2 block."""
    n, c, h, l = x.shape
    return te.compute((n, c, h // 2, l // 2), lambda n, c, y, z: te.max(lambda i, j: x[n, c, 2 * y + i, 2 * z + j], (2, 2)))


@te.op
def scale_gelu(x: te.Tensor, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """GELU of a x + b, in the form by tanh."""
    return te.compute(
        x.shape,
        lambda i: 0.5 * (y := a[()] * x[i] + b[()]) * (1.0 + te.tanh(0.7978845608 * (y + 0.044715 * y * y * y))),
    )


@te.op
def heat(u: te.Tensor, *, steps: int = 10) -> te.Tensor:
    """Steps of the 5-point stencil with a fixed border."""
    h, l = u.shape

    def step(t: te.Scalar, v: te.Tensor) -> te.Tensor:
        del t
        return te.compute(
            (h, l),
            lambda i, j: te.where(
                (i > 0) & (i < h - 1) & (j > 0) & (j < l - 1),
                v[i, j] + 0.2 * (v[i - 1, j] + v[i + 1, j] + v[i, j - 1] + v[i, j + 1] - 4.0 * v[i, j]),
                v[i, j],
            ),
        )

    states = te.scan(step, u, steps)
    return te.compute((h, l), lambda i, j: states[steps - 1, i, j])


@te.op
def correlation(a: te.Tensor, b: te.Tensor, *, radius: int = 4) -> te.Tensor:
    """Cost volume: products of features within a window of displacements, mean over channels."""
    c, h, l = a.shape
    size = 2 * radius + 1
    return te.compute(
        (size, size, h, l),
        lambda u, v, y, z: te.sum(lambda k: a[k, y, z] * b.read(k, y + u - radius, z + v - radius, outside=0.0), c) / c,
    )


@te.op
def bilateral(x: te.Tensor, *, radius: int = 4) -> te.Tensor:
    """Weights by distance in space and value over a window, borders clamped."""
    h, l = x.shape
    size = 2 * radius + 1

    def weight(i: te.Scalar, j: te.Scalar, dy: te.Scalar, dx: te.Scalar) -> te.Scalar:
        d = x.read(i + dy - radius, j + dx - radius, outside="clamp") - x[i, j]
        r = te.cast((dy - radius) * (dy - radius) + (dx - radius) * (dx - radius), "float32")
        return te.exp(-0.5 * d * d - r * 0.05)

    total = te.compute((h, l), lambda i, j: te.sum(lambda dy, dx: weight(i, j, dy, dx), (size, size)), name="total")
    return te.compute(
        (h, l),
        lambda i, j: (
            te.sum(lambda dy, dx: weight(i, j, dy, dx) * x.read(i + dy - radius, j + dx - radius, outside="clamp"), (size, size))
            / total[i, j]
        ),
    )
