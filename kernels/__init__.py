"""A library of operations in index notation: each a definition of a few lines, differentiated like any other.

What users of NumPy and PyTorch expect of a tensor library's differentiable core. Every kernel is a `te.op`: call it on arrays,
compose it on tensors, differentiate it in any mode. Names, argument order and conventions are PyTorch's where it has the operation.
"""

from typing import TYPE_CHECKING, Any

from tensorexpr.hints import unknown_name
from tensorexpr.kernels.elementwise.activations import (
    celu,
    elu,
    geglu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    logsigmoid,
    mish,
    prelu,
    reglu,
    relu,
    relu6,
    selu,
    silu,
    softcap,
    softplus,
    softshrink,
    softsign,
    swiglu,
    tanhshrink,
    threshold,
)
from tensorexpr.kernels.elementwise.bits import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
)
from tensorexpr.kernels.elementwise.broadcast import (
    add,
    addcdiv,
    addcmul,
    atan2,
    clamp,
    clamp_max,
    clamp_min,
    copysign,
    div,
    entr,
    float_power,
    floor_divide,
    fmax,
    fmin,
    fmod,
    heaviside,
    hypot,
    lerp,
    logaddexp,
    logaddexp2,
    logit,
    maximum,
    minimum,
    mul,
    nan_to_num,
    pow,
    remainder,
    rsub,
    sinc,
    sub,
    true_divide,
    where,
    xlog1py,
    xlogy,
)
from tensorexpr.kernels.elementwise.comparisons import (
    eq,
    ge,
    gt,
    isclose,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    le,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    lt,
    ne,
    signbit,
)
from tensorexpr.kernels.elementwise.unary import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    ceil,
    cos,
    cosh,
    deg2rad,
    digamma,
    erf,
    erfc,
    erfinv,
    exp,
    exp2,
    expm1,
    floor,
    frac,
    lgamma,
    log,
    log1p,
    log2,
    log10,
    ndtr,
    neg,
    positive,
    rad2deg,
    reciprocal,
    round,
    rsqrt,
    sgn,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)
from tensorexpr.kernels.losses.classification import (
    cross_entropy,
    dice_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    nll_loss,
)
from tensorexpr.kernels.losses.ctc import ctc_loss
from tensorexpr.kernels.losses.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    gaussian_nll_loss,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    poisson_nll_loss,
    sigmoid_focal_loss,
    smooth_l1_loss,
    soft_margin_loss,
)
from tensorexpr.kernels.losses.margins import (
    cosine_embedding_loss,
    cosine_similarity,
    hinge_embedding_loss,
    margin_ranking_loss,
    pairwise_distance,
    triplet_margin_loss,
)
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
    mm,
    multi_dot,
    mv,
    outer,
    tensordot,
    vdot,
    vecdot,
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
from tensorexpr.kernels.products.polynomials import polyval, vander
from tensorexpr.kernels.products.recurrent import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell
from tensorexpr.kernels.rearranging.embedding import embedding, embedding_bag
from tensorexpr.kernels.rearranging.indexing import (
    bucketize,
    gather,
    gather_nd,
    index_add,
    index_copy,
    index_fill,
    index_select,
    interp,
    isin,
    masked_fill,
    one_hot,
    scatter,
    scatter_add,
    scatter_reduce,
    searchsorted,
    take,
    take_along_axis,
    take_along_dim,
)
from tensorexpr.kernels.rearranging.matrices import (
    corrcoef,
    cov,
    diag,
    diag_embed,
    diagflat,
    diagonal,
    diagonal_scatter,
    t,
    trace,
    tril,
    triu,
)
from tensorexpr.kernels.rearranging.parts import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    cat,
    chunk,
    column_stack,
    concatenate,
    dsplit,
    dstack,
    hsplit,
    hstack,
    narrow,
    select,
    select_scatter,
    slice_axis,
    slice_scatter,
    split,
    stack,
    tensor_split,
    unbind,
    vsplit,
    vstack,
)
from tensorexpr.kernels.rearranging.rearrange import (
    broadcast_to,
    expand,
    flatten,
    flip,
    fliplr,
    flipud,
    meshgrid,
    moveaxis,
    movedim,
    permute,
    ravel,
    repeat,
    repeat_interleave,
    reshape,
    roll,
    rot90,
    squeeze,
    tile,
    transpose,
    unflatten,
    unsqueeze,
)
from tensorexpr.kernels.rearranging.segments import (
    bincount,
    csr_matmul,
    ragged_row_sum,
    segment_max,
    segment_mean,
    segment_min,
    segment_prod,
    segment_softmax,
    segment_sum,
)
from tensorexpr.kernels.reductions.cumulative import (
    cummax,
    cummin,
    cumprod,
    cumsum,
    cumulative_trapezoid,
    diff,
    ema,
    linear_recurrence,
    logcumsumexp,
    trapezoid,
    trapz,
)
from tensorexpr.kernels.reductions.missing import nancumprod, nancumsum, nanmax, nanmean, nanmin, nanprod, nanstd, nansum, nanvar
from tensorexpr.kernels.reductions.normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
    weight_norm,
)
from tensorexpr.kernels.reductions.norms import dist, norm, vector_norm
from tensorexpr.kernels.reductions.reductions import (
    all,
    amax,
    amin,
    aminmax,
    any,
    argmax,
    argmin,
    average,
    count_nonzero,
    logsumexp,
    max,
    mean,
    min,
    prod,
    ptp,
    std,
    std_mean,
    sum,
    var,
    var_mean,
)
from tensorexpr.kernels.reductions.softmax import log_softmax, masked_softmax, softmax, softmin
from tensorexpr.kernels.reductions.topk import argsort, kthvalue, median, msort, percentile, quantile, sort, topk
from tensorexpr.kernels.windowed.adaptive import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    global_avg_pool,
    global_max_pool,
)
from tensorexpr.kernels.windowed.convolution import (
    causal_conv1d,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    local_conv1d,
    local_conv2d,
    separable_conv1d,
    separable_conv2d,
)
from tensorexpr.kernels.windowed.correlation import correlation, normalized_cross_correlation
from tensorexpr.kernels.windowed.filters import bilateral_filter, guided_filter, joint_bilateral_filter, non_local_means
from tensorexpr.kernels.windowed.folding import (
    channel_shuffle,
    depth_to_space,
    fold,
    nchw_to_nchwc,
    nchwc_to_nchw,
    pixel_shuffle,
    pixel_unshuffle,
    space_to_depth,
    unfold,
)
from tensorexpr.kernels.windowed.interpolation import interpolate
from tensorexpr.kernels.windowed.padding import pad
from tensorexpr.kernels.windowed.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from tensorexpr.kernels.windowed.sampling import affine_grid, bilinear_lookup, deform_conv2d, grid_sample, roi_align, warp
from tensorexpr.kernels.windowed.sequences import convolve, correlate, gradient
from tensorexpr.kernels.windowed.stencils import (
    box_blur,
    divergence,
    gaussian_blur,
    heat_step,
    heat_steps,
    laplacian,
    sobel,
    spatial_gradient,
    stencil,
    wave_step,
    wave_steps,
)
from tensorexpr.op.operation import Op

