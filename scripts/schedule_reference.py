"""Writes docs/schedules.md from the docstrings of the primitives: `python scripts/schedule_reference.py`. A test compares it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from tensorexpr.codegen.schedule import (
    Planned,
    StageHandle,
    alongside,
    bind,
    binding,
    cache,
    clone,
    common,
    compute_at,
    compute_with,
    fetching,
    fuse,
    inline,
    intrinsics,
    legality,
    own,
    parallel,
    part,
    partition,
    pipeline,
    placement,
    recompute,
    redirect,
    reorder,
    rfactor,
    serial,
    skewing,
    slide,
    sort,
    split,
    staging,
    stream,
    sweeps,
    tensorize,
    tile,
    unroll,
    vectorize,
    widths,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schedules.md"
Places = tuple[Callable[..., object] | ModuleType, ...]
STAGE, WHOLE = "s[C]", "s"
FAMILIES: tuple[tuple[str, tuple[tuple[str, Places], ...]], ...] = (
    (
        "The list of loops",
        (
            ("split", (split.split, legality._check_split)),
            ("fuse", (fuse.fuse,)),
            ("reorder", (reorder.reorder, legality._check_group, legality._check_tile, legality._check_enclosing)),
            ("tile", (tile.tile, split.split)),
        ),
    ),
    (
        "How a loop runs",
        (
            ("parallel", (parallel.parallel, legality._check_parallel, legality._check_written_out, binding.check_shifted)),
            (
                "vectorize",
                (vectorize.vectorize, legality._check_copies, legality._check_vector, legality._check_written_out, binding.check_shifted),
            ),
            ("unroll", (unroll.unroll, legality._check_copies, legality._check_written_out)),
            ("serial", (serial.serial,)),
            ("alongside", (alongside.alongside,)),
            ("compute_with", (compute_with.compute_with,)),
            ("bind", (bind.bind, binding)),
            ("tensorize", (tensorize.tensorize, tensorize, intrinsics.match, intrinsics.intrinsic_named)),
        ),
    ),
    (
        "Where a definition is computed",
        (
            ("compute_at", (compute_at.compute_at, placement)),
            ("inline", (inline.inline, inline.with_program)),
            ("recompute", (recompute.recompute,)),
            ("share", (recompute.share,)),
            ("common", (common.common,)),
            ("clone", (clone.clone,)),
            ("rfactor", (rfactor.rfactor, rfactor)),
            ("own", (own.own, own)),
            ("partition", (partition.partition, partition)),
            ("sort", (sort.sort, sort)),
            ("part", (part.part, part)),
            ("pipeline", (pipeline.pipeline, pipeline)),
            ("slide", (slide.slide, slide)),
            ("sweep", (sweeps.sweep, sweeps._Analysis)),
            ("skew", (skewing.skew, skewing)),
        ),
    ),
    (
        "Where tensors are kept",
        (
            ("stage", (staging.stage,)),
            ("cache", (cache.cache, cache)),
            ("store_as", (widths.store_as,)),
            ("redirect", (redirect.redirect,)),
            ("stream", (stream.stream,)),
            ("prefetch", (fetching.prefetch,)),
        ),
    ),
)
INTRODUCTION = """# Schedules

A schedule says how a program runs: for every definition its loops in order, how each runs, and where the definition is computed. It
never changes a result, but that sums and products of floats may be taken in another, fixed, order (splitting, reordering or vectorizing
a reduction, `rfactor`), and what the remark of an instruction says (`tensorize`).

`te.schedule(outputs)` is the plain schedule, each definition by itself and all loops serial; `te.autoschedule(outputs)` the one that
`te.build` uses by default. Both are the same kind of object: `print(s)` is the loop nest, `s.as_python()` the calls that rebuild it
from the plain schedule, `te.build(s)` compiles it. `s[C]` is a handle on the loops of the definition `C` (a tensor or its name). Loops
are named by strings, first the names of the axes. A primitive that is illegal raises `te.ScheduleError` with the reason, and changes
nothing.

Below, `[..., i, ...]` is a list of loops, outermost first. What stands under *Refused* begins the message; `...` stands for names and
numbers.
"""


COST = """## What a schedule costs

`print(s.cost)` says how long one call should take on this machine, and why. A row is a loop with what stands in it and in no loop inside
of it (what does not change in a loop is computed outside): how often it runs, its time, what it waits for, then the time of each port, of
all its instructions in their order, of additions that wait for each other, of lines from each level of memory, and how many local
elements registers hold. Ports work side by side, so the greatest is the time; lines from several levels add up.

