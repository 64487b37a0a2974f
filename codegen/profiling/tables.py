"""A profile as text, as HTML and as a trace."""

from __future__ import annotations

import html
import json
import linecache
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensorexpr.codegen.auto.cost import spell
from tensorexpr.markup import MOST_ROWS, code, more, one_line, page, paragraph, table

if TYPE_CHECKING:
    from tensorexpr.codegen.profiling.profile import KernelRow, Profile, Share

_KERNELS = ("kernel", "time", "of all", "operations", "bytes", "Gop/s", "GB/s", "roofline", "bound by")
_SHARES = ("time", "of all", "source")
_LONGEST = 72
_PROFILE = 1
"""The process and the threads that events of a trace are put in."""


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def _kernel_cells(row: KernelRow, whole: float) -> tuple[str, ...]:
    about = "~" if row.assumed else ""
    rates = [amount / row.nanoseconds if row.nanoseconds else 0.0 for amount in (row.operations, row.bytes)]
    return (
        one_line(row.name, _LONGEST),
        spell(row.nanoseconds),
        _percent(row.nanoseconds, whole),
        f"{about}{row.operations:,}",
        f"{about}{row.bytes:,}",
        *(f"{about}{rate:.3g}" for rate in rates),
        f"{about}{100 * row.roofline:.0f} %",
        row.bound,
    )


def _source(share: Share) -> str:
    """The line of the user's file, and where it is."""
    if share.location is None:
        return share.what
    line = linecache.getline(share.location.file, share.location.line).strip()
    where = f"{share.location.file.rpartition('/')[2]}:{share.location.line}"
    return one_line(f"{where}  {line}", _LONGEST + 24)


def _share_cells(share: Share, whole: float) -> tuple[str, ...]:
    return spell(share.nanoseconds), _percent(share.nanoseconds, whole), _source(share)


def _aligned(headings: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]) -> list[str]:
    lines = [headings, *rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(headings))]
    return [
        "  ".join(cell.ljust(w) if n in left else cell.rjust(w) for n, (cell, w) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    ]


def _headline(profile: Profile) -> str:
    threads = "one thread" if profile.threads == 1 else f"{profile.threads} threads"
    sizes = "".join(f", {name} = {size}" for name, size in profile.sizes.items())
    inside = f"{spell(profile.inside)} in {len(profile.kernels)} kernel{'' if len(profile.kernels) == 1 else 's'}"
    return f"{profile.name}: {spell(profile.nanoseconds)} a call, {inside} ({threads}{sizes}; medians of {profile.runs} runs)"


def text(profile: Profile) -> str:
    """The tables: kernels, definitions where a kernel has several, lines."""
    shown = profile.kernels[:MOST_ROWS]
    lines = [_headline(profile), ""]
    lines += _aligned(_KERNELS, [_kernel_cells(row, profile.inside) for row in shown], (0, len(_KERNELS) - 1))
    if len(profile.kernels) > MOST_ROWS:
        lines.append(more(len(profile.kernels) - MOST_ROWS, "kernel"))
    if any(len(part) > 1 for part in profile.parts):
        rows = [(*_share_cells(share, profile.inside)[:2], share.what) for share in profile.definitions[:MOST_ROWS]]
        lines += ["", *_aligned(("time", "of all", "definition"), rows, (2,))]
    rows = [_share_cells(share, profile.inside)[:3] for share in profile.lines[:MOST_ROWS]]
    lines += ["", *_aligned(_SHARES, rows, (2,)), "", *_notes(profile)]
    return "\n".join(lines) + "\n"


def _notes(profile: Profile) -> list[str]:
    """What stands below the tables."""
    assumed = ["~: data decides how often some of the kernel runs, so what is counted is an assumption"]
    return [f"roofline: {profile.machine}", *(assumed if any(row.assumed for row in profile.kernels) else [])]


def fragment(profile: Profile) -> str:
    """The tables for notebooks."""
    kernels = table(_KERNELS, profile.kernels, lambda row: _kernel_cells(row, profile.inside))
    definitions = table(("time", "of all", "definition"), profile.definitions, lambda s: (*_share_cells(s, profile.inside)[:2], s.what))
    lines = table(_SHARES, profile.lines, lambda share: _share_cells(share, profile.inside))
    return page(code(_headline(profile)), _bars(profile), kernels, definitions, lines, *map(paragraph, _notes(profile)))


_WIDTH, _HEIGHT = 720, 22
"""Pixels of the bar that stands for a call."""


def _bars(profile: Profile) -> str:
    """The call as one bar, a box for each kernel as wide as its time."""
    parts, at = [], 0.0
    for number, row in enumerate(profile.kernels):
        width = _WIDTH * row.nanoseconds / profile.inside if profile.inside else 0.0
        box = f'x="{at:.1f}" y="0" width="{max(width, 0.5):.1f}" height="{_HEIGHT}"'
        title = html.escape(f"{row.name}: {spell(row.nanoseconds)}, {_percent(row.nanoseconds, profile.inside)}")
        shade = 0.15 if number % 2 else 0.3
        parts.append(f'<rect {box} fill="currentColor" fill-opacity="{shade}"><title>{title}</title></rect>')
        letters = int(width / 7.3) - 1
        if letters > 2:
            parts.append(f'<text x="{at + 4:.1f}" y="15">{html.escape(row.name[:letters])}</text>')
        at += width
    font = 'font-family="monospace" font-size="12" fill="currentColor"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_WIDTH}" height="{_HEIGHT}" {font}>\n' + "\n".join(parts) + "\n</svg>"
    )


def page_of(profile: Profile) -> str:
    """The same as a page of its own."""
    style = "body { font: 15px sans-serif; margin: 2em; } table { border-collapse: collapse; margin: 1em 0; }"
    style += " td, th { padding: 2px 10px; text-align: left; border-bottom: 1px solid #ccc; }"
    title = html.escape(f"profile of {profile.name}")
    head = f'<head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>'
    return f"<!doctype html>\n<html>\n{head}\n<body>\n<h1>{title}</h1>\n{fragment(profile)}\n</body>\n</html>\n"


def trace(profile: Profile) -> dict[str, Any]:
    """Events of the trace format: complete ones (`X`) with microseconds, and the names of the rows that they stand in."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": _PROFILE, "args": {"name": f"tensorexpr: {profile.name}"}},
        *(
            {"name": "thread_name", "ph": "M", "pid": _PROFILE, "tid": row, "args": {"name": name}}
            for row, name in enumerate(("kernels", "definitions"))
        ),
    ]
    at = 0.0
    for row, parts in zip(profile.kernels, profile.parts, strict=True):
        about = {"operations": row.operations, "bytes": row.bytes, "roofline": row.roofline, "bound by": row.bound}
        events.append(_event(row.name, 0, at, row.nanoseconds, about))
        inside = at
        for part in parts:
            events.append(_event(part.what, 1, inside, part.nanoseconds, {"kernel": row.name}))
            inside += part.nanoseconds
        at += row.nanoseconds
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"machine": profile.machine, "threads": profile.threads}}


def _event(name: str, row: int, begin: float, nanoseconds: float, about: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": _PROFILE, "tid": row, "ts": begin / 1000, "dur": nanoseconds / 1000, "args": about}


def trace_text(profile: Profile) -> str:
    """The trace as JSON."""
    return json.dumps(trace(profile), indent=1) + "\n"
