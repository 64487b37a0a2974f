"""Documents are held to plain English: the field's terms, short sentences, a glossary in order, a README that is a product page."""

from __future__ import annotations

import re

import pytest

from tests.docs.prose import COINAGES, LONGEST, MEAN, PAGES, ROOT, prose, sentences, words

IDS = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_documents_use_the_terms_of_the_field(page):
    text = " ".join(prose(page.read_text()).split())
    found = {match[0]: instead for coinage, instead in COINAGES.items() for match in re.finditer(coinage, text, re.IGNORECASE)}
    assert not found, f"say instead: {found}"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_sentences_are_short(page):
    found = sentences(page.read_text())
    long = [sentence for sentence in found if words(sentence) > LONGEST]
    assert not long, "\n".join(long)
    assert not found or sum(map(words, found)) / len(found) <= MEAN


def test_the_glossary_is_in_order_and_explains_each_term_once():
    terms = re.findall(r"^\| \*\*(.+?)\*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(terms) > 40 and terms == sorted(set(terms), key=str.lower)


def test_the_readme_is_a_screen_and_a_half():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 75 and sum(map(words, sentences(text))) < 350


def test_coinages_are_found_and_code_is_left_alone():
    text = "What hangs on `dear` data.\n\n```python\nx = dear\n```\n\n| dear |\n|---|\n"
    assert sentences(text) == ["What hangs on code data."]
    assert [coinage for coinage in COINAGES if re.search(coinage, prose(text))] == [r"\b(hang|hangs|hanging|hung) on\b"]
