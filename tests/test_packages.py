"""What is installed: the rooms (`test_layering` compares their list), and with them the files that are not Python."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
PLACES = SETUP["package-dir"]


def place(package: str) -> Path:
    """The folder of a package."""
    root = max((name for name in PLACES if package == name or package.startswith(f"{name}.")), key=len)
    return ROOT / PLACES[root] / package.removeprefix(root).removeprefix(".").replace(".", "/")


def test_a_folder_with_modules_is_a_package():
    for folder in PLACES.values():
        for file in set((ROOT / folder).rglob("*.py")) - set((ROOT / "examples" / "c").iterdir()):
            assert (file.parent / "__init__.py").exists(), f"expected an __init__.py beside {file.relative_to(ROOT)}"


def test_files_that_are_not_python_are_in_the_list_of_data():
    data = {path for package, patterns in SETUP["package-data"].items() for pattern in patterns for path in place(package).glob(pattern)}
    for folder in set(PLACES.values()) - {"benchmarks"}:
        for file in sorted((ROOT / folder).rglob("*.*")):
            if file.suffix not in (".py", ".pyc", ".md") and file.is_file() and file.parent != ROOT / "examples" / "c":
                assert file in data, f"expected {file.relative_to(ROOT)} among the package data of pyproject.toml"
