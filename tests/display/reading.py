"""What a notebook reads: a check of HTML without a browser, shared by the tests that show some."""

from __future__ import annotations

from html.parser import HTMLParser

LONGEST = 60_000
"""Characters that any object shows at most."""
TAGS = {"div", "p", "code", "pre", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "svg", "text", "rect"}


class Reader(HTMLParser):
    """Reads HTML whose tags close in order, and collects its text, row by row of its tables."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        assert all(not name.startswith("on") and name not in ("href", "src", "class") for name, _ in attrs), attrs
        assert all(value in ("currentColor", "") or not name.endswith(("fill", "stroke")) for name, value in attrs), attrs
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


def read_html(text: str) -> Reader:
    """The text of an object in a notebook: balanced, of the tags that we mean to use, without colours, and not too long."""
    assert len(text) < LONGEST, len(text)
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open, reader.open
    return reader
