"""The case table: a file per file of kernels/, each with a list `CASES`; `ALL` is all of them, in the order of the files' names."""

from importlib import import_module
from pathlib import Path

from tests.kernels.case import Case

ALL: list[Case] = [
    case for file in sorted(Path(__file__).parent.glob("[a-z]*.py")) for case in import_module(f"tests.kernels.table.{file.stem}").CASES
]