```python
>>> import tensorexpr as te
>>> a, b = te.placeholder((512, 512), name="a"), te.placeholder((512, 512), name="b")
>>> c = te.compute((512, 512), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 512), name="c")
>>> s = te.schedule(c)
>>> plain = s.cost
>>> i_o, j_o, i_i, j_i = s["c"].tile("i", "j", 6, 64, "shift")
>>> s["c"].reorder(i_o, j_o, "k", i_i, j_i)
>>> s["c"].unroll(i_i)
>>> s["c"].vectorize(j_i)
>>> s.cost.nanoseconds < plain.nanoseconds
True

```

On AVX-512 the plain schedule waits for 134 million additions, the tiles for products:

```
150 ms on one thread (AVX-512 server, measured)
loops   iterations    time  waits for  arithmetic     load   branch  in order   chain  from L2  registers
i j k  134,217,728  149 ms  chain         18.8 ms  34.9 ms  28.2 ms   29.5 ms  148 ms  77.6 ms          1

1.22 ms on one thread (AVX-512 server, measured)
loops      iterations     time  waits for   arithmetic    load    store  branch  in order   chain  from L2  from L3  registers
i_o j_o           688  33.2 us  memory                          3.96 us            787 ns          12.2 us    21 us         24
i_o j_o k     352,256  1.19 ms  arithmetic     1.18 ms  458 us            74 us    558 us  387 us   839 us    42 us         24
```

`s.cost.at(threads=8, n=4096)` is the cost on more threads and at other open sizes; without, an open size counts 1000, a loop whose bounds
are data 8 iterations, a condition on data as true in half of them. Arrays are taken to be where the last call left them. What the machine
is able to do is measured when a cost is first asked for, in a second, and kept in the cache folder; with `TENSOREXPR_MEASURE=0` shipped
figures of the nearest machine count. A GPU's are published ones, and its costs have not been held against a clock.
"""


WHOLE_SCHEDULES = """## Whole schedules

A product whose second operand lies in panels, with a tile of accumulators in registers. With tiles of 6 by 64 elements and panels as wide,
on AVX-512, this is as fast as the default schedule of a product of 1024 x 1024.

```python
>>> import numpy as np
>>> import tensorexpr as te
>>> a, b = te.placeholder((64, 48), name="a"), te.placeholder((48, 64), name="b")
>>> c = te.compute((64, 64), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 48), name="c")
>>> s = te.schedule(c)
>>> s["c"].stage("b", ((1, 16), 0))
'b_staged'
>>> s["b_staged"].parallel("a1_o")
>>> s["b_staged"].vectorize("a1_i")
>>> i_o, j_o, i_i, j_i = s["c"].tile("i", "j", 6, 16, "shift")
>>> s["c"].reorder(j_o, i_o, "k", i_i, j_i)
>>> s["c"].unroll(i_i)
>>> s["c"].vectorize(j_i)
>>> s["c"].parallel(j_o)
>>> print("\\n".join(str(s).splitlines()[12:]))
def kernel_1() -> c:
    for j_o in parallel(range(0, 4)):
        for i_o in range(0, 11):
            c_sum: local(f32[6, 16])
            for i_i in unroll(range(0, 6)):
                for j_i in vectorize(range(0, 16)):
                    c_sum[i_i, j_i] = 0.0
            for k in range(0, 48):
                for i_i in unroll(range(0, 6)):
                    for j_i in vectorize(range(0, 16)):
                        c_sum[i_i, j_i] = c_sum[i_i, j_i] + a[minimum(i_o * 6, 58) + i_i, k] * b_staged[j_o, k, j_i]
            for i_i in unroll(range(0, 6)):
                for j_i in vectorize(range(0, 16)):
                    c[minimum(i_o * 6, 58) + i_i, j_i + j_o * 16] = c_sum[i_i, j_i]
>>> x, y = np.ones((64, 48), np.float32), np.ones((48, 64), np.float32)
>>> bool((te.build(s)(x, y) == 48).all())
True

```

A blur along rows, then along columns, a tile of both at a time; no more than the rows that a tile reads is kept of the first.

