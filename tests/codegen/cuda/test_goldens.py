"""The CUDA text of a handful of programs, byte for byte; `make docs` writes them anew."""

import pytest

from tests.docs.test_language_reference import script

GOLDENS = script("cuda_goldens")


@pytest.mark.parametrize("make", GOLDENS.GOLDENS, ids=lambda make: make.__name__)
def test_the_text_is_what_was_kept(make):
    kept = (GOLDENS.FOLDER / f"{make.__name__}.cu").read_text()
    assert GOLDENS.golden(make) == kept, f"{make.__name__}: if it is meant to change, make docs"


def test_there_is_no_other_file():
    assert sorted(p.stem for p in GOLDENS.FOLDER.iterdir()) == sorted(m.__name__ for m in GOLDENS.GOLDENS)
