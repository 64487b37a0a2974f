"""Breaking long text: documents of text, optional line breaks and groups, laid out within a width.

A document is a string, a tuple of documents, or one of `Line` (a space, or a line break when its group does not fit),
`Indent` and `Group`. `render` keeps each group on one line where it fits and otherwise breaks all its lines (Oppen's and
Wadler's scheme). Used for programs and loop nests alike, whose text stays inside brackets wherever it may break.
"""

from __future__ import annotations

from tensorexpr.records import record

INDENT = 4


@record
class Line:
    """A place to break: `flat` is its text while the group stays on one line."""

    flat: str = " "


@record
class Indent:
    """Breaks inside go four columns deeper."""

    body: Doc


@record
class Group:
    """On one line if it fits, else every `Line` directly inside breaks."""

    body: Doc


Doc = str | tuple["Doc", ...] | Line | Indent | Group

SPACE, SOFT = Line(" "), Line("")


def flat(doc: Doc) -> str:
    """The document on one line."""
    parts: list[str] = []
    stack = [doc]
    while stack:
        match stack.pop():
            case str() as text:
                parts.append(text)
            case tuple() as items:
                stack.extend(reversed(items))
            case Line(text):
                parts.append(text)
            case Indent(body) | Group(body):
                stack.append(body)
    return "".join(parts)


def render(doc: Doc, width: int, indent: int = 0) -> str:
    """The document in lines of at most `width` columns where its breaks allow it; lines after the first start at `indent`. Time is linear:
    what a group takes on one line is counted once, from the inside out."""
    parts: list[str] = []
    column = indent
    columns = _columns(doc)
    stack: list[tuple[int, bool, Doc]] = [(indent, False, doc)]
    while stack:
        depth, broken, item = stack.pop()
        match item:
            case str():
                parts.append(item)
                column += len(item)
            case tuple():
                stack.extend((depth, broken, part) for part in reversed(item))
            case Line(text):
                parts.append("\n" + " " * depth if broken else text)
                column = depth if broken else column + len(text)
            case Indent(body):
                stack.append((depth + INDENT, broken, body))
            case Group(body):
                stack.append((depth, not _fits(width - column - columns[id(item)], stack), body))
    return "".join(parts)


def _columns(doc: Doc) -> dict[int, int]:
    """How many columns each part of a document takes on one line, by identity, but for text and breaks."""
    order: list[tuple[Doc, ...] | Indent | Group] = []
    stack = [doc]
    while stack:  # parts behind what they are part of
        item = stack.pop()
        match item:
            case tuple():
                stack.extend(item)
                order.append(item)
            case Indent(body) | Group(body):
                stack.append(body)
                order.append(item)
    found: dict[int, int] = {}

    def taken(item: Doc) -> int:
        return len(item) if isinstance(item, str) else len(item.flat) if isinstance(item, Line) else found[id(item)]

    for item in reversed(order):
        found[id(item)] = sum(map(taken, item)) if isinstance(item, tuple) else taken(item.body)
    return found


def _fits(room: int, rest: list[tuple[int, bool, Doc]]) -> bool:
    """Whether what follows a group, up to the next certain break, takes at most `room` columns."""
    todo: list[tuple[bool, Doc]] = []
    following = len(rest)
    while room >= 0:
        if not todo:
            if not following:
                return True
            following -= 1
            todo.append(rest[following][1:])
        broken, item = todo.pop()
        match item:
            case str():
                room -= len(item)
            case tuple():
                todo.extend((broken, part) for part in reversed(item))
            case Line(text):
                if broken:
                    return True
                room -= len(text)
            case Indent(inner) | Group(inner):
                todo.append((broken, inner))
    return False


def bracketed(opening: str, items: list[Doc], closing: str, separator: str = ",") -> Doc:
    """Items between brackets, one per line where they do not fit on one."""
    if not items:
        return opening + closing
    parts: list[Doc] = [SOFT]
    for position, item in enumerate(items):
        if position:
            parts += [separator, SPACE]
        parts.append(item)
    return Group((opening, Indent(tuple(parts)), SOFT, closing))
