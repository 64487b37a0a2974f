"""The prelude taken apart without a compiler: its text as a machine sees it, its functions, and the inline PTX and calls in each.

`expanded` is a small preprocessor for what the prelude has: conditions on TE_HOST and __CUDA_ARCH__, macros with and without arguments.
`functions` finds definitions at the outermost level; `statements` the inline assembly of one, with the condition that it stands under.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensorexpr.records import cached_property

_TOKEN = re.compile(r'"[^"]*"|\d[\w.]*|\w+|##|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|->|[-+*/|&^]=|\S')
Macros = dict[str, tuple[tuple[str, ...] | None, list[str]]]


def tokens_of(text: str) -> list[str]:
    """Words, numbers, strings and operators."""
    return _TOKEN.findall(text)


def text_of(tokens: Sequence[str]) -> str:
    """Tokens as text in one form, with a blank where words meet and nowhere else."""
    return re.sub(r"(?<!\w) | (?!\w)", "", " ".join(tokens))


def expanded(text: str, arch: int = 0) -> list[str]:
    """The tokens of a text for a machine such as 80, or (0) for the host, all macros replaced."""
    names = {"__CUDA_ARCH__": str(10 * arch)} if arch else {"TE_HOST": "1"}
    macros: Macros = {}
    made: list[str] = []
    alive: list[bool] = []
    for line in re.sub(r"//[^\n]*", "", text).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word in ("#ifdef", "#ifndef"):
            alive.append((rest.strip() in names) == (word == "#ifdef"))
        elif word == "#if":
            alive.append(_holds(rest, names))
        elif word == "#else":
            alive[-1] = not alive[-1]
        elif word == "#endif":
            alive.pop()
        elif all(alive) and word == "#define":
            _define(rest, macros)
        elif all(alive) and not word.startswith("#"):
            made += _replaced(tokens_of(line), macros)
    return made


def _holds(condition: str, names: dict[str, str]) -> bool:
    """A conjunction of `defined(X)`, `!defined(X)` and `X >= n`."""

    def term(text: str) -> bool:
        if found := re.fullmatch(r"(!?)defined\((\w+)\)", text):
            return (found[2] in names) != bool(found[1])
        name, least = text.split(" >= ")
        return int(names.get(name, "0")) >= int(least)

    return all(term(part.strip()) for part in condition.split("&&"))


def _define(rest: str, macros: Macros) -> None:
    found = re.match(r"(\w+)(?:\(([^)]*)\))?", rest)
    assert found is not None
    parameters = None if found[2] is None else tuple(p.strip() for p in found[2].split(","))
    macros[found[1]] = parameters, tokens_of(rest[found.end() :])


def _replaced(tokens: list[str], macros: Macros) -> Iterator[str]:
    k = 0
    while k < len(tokens):
        word = tokens[k]
        parameters, body = macros.get(word, (None, None))
        k += 1
        if body is None or (parameters is not None and (k == len(tokens) or tokens[k] != "(")):
            yield word
            continue
        if parameters is not None:
            stop = closing(tokens, k)
            given = dict(zip(parameters, split(tokens[k + 1 : stop], ","), strict=True))
            body = [t for b in body for t in given.get(b, [b])]
            k = stop + 1
        while "##" in body:
            at = body.index("##")
            body[at - 1 : at + 2] = [body[at - 1] + body[at + 1]]
        yield from _replaced(body, macros)


_PAIRS = {"(": ")", "{": "}", "[": "]"}


def closing(tokens: Sequence[str], at: int) -> int:
    """Where the bracket at a position is closed."""
    depth = 0
    for k in range(at, len(tokens)):
        depth += (tokens[k] in _PAIRS) - (tokens[k] in _PAIRS.values())
        if not depth:
            return k
    raise AssertionError(f"{tokens[at]} is not closed: {text_of(tokens[at : at + 20])}")


def split(tokens: Sequence[str], separator: str) -> list[list[str]]:
    """Parts between separators that stand outside of brackets; nothing of nothing."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in _PAIRS) - (token in _PAIRS.values())
        if token == separator and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


