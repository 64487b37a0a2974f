"""What the documents print, produced: blocks between ``<!-- begin NAME -->`` and ``<!-- end -->`` are this file's output.

`python docs/generate.py` rewrites the blocks of README.md, ARCHITECTURE.md, docs/interop.md and docs/performance.md, and the
pictures of docs/guides/ and of docs/performance.md; a test compares them. The machine of the walk-through is fixed (two cores,
256-bit vectors), so the text is the same wherever it is made.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path

import tensorexpr as te
from tensorexpr.autodiff import Gradient
from tensorexpr.benchmarks import readme
from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.cuda.emitter.nest import emit as emit_cuda
from tensorexpr.codegen.llvm import Machine, emit
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.target import H200, Target
from tensorexpr.simplify import simplify

ROOT = Path(__file__).resolve().parent.parent
FILES = ("README.md", "ARCHITECTURE.md")
GENERATED = (*FILES, "docs/interop.md", "docs/performance.md")
_BLOCK = re.compile(r"(?P<begin><!-- begin (?P<name>[a-z-]+) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.DOTALL)


@te.op
def conv1d(x, w):
    (n, c, l), (k, _, r) = x.shape, w.shape
    return te.compute(
        (n, k, (l - r) // 2 + 1),
        lambda n, k, o: te.sum(lambda c, i: x[n, c, 2 * o + i] * w[k, c, i], (c, r)),
    )


X = te.placeholder((4, 8, 32), name="x")
W = te.placeholder((8, 8, 3), name="w")
Y_BAR = te.placeholder((4, 8, 15), name="y_bar")


@functools.cache
def gradient() -> Gradient:
    """The gradient of the walk-through: of a convolution of stride 2, by its input."""
    return te.gradient(conv1d(X, W), [X], Y_BAR)


@functools.cache
def schedule() -> Planned:
    """The default schedule of the gradient on the fixed machine."""
    return autoschedule(simplify(te.program_of(list(gradient()), [W, Y_BAR])), Target("cpu", 256, 16, 2))


def llvm_excerpt() -> str:
    """The instructions of the gradient's innermost loop, up to the first sum."""
    machine = Machine("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256)
    lines = emit(lowered(schedule()), machine).splitlines()
    first = next(i for i, line in enumerate(lines) if re.match(r"k\.loop\d+:", line))
    last = next(i for i in range(first, len(lines)) if "@llvm.fma" in lines[i])
    return "\n".join(lines[first : last + 1])


def readme_gradient() -> str:
    """The printed gradient of the README's example."""
    x, w = te.placeholder((8, 3, 32), name="x"), te.placeholder((16, 3, 5), name="w")
    return str(te.vjp(conv1d).trace(x, w, te.placeholder((8, 16, 14), name="y_bar")))


@functools.cache
def blurs() -> dict[str, te.Schedule]:
    """The schedules of docs/guides/schedules.md by the name of their picture."""
    x = te.placeholder((66, 130), name="x")
    rows = te.compute((66, 128), lambda i, j: x[i, j] + x[i, j + 1] + x[i, j + 2], name="rows")
    blur = te.compute((64, 128), lambda i, j: (rows[i, j] + rows[i + 1, j] + rows[i + 2, j]) / 9, name="blur")
    fused = te.schedule(blur)
    outer, _ = fused["blur"].split("i", 16)
    fused["blur"].vectorize("j")
    fused["rows"].compute_at("blur", outer)
    fused["rows"].vectorize("j")
    fused["blur"].parallel(outer)
    return {"blur-plain": te.schedule(blur), "blur-fused": fused}


def svg(schedule: te.Schedule) -> str:
    """The picture of a schedule's nest as a file of its own: dark on white, in any theme."""
    found = re.search(r"<svg.*?</svg>", schedule.nest._repr_html_(), re.DOTALL)
    assert found is not None
    return found[0].replace("<svg ", '<svg style="color: #222; background: #fff" ', 1) + "\n"


def cuda() -> str:
    """The same gradient as a kernel of a GPU."""
    program = simplify(te.program_of(list(gradient()), [W, Y_BAR]))
    return emit_cuda(lowered(autoschedule(program, H200))).text


BLOCKS: dict[str, Callable[[], str]] = {
    "readme-gradient": readme_gradient,
    "program": lambda: str(conv1d.trace(X, W)),
    "report": lambda: str(gradient().report()),
    "gradient": lambda: str(schedule().program),
    "schedule": lambda: schedule().as_python(),
    "nest": lambda: str(lowered(schedule())),
    "llvm": llvm_excerpt,
    "cuda": cuda,
}
PROSE: dict[str, Callable[[], str]] = {
    "figures": readme.figures,
    "benchmarks": readme.text,
    "products": readme.odd_products,
    "training": readme.training,
    "interop": readme.interop,
}
"""Blocks that are text, not code."""
LANGUAGES = {"report": "text", "llvm": "llvm", "cuda": "cuda"}


def regenerated(text: str) -> str:
    """The document with every block made anew."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name in PROSE:
            return f"{match['begin']}{PROSE[name]()}\n{match['end']}"
        return f"{match['begin']}```{LANGUAGES.get(name, 'python')}\n{BLOCKS[name]().strip()}\n```\n{match['end']}"

    return _BLOCK.sub(block, text)


def pictures() -> dict[Path, str]:
    """The pictures of the documents: their files and texts."""
    nests = {ROOT / "docs" / "guides" / "pictures" / f"{name}.svg": svg(schedule) for name, schedule in blurs().items()}
    return nests | {ROOT / "docs" / "pictures" / f"{name}.svg": picture for name, picture in readme.plots().items()}


def main() -> int:
    """Rewrites blocks and pictures; prints the files that changed."""
    for path, picture in pictures().items():
        if not path.exists() or path.read_text() != picture:
            path.write_text(picture)
            print(f"updated {path.name}")
    for name in GENERATED:
        path = ROOT / name
        before = path.read_text()
        after = regenerated(before)
        if after != before:
            path.write_text(after)
            print(f"updated {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
