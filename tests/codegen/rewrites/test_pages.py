"""The page of each rewrite says what it does by a nest before and after, which are what comes out."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen import rewrites

PAGES = [m.name for m in pkgutil.walk_packages(rewrites.__path__, f"{rewrites.__name__}.") if not m.ispkg]


@pytest.mark.parametrize("page", PAGES)
def test_examples_are_what_comes_out(page):
    assert doctest.testmod(importlib.import_module(page), extraglobs={"np": np, "te": te}).failed == 0
