"""What others have and the library cannot or does not: each name with what to do instead, which is the hint of the error."""

from __future__ import annotations

_BY_DATA = (
    "the size of its result depends on data, which that of an op never does: call the function of your array library on what the op "
    "returns, or keep the size by where(mask, x, 0), or by places cumsum(mask) and a scatter of a known extent"
)
_NO_TENSOR = (
    "it takes no tensor, and results belong to the library of the arguments: call the function of your array library, or write "
    "te.compute(shape, lambda *i: ...) inside an op"
)
_DRAWN = "an op draws no random numbers: draw them outside and pass them, or take a te.Generator in a te.function"
_COMPLEX = "the language has no complex numbers: fft, rfft and fft2 give real and imaginary parts as two tensors"
_ITERATED = (
    "its steps end by data: call the function of your array library; det, slogdet, inv, solve, solve_triangular and cholesky are here"
)
_UNBOUNDED = "no fixed number of terms is exact for it: call the function of your array library, and pass its values"
_BITS = "it takes a number apart into its bits, which an op does not: call the function of your array library"

ABSENT: dict[str, str] = {
    **dict.fromkeys(
        (
            "nonzero", "flatnonzero", "argwhere", "unique", "unique_consecutive", "unique_all", "unique_counts",
            "unique_inverse", "unique_values", "compress", "extract", "masked_select", "union1d", "intersect1d", "setdiff1d",
            "setxor1d", "trim_zeros", "nonzero_static",
        ),
        _BY_DATA,
    ),
    **dict.fromkeys(
        (
            "arange", "linspace", "logspace", "geomspace", "eye", "identity", "zeros", "ones", "full", "empty", "rand",
            "randn", "tri", "tril_indices", "triu_indices", "diag_indices", "mask_indices", "indices", "hanning", "hamming",
            "blackman", "bartlett", "kaiser", "hann_window", "hamming_window", "blackman_window", "bartlett_window",
            "kaiser_window", "fftfreq", "rfftfreq", "scalar_tensor", "range",
        ),
        _NO_TENSOR,
    ),
    **dict.fromkeys(
        (
            "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
            "rrelu", "gumbel_softmax", "bernoulli", "multinomial", "normal", "poisson", "rand_like", "randn_like", "randint",
            "randint_like", "randperm", "native_dropout",
        ),
        _DRAWN,
    ),
    **dict.fromkeys(
        (
            "complex", "polar", "imag", "view_as_real", "view_as_complex", "stft", "istft", "rfft2", "irfft2", "fftn",
            "ifftn", "hfft", "ihfft",
        ),
        _COMPLEX,
    ),
    **dict.fromkeys(
        (
            "svd", "svdvals", "eig", "eigh", "eigvals", "eigvalsh", "qr", "lstsq", "pinv", "pinverse", "matrix_rank",
            "matrix_exp", "lu", "lu_factor", "lu_solve", "lobpcg", "polyfit", "roots", "cond",
        ),
        _ITERATED,
    ),
    **dict.fromkeys(
        (
            "gammainc", "gammaincc", "igamma", "igammac", "betainc", "ellipk", "ellipe", "hyp1f1", "hyp2f1", "airy_ai",
            "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "j0", "j1", "y0", "y1", "modified_bessel_k0",
            "modified_bessel_k1",
        ),
        _UNBOUNDED,
    ),
    **dict.fromkeys(
        (
            "frexp", "nextafter", "spacing", "packbits", "unpackbits",
        ),
        _BITS,
    ),
    "equal": "eq compares element by element, as numpy.equal; array_equal is one bool, as torch.equal",
    "ediff1d": "diff(ravel(x)) is the same",
    "rollaxis": "moveaxis(x, source, destination) moves an axis",
    "lexsort": "argsort is stable: sort by the last key first",
    "choose": "where(index == 0, a, where(index == 1, b, c)), or take_along_axis of a stack",
    "piecewise": "where(condition, a, b), one inside the other",
    "putmask": "masked_fill takes a number, where(mask, values, x) a tensor",
    "place": "masked_fill takes a number, where(mask, values, x) a tensor",
    "copyto": "where(mask, source, x): an op changes no argument",
    "isreal": "all numbers of the language are real",
    "histogramdd": "histogram is of one axis; bincount of a place per point counts in several",
    "histogram2d": "histogram is of one axis; bincount of a place per point counts in several",
    "triplet_margin_with_distance_loss": "an op takes no function: write the distances, and relu of what is apart",
    "vectorize": "te.op of a definition by elements is that already",
    "apply_along_axis": "vmap of an op, or a definition over the other axes",
}  # fmt: skip
"""Names of NumPy, SciPy and PyTorch, each with the hint of the error for it."""
