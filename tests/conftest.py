"""The whole suite compiles what it tests: no code from disk, and nothing left in the user's folder.

What a file of tests compiled is forgotten at its end: a process that runs thousands of tests would carry gigabytes of programs, and every
collection of garbage would walk through them.
"""

import os
from collections.abc import Iterator

import pytest

from tensorexpr.codegen.memo import forget

os.environ["TENSOREXPR_CACHE_DIR"] = ""


@pytest.fixture(scope="module", autouse=True)
def compiled_code() -> Iterator[None]:
    """Kept in memory for one file."""
    yield
    forget()
