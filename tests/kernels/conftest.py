"""The laws of a row of the case table run one after the other: what several of them need is made once."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of `test_laws` by row, where they stand; all others stay where they are."""
    places = [k for k, item in enumerate(items) if item.path.name == "test_laws.py" and item.path.parent.name == "kernels"]
    rows: dict[str, list[pytest.Item]] = {}
    for k in places:
        callspec = getattr(items[k], "callspec", None)
        rows.setdefault("" if callspec is None else callspec.id, []).append(items[k])
    for k, item in zip(places, (item for row in rows.values() for item in row), strict=True):
        items[k] = item
