"""What the site adds to the pages in docs/ (a hook of mkdocs): the documents of the repository, and the files that pages link to.

The pages link as they do in the repository, to files beside docs/ too. On the site ARCHITECTURE.md, CONTRIBUTING.md and
CHANGELOG.md are pages under project/, a source file is a page that shows it, and results are files to load. Everything else that
leaves docs/ has no place there, and `mkdocs build --strict` refuses a link to it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
LANGUAGES = {".py": "python", ".c": "c", ".sh": "bash"}
_LINK = re.compile(r"(?P<head>\]\()(?P<target>[^)#\s]+)(?P<tail>#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```[^\n]*$)", re.DOTALL | re.MULTILINE)


def place(path: str) -> str | None:
    """Where a file of the repository is on the site: its place in docs/, a page that shows it, or a file to load. None: nowhere."""
    suffix = posixpath.splitext(path)[1]
    if path in DOCUMENTS:
        return DOCUMENTS[path]
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if suffix in LANGUAGES:
        return f"source/{path}.md"
    return f"source/{path}" if suffix == ".json" else None


def origin(page: str) -> str:
    """The file of the repository that a page of the site is made of."""
    return next((name for name, uri in DOCUMENTS.items() if uri == page), f"docs/{page}")


def targets(text: str, source: str) -> Iterator[str]:
    """The files of the repository that the text of a file links to."""
    for part in _FENCE.split(text)[::2]:
        for match in _LINK.finditer(part):
            if "://" not in match["target"]:
                yield posixpath.normpath(posixpath.join(posixpath.dirname(source), match["target"]))


def relinked(text: str, source: str, page: str) -> str:
    """The text with links to files of the repository turned into links to their places on the site."""

    def link(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match["target"]))
        found = None if "://" in match["target"] else place(path)
        if found is None:
            return match[0]
        return f"{match['head']}{posixpath.relpath(found, posixpath.dirname(page) or '.')}{match['tail'] or ''})"

    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Adds the documents of the repository, and a place for every other file that a page links to."""
    pages = {f"docs/{file.src_uri}": Path(config.docs_dir, file.src_uri).read_text() for file in files.documentation_pages()}
    pages |= {name: (ROOT / name).read_text() for name in DOCUMENTS}
    for name, uri in DOCUMENTS.items():
        files.append(File.generated(config, uri, content=pages[name]))
    for path in sorted({path for name, text in pages.items() for path in targets(text, name)}):
        uri, file = place(path), ROOT / path
        if uri is None or not file.is_file() or files.get_file_from_path(uri) is not None:
            continue
        suffix = posixpath.splitext(path)[1]
        if suffix in LANGUAGES:
            shown = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n````{LANGUAGES[suffix]}\n{file.read_text().rstrip()}\n````\n"
            files.append(File.generated(config, uri, content=shown, inclusion=InclusionLevel.NOT_IN_NAV))
        else:
            files.append(File.generated(config, uri, content=file.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links as the site has them; outputs of examples without doctest's sign for a blank line."""
    uri = page.file.src_uri
    return markdown if uri.startswith("source/") else relinked(markdown.replace("<BLANKLINE>\n", "\n"), origin(uri), uri)
