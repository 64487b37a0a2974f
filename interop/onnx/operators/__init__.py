"""ONNX's operators, a row each (`tensorexpr.interop.onnx.table`): definitions of index notation, or kernels of the library.

By family: elements, shapes, indexing (and results whose size depends on data), reductions and norms, windows, recurrent cells,
resampling, narrow types and quantization, signals, control and sequences, texts, training and random numbers.
"""

from tensorexpr.interop.onnx.operators import (  # noqa: F401
    control,
    elements,
    indexing,
    narrow,
    recurrent,
    reductions,
    resampling,
    shapes,
    signals,
    texts,
    training,
    windows,
)
