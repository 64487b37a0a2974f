"""What an error says: its class, that it names the user's line, and its lines, for tests that quote them."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tensorexpr.errors import TensorExprError


def said(kind: type[TensorExprError], use: Callable[[], object]) -> list[str]:
    """The lines of the error of exactly this class that `use` raises at a line of the file that calls this."""
    with pytest.raises(kind) as caught:
        use()
    assert type(caught.value) is kind
    assert caught.value.location is not None and caught.value.location.file == sys._getframe(1).f_code.co_filename
    return str(caught.value).splitlines()