# What NumPy, JAX or PyTorch call otherwise, or as well: other names of the same kernels.
absolute, negative, fix, rint, degrees, radians = abs, neg, trunc, round, rad2deg, deg2rad
arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh = acos, acosh, asin, asinh, atan, atan2, atanh
subtract, multiply, divide, power, mod, clip = sub, mul, div, pow, remainder, clamp
around, fabs, gammaln, psi, clone, unstack, array_split = round, abs, lgamma, digamma, positive, unbind, tensor_split
cumulative_sum, cumulative_prod, bitwise_invert, invert = cumsum, cumprod, bitwise_not, bitwise_not
left_shift, shift_left, right_shift = bitwise_left_shift, bitwise_left_shift, bitwise_right_shift
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
concat, expand_dims, permute_dims, swapaxes, swapdims = concatenate, unsqueeze, permute, transpose, transpose
expit, swish, hard_sigmoid, hard_swish, hard_tanh, log_sigmoid, soft_sign = (
    sigmoid, silu, hardsigmoid, hardswish, hardtanh, logsigmoid, softsign,
)  # fmt: skip
OTHER_NAMES = {name: value.name for name, value in list(globals().items()) if isinstance(value, Op) and value.name != name}
"""The names of others, each with that of the kernel."""


def __dir__() -> list[str]:
    """The kernels: what completion in a notebook offers."""
    return sorted(__all__)


if not TYPE_CHECKING:  # type checkers know what there is

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):  # what Python and editors look for
            raise AttributeError(f"module 'tensorexpr.kernels' has no attribute {name!r}")
        raise unknown_name("tensorexpr.kernels", name, [*__all__, *OTHER_NAMES])


