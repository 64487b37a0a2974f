"""A page of HTML that stands alone: tables, and the roofline with every workload in it (drawn by matplotlib, where it is installed)."""

from __future__ import annotations

import html
import importlib.util
import io
from typing import Any

from tensorexpr.benchmarks import report
from tensorexpr.benchmarks.peers import OURS
from tensorexpr.benchmarks.roofline import Roofline

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1200px; color: #222; }
table { border-collapse: collapse; margin: 1em 0; } td, th { padding: 2px 10px; text-align: right; border-bottom: 1px solid #eee; }
td:first-child, th:first-child, td:nth-child(2), td:nth-child(5) { text-align: left; } .behind { color: #b00020; font-weight: 600; }
svg { max-width: 100%; height: auto; }
"""


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def figure(run: dict[str, Any]) -> Any:
    """The roofline of one number of threads: Gflop/s over flop per byte, our workloads below the roof."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    roof = Roofline.of_json(run["roofline"])
    drawn = Figure(figsize=(11, 7), layout="constrained")
    axes = drawn.subplots()
    stream = max(speeds[max(speeds)] for speeds in roof.streams.values())
    knee = roof.flops / stream
    axes.plot([1e-2, knee, 1e4], [1e-2 * stream / 1e9, roof.flops / 1e9, roof.flops / 1e9], color="black")
    axes.text(1e4, roof.flops / 1e9, f"{roof.flops / 1e9:.0f} Gflop/s", ha="right", va="bottom")
    axes.text(1.2e-2, 1.4e-2 * stream / 1e9, f"{stream / 1e9:.0f} GB/s", rotation=30, rotation_mode="anchor")
    marks = {"forward": ("o", "tab:blue"), "gradient": ("^", "tab:orange")}
    for row in run["rows"]:
        mine = report.ours(row)
        if mine is None or not row["operations"]:
            continue
        marker, color = marks[row["direction"]]
        at = row["operations"] / row["bytes"], row["operations"] / mine / 1e9
        axes.plot(*at, marker, color=color, markersize=5)
        axes.annotate(row["workload"], at, xytext=(4, 3), textcoords="offset points", fontsize=6, color=color)
    axes.set(xscale="log", yscale="log", xlabel="flop per byte that must be moved", ylabel="Gflop/s", xlim=(1e-2, 1e4))
    axes.set_title(f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}: circles forward, triangles with gradient")
    return drawn


def png(run: dict[str, Any], path: str) -> None:
    """Writes the roofline as a picture."""
    figure(run).savefig(path, dpi=130)


def _svg(run: dict[str, Any]) -> str:
    buffer = io.StringIO()
    figure(run).savefig(buffer, format="svg")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def page(document: dict[str, Any]) -> str:
    """The whole page."""
    machine = document["machine"]
    parts = [f"<!doctype html><meta charset='utf-8'><title>tensorexpr: benchmarks</title><style>{_STYLE}</style><h1>Benchmarks</h1>"]
    versions = ", ".join(f"{name} {version}" for name, version in document["peers"].items() if version)
    threads = " and ".join(str(run["threads"]) for run in document["runs"])
    facts = f"{document['date']}; {machine['cpu']['name']}, {machine['platform']}; threads: {threads}; {versions}"
    parts.append(f"<p>{html.escape(facts)}</p>")
    for run in document["runs"]:
        parts.append(f"<h2>{run['threads']} thread{'s' if run['threads'] > 1 else ''}</h2><p>{html.escape(report.roof_text(run))}</p>")
        if can_plot():
            parts.append(_svg(run))
        parts += [_table(run), f"<pre>{html.escape(report.summary(run))}</pre>", _all_candidates(run)]
    return "\n".join(parts)


def _table(run: dict[str, Any]) -> str:
    roof = Roofline.of_json(run["roofline"])
    lines = ["".join(f"<th>{html.escape(column)}</th>" for column in report.COLUMNS)]
    for row in run["rows"]:
        times = report.ratio(row)
        behind = times is not None and times < 1
        cells = [html.escape(cell) for cell in report.cells(row, roof)]
        if behind:
            cells[5] = f"<span class='behind'>{cells[5]}</span>"
        lines.append("".join(f"<td>{cell}</td>" for cell in cells))
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _all_candidates(run: dict[str, Any]) -> str:
    """Every candidate's median and quartiles."""
    names = list(dict.fromkeys(name for row in run["rows"] for name in row.get("timings", {})))
    names.sort(key=lambda name: name != OURS)
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in ("workload", "", *(f"{name} ms" for name in names)))]
    for row in run["rows"]:
        cells = [row["workload"], row["direction"]]
        for name in names:
            timing = row.get("timings", {}).get(name)
            spread = "" if timing is None else f"{timing['median'] * 1e3:.4g} ({timing['lower'] * 1e3:.4g} to {timing['upper'] * 1e3:.4g})"
            cells.append(spread)
        lines.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    rows = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<details><summary>every candidate: median and quartiles</summary><table>{rows}</table></details>"