@dataclass(frozen=True)
class Function:
    """A function: its name, that of a specialisation with its arguments; parameters and body."""

    name: str
    parameters: tuple[str, ...]
    body: tuple[str, ...]

    @property
    def key(self) -> str:
        """The name, with the lengths of arrays among its parameters, which tell overloads apart."""
        lengths = [m[1] for p in self.parameters if (m := re.search(r"\[(\w+)\]", p))]
        return f"{self.name}{''.join(f'[{n}]' for n in lengths)}"

    @cached_property
    def types(self) -> dict[str, str]:
        """The C++ type of each parameter and local variable, such as "float", "uint32_t[4]", "pointer"."""
        local = re.findall(r"(?<![^;{}])(?!return)\w+ \w+(?:\[\d+\])?(?=;)", text_of(self.body))
        return dict(_declared(text) for text in (*self.parameters, *local))


def _declared(text: str) -> tuple[str, str]:
    """The name and the type of a parameter or a variable."""
    found = re.match(r"(?:const )?(\w+)(?:(\*| |&)(\w+)(\[\d+\])?|\(&(\w+)\)(\[\w+\]))", text)
    assert found is not None, text
    base, mark, name, length, array, extent = found.groups()
    return name or array, "pointer" if mark == "*" else base + (length or extent or "")


def functions(tokens: list[str]) -> list[Function]:
    """The definitions of functions in a text without macros."""
    found, start, k = [], 0, 0
    while k < len(tokens):
        if tokens[k] == ";":
            start = k + 1
        elif tokens[k] == "(":
            k = closing(tokens, k)
        elif tokens[k] == "{":
            head, stop = tokens[start:k], closing(tokens, k)
            if "struct" not in head:
                found.append(_function(head, tokens[k + 1 : stop]))
            k, start = stop, stop + 1
        k += 1
    return found


def _function(head: list[str], body: list[str]) -> Function:
    opening = next(k for k in range(len(head)) if head[k] == "(" and closing(head, k) == len(head) - 1)
    name = head[opening - 1]
    if name == ">":
        name = text_of(head[max(k for k in range(opening) if head[k] == "<") - 1 : opening])
    return Function(name, tuple(map(text_of, split(head[opening + 1 : -1], ","))), tuple(body))


@dataclass(frozen=True)
class Asm:
    """A statement of inline PTX: its template; outputs and inputs as constraint and C++ expression; clobbers; the condition around it."""

    template: str
    outputs: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[str, str], ...]
    clobbers: tuple[str, ...]
    volatile: bool
    when: str

    @property
    def opcode(self) -> str:
        """The name of the instruction."""
        return re.split(r"[ ;]", self.template)[0]

    @property
    def operands(self) -> list[str]:
        """Operands as they are written: `%0`, `[%1]`, `{%2, %3}` or a number."""
        tokens = re.findall(r"%\d+|\w+|\S", self.template.removeprefix(self.opcode).strip().removesuffix(";"))
        return ["".join(part) for part in split(tokens, ",")]


def _strings(tokens: Sequence[str]) -> str:
    return "".join(t[1:-1] for t in tokens if t.startswith('"'))


def statements(function: Function) -> list[Asm]:
    """The inline PTX of a function, in order."""
    return [asm_at(function.body, k)[0] for k, word in enumerate(function.body) if word == "asm"]


def asm_at(body: Sequence[str], at: int) -> tuple[Asm, int]:
    """The statement of inline PTX that begins with a token, and where it ends."""
    volatile = body[at + 1] == "volatile"
    opening = at + 1 + volatile
    stop = closing(body, opening)
    template, *parts = split(body[opening + 1 : stop], ":")
    outputs, inputs, clobbers = [split(part, ",") for part in (*parts, [], [], [])[:3]]
    bound = [tuple((_strings(x[:1]), text_of(x[2:-1])) for x in side) for side in (outputs, inputs)]
    clobbered = tuple(_strings(x) for x in clobbers)
    return Asm(_strings(template), bound[0], bound[1], clobbered, volatile, condition_of(body, at)), stop + 1


def condition_of(body: Sequence[str], at: int) -> str:
    """The condition of the `if` or `else` that a statement stands behind, or ""."""
    if not at or body[at - 1] not in (")", "else"):
        return ""
    negated = body[at - 1] == "else"
    start = max((k for k in range(at) if body[k] == "if"), default=-1)
    if start < 0:
        return ""
    text = text_of(body[start + 2 : closing(body, start + 1)])
    return f"!({text})" if negated else text


def calls(function: Function, words: set[str]) -> list[tuple[str, tuple[str, ...]]]:
    """The calls of some functions in a body, with their arguments as text."""
    body = function.body
    return [
        (word, tuple(map(text_of, split(body[k + 2 : closing(body, k + 1)], ","))))
        for k, word in enumerate(body[:-1])
        if word in words and body[k + 1] == "("
    ]
