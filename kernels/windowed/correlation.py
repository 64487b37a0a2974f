"""Local correlation: patches of one image compared with patches of another, or of a template, near the same place.

Every read of an image is affine in its indices, so the gradients are sums over exactly the comparisons that a point took part in;
no patch is copied out.
"""

from __future__ import annotations

from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, at_least_axes, bad, known, ranked, shaped


@te.op
def correlation(
    x: te.Tensor, y: te.Tensor, *, max_displacement: Any, kernel_size: Any = 1, stride: Any = 1, displacement_stride: Any = 1
) -> te.Tensor:
    """The cost volume of FlowNet: how well the patch of x at (i, j) fits the patch of y displaced by (u, v).

    `z[n, u, v, i, j] = mean over c, a, b of x[n, c, s i + a, s j + b] * y[n, c, s i + a + e u', s j + b + e v']`, with `u' = u - R`,
    `v' = v - R`, R = max_displacement // e. (a, b) go over the patch of `kernel_size` (odd) around (0, 0), beyond the borders both
    images are 0, s is `stride` and e `displacement_stride`. x and y (N, C, H, W); z (N, 2R + 1, 2R + 1, ceil(H / s), ceil(W / s)).
    Dosovitskiy et al. 2015.

    >>> x = np.arange(3.0).reshape(1, 1, 1, 3)
    >>> kernels.correlation(x, x, max_displacement=1).shape  # 3 x 3 displacements
    (1, 3, 3, 1, 3)
    """
    ranked(x, 4)
    shaped(y, x.shape, "that of x")
    at_least("max_displacement", max_displacement, 0)
    at_least("stride", stride, 1)
    at_least("displacement_stride", displacement_stride, 1)
    if not isinstance(kernel_size, int) or kernel_size < 1 or kernel_size % 2 == 0:
        raise bad(f"kernel_size: expected an odd number, got {kernel_size!r}")
    n, channels, height, width = x.shape
    reach, half = max_displacement // displacement_stride, kernel_size // 2
    side = 2 * reach + 1
    count = te.cast(channels, x.dtype) * kernel_size**2

    def cost(n: Any, u: Any, v: Any, i: Any, j: Any) -> Any:
        def term(c: Any, a: Any, b: Any) -> Any:
            p, q = i * stride + a - half, j * stride + b - half
            return x.read(n, c, p, q, outside=0.0) * y.read(n, c, p + moved(u), q + moved(v), outside=0.0)

        return te.sum(term, (channels, kernel_size, kernel_size)) / count

    def moved(step: Any) -> Any:
        return (step - reach) * displacement_stride

    return te.compute((n, side, side, (height + stride - 1) // stride, (width + stride - 1) // stride), cost)


@te.op
def normalized_cross_correlation(image: te.Tensor, template: te.Tensor) -> te.Tensor:
    """How alike the template (R, S) is to each window of the images (..., H, W), from -1 to 1, whatever their brightness and contrast.

    `z[.., i, j] = sum_ab (image[.., i + a, j + b] - m) (template[a, b] - t) / sqrt(v w)`, with m and t the means over the window and the
    template, v and w the sums of the squares of what is left; 0 where one of them is constant. z (..., H - R + 1, W - S + 1). Lewis 1995.

    >>> image = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 5.0]])
    >>> kernels.normalized_cross_correlation(image, np.array([[0.0, 0.0], [2.0, 10.0]])).round(4)
    array([[0.9802, 1.    ]])
    """
    at_least_axes("normalized_cross_correlation", image, 2, "..., rows, columns")
    ranked(template, 2)
    (*batch, height, width), (rows, columns) = image.shape, template.shape
    for extent, taps, name in ((height, rows, "rows"), (width, columns, "columns")):
        if known(extent, taps) and not 0 < taps <= extent:
            raise bad(f"template: expected between 1 and {extent} {name}, those of the image, got {taps}")
    size = te.cast(rows * columns, image.dtype)
    places = (*batch, height - rows + 1, width - columns + 1)

    def window(i: tuple[Any, ...], a: Any, b: Any) -> Any:
        return image[(*i[:-2], i[-2] + a, i[-1] + b)]

    level = te.compute((), lambda: te.sum(lambda a, b: template[a, b], (rows, columns)) / size, name="level")
    pattern = te.compute((rows, columns), lambda a, b: template[a, b] - level[()], name="pattern")
    energy = te.compute((), lambda: te.sum(lambda a, b: te.square(pattern[a, b]), (rows, columns)), name="energy")
    mean = te.compute(places, lambda *i: te.sum(lambda a, b: window(i, a, b), (rows, columns)) / size, name="mean")
    spread = te.compute(
        places, lambda *i: te.sum(lambda a, b: te.square(window(i, a, b) - mean[i]), (rows, columns)), name="spread"
    )  # fmt: skip

    def likeness(*i: Any) -> Any:
        shared = te.sum(lambda a, b: (window(i, a, b) - mean[i]) * pattern[a, b], (rows, columns))
        scale = spread[i] * energy[()]
        return te.where(scale > 0, shared * te.rsqrt(scale), 0.0)

    return te.compute(places, likeness)
