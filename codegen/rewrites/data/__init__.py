"""Rewrites of where values are kept and when they are computed.

| module | before | after |
|---|---|---|
| `inline` | a buffer is computed, then read | its value stands where it was read |
| `fuse_at` | a buffer is computed whole, then read in a loop | an iteration of the loop computes what it reads |
| `merge` | two loops, or kernels, one behind the other | one |
| `stage` | a part of a buffer is read, or updated, in a loop | a copy of it, in another layout |
| `rfactor` | a reduction into one accumulator | into several, which are combined |
| `hoist` | a term is computed in a loop that it does not depend on | in front of the loop |
| `contract` | a buffer of which an iteration needs a part | a buffer of that part |

`reaching` says which store a load has its value from, `places` has the statements that touch a buffer.
"""
