"""Einstein's sums; the reference contracts all operands at once."""

from tensorexpr import kernels
from tests.kernels.case import Case


def row(equation: str, *shapes: tuple[int, ...]) -> Case:
    return Case(f"einsum {equation}", kernels.einsum, (shapes,), f"lambda *x: torch.einsum({equation!r}, *x)", None, {"equation": equation})


CASES = [
    row("ij,jk->ik", (3, 4), (4, 2)),
    row("ij,jk", (3, 4), (4, 2)),
    row("ba", (3, 4)),
    row("ii", (4, 4)),
    row("ii->i", (4, 4)),
    row("ijji->j", (3, 4, 4, 3)),
    row("ij->", (3, 4)),
    row("i,j", (3,), (4,)),
    row("i,i,i->i", (3,), (3,), (3,)),
    row("ij,kl->jk", (3, 4), (2, 5)),
    row("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    row("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    row("...ij,...jk", (2, 3, 4), (4, 2)),
    row("i...->...", (3, 2, 2)),
    row("i...->i", (3, 2, 2)),
    row("b...i,bi->...b", (2, 3, 4), (2, 4)),
    row(" i j , j k -> k i ", (3, 4), (4, 2)),
    row("ij,jk->ki", (3, 1), (4, 2)),
    row("ij,jk,kl,lm->im", (3, 4), (4, 2), (2, 5), (5, 3)),
    row("abc,ad,be,cf->def", (2, 3, 2), (2, 2), (3, 2), (2, 3)),
    row("iij,jkk,l->ik", (3, 3, 2), (2, 4, 4), (5,)),
    row(",ij,->ji", (), (2, 3), ()),
    row("bn,anm,bm->ba", (2, 3), (4, 3, 5), (2, 5)),
]
