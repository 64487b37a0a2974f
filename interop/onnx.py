"""ONNX: graphs of `te.function` as models, composites as model-local functions, and back.

    model = to_onnx(f, x, y)        # a ModelProto; composites are FunctionProtos (domain org.semantic, name op)
    f = from_onnx(model)            # a function of arrays, or of tensors in a trace; functions of the model are composites again

What goes out is the graph without effects, variables as initializers; definitions are written in ONNX's operators (`onnx_expressions`),
whatever their indices. Coming in, an operator that ONNX defines by a function body is a composite, `ai.onnx.Softmax`: done by our kernel
where there is one, else from its body. Needs the package `onnx` (`pip install 'tensorexpr[onnx]'`).
"""

from tensorexpr.interop.onnx_export import to_onnx
from tensorexpr.interop.onnx_import import from_onnx

__all__ = ["from_onnx", "to_onnx"]
