r"""Names in LaTeX: `x_bar` is $\bar{x}$, `alpha` a Greek letter, `dy` one word, `t12` and `W_out` a letter with a mark.

The subscript of a tensor holds its indices, so what a name has behind its first letter goes on top: $t^{(12)}$,
$W^{\mathrm{out}}$. The subscript of an index or size is free: $k_{1}$.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache

GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi", "pi", "rho",
    "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon",
    "Phi", "Psi", "Omega",
)  # fmt: skip
_ACCENTS = {"bar": r"\bar", "dot": r"\dot", "hat": r"\hat", "tilde": r"\tilde"}
_WIDE = {"bar": r"\overline", "hat": r"\widehat", "tilde": r"\widetilde"}
_ESCAPED = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


@cache
def symbol(name: str, index: bool = False) -> str:
    r"""The symbol for a name: of a tensor, or of an `index` or size, which has no subscript of its own.

    >>> symbol("x_bar"), symbol("W_out"), symbol("head"), symbol("k_1", index=True), symbol("s6_bar")
    ('\\bar{x}', 'W^{\\mathrm{out}}', '\\mathrm{head}', 'k_{1}', '\\overline{s^{(6)}}')
    """
    parts = [part for part in name.split("_") if part]
    if not parts:
        return _upright(name)
    stem = re.sub(r"\d*$", "", parts[0])
    digits = parts[0][len(stem) :]
    base, marks = _letter(stem or parts[0], index), [digits] if stem and digits else []
    words = [stem or parts[0]]
    for part in parts[1:]:
        if part in _ACCENTS:
            single = len(words) == 1 and (len(words[0]) == 1 or words[0] in GREEK) and not marks
            base, marks = _marked(base, marks, index), []
            base = f"{_ACCENTS[part] if single or part not in _WIDE else _WIDE[part]}{{{base}}}"
        elif len(stem) > 1 and stem not in GREEK and not part.isdigit() and base.startswith((r"\mathrm", r"\mathit")) and not marks:
            words.append(part)
            base = _letter("_".join(words), index)
        else:
            marks.append(part)
    return _marked(base, marks, index)


def _marked(base: str, marks: Sequence[str], index: bool) -> str:
    if not marks:
        return base
    if index:
        return f"{base}_{{{','.join(mark if mark.isdigit() else _letter(mark, True) for mark in marks)}}}"
    return f"{base}^{{{','.join(f'({mark})' if mark.isdigit() else _upright(mark) for mark in marks)}}}"


def letters(count: int, taken: Collection[str]) -> list[str]:
    """Names for indices that no program has given: i, j, k, ..."""
    free = [name for name in "ijklmnpqruvw" if name not in taken]
    return free[:count] if count <= len(free) else [f"i_{number}" for number in range(count)]


def _letter(name: str, index: bool) -> str:
    if name in GREEK:
        return f"\\{name}"
    if len(name) == 1 and name.isascii() and name.isalnum():
        return name
    return rf"\mathit{{{escaped(name)}}}" if index else _upright(name)


def _upright(name: str) -> str:
    return rf"\mathrm{{{escaped(name)}}}"


def escaped(text: str) -> str:
    """Text in which no character is a command of LaTeX."""
    return "".join(_ESCAPED.get(c) or (f"\\{c}" if c in "_#$%&{}" else c) for c in text)
