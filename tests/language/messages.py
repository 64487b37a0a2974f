"""What an error says, for tests that quote it."""

import pytest

from tensorexpr.errors import DefinitionError


def refused(use):
    """The text of the `DefinitionError` that `use()` raises."""
    with pytest.raises(DefinitionError) as caught:
        use()
    return str(caught.value)
