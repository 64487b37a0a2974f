"""Fourier transforms: lengths that are prime, powers of 2 and products, cut and filled up, along any axis, in every norm."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case

NORMS = ("backward", "ortho", "forward")


def pair(z):
    return np.real(z), np.imag(z)


def complex_(name, op, transform, shape, **static) -> Case:
    """A row of a complex signal, given as two."""
    given = ", ".join(f"{k.replace('axis', 'dim')}={v!r}" for k, v in static.items())
    text = f"lambda a, b: (lambda z: (z.real, z.imag))(torch.fft.{transform}(torch.complex(a, b){', ' + given if given else ''}))"
    return Case(name, op, (shape, shape), text, lambda a, b: pair(getattr(np.fft, transform)(a + 1j * b, **static)), static)


CASES = [
    *(complex_(f"fft {n}", kernels.fft, "fft", (2, n)) for n in (1, 2, 7, 12)),
    complex_("fft of two factors", kernels.fft, "fft", (2, 24)),
    complex_("fft of a prime", kernels.fft, "fft", (2, 19)),
    complex_("ifft", kernels.ifft, "ifft", (2, 20)),
    *(complex_(f"fft {norm}", kernels.fft, "fft", (6,), norm=norm) for norm in NORMS),
    *(complex_(f"ifft {norm}", kernels.ifft, "ifft", (6,), norm=norm) for norm in NORMS),
    complex_("fft axis, cut", kernels.fft, "fft", (6, 2), n=4, axis=0),
    complex_("fft filled up", kernels.fft, "fft", (2, 3, 2), n=5, axis=1),
    Case(
        "fft of reals",
        kernels.fft,
        ((3, 6), None),
        "lambda x: (lambda z: (z.real, z.imag))(torch.fft.fft(x))",
        lambda x: pair(np.fft.fft(x)),
    ),
    Case(
        "rfft",
        kernels.rfft,
        ((2, 7),),
        "lambda x: (lambda z: (z.real, z.imag))(torch.fft.rfft(x))",
        lambda x: pair(np.fft.rfft(x)),
    ),
    Case("rfft axis, filled up", kernels.rfft, ((4, 2),), None, lambda x: pair(np.fft.rfft(x, 6, 0)), {"n": 6, "axis": 0}),
    Case(
        "irfft", kernels.irfft, ((2, 4), (2, 4)), "lambda a, b: torch.fft.irfft(torch.complex(a, b))", lambda a, b: np.fft.irfft(a + 1j * b)
    ),
    Case("irfft odd", kernels.irfft, ((2, 4), (2, 4)), None, lambda a, b: np.fft.irfft(a + 1j * b, 7), {"n": 7}),
    Case(
        "irfft cut, ortho",
        kernels.irfft,
        ((4,), (4,)),
        None,
        lambda a, b: np.fft.irfft(a + 1j * b, 4, norm="ortho"),
        {"n": 4, "norm": "ortho"},
    ),
    Case("irfft filled up", kernels.irfft, ((3,), None), None, lambda a: np.fft.irfft(a, 8), {"n": 8}),
    complex_("fft2", kernels.fft2, "fft2", (2, 3, 4)),
    complex_("ifft2", kernels.ifft2, "ifft2", (3, 4), norm="ortho"),
    Case("fftshift", kernels.fftshift, ((3, 4),), "torch.fft.fftshift", np.fft.fftshift),
    Case("fftshift axis", kernels.fftshift, ((3, 5),), None, lambda x: np.fft.fftshift(x, 1), {"axes": 1}),
    Case("ifftshift", kernels.ifftshift, ((3, 4),), "torch.fft.ifftshift", np.fft.ifftshift),
]
