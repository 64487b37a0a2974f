"""Along axes: sums and their kin, softmax, normalization, running results, order statistics."""

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
    unwrap,
)
from tensorexpr.kernels.reductions.histograms import histc, histogram
from tensorexpr.kernels.reductions.missing import (
    nanargmax,
    nanargmin,
    nancumprod,
    nancumsum,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
)
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
from tensorexpr.kernels.reductions.norms import dist, norm, renorm, vector_norm
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
from tensorexpr.kernels.reductions.topk import (
    argpartition,
    argsort,
    kthvalue,
    median,
    mode,
    msort,
    nanmedian,
    nanpercentile,
    nanquantile,
    partition,
    percentile,
    quantile,
    sort,
    topk,
)

__all__ = [
    # cumulative
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_trapezoid", "diff", "ema", "linear_recurrence", "logcumsumexp", "trapezoid",
    "trapz", "unwrap",
    # histograms
    "histc", "histogram",
    # missing
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar",
    # normalization
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "rms_norm", "weight_norm",
    # norms
    "dist", "norm", "renorm", "vector_norm",
    # reductions
    "all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "average", "count_nonzero", "logsumexp", "max", "mean", "min", "prod",
    "ptp", "std", "std_mean", "sum", "var", "var_mean",
    # softmax
    "log_softmax", "masked_softmax", "softmax", "softmin",
    # topk
    "argpartition", "argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "nanpercentile", "nanquantile", "partition",
    "percentile", "quantile", "sort", "topk",
]  # fmt: skip
