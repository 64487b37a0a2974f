"""Measures of the compiler as a whole: `python -m tensorexpr bench regret | model | spellings | sweep`.

The benchmark's table says how fast some thirty operations are. These say what holds for programs that nobody looked at: that the default
schedule is near the best there is (`regret`), that the model ranks schedules as the clock does (`model`), that speed does not depend on how
an operation is written (`spellings`), and how the library stands beside PyTorch and JAX (`sweep`).

A measure is a module with `rows(request)`, the keys of all that can be measured; `measured(key, request)`, what a process of its own
finds for one of them, as plain values; and `report(journal, keys, options)`, figures, a table and remarks (`report.Report`). `command`
chooses rows, runs them in `worker`s with time limits, and keeps every run in a `journal`, from which it goes on; `contest` has schedules of
one program side by side, `statistics` quantiles and rank correlation.
"""
