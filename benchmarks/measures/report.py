"""What a measure came to, as a reader takes it: lines, a table of the worst rows, what was left out; on the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tensorexpr.benchmarks.measures.journal import Journal, Run
from tensorexpr.benchmarks.measures.statistics import quantile
from tensorexpr.cli import output

WORST = 20
"""Rows of the table."""
SHARES = (("median", 0.5), ("90 %", 0.9), ("95 %", 0.95), ("worst", 1.0))


@dataclass(frozen=True)
class Report:
    """`lines` say the figures; `table` has the worst rows under `heads`; `remarks` what failed and what was left out."""

    title: str
    lines: list[str]
    heads: tuple[str, ...] = ()
    table: list[tuple[str, ...]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def show(self) -> None:
        """Prints it."""
        print(f"\n{self.title}", *self.lines, sep="\n")
        if self.table:
            output.print_columns(self.table, self.heads, {0})
        print(*self.remarks, sep="\n", end="\n" if self.remarks else "")

    def markdown(self, journal: Journal) -> str:
        """A short page."""
        cpu, versions = journal.machine["cpu"], {k: v for k, v in journal.machine["versions"].items() if v}
        dates = sorted(run["date"] for runs in journal.rows.values() for run in runs)
        parts = [f"# {self.title}", "", f"On a {cpu['name']}, {dates[0][:10] if dates else 'never'}; code {journal.code}; "]
        parts[-1] += ", ".join(f"{name} {version}" for name, version in versions.items()) + "."
        parts += ["", *(f"- {line}" for line in self.lines), ""]
        if self.table:
            parts += [_line(self.heads), _line(["---"] * len(self.heads)), *map(_line, self.table), ""]
        return "\n".join([*parts, *(f"- {remark}" for remark in self.remarks)]).rstrip() + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def distribution(values: Sequence[float], bar: float | None = None) -> str:
    """A line of quantiles, and how many are above a bar."""
    texts = [f"{name} {quantile(values, share):.3g}" for name, share in SHARES]
    above = "" if bar is None else f"; {sum(value > bar for value in values)} above {bar:g}"
    return f"{len(values)} figures: {', '.join(texts)}{above}" if values else "nothing measured"


def failures(journal: Journal, keys: Sequence[str]) -> list[str]:
    """A line for each row that has no answer."""
    quoted = journal.quoted()
    texts = {key: quoted[key]["error"].splitlines() for key in keys if "error" in quoted[key]}
    last = {key: next(line for line in reversed(["no answer", *lines]) if line[:1].strip()) for key, lines in texts.items()}
    return [f"failed: {key}: {line[:160]}" for key, line in last.items()]


def others(journal: Journal, key: str, figure: Callable[[Run], float | None]) -> str:
    """What the other runs of a row came to, for its line of a table."""
    found = [figure(run) for run in journal.others(key) if "error" not in run]
    return " ".join(f"{value:.3g}" for value in found if value is not None) or "-"


def milliseconds(seconds: float) -> str:
    """A time as text."""
    value = seconds * 1e3
    return f"{value:.5f}" if value < 0.01 else f"{value:.3f}" if value < 10 else f"{value:.1f}"
