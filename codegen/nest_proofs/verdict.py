"""What a proof of a nest ends in: findings, and how the obligations were decided."""

from __future__ import annotations

from tensorexpr.records import record

KINDS = ("bounds", "race", "initial", "coverage", "claim", "size", "call")
"""Kinds of obligations: an access inside its buffer, iterations that do not meet, nothing read that nothing wrote, results written whole, a
claimed range of integers, sizes of buffers, operands of an instruction."""


@record
class Finding:
    """An obligation that does not hold, or that was not decided.

    `kind` is one of `KINDS`; `statement` the first line of the statement, `buffer` what it touches, `about` what was asked, as text. With
    `refuted` there is a counterexample: `at` are sizes and indices, in order; else the steps that one question may take were too few, or
    what decides is beyond integer sets.
    """

    kind: str
    statement: str
    buffer: str
    about: str
    refuted: bool
    at: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        where = ", ".join(f"{name} = {value}" for name, value in self.at)
        how = "refuted" if self.refuted else "undecided"
        return f"{self.kind}: {self.about}{f' at {where}' if where else ''} ({how})\n    {self.statement}"


@record
class Verdict:
    """What `prove` found of a nest: `findings` in order of the statements, and `decided`: how many obligations were decided, and how."""

    findings: tuple[Finding, ...]
    decided: tuple[tuple[str, int], ...]

    @property
    def is_clean(self) -> bool:
        """Whether every obligation was proved."""
        return not self.findings

    @property
    def refuted(self) -> tuple[Finding, ...]:
        """The findings with a counterexample."""
        return tuple(f for f in self.findings if f.refuted)

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {how}" for how, n in self.decided)
        return "\n".join([*map(str, self.findings), f"decided: {counts or 'nothing'}"])
