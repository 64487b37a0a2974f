"""Every message that a user can read is quoted by a test: its literal pieces occur, in order, in one string of the tests."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tensorexpr import errors

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("tensorexpr", "tensorexpr_runtime", "autodiff", "codegen", "kernels", "graph", "interop")
FILES = sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
CLASSES = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.TensorExprError)}
BUILDERS = re.compile(r"(_|\w+_)?error|refuse|fail")
"""Functions that make errors; their first text that is a sentence is the message, what follows is the hint."""
EXPECTED = re.compile(r"(?<!\S)expected ")


def pieces(node: ast.AST) -> list[str]:
    """The literal parts of a string or an f-string; nothing for anything else."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def texts(tree: ast.AST) -> list[ast.AST]:
    """The whole strings and f-strings below a node."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Constant)]
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    return [node for node in nodes if pieces(node) and id(node) not in inner]


def messages(file: Path) -> list[tuple[int, list[str]]]:
    """The messages of a source file that are for users, and those of the verifier: their lines and literal parts."""
    tree = ast.parse(file.read_text())
    aside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = {id(node): node for node in texts(tree) if EXPECTED.search("".join(pieces(node)))}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name in CLASSES or BUILDERS.fullmatch(name):
            sentences = [node for argument in call.args for node in texts(argument) if " " in "".join(pieces(node))]
            found |= {id(node): node for node in sentences[:1]}
            aside |= {id(node) for node in sentences} if name == "InternalError" else set()
    return [(node.lineno, pieces(node)) for node in found.values() if id(node) not in aside]


@cache
def quoted() -> str:
    strings = {"\0".join(pieces(node)) for file in (ROOT / "tests").rglob("*.py") for node in texts(ast.parse(file.read_text()))}
    return "\n".join([*sorted(strings | {re.sub(r"\\(\W)", r"\1", text) for text in strings}), ""])


def is_quoted(parts: list[str]) -> bool:
    """Whether some line of the strings of the tests has the parts in order; sought in the lines that have the longest of them."""
    parts = [parts[0].removeprefix(": "), *parts[1:]]  # what begins with a colon stands behind a name
    pattern, longest, strings = re.compile(".+?".join(map(re.escape, parts))), max(parts, key=len), quoted()
    if any("\n" in part for part in parts):
        return pattern.search(strings) is not None
    at = strings.find(longest)
    while at >= 0:
        end = strings.find("\n", at + len(longest))
        if pattern.search(strings[strings.rfind("\n", 0, at) + 1 : end]):
            return True
        at = strings.find(longest, end)
    return False


def test_each_message_is_quoted_by_a_test():
    found = [(file, line, parts) for file in FILES for line, parts in messages(file) if not is_quoted(parts)]
    missing = [f"{file.relative_to(ROOT)}:{line}: {'...'.join(parts)}" for file, line, parts in found]
    assert not missing, "expected a test that quotes each message, got none for these"
