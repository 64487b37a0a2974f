"""ONNX's operators on tensors, a row each (`tensorexpr.interop.onnx.table`): definitions of index notation, or kernels of the library.

By family: elements, shapes, indexing (and results whose size depends on data), reductions and norms, control and sequences, texts. What
layers of networks are made of stands in `layers`.
"""

from tensorexpr.interop.onnx.operators import control, elements, indexing, reductions, shapes, texts  # noqa: F401
