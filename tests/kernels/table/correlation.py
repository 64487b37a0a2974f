"""Cost volumes and template matching."""

from tensorexpr import kernels
from tests.kernels.case import Case

VOLUME = (
    "lambda x, y: torch.stack([F.avg_pool2d((x * F.pad(y, (4, 4, 4, 4))[:, :, 4 + u : 4 + u + x.shape[2], 4 + v : 4 + v + x.shape[3]])"
    ".mean(1), {k}, {s}, {k} // 2) for u in range(-{m}, {m} + 1, {d}) for v in range(-{m}, {m} + 1, {d})], 1).unflatten(1, (3, 3))"
)
ALIKE = (
    "lambda x, t: (lambda w, t: (w * t).sum((-1, -2)) / ((w**2).sum((-1, -2)) * (t**2).sum()).sqrt())"
    "((lambda w: w - w.mean((-1, -2), True))(x.unfold(-2, 2, 1).unfold(-2, 3, 1)), t - t.mean())"
)

CASES = [
    Case("correlation", kernels.correlation, ((2, 2, 3, 4), (2, 2, 3, 4)), VOLUME.format(k=1, s=1, m=1, d=1),
         static={"max_displacement": 1}),
    Case("correlation of patches, strides", kernels.correlation, ((1, 2, 5, 4), (1, 2, 5, 4)), VOLUME.format(k=3, s=2, m=2, d=2),
         static={"max_displacement": 2, "kernel_size": 3, "stride": 2, "displacement_stride": 2}),
    Case("normalized_cross_correlation", kernels.normalized_cross_correlation, ((2, 4, 5), (2, 3)), ALIKE),
]  # fmt: skip
