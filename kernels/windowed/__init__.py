"""Over windows and grids: convolutions, poolings, stencils, filters, resampling."""

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

__all__ = [
    # adaptive
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "global_avg_pool", "global_max_pool",
    # convolution
    "causal_conv1d", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "local_conv1d",
    "local_conv2d", "separable_conv1d", "separable_conv2d",
    # correlation
    "correlation", "normalized_cross_correlation",
    # filters
    "bilateral_filter", "guided_filter", "joint_bilateral_filter", "non_local_means",
    # folding
    "channel_shuffle", "depth_to_space", "fold", "nchw_to_nchwc", "nchwc_to_nchw", "pixel_shuffle", "pixel_unshuffle", "space_to_depth",
    "unfold",
    # interpolation
    "interpolate",
    # padding
    "pad",
    # pooling
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d",
    "max_unpool2d", "max_unpool3d",
    # sampling
    "affine_grid", "bilinear_lookup", "deform_conv2d", "grid_sample", "roi_align", "warp",
    # sequences
    "convolve", "correlate", "gradient",
    # stencils
    "box_blur", "divergence", "gaussian_blur", "heat_step", "heat_steps", "laplacian", "sobel", "spatial_gradient", "stencil",
    "wave_step", "wave_steps",
]  # fmt: skip
