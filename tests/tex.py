"""What LaTeX reads: a check of formulas without LaTeX, shared by the tests that print some."""

from __future__ import annotations

import re

from tensorexpr.latex.names import GREEK

PAIRS = {"{": "}", r"\left": r"\right", r"\begin": r"\end"} | {rf"\l{kind}": rf"\r{kind}" for kind in ("floor", "ceil", "vert")}
KNOWN = re.findall(
    r"\S+",
    r"""\sum \prod \max \min \operatorname \bigoplus \bigwedge \bigvee \mathop
    \nolimits \limits \oplus \substack \frac \sqrt \exp \log \sin \cos \tan \sinh \cosh \tanh \arcsin \arccos \arctan \sigma \bar \dot
    \hat \tilde \overline \widehat \widetilde \mathrm \mathit \mathbf \mathbb \mathrel \mathbin \text \quad \in \times \cdot \bmod \le
    \ge \ne \land \lor \lnot \ll \gg \infty \leftarrow \sim""",
)
KNOWN += [f"\\{name}" for name in GREEK]


def reads_as_latex(text: str) -> None:
    """Braces and delimiters close in order, each row has one place to align at, and every command is one that we mean to use."""
    expected: list[str] = []
    places = 0
    for token in re.findall(r"\\(?:left|right)(?=\W)|(?<!\\left)(?<!\\right)\\[a-zA-Z]+|\\.|[{}&]", text, re.DOTALL):
        if token in PAIRS:
            expected.append(PAIRS[token])
        elif token in PAIRS.values():
            assert expected and expected.pop() == token, f"expected {token} to close what stands open in {text}"
        elif len(expected) == 1 and token in ("&", "\\\\"):  # in `aligned`, not in cases or below a sum
            assert places == (0 if token == "&" else 1), text
            places = 1 if token == "&" else 0
        elif len(token) > 2:
            assert token in KNOWN, token
    assert not expected and places == 1, text