```python
>>> x = te.placeholder((66, 130), name="x")
>>> rows = te.compute((66, 128), lambda i, j: (x[i, j] + x[i, j + 1] + x[i, j + 2]) / 3, name="rows")
>>> blur = te.compute((64, 128), lambda i, j: (rows[i, j] + rows[i + 1, j] + rows[i + 2, j]) / 3, name="blur")
>>> s = te.schedule(blur)
>>> i_o, j_o, i_i, j_i = s["blur"].tile("i", "j", 16, 32)
>>> s["blur"].vectorize(j_i)
>>> s["rows"].compute_at("blur", j_o)
>>> s["rows"].vectorize("j")
>>> print("\\n".join(str(s).splitlines()[4:]))
def kernel_0() -> blur:
    for i_o in range(0, 4):
        for j_o in range(0, 4):
            rows_1: local(f32[18, 32])
            for i in range(i_o * 16, i_o * 16 + 18):
                for j in vectorize(range(0, 32)):
                    rows_1[i - i_o * 16, j] = (
                        (x[i, j + j_o * 32] + x[i, j + j_o * 32 + 1] + x[i, j + j_o * 32 + 2]) / 3.0
                    )
            for i_i in range(0, 16):
                for j_i in vectorize(range(0, 32)):
                    blur[i_i + i_o * 16, j_i + j_o * 32] = (
                        (rows_1[i_i, j_i] + rows_1[i_i + 1, j_i] + rows_1[i_i + 2, j_i]) / 3.0
                    )
>>> s["blur"].parallel(i_o)
>>> again = te.schedule(blur)
>>> exec(s.as_python(), {"s": again})
>>> again == s and str(again) == str(s)
True

```

A convolution as a product with windows (`im2col`), of which there are those of one row of the result at a time.

```python
>>> x, w = te.placeholder((2, 8, 18, 18), name="x"), te.placeholder((8, 8, 3, 3), name="w")
>>> windows = te.compute((2, 16, 8, 3, 3, 16), lambda n, y, c, r, q, z: x[n, c, y + r, z + q], name="windows")
>>> product = lambda n, k, y, z: te.sum(lambda c, r, q: w[k, c, r, q] * windows[n, y, c, r, q, z], (8, 3, 3))
>>> s = te.schedule(te.compute((2, 8, 16, 16), product, name="C"))
>>> s["C"].reorder("n", "y", "c", "r", "q", "k", "z")
>>> s["C"].vectorize("z")
>>> s["windows"].compute_at("C", "y")
>>> s["windows"].vectorize("z")
>>> s["C"].parallel("n")
>>> inputs = np.ones((2, 8, 18, 18), np.float32), np.ones((8, 8, 3, 3), np.float32)
>>> bool((te.build(s, [x, w])(*inputs) == 72).all())
True

```
"""


def section(word: str, places: Places) -> str:
    """A primitive: its call, its rewrite, what it does, an example, and what it refuses."""
    owner = StageHandle if hasattr(StageHandle, word) else Planned
    parameters = [str(p.replace(annotation=inspect.Parameter.empty)) for p in inspect.signature(getattr(owner, word)).parameters.values()][
        1:
    ]
    call = f"{STAGE if owner is StageHandle else WHOLE}.{word}({', '.join(parameters)})"
    text = inspect.getdoc(places[0]) or ""
    before, _, example = text.partition(">>>")
    rewrite, *paragraphs = (" ".join(p.split()) for p in before.strip().split("\n\n"))
    for inner, outer in zip(
        list(inspect.signature(places[0]).parameters)[2:], list(inspect.signature(getattr(owner, word)).parameters)[1:]
    ):
        paragraphs = [p.replace(f"`{inner}`", f"`{outer}`") for p in paragraphs]  # as the method calls it
    lines = [f"### `{call}`", "", f"`{rewrite.removeprefix('rewrite: ')}`", ""]
    for paragraph in paragraphs:
        lines += [*textwrap.wrap(paragraph, 140, break_long_words=False, break_on_hyphens=False), ""]
    lines += ["```python", *f">>>{example}".strip().splitlines(), "", "```", ""]
    found = list(dict.fromkeys(m for place in places for m in messages(place)))
    if found:
        lines += ["Refused:", "", *(f"- {m}" for m in found), ""]
    return "\n".join(lines)


def messages(place: Callable[..., object] | ModuleType) -> list[str]:
    """The messages of the errors that a function, or all of a module, raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(place)))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("refuse", "ScheduleError"):
            texts = [text(argument) for argument in node.args]
            found += [t for t in texts if t is not None and t.startswith("expected ") and t.strip(" .") != "expected"][:1]
    return found


def text(node: ast.expr) -> str | None:
    """A string or an f-string as text, with `...` for what is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
    return None


def instructions() -> str:
    """The instructions that come with us, for `tensorize`."""
    lines = ["## Instructions", "", "`te.intrinsic(name, result, body)` declares an instruction. These come with the package:", ""]
    for found in intrinsics.known_intrinsics():
        if found.features:
            needs = f"Needs {', '.join(f'`{f}`' for f in found.features)}."
            remark = f" Results differ from the definition's in that {found.remark}." if found.remark else " Results are the same bits."
            lines += [f"`{found.name}`: {needs}{remark}", "", "```python", str(found.program).strip(), "```", ""]
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, words in FAMILIES:
        parts += [f"## {title}\n", *(section(word, places) for word, places in words)]
    return "\n".join([*parts, WHOLE_SCHEDULES, COST, instructions()])


if __name__ == "__main__":
    PAGE.write_text(page())
