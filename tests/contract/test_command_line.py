"""`python -m tensorexpr` as a newcomer types it."""

import json
import subprocess
import sys

import pytest

import tensorexpr as te
from tensorexpr.cli.main import main

SOURCE = """
import tensorexpr as te

@te.op
def matmul(a, b):
    (n, k), (_, m) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k))

@te.op
def broken(x):
    return te.compute(x.shape, lambda *i: x[(i[0] + 1, *i[1:])])
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("ops") / "ops.py"
    path.write_text(SOURCE)
    return path


def run(*arguments, status=0):
    """What the command prints; on the error channel if it is to fail."""
    done = subprocess.run(
        [sys.executable, "-m", "tensorexpr", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr and "\x1b[" not in done.stdout
    return done.stderr if status else done.stdout


def test_show_prints_a_program_that_parses_back(file):
    text = run("show", f"{file}:matmul", "f64[3, 4]", "f64[4, 5]")
    program = te.parse_program(text)
    assert [item.name for item in program.inputs] == ["a", "b"] and "sum(a[i, r] * b[r, j] for r in range(4))" in text


def test_show_the_gradient_at_every_stage_of_the_cpu(file, capsys):
    """The last, which goes through all, as it is typed; the others in this process, which derives and compiles once."""
    given = ("show", f"{file}:matmul", "f32[n, 4]", "f32[4, m]", "--gradient", "--stage")
    assert ".text" in run(*given, "asm")
    for stage, part in (("program", "a_bar"), ("schedule", "for "), ("nest", "for "), ("llvm", "define"), ("asm", ".text")):
        assert main([*given, stage]) == 0
        printed = capsys.readouterr()
        assert part in printed.out and not printed.err and "\x1b[" not in printed.out


def test_show_the_gradient_for_a_gpu_without_one(file):
    assert "__global__" in run("show", f"{file}:matmul", "f32[n, 4]", "f32[4, m]", "--gradient", "--stage", "cuda")


def test_machines_read_json(file):
    assert "matmul" in json.loads(run("show", f"{file}:matmul", "--json"))["text"]
    assert {"python", "versions"} <= set(json.loads(run("info", "--json")))


def test_mistakes_are_told_in_a_few_lines(file):
    cases = (
        (("show", f"{file}:nothing"), "expected an operation of"),
        (("show", f"{file}:matmul", "f64[3, 4]"), "expected 2 specs (a, b), got 1"),
        (("show", f"{file}:matmul", "bad", "bad"), "expected a spec like f32[8, 3], got 'bad'"),
        (("show", "nowhere.py:x"), "which is not there"),
        (("show", f"{file}:broken", "f32[8]"), "expected an index in range(8) on axis 0"),
    )
    for arguments, text in cases:
        message = run(*arguments, status=1)
        assert text in message and len(message.splitlines()) <= 4
    run("nonsense", status=2)
