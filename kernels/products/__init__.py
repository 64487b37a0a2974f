"""Products: of matrices, by any equation of Einstein's, of all pairs; attention and recurrent layers."""

from tensorexpr.kernels.products.attention import (
    alibi_attention,
    linear_attention,
    relative_position_attention,
    rotary_embedding,
    scaled_dot_product_attention,
    sliding_window_attention,
)
from tensorexpr.kernels.products.einsum import einsum
from tensorexpr.kernels.products.fourier import fft, fft2, fftshift, ifft, ifft2, ifftshift, irfft, rfft
from tensorexpr.kernels.products.linear import (
    addbmm,
    addmm,
    addmv,
    addr,
    baddbmm,
    bilinear,
    bmm,
    cross,
    dot,
    inner,
    kron,
    linear,
    matmul,
    matrix_power,
    matvec,
    mm,
    multi_dot,
    mv,
    outer,
    tensordot,
    vdot,
    vecdot,
    vecmat,
)
from tensorexpr.kernels.products.pairwise import (
    cauchy_product,
    cdist,
    gaussian_logsumexp,
    gaussian_product,
    kmeans_step,
    laplacian_product,
    nearest_neighbor,
    pdist,
    sinkhorn_step,
    soft_dtw,
    squared_distance,
)
from tensorexpr.kernels.products.polynomials import polyadd, polyder, polyint, polymul, polysub, polyval, vander
from tensorexpr.kernels.products.recurrent import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell
from tensorexpr.kernels.products.solving import cholesky, det, inv, logdet, slogdet, solve, solve_triangular

__all__ = [
    # attention
    "alibi_attention", "linear_attention", "relative_position_attention", "rotary_embedding", "scaled_dot_product_attention",
    "sliding_window_attention",
    # einsum
    "einsum",
    # fourier
    "fft", "fft2", "fftshift", "ifft", "ifft2", "ifftshift", "irfft", "rfft",
    # linear
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bilinear", "bmm", "cross", "dot", "inner", "kron", "linear", "matmul", "matrix_power",
    "matvec", "mm", "multi_dot", "mv", "outer", "tensordot", "vdot", "vecdot", "vecmat",
    # pairwise
    "cauchy_product", "cdist", "gaussian_logsumexp", "gaussian_product", "kmeans_step", "laplacian_product", "nearest_neighbor", "pdist",
    "sinkhorn_step", "soft_dtw", "squared_distance",
    # polynomials
    "polyadd", "polyder", "polyint", "polymul", "polysub", "polyval", "vander",
    # recurrent
    "gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_cell",
    # solving
    "cholesky", "det", "inv", "logdet", "slogdet", "solve", "solve_triangular",
]  # fmt: skip
