"""Convolutions: every option of every rank."""

from tensorexpr import kernels
from tests.kernels.case import Case


def conv(rank: int, x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, **options: object) -> Case:
    """A row of conv1d to conv3d with PyTorch's options."""
    return _row("conv", rank, x, w, w[0] if bias else None, options)


def transposed(rank: int, x: tuple[int, ...], w: tuple[int, ...], bias: bool = False, **options: object) -> Case:
    return _row("conv_transpose", rank, x, w, w[1] * int(options.get("groups", 1)) if bias else None, options)


def _row(stem: str, rank: int, x: tuple[int, ...], w: tuple[int, ...], bias: int | None, options: dict[str, object]) -> Case:
    name = f"{stem}{rank}d"
    given = ", ".join(f"{key}={value!r}" for key, value in options.items())
    takes, passes = ("x, w", "x, w, None") if bias is None else ("x, w, b", "x, w, b")
    inputs = (x, w, None if bias is None else (bias,))
    return Case(
        " ".join((name, given)), getattr(kernels, name), inputs, f"lambda {takes}: F.{name}({passes}, {given})", None, dict(options)
    )


def padded(mode: str) -> Case:
    return Case(
        f"conv2d {mode}", kernels.conv2d, ((2, 5, 4), (2, 2, 3, 2), None),
        f"lambda x, w: F.conv2d(F.pad(x, (1, 1, 2, 2), '{mode}'), w)", None, {"padding": (2, 1), "padding_mode": mode},
    )  # fmt: skip


CASES = [
    conv(1, (2, 3, 8), (2, 3, 3)),
    conv(1, (2, 2, 9), (2, 2, 3), False, stride=2, padding=1),
    conv(1, (2, 9), (2, 2, 2), stride=3, dilation=2, padding=2),
    conv(1, (2, 4, 7), (6, 2, 3), groups=2, padding="same"),
    conv(1, (2, 2, 7), (2, 2, 4), False, padding="same", dilation=2),
    conv(2, (2, 2, 5, 4), (3, 2, 3, 2)),
    conv(2, (1, 2, 6, 5), (2, 2, 3, 3), False, stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
    conv(2, (1, 3, 4, 5), (3, 1, 3, 3), False, groups=3, padding=1),
    conv(2, (1, 2, 5, 5), (4, 1, 2, 3), False, groups=2, stride=2, padding="valid"),
    conv(2, (1, 4, 4, 4), (2, 2, 1, 1), groups=2),
    padded("reflect"),
    padded("replicate"),
    padded("circular"),
    conv(3, (1, 2, 3, 4, 3), (2, 2, 2, 2, 2), False),
    conv(3, (2, 4, 3, 4), (2, 1, 2, 3, 2), groups=2, stride=(2, 1, 1), padding=(1, 1, 0)),
    Case(
        "causal_conv1d", kernels.causal_conv1d, ((2, 2, 7), (3, 2, 3), (3,)),
        "lambda x, w, b: F.conv1d(F.pad(x, (4, 0)), w, b, dilation=2)", None, {"dilation": 2},
    ),
    Case(
        "separable_conv1d", kernels.separable_conv1d, ((2, 2, 6), (4, 1, 3), (3, 4, 1), (3,)),
        "lambda x, d, p, b: F.conv1d(F.conv1d(x, d, stride=2, groups=2), p, b)", None, {"stride": 2},
    ),
    Case(
        "separable_conv2d", kernels.separable_conv2d, ((1, 2, 4, 4), (2, 1, 3, 3), (3, 2, 1, 1), None),
        "lambda x, d, p: F.conv2d(F.conv2d(x, d, padding=1, groups=2), p)", None, {"padding": 1},
    ),
    Case(
        "local_conv1d", kernels.local_conv1d, ((2, 2, 7), (3, 2, 3, 3), (3, 3)),
        "lambda x, w, b: torch.einsum('ncor,kcor->nko', x.unfold(2, 3, 2), w) + b", None, {"stride": 2},
    ),
    Case(
        "local_conv2d", kernels.local_conv2d, ((1, 2, 4, 3), (2, 2, 4, 2, 3, 2), None),
        "lambda x, w: torch.einsum('ncyzrs,kcyzrs->nkyz', F.pad(x, (0, 0, 1, 1)).unfold(2, 3, 1).unfold(3, 2, 1), w)", None,
        {"padding": (1, 0)},
    ),
    transposed(1, (2, 2, 5), (2, 3, 3), True),
    transposed(1, (2, 2, 5), (2, 3, 3), stride=2, padding=1, output_padding=1),
    transposed(1, (2, 5), (2, 2, 3), stride=2, dilation=3, padding=1, output_padding=2),
    transposed(1, (1, 2, 4), (2, 2, 2), stride=3),
    transposed(1, (1, 4, 4), (4, 2, 3), True, stride=2, dilation=2, groups=2),
    transposed(2, (1, 2, 3, 4), (2, 2, 3, 2), True, stride=(2, 1), padding=(1, 0), output_padding=(1, 0)),
    transposed(2, (1, 4, 3, 2), (4, 1, 2, 2), stride=2, groups=2),
    transposed(3, (1, 2, 2, 3, 2), (2, 1, 2, 2, 3), stride=(1, 2, 2), padding=(0, 0, 1)),
]  # fmt: skip
