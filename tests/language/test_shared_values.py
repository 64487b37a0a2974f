"""Values with names of their own are printed once: a potential of pairs and its gradient, in text and in LaTeX."""

from __future__ import annotations

import tensorexpr as te


def lennard_jones() -> tuple[te.Tensor, te.Tensor]:
    n = te.dim("n")
    pos = te.placeholder((n, 3), name="pos")
    eps, sigma = te.placeholder((), name="eps"), te.placeholder((), name="sigma")

    def pair(i: te.Scalar, j: te.Scalar) -> te.Scalar:
        r2 = te.let(te.sum(lambda d: (pos[i, d] - pos[j, d]) ** 2, 3), "r2")
        s2 = te.let(sigma[()] ** 2 / r2, "s2")
        s6 = te.let(s2 * s2 * s2, "s6")
        return te.where(i < j, 4 * eps[()] * (s6 * s6 - s6), 0.0)

    return te.compute((), lambda: te.sum(lambda i, j: pair(i, j), (n, n)), name="energy"), pos


def test_a_gradient_of_pairs_has_the_names_of_the_user() -> None:
    energy, pos = lennard_jones()
    text = str(te.gradient(energy, [pos]))
    lines = text.splitlines()
    assert len(lines) <= 22
    assert max(map(len, lines)) <= 120
    for name in ("r2", "s2", "s6", "s6_bar", "r2_bar", "pos_bar"):
        assert sum(line.startswith(f"{name}[") for line in lines) == 1
    assert text.count("(pos[i, d] - pos[j, d]) * (pos[i, d] - pos[j, d])") == 1


def test_the_same_as_formulas() -> None:
    energy, pos = lennard_jones()
    text = te.latex(te.gradient(energy, [pos]))
    assert r"s^{(6)}_{i, j} &= " in text
    assert r"\overline{s^{(6)}}_{i, j} &= " in text
    assert text.count(r"\sum_{d = 0}^{2}") == 1
