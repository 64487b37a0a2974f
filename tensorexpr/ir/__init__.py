"""The program IR: scalar expressions (`expressions`), definitions and programs (`program`), of nodes quick to compare (`nodes`)."""

from tensorexpr.ir.expressions import (
    BUILTIN_COMBINERS,
    FALSE,
    TRUE,
    Access,
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
    Expr,
    Index,
    Param,
    Reduce,
    Size,
    apply,
    conjunction,
    conjuncts,
    const,
    counted,
    greatest_size,
    integer,
    product,
)
from tensorexpr.ir.program import (
    Constant,
    Define,
    Definition,
    Input,
    Program,
    Scan,
    Scatter,
    Segments,
    TensorType,
    content_of,
)

__all__ = [
    "Access", "Apply", "Axis", "BUILTIN_COMBINERS", "Cast", "Combiner", "Const", "Constant", "Define", "Definition", "Expr",
    "FALSE", "Index", "Input", "Param", "Program", "Reduce", "Scan", "Scatter", "Segments", "Size", "TRUE", "TensorType", "apply",
    "conjunction", "conjuncts", "const", "content_of", "counted", "greatest_size", "integer", "product",
]  # fmt: skip