__all__ = [
    # activations
    "celu", "elu", "geglu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
    "prelu", "reglu", "relu", "relu6", "selu", "silu", "softcap", "softplus", "softshrink", "softsign", "swiglu", "tanhshrink",
    "threshold",
    # adaptive
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "global_avg_pool", "global_max_pool",
    # attention
    "alibi_attention", "linear_attention", "relative_position_attention", "rotary_embedding", "scaled_dot_product_attention",
    "sliding_window_attention",
    # bits
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    # broadcast
    "add", "addcdiv", "addcmul", "atan2", "clamp", "clamp_max", "clamp_min", "copysign", "div", "entr", "float_power",
    "floor_divide", "fmax", "fmin", "fmod", "heaviside", "hypot", "lerp", "logaddexp", "logaddexp2", "logit", "maximum", "minimum",
    "mul", "nan_to_num", "pow", "remainder", "rsub", "sinc", "sub", "true_divide", "where", "xlog1py", "xlogy",
    # classification
    "cross_entropy", "dice_loss", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss",
    # comparisons
    "eq", "ge", "gt", "isclose", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "le", "logical_and", "logical_not",
    "logical_or", "logical_xor", "lt", "ne", "signbit",
    # convolution
    "causal_conv1d", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "local_conv1d",
    "local_conv2d", "separable_conv1d", "separable_conv2d",
    # correlation
    "correlation", "normalized_cross_correlation",
    # ctc
    "ctc_loss",
    # cumulative
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_trapezoid", "diff", "ema", "linear_recurrence", "logcumsumexp",
    "trapezoid", "trapz",
    # einsum
    "einsum",
    # embedding
    "embedding", "embedding_bag",
    # filters
    "bilateral_filter", "guided_filter", "joint_bilateral_filter", "non_local_means",
    # folding
    "channel_shuffle", "depth_to_space", "fold", "nchw_to_nchwc", "nchwc_to_nchw", "pixel_shuffle", "pixel_unshuffle",
    "space_to_depth", "unfold",
    # fourier
    "fft", "fft2", "fftshift", "ifft", "ifft2", "ifftshift", "irfft", "rfft",
    # indexing
    "bucketize", "gather", "gather_nd", "index_add", "index_copy", "index_fill", "index_select", "interp", "isin", "masked_fill",
    "one_hot", "scatter", "scatter_add", "scatter_reduce", "searchsorted", "take", "take_along_axis", "take_along_dim",
    # interpolation
    "interpolate",
    # linear
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bilinear", "bmm", "cross", "dot", "inner", "kron", "linear", "matmul",
    "matrix_power", "mm", "multi_dot", "mv", "outer", "tensordot", "vdot", "vecdot",
    # losses
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "gaussian_nll_loss", "huber_loss", "kl_div", "l1_loss", "mse_loss",
    "poisson_nll_loss", "sigmoid_focal_loss", "smooth_l1_loss", "soft_margin_loss",
    # margins
    "cosine_embedding_loss", "cosine_similarity", "hinge_embedding_loss", "margin_ranking_loss", "pairwise_distance",
    "triplet_margin_loss",
    # matrices
    "corrcoef", "cov", "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter", "t", "trace", "tril", "triu",
    # missing
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar",
    # normalization
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "rms_norm", "weight_norm",
    # norms
    "dist", "norm", "vector_norm",
    # padding
    "pad",
    # pairwise
    "cauchy_product", "cdist", "gaussian_logsumexp", "gaussian_product", "kmeans_step", "laplacian_product", "nearest_neighbor",
    "pdist", "sinkhorn_step", "soft_dtw", "squared_distance",
    # parts
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "cat", "chunk", "column_stack", "concatenate", "dsplit", "dstack",
    "hsplit", "hstack", "narrow", "select", "select_scatter", "slice_axis", "slice_scatter", "split", "stack", "tensor_split",
    "unbind", "vsplit", "vstack",
    # polynomials
    "polyval", "vander",
    # pooling
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d",
    "max_unpool2d", "max_unpool3d",
    # rearrange
    "broadcast_to", "expand", "flatten", "flip", "fliplr", "flipud", "meshgrid", "moveaxis", "movedim", "permute", "ravel",
    "repeat", "repeat_interleave", "reshape", "roll", "rot90", "squeeze", "tile", "transpose", "unflatten", "unsqueeze",
    # recurrent
    "gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_cell",
    # reductions
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "average", "count_nonzero", "logsumexp", "max", "mean", "min", "prod",
    "ptp", "std", "std_mean", "sum", "var", "var_mean",
    # sampling
    "affine_grid", "bilinear_lookup", "deform_conv2d", "grid_sample", "roi_align", "warp",
    # segments
    "bincount", "csr_matmul", "ragged_row_sum", "segment_max", "segment_mean", "segment_min", "segment_prod", "segment_softmax",
    "segment_sum",
    # sequences
    "convolve", "correlate", "gradient",
    # softmax
    "log_softmax", "masked_softmax", "softmax", "softmin",
    # stencils
    "box_blur", "divergence", "gaussian_blur", "heat_step", "heat_steps", "laplacian", "sobel", "spatial_gradient", "stencil",
    "wave_step", "wave_steps",
    # topk
    "argsort", "kthvalue", "median", "msort", "percentile", "quantile", "sort", "topk",
    # unary
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad", "digamma", "erf", "erfc", "erfinv",
    "exp", "exp2", "expm1", "floor", "frac", "lgamma", "log", "log10", "log1p", "log2", "ndtr", "neg", "positive", "rad2deg",
    "reciprocal", "round", "rsqrt", "sgn", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
]  # fmt: skip
