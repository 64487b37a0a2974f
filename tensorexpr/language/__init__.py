"""The language: how operations are written as index mathematics.

`core` has expressions of one value (`scalar`), the nodes of the graph (`tensor`) and the way to the program IR (`programs`);
`definitions` what makes new ones: `compute`, `reductions`, `combiners`, `scatter`, `scan`, `sorting`. Definitions are checked as they
are completed (`core.checks`), with names settled by `core.tracing`. `copies` has tensors in pickles.
"""

from tensorexpr.language import copies  # noqa: F401  # says how tensors are pickled
from tensorexpr.language.core.leaves import constant, dim, placeholder
from tensorexpr.language.core.programs import evaluate, lift, names_of, program_of
from tensorexpr.language.core.scalar import Scalar
from tensorexpr.language.core.tensor import Tensor
from tensorexpr.language.definitions import functions, special
from tensorexpr.language.definitions.combiners import reduce
from tensorexpr.language.definitions.compute import compute
from tensorexpr.language.definitions.functions import *  # noqa: F403  # the list of scalar functions is theirs
from tensorexpr.language.definitions.lets import let
from tensorexpr.language.definitions.marks import checkpoint, stop_gradient
from tensorexpr.language.definitions.modes import training
from tensorexpr.language.definitions.reductions import all, any, argmax, argmin, max, min, prod, sum
from tensorexpr.language.definitions.scan import scan
from tensorexpr.language.definitions.scatter import scatter
from tensorexpr.language.definitions.sorting import planned, sort_plan
from tensorexpr.language.definitions.special import *  # noqa: F403

__all__ = [
    "Scalar", "Tensor", "all", "any", "argmax", "argmin", "checkpoint", "compute", "constant", "dim", "evaluate", "let", "lift", "max",
    "min", "names_of", "placeholder", "planned", "prod", "program_of", "reduce", "scan", "scatter", "sort_plan", "stop_gradient", "sum",
    "training",
]  # fmt: skip
__all__ += functions.__all__
__all__ += special.__all__
