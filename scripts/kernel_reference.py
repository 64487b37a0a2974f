"""Writes docs/kernels.md, the kernel library from its docstrings: `python scripts/kernel_reference.py`. A test compares."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

from tensorexpr import kernels

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "kernels.md"
HEAD = """# Kernels

`from tensorexpr import kernels`: operations in index notation, each a definition of a few lines in `kernels/`, compiled and
differentiated like any operation of your own. Called on arrays they run, called on tensors they compose; `te.vjp`, `te.jvp` and `te.grad`
take them at every order. Names, argument order and conventions are PyTorch's where PyTorch has the operation (with `axis` for `dim`,
and options by keyword); names that NumPy or JAX have beside it mean the same kernels (`clip`, `expand_dims`, `power`). Each has its
formula, shapes, errors and source here, and an example (`np` is NumPy).

```python
>>> import numpy as np, tensorexpr as te
>>> from tensorexpr import kernels
>>> x, w = np.ones((1, 2, 8, 8)), np.ones((3, 2, 3, 3))
>>> kernels.conv2d(x, w, stride=2, padding=1).shape
(1, 3, 4, 4)
>>> x_bar, w_bar = te.vjp(kernels.conv2d)(x, w, None, np.ones((1, 3, 4, 4)), stride=2, padding=1)   # None: no bias
>>> x_bar.shape, w_bar.shape
((1, 2, 8, 8), (3, 2, 3, 3))

```
"""


def module_of(name: str) -> str:
    """The file of `kernels/` that a kernel is imported from."""
    value = getattr(kernels, name)
    return inspect.unwrap(getattr(value, "function", value)).__module__


def signature(name: str) -> str:
    """A kernel as a user writes it, without annotations."""
    found = inspect.signature(getattr(kernels, name))
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    return f"{name}{found.replace(parameters=plain, return_annotation=inspect.Signature.empty)}"


def shown(text: str) -> str:
    """A docstring as Markdown: examples are blocks, which look as they do in an interpreter (tests/kernels/test_examples.py runs them)."""
    return re.sub(r"(^>>> .*(?:\n(?!\n).*)*)", lambda match: f"```pycon\n{match[0]}\n```", text, flags=re.MULTILINE)


def entry(name: str) -> str:
    """A kernel: its name, the call, and its docstring."""
    others = ", ".join(f"`{other}`" for other, own in sorted(kernels.OTHER_NAMES.items()) if own == name)
    also = f" Also {others}." if others else ""
    return f"### {name}\n\n`{signature(name)}`{also}\n\n{shown(inspect.getdoc(getattr(kernels, name)) or '')}\n"


def page() -> str:
    """The whole page: a section per file, headed by the first paragraph of the file's docstring."""
    files: dict[str, list[str]] = {}
    for name in kernels.__all__:
        files.setdefault(module_of(name), []).append(name)
    parts = [HEAD]
    for module in sorted(files):
        room, title = module.split(".")[-2:]
        about = " ".join((inspect.getdoc(importlib.import_module(module)) or "").split("\n\n")[0].split())
        parts.append(f"## {room.capitalize()}: {title}\n\n{about}\n\n" + "\n".join(map(entry, sorted(files[module]))))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
