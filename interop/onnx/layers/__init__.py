"""ONNX's operators that layers of networks are made of, a row each, over the helpers of `operators`.

By family: windows (convolutions, pools), recurrent cells, resampling, narrow types and quantization, signals, training and random numbers.
"""

from tensorexpr.interop.onnx.layers import narrow, recurrent, resampling, signals, training, windows  # noqa: F401
