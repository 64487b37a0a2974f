"""The language: how operations are written as index mathematics.

`core` has expressions of one value (`scalar`), the nodes of the graph (`tensor`) and the way to the program IR (`programs`);
`definitions` what makes new ones: `compute`, `reductions`, `combiners`, `scatter`, `scan`, `sorting`. Definitions are checked as they
are completed (`core.checks`), with names settled by `core.tracing`.
"""

from tensorexpr.language.core.leaves import constant, dim, placeholder
from tensorexpr.language.core.programs import evaluate, lift, names_of, program_of
from tensorexpr.language.core.scalar import Scalar
from tensorexpr.language.core.tensor import Tensor
from tensorexpr.language.definitions.combiners import reduce
from tensorexpr.language.definitions.compute import compute
from tensorexpr.language.definitions.functions import (
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
from tensorexpr.language.definitions.lets import let
from tensorexpr.language.definitions.marks import checkpoint, stop_gradient
from tensorexpr.language.definitions.modes import training
from tensorexpr.language.definitions.reductions import all, any, argmax, argmin, max, min, prod, sum
from tensorexpr.language.definitions.scan import scan
from tensorexpr.language.definitions.scatter import scatter
from tensorexpr.language.definitions.sorting import planned, sort_plan
from tensorexpr.language.definitions.special import acosh, asinh, atanh, digamma, erfc, erfinv, lgamma, log10, ndtr, trigamma

__all__ = [
    "Scalar", "Tensor", "abs", "acos", "acosh", "all", "any", "arccos", "arcsin", "arctan", "arctan2", "argmax", "argmin", "asin",
    "asinh", "atan", "atan2", "atanh", "cast", "ceil", "checkpoint", "clip", "compute", "constant", "cos", "cosh", "digamma", "dim",
    "erf", "erfc", "erfinv", "evaluate", "exp", "exp2", "expm1", "floor", "isfinite", "isinf", "isnan", "let", "lgamma", "lift", "log",
    "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "max", "maximum", "min", "minimum", "names_of",
    "ndtr", "negative", "placeholder", "planned", "power", "prod", "program_of", "reduce", "round", "rsqrt", "scan", "scatter",
    "sigmoid", "sign", "sin", "sinh", "sort_plan", "sqrt", "square", "stop_gradient", "sum", "tan", "tanh", "training", "trigamma", "trunc",
    "where",
]  # fmt: skip
