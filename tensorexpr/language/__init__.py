"""The language: how operations are written as index mathematics.

`scalar` and `functions` are expressions of one value, `tensor` the nodes of the graph, `compute`, `reductions`,
`combiners`, `borders`, `scatter`, `scan` and `sorting` what makes new ones, `programs` the way to the program IR. Definitions are
checked as they are completed (`checks`), with names settled by `tracing`.
"""

from tensorexpr.language.combiners import reduce
from tensorexpr.language.compute import compute
from tensorexpr.language.functions import (
    abs,
    acos,
    arccos,
    arcsin,
    arctan,
    arctan2,
    asin,
    atan,
    atan2,
    cast,
    ceil,
    clip,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    negative,
    power,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
    where,
)
from tensorexpr.language.lets import let
from tensorexpr.language.marks import checkpoint, stop_gradient
from tensorexpr.language.modes import training
from tensorexpr.language.programs import evaluate, lift, names_of, program_of
from tensorexpr.language.reductions import all, any, argmax, argmin, max, min, prod, sum
from tensorexpr.language.scalar import Scalar
from tensorexpr.language.scan import scan
from tensorexpr.language.scatter import scatter
from tensorexpr.language.sorting import planned, sort_plan
from tensorexpr.language.special import acosh, asinh, atanh, digamma, erfc, erfinv, lgamma, log10, ndtr, trigamma
from tensorexpr.language.tensor import Tensor, constant, dim, placeholder

__all__ = [
    "Scalar", "Tensor", "abs", "acos", "acosh", "all", "any", "arccos", "arcsin", "arctan", "arctan2", "argmax", "argmin", "asin",
    "asinh", "atan", "atan2", "atanh", "cast", "ceil", "checkpoint", "clip", "compute", "constant", "cos", "cosh", "digamma", "dim",
    "erf", "erfc", "erfinv", "evaluate", "exp", "exp2", "expm1", "floor", "isfinite", "isinf", "isnan", "let", "lgamma", "lift", "log",
    "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "max", "maximum", "min", "minimum", "names_of",
    "ndtr", "negative", "placeholder", "planned", "power", "prod", "program_of", "reduce", "round", "rsqrt", "scan", "scatter",
    "sigmoid", "sign", "sin", "sinh", "sort_plan", "sqrt", "square", "stop_gradient", "sum", "tan", "tanh", "training", "trigamma", "trunc",
    "where",
]  # fmt: skip
