"""Rewrites of loop nests: what a schedule is made of, a page (module) for each, as functions from a nest to a nest.

    nest = split(named(plain_nest(program)), "j", 32)

A rewrite is named by its effect on the nest; its page says what stands before, what after, and when it is legal. It gives a nest that
computes the same, or raises `ScheduleError` and changes nothing. What may change is asked of `codegen.dependence` alone, so that no
rewrite knows another one. All values keep their bits, but for those of reductions whose loops the caller takes apart or reorders.

**Addresses.** A loop is addressed by the name of its index. `named` makes the names of a plain nest unique; what copies a loop
(`partition`, tails of `split`) leaves its name to all copies, which are never inside each other. A rewrite of a name is one of all copies:
each is judged alone, and each page says what becomes of one that it cannot change, such as a tail whose extent is not known.
Local buffers are named alike: those of copies are one name, declared in different places.

| module | what it holds |
|---|---|
| `paths` | where statements stand, and nests with other statements there |
| `names` | unique and fresh names |
| `expressions` | blocks with other expressions, elements or indices in them |
| `facts` | what holds at a place, and what follows from it: the ranges of indices, the sign of an affine form, tests that are decided |
| `regions` | the statements that compute one buffer |
| `refusals` | the errors |
| `intrinsics` | instructions that are the work of a small nest, and where they match |
| `cuts` | where along a loop the tests inside begin and cease to hold |
| `touched/` | what iterations of a loop touch of a buffer |
| `loops/` | bounds, order and kinds of loops; copies of what they have inside |
| `data/` | where values are kept, and when they are computed |
| `kernels/` | kernels that are made or moved, and what is said of memory |
| `sends/` | what is sent to elements that data chooses |
"""
