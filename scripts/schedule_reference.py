"""Writes docs/schedules.md from the docstrings of the primitives: `python scripts/schedule_reference.py`. A test compares it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from tensorexpr.codegen.schedule import (
    Schedule,
    StageHandle,
    alongside,
    bind,
    cache,
    common,
    compute_with,
    fetching,
    intrinsics,
    legality,
    own,
    part,
    partition,
    pipeline,
    placement,
    primitives,
    recompute,
    rfactor,
    skewing,
    slide,
    sort,
    staging,
    sweeps,
    tensorize,
    widths,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schedules.md"
Places = tuple[Callable[..., object] | ModuleType, ...]
STAGE, WHOLE = "s[C]", "s"
FAMILIES: tuple[tuple[str, tuple[tuple[str, Places], ...]], ...] = (
    (
        "The list of loops",
        (
            ("split", (primitives.split, legality._check_split)),
            ("fuse", (primitives.fuse,)),
            ("reorder", (primitives.reorder, legality._check_group, legality._check_tile, legality._check_enclosing)),
            ("tile", (StageHandle.tile,)),
        ),
    ),
    (
        "How a loop runs",
        (
            ("parallel", (primitives.parallel, legality._check_parallel)),
            ("vectorize", (primitives.vectorize, legality._check_copies, legality._check_vector)),
            ("unroll", (primitives.unroll, legality._check_copies)),
            ("serial", (primitives.serial,)),
            ("alongside", (alongside.alongside,)),
            ("compute_with", (compute_with.compute_with,)),
            ("bind", (primitives.bind, bind)),
            ("tensorize", (tensorize.tensorize, tensorize, intrinsics.match, intrinsics.intrinsic_named)),
        ),
    ),
    (
        "Where a definition is computed",
        (
            ("compute_at", (primitives.compute_at, placement)),
            ("inline", (primitives.inline, primitives._with_program)),
            ("recompute", (recompute.recompute,)),
            ("share", (recompute.share,)),
            ("common", (common.common,)),
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
            ("redirect", (primitives.redirect,)),
            ("stream", (primitives.stream,)),
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


def section(word: str, places: Places) -> str:
    """A primitive: its call, its rewrite, what it does, an example, and what it refuses."""
    owner = StageHandle if hasattr(StageHandle, word) else Schedule
    parameters = [str(p.replace(annotation=inspect.Parameter.empty)) for p in inspect.signature(getattr(owner, word)).parameters.values()][
        1:
    ]
    call = f"{STAGE if owner is StageHandle else WHOLE}.{word}({', '.join(parameters)})"
    text = inspect.getdoc(places[0]) or ""
    before, _, example = text.partition(">>>")
    rewrite, *paragraphs = (" ".join(p.split()) for p in before.strip().split("\n\n"))
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
    return "\n".join([*parts, instructions()])


if __name__ == "__main__":
    PAGE.write_text(page())
