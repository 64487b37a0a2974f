"""Tests of this folder where there is a GPU: see `isolation`."""

from tests.codegen.cuda.isolation import pytest_runtest_makereport, pytest_runtest_protocol

__all__ = ["pytest_runtest_makereport", "pytest_runtest_protocol"]
