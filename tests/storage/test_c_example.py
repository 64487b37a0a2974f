"""The example in C: a model is trained and exported by one program, and run by another that has neither Python nor a compiler of ours."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "c"


def test_a_c_program_runs_the_exported_model(tmp_path: Path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    spec = importlib.util.spec_from_file_location("export_model", FOLDER / "export_model.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    bundle = tmp_path / "spirals"
    example.main(bundle)
    options = [
        "-std=c11",
        "-D_GNU_SOURCE",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{bundle}",
        f"-L{bundle}",
        "-lspirals",
        f"-Wl,-rpath,{bundle}",
    ]
    subprocess.run([compiler, str(FOLDER / "run_model.c"), "-o", str(tmp_path / "run_model"), *options], check=True)
    points, sides = example.spirals(200, seed=5)
    text = "\n".join(f"{x!r} {y!r}" for x, y in points.tolist())
    done = subprocess.run(
        [str(tmp_path / "run_model"), str(bundle / "constants.safetensors")], input=text, capture_output=True, text=True, check=True
    )
    scores = np.array([float.fromhex(line.split()[2]) for line in done.stdout.splitlines()], np.float32)
    assert np.mean(np.sign(scores) == sides) > 0.97
    np.testing.assert_array_equal(scores, te.load(bundle).score(points)[0])
    points_, weights, score = example.model(te.dim("n"))
    frozen = te.freeze(score, example.trained(), inputs=[points_, *weights])
    np.testing.assert_array_equal(scores, te.compile(frozen)(points)[0])
    lost = subprocess.run([str(tmp_path / "run_model")], capture_output=True, text=True, check=False)
    assert lost.returncode == 2 and "usage: run_model CONSTANTS" in lost.stderr
