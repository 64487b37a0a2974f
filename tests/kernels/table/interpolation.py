"""Interpolation: every mode, up and down, with scales that binary fractions hold exactly where an index is rounded."""

from tensorexpr import kernels
from tests.kernels.case import Case

ONE, TWO, THREE = (2, 2, 5), (1, 2, 4, 3), (1, 1, 2, 3, 2)


def row(shape: tuple[int, ...], **options: object) -> Case:
    given = ", ".join(f"{key}={value!r}" for key, value in options.items())
    torch = f"lambda x: F.interpolate(x, {given})"
    return Case(f"interpolate {len(shape) - 2}D {given}", kernels.interpolate, (shape,), torch, None, options)


CASES = [
    row(ONE, size=8),
    row(ONE, scale_factor=1.5),
    row(TWO, size=(6, 2)),
    row(THREE, scale_factor=2),
    row(ONE, size=8, mode="nearest-exact"),
    row(TWO, scale_factor=(0.5, 2.5), mode="nearest-exact"),
    row(ONE, size=9, mode="linear"),
    row(ONE, size=3, mode="linear"),
    row(ONE, size=9, mode="linear", align_corners=True),
    row(ONE, size=1, mode="linear", align_corners=True),
    row(ONE, scale_factor=1.3, mode="linear"),
    row(TWO, size=(6, 5), mode="bilinear"),
    row(TWO, scale_factor=2, mode="bilinear"),
    row(TWO, scale_factor=(0.75, 1.7), mode="bilinear"),
    row(TWO, size=(7, 2), mode="bilinear", align_corners=True),
    row((1, 1, 5, 5), size=(3, 2), mode="bilinear", antialias=True),
    row(TWO, size=(3, 5), mode="bilinear", antialias=True),
    row((1, 1, 4, 3), size=(6, 5), mode="bicubic"),
    row((1, 1, 4, 3), scale_factor=(0.75, 2), mode="bicubic"),
    row((1, 1, 4, 3), size=(7, 2), mode="bicubic", align_corners=True),
    row((1, 1, 6, 5), size=(3, 4), mode="bicubic", antialias=True),
    row(THREE, size=(3, 4, 3), mode="trilinear"),
    row(THREE, size=(3, 2, 3), mode="trilinear", align_corners=True),
    row(ONE, size=3, mode="area"),
    row(TWO, scale_factor=(0.5, 1.5), mode="area"),
]
