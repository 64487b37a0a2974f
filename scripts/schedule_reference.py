"""Writes docs/schedules.md from the pages of rewrites: `python scripts/schedule_reference.py`. A test compares it."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from itertools import groupby
from pathlib import Path
from types import ModuleType

from tensorexpr.codegen.handle import Schedule, StageHandle
from tensorexpr.codegen.rewrites import intrinsics

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schedules.md"
STAGE, WHOLE = "s[C]", "s"
FAMILIES: tuple[tuple[str, tuple[tuple[str, str | None], ...]], ...] = (
    (
        "The list of loops",
        (
            ("split", "loops.split"),
            ("fuse", "loops.fuse"),
            ("reorder", "loops.reorder"),
            ("tile", None),
            ("skew", "loops.directions"),
            ("reverse", None),
        ),
    ),
    (
        "How a loop runs",
        (
            ("parallel", "loops.kinds"),
            ("vectorize", None),
            ("unroll", None),
            ("serial", None),
            ("bind", None),
            ("tensorize", "loops.tensorize"),
            ("alongside", "kernels.order"),
            ("compute_with", "data.merge"),
        ),
    ),
    (
        "Where a definition is computed",
        (
            ("compute_at", "data.fuse_at"),
            ("inline", "data.inline"),
            ("rfactor", "kernels.separate"),
            ("slide", "data.slide"),
            ("contract", "data.contract"),
            ("pipeline", "data.pipeline"),
        ),
    ),
    (
        "What is sent to elements that data chooses",
        (("own", "sends.own"), ("sort", "sends.sort")),
    ),
    (
        "Where tensors are kept",
        (("stage", "kernels.pack"), ("cache", "data.stage"), ("stream", "kernels.memory"), ("prefetch", None)),
    ),
    (
        "All of a schedule",
        (("rewrite", None), ("simplify", None), ("planned", None)),
    ),
)
"""The words, each with the page whose rewrite it is; None where another word has that page, or the word is several rewrites."""
INTRODUCTION = """# Schedules

A schedule says how a program runs, as a nest of loops and the calls that made it of the plain one. It never changes a result, but that sums
and products of floats may be taken in another, fixed, order (reordering or vectorizing a reduction, `rfactor`), and what the remark of an
instruction says (`tensorize`).

`te.schedule(outputs)` is the plain schedule, each definition by itself and all loops serial; `te.autoschedule(outputs)` the one that
`te.build` uses by default. Both are the same kind of object: `print(s)` is the loop nest, `s.as_python()` the calls that rebuild it
from the plain schedule, `s.nest` the nest as a value, `te.build(s)` compiles it. `s[C]` is a handle on the loops of the definition `C` (a
tensor or its name). A word that is illegal raises `te.ScheduleError` with the reason, and changes nothing; no word asks whether an extent
divides.

Loops are named by strings, first the names of the axes. In the nest names are unique: where two definitions have an axis `i`, their loops
are `i` and `i_1`. `s[C]` says `i` for that of `C`, whatever the nest calls it, and understands the nest's names, too.

Every word is a rewrite of nests; below stands what its page says: what before, what after, and when it is legal. What stands under
*Refused* begins the messages; `...` stands for names and numbers.
"""

GPU = """## On a GPU

A schedule for `target="cuda"` has the same words, and loops that are bound: to the blocks of a grid, the threads of a block, the lanes
of a warp. A warp has 32 lanes, which may share a reduction as the lanes of a vector do. Iterations run side by side, so they must touch
different elements. Kernels to which no word gave threads get them when the schedule is built. On a CPU there are none: `bind` is refused.

```python
>>> import tensorexpr as te
>>> x = te.placeholder((10, 96), name="x")
>>> s = te.schedule(te.compute((10,), lambda i: te.sum(lambda k: x[i, k], 96), name="y"), "cuda")
>>> k_o, k_i = s["y"].split("k", 32)
>>> s["y"].bind("i", "block.x")
>>> s["y"].bind(k_i, "warp")
>>> print("\\n".join(str(s).splitlines()[4:13]))
def kernel_0() -> y:
    for i in block.x(range(0, 10)):
        sum: local(f32[()])
        sum[()] = 0.0
        sum_parts: local(f32[32])
        for k_i_1 in warp(range(0, 32)):
            sum_parts[k_i_1] = 0.0
        for k_o in range(0, 3):
            for k_i in warp(range(0, 32)):

```
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
figures of the nearest machine count. A GPU's are published ones, and its costs have not been compared with a clock.
"""


WHOLE_SCHEDULES = """## Whole schedules

