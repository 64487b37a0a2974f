"""What is installed: the rooms (`test_layering` compares their list), and with them the files that are not Python. What is handed on as
sources is the whole checkout, and a wheel that is built of them runs."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

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


def built(kind: str, sources: Path, place: Path) -> Path:
    """What setuptools makes of a folder of sources: an sdist or a wheel."""
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(place)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=sources, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place / done.stdout.split()[-1]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_an_sdist_is_the_whole_checkout_and_the_wheel_that_is_built_of_it_runs(tmp_path):
    pytest.importorskip("setuptools", "77")
    left_out = shutil.ignore_patterns(".git*", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis", "shared")
    checkout = Path(shutil.copytree(ROOT, tmp_path / "checkout", ignore=left_out))
    before = files(checkout)
    with tarfile.open(built("sdist", checkout, tmp_path)) as archive:
        archive.extractall(tmp_path / "sources", filter="data")
    (sources,) = (tmp_path / "sources").iterdir()
    assert before <= files(sources), sorted(before - files(sources))[:9]

    with zipfile.ZipFile(built("wheel", sources, tmp_path)) as wheel:
        wheel.extractall(tmp_path / "installed")
    inside = files(tmp_path / "installed")
    wanted = {
        f"{package.replace('.', '/')}/{path.relative_to(place(package))}"
        for package in SETUP["packages"]
        for pattern in ("*.py", *SETUP["package-data"].get(package, ()))
        for path in place(package).glob(pattern)
    }
    assert {path for path in inside if not path.split("/")[0].endswith(".dist-info")} == wanted

    code = """
import numpy as np, tensorexpr as te, tensorexpr.kernels, sys
assert tensorexpr.__file__.startswith(sys.argv[1]), tensorexpr.__file__
square = te.op(lambda x: te.compute(x.shape, lambda i: x[i] * x[i]))
print(te.vjp(square)(np.arange(3.0), np.ones(3))[0], "sympy" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-c", code, str(tmp_path / "installed")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "[0. 2. 4.] False\n", done.stderr


def test_the_import_loads_no_compiler():
    later = ("llvmlite", "sympy", "tensorexpr.codegen.compile", "tensorexpr.graph")
    code = f"import sys, tensorexpr; print([name for name in {later} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stdout + done.stderr
