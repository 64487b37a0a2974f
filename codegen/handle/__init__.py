"""The schedule that users hold: a loop nest, and the calls that made it of the plain nest of its program.

| module | what it holds |
|---|---|
| `schedule` | `Schedule`: program, target, nest and calls; the words that act on all of it |
| `stage` | `StageHandle`, what `s[C]` gives: rewrites of the loops of one definition, in its own names |
| `nests` | what the words ask of a nest: copies of loops, accumulators, kernels, loops merged |
| `loops` | which loops of a nest are whose, and what a definition calls them |
| `calls` | calls as text, and text as calls |

Every word is a rewrite of nests (`codegen.rewrites`), or a few of them one after the other. What is legal they decide, by dependences;
here names are translated. Names of loops are unique in a nest: where two definitions have an axis `i`, the loops are `i` and `i_1`, and
both are `i` to their own definition.
"""

from tensorexpr.codegen.handle.schedule import Schedule
from tensorexpr.codegen.handle.stage import StageHandle

__all__ = ["Schedule", "StageHandle"]