A product whose second operand lies in panels, with a tile of accumulators in registers. On AVX-512, tiles of 6 by 64 elements with panels
as wide fill the registers.

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
            sum: local(f32[6, 16])
            for i_i in unroll(range(0, 6)):
                for j_i in vectorize(range(0, 16)):
                    sum[i_i, j_i] = 0.0
            for k in range(0, 48):
                for i_i in unroll(range(0, 6)):
                    for j_i in vectorize(range(0, 16)):
                        sum[i_i, j_i] = sum[i_i, j_i] + a[minimum(i_o * 6, 58) + i_i, k] * b_staged[j_o, k, j_i]
            for i_i in unroll(range(0, 6)):
                for j_i in vectorize(range(0, 16)):
                    c[minimum(i_o * 6, 58) + i_i, j_i + j_o * 16] = sum[i_i, j_i]
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
    for i_1_o in range(0, 4):
        for j_1_o in range(0, 4):
            rows: local(f32[18, 32])
            for i in range(i_1_o * 16, i_1_o * 16 + 18):
                for j in vectorize(range(0, 32)):
                    rows[i - i_1_o * 16, j] = (
                        (x[i, j + j_1_o * 32] + x[i, j + j_1_o * 32 + 1] + x[i, j + j_1_o * 32 + 2]) / 3.0
                    )
            for i_1_i in range(0, 16):
                for j_1_i in vectorize(range(0, 32)):
                    blur[i_1_i + i_1_o * 16, j_1_i + j_1_o * 32] = (
                        (rows[i_1_i, j_1_i] + rows[i_1_i + 1, j_1_i] + rows[i_1_i + 2, j_1_i]) / 3.0
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

A long sum in parts that cores share: the sums of blocks are a definition of their own, whose blocks run in parallel and in lanes.

```python
>>> v = te.placeholder((te.dim("n"),), name="v")
>>> s = te.schedule(te.compute((), lambda: te.sum(lambda k: v[k] * v[k], v.shape[0]), name="t"))
>>> k_o, k_i = s["t"].split("k", 256)
>>> (parts,) = s["t"].rfactor(k_o)
>>> parts, s[parts].loops, s["t"].loops
('t_k_o', ('k_o', 'k_i'), ('k_i', 'k_o'))
>>> s[parts].parallel(k_o)
>>> lane, inner = s[parts].split(k_i, 16)
>>> s[parts].vectorize(inner)
>>> float(te.build(s)(np.ones(1000, np.float32)))
1000.0

```

Rows that windows share are computed once: a ring keeps them.

```python
>>> s = te.schedule(blur)
>>> s["rows"].compute_at("blur", "i")
>>> s["rows"].slide()
>>> print("\\n".join(str(s).splitlines()[4:]))
def kernel_0() -> blur:
    rows: local(f32[3, 128])
    for i_1 in range(0, 64):
        for i in range(where(i_1 > 0, i_1 + 2, i_1), i_1 + 3):
            for j in range(0, 128):
                rows[i % 3, j] = (x[i, j] + x[i, j + 1] + x[i, j + 2]) / 3.0
        for j_1 in range(0, 128):
            blur[i_1, j_1] = (rows[i_1 % 3, j_1] + rows[(i_1 + 1) % 3, j_1] + rows[(i_1 + 2) % 3, j_1]) / 3.0

```
"""


def section(word: str, page: str | None) -> str:
    """A word: its call, what it does, the page of its rewrite, and what that refuses."""
    owner = StageHandle if hasattr(StageHandle, word) else Schedule
    method = getattr(owner, word)
    lines = [f"### `{STAGE if owner is StageHandle else WHOLE}.{word}({parameters(method)})`", "", *rendered(inspect.getdoc(method) or "")]
    if page is not None:
        module = importlib.import_module(f"tensorexpr.codegen.rewrites.{page}")
        lines += rendered(inspect.getdoc(module) or "")
        found = list(dict.fromkeys(messages(module)))
        if found:
            lines += ["Refused:", "", *(f"- {m}" for m in found), ""]
    return "\n".join(lines)


def parameters(method: object) -> str:
    """The parameters of a method as they are written, without their types."""
    given = list(inspect.signature(method).parameters.values())[1:]  # type: ignore[arg-type]  # methods are given
    return ", ".join(str(p.replace(annotation=inspect.Parameter.empty)) for p in given)


def rendered(text: str) -> list[str]:
    """The lines of a docstring as Markdown: what is indented is code, paragraphs are wrapped."""
    made: list[str] = []
    for is_code, group in groupby(text.splitlines(), key=lambda line: line.startswith("    ")):
        block = "\n".join(group).strip("\n")
        if is_code:
            made += ["```text", *textwrap.dedent(block).splitlines(), "```", ""]
            continue
        for paragraph in block.split("\n\n"):
            lines = paragraph.strip().splitlines()
            if lines and lines[0].startswith(("|", "- ")):
                made += [*lines, ""]
            elif lines:
                made += [*textwrap.wrap(" ".join(lines), 140, break_long_words=False, break_on_hyphens=False), ""]
    return made


def messages(place: ModuleType) -> list[str]:
    """The messages of the errors that a module raises."""
    tree = ast.parse(inspect.getsource(place))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "refuse",
            "refused",
            "NotAlone",
            "_Stays",
            "ScheduleError",
        ):
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
        parts += [f"## {title}\n", *(section(word, page) for word, page in words)]
    return "\n".join([*parts, WHOLE_SCHEDULES, GPU, COST, instructions()])


if __name__ == "__main__":
    PAGE.write_text(page())
