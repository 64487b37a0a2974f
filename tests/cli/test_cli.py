"""The command line as a user runs it: what is printed, where errors go, exit statuses."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorexpr.cli.main import main
from tensorexpr.parse import parse_program

ROOT = Path(__file__).resolve().parents[2]

FILE = """
import tensorexpr as te

@te.op
def matmul(a, b):
    (n, k), (_, m) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k))

@te.op
def scaled(x: "f64[3, n]", *, by=2.0):
    return te.compute(x.shape, lambda i, j: x[i, j] * by)

@te.op
def pick(table, ids):
    return te.compute(ids.shape, lambda i: table[ids[i]])

@te.op
def counting(k):
    return te.compute((4,), lambda i: te.cast(k[()] + i, "float32"))

@te.op
def unfit(x):
    return te.compute((3,), lambda i: x[i, 100])

x = te.placeholder((4,), name="x")
doubled = te.compute((4,), lambda i: x[i] * 2.0, name="doubled")
number = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ops.py"
    path.write_text(FILE)
    return path


def run(capsys, *arguments):
    status = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_show_prints_a_program_that_parses_back(capsys, file):
    status, out, _ = run(capsys, "show", f"{file}:matmul", "f32[2,3]", "f32[3, 4]")
    assert status == 0
    assert "matmul[i, j]: f32[2, 4] = sum(a[i, r] * b[r, j] for r in range(3))" in out
    assert str(parse_program(out)) == out.strip()


def test_show_guesses_ranks_and_says_so(capsys, file):
    status, out, _ = run(capsys, "show", f"{file}:matmul")
    assert status == 0
    assert out.startswith("# no shapes were given: every extent is 8")
    assert "matmul[i, j]: f32[8, 8]" in out


def test_show_guesses_an_integer_argument_where_one_is_needed(capsys, file):
    _, out, _ = run(capsys, "show", f"{file}:pick")
    assert "ids: i64[8] = input()" in out


def test_show_takes_specs_from_annotations_and_static_arguments(capsys, file):
    _, out, _ = run(capsys, "show", f"{file}:scaled", "--static", "by=3.0")
    assert "scaled[i, j]: f64[3, n] = x[i, j] * 3.0" in out


def test_show_gradient_prints_report_and_program_with_specs_after_options(capsys, file):
    status, out, _ = run(capsys, "show", f"{file}:matmul", "--gradient", "f32[2,3]", "f32[3,4]")
    assert status == 0
    assert "# tensor  consumer  access   lowering    iterations  reads  ratio" in out
    assert "a_bar[i, r]: f32[2, 3] = sum(matmul_bar[i, j] * b[r, j] for j in range(4))" in out


def test_show_a_tensor_of_the_file(capsys, file):
    _, out, _ = run(capsys, "show", f"{file}:doubled")
    assert "doubled[i]: f32[4] = x[i] * 2.0" in out


@pytest.mark.parametrize(("stage", "part"), [("schedule", "for i"), ("nest", "def kernel"), ("llvm", "define"), ("asm", "ret")])
def test_show_stages(capsys, file, stage, part):
    status, out, _ = run(capsys, "show", f"{file}:doubled", "--stage", stage)
    assert status == 0
    assert part in out


def test_show_the_program_as_written_and_the_calls_of_its_schedule(capsys, file):
    _, out, _ = run(capsys, "show", f"{file}:scaled", "--static", "by=1", "--stage", "written")
    assert "scaled[i, j]: f64[3, n] = x[i, j] * 1.0" in out
    _, out, _ = run(capsys, "show", f"{file}:scaled", "--static", "by=1")
    assert "scaled[i, j]: f64[3, n] = x[i, j]" in out.splitlines()
    _, out, _ = run(capsys, "show", f"{file}:matmul", "f32[64, 64]", "f32[64, 64]", "--stage", "calls")
    assert "s['matmul'].vectorize(" in out


def test_show_latex_writes_forward_and_gradient(capsys, file):
    status, out, _ = run(capsys, "show", f"{file}:matmul", "f32[n, 4]", "f32[4, m]", "--gradient", "--latex")
    assert status == 0
    lines = out.splitlines()
    assert [line for line in lines if not line.startswith("%")] == [
        r"\[",
        r"\begin{aligned}",
        r"& a \in \mathbb{R}^{n \times 4},\quad b \in \mathbb{R}^{4 \times m},\quad \mathrm{matmul} \in \mathbb{R}^{n \times m} \\",
        r"\mathrm{matmul}_{i, j} &= \sum_{r = 0}^{3} a_{i, r} \, b_{r, j}",
        r"\end{aligned}",
        r"\]",
        r"\[",
        r"\begin{aligned}",
        r"& a \in \mathbb{R}^{n \times 4},\quad b \in \mathbb{R}^{4 \times m},\quad \overline{\mathrm{matmul}} \in \mathbb{R}^{n \times m},"
        r"\quad \bar{a} \in \mathbb{R}^{n \times 4},\quad \bar{b} \in \mathbb{R}^{4 \times m} \\",
        r"\bar{a}_{i, r} &= \sum_{j = 0}^{m - 1} \overline{\mathrm{matmul}}_{i, j} \, b_{r, j} \\",
        r"\bar{b}_{r, j} &= \sum_{i = 0}^{n - 1} \overline{\mathrm{matmul}}_{i, j} \, a_{i, r}",
        r"\end{aligned}",
        r"\]",
    ]
    assert lines[0].startswith("% tensor  consumer  access")


def test_show_json(capsys, file):
    _, out, _ = run(capsys, "show", f"{file}:doubled", "--json")
    document = json.loads(out)
    assert document["stage"] == "program"
    assert "doubled[i]" in document["text"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nowhere.py:f"), "expected a Python file, got 'nowhere.py', which is not there"),
        (("show", "{file}:counting", "i64[]", "--gradient"), "counting: expected a floating input to differentiate by, got none"),
        (("show", "{file}:unfit"), "no shapes that were tried fit unfit\n  hint: give one spec like f32[8, 3] for each of x"),
        (("show", "nowhere/at_all.py:f"), "which is not there\n  hint: there is no folder "),
        (("show", "{folder}/op.py:f"), "which is not there\n  hint: did you mean ops.py?"),
        (("show", "{folder}:f"), "expected a Python file, got '{folder}', which is a folder\n  hint: {folder} has ops.py"),
        (("show", "{file}:matmull"), "got 'matmull'\n  hint: did you mean matmul? it has counting, "),
        (("show", "nothing"), "expected FILE:OP, got 'nothing'"),
        (
            ("show", "{file}:absent"),
            "expected an operation of {file}, got 'absent'\n  hint: it has counting, doubled, matmul, pick, scaled, unfit, x",
        ),
        (("show", "{file}:number"), "number: expected a te.op or a tensor, got int"),
        (("show", "{file}:matmul", "f32[3]"), "expected 2 specs (a, b), got 1"),
        (
            ("show", "{file}:matmul", "f32[3", "f32[3]"),
            "got 'f32[3'\n  hint: a dtype, then extents in brackets, numbers or names",
        ),
        (("show", "{file}:matmul", "f32[3,-]", "f32[3]"), "a: expected an extent that is a number or a name, got '-'"),
        (("show", "{file}:matmul", "g7[3]", "f32[3]"), "expected a dtype of the language, got 'g7'"),
        (("show", "{file}:matmul", "--static", "by=2"), "matmul: expected no static arguments, got by"),
        (("show", "{file}:scaled", "--static", "by"), "expected a static argument like stride=2, got 'by'"),
    ],
)
def test_errors_of_the_user_are_printed_without_a_traceback(capsys, file, arguments, message):
    status, out, err = run(capsys, *(a.format(file=file, folder=file.parent) for a in arguments))
    assert status == 1
    assert out == ""
    assert message.replace("{file}", str(file)).replace("{folder}", str(file.parent)) in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\ny = z", "expected a Python file that runs, got NameError: name 'z' is not defined\n  in:   ({path}:2)"),
        ("def f(:", "expected a Python file that runs, got SyntaxError: invalid syntax\n  in:   ({path}:1)"),
    ],
)
def test_a_file_that_does_not_run_is_told_by_its_line(capsys, tmp_path, source, message):
    path = tmp_path / "broken.py"
    path.write_text(source)
    status, out, err = run(capsys, "show", f"{path}:f")
    assert (status, out) == (1, "") and message.format(path=path) in err and "Traceback" not in err


def test_the_demo_has_options_of_its_own(capsys):
    with pytest.raises(SystemExit) as done:
        main(["demo", "--help"])
    assert done.value.code == 0 and "--epochs" in capsys.readouterr().out


def test_a_number_of_rounds_is_positive(capsys):
    with pytest.raises(SystemExit) as done:
        main(["bench", "--rounds", "0"])
    assert done.value.code == 2 and "expected a positive integer, got '0'" in capsys.readouterr().err


def test_a_terminal_shows_the_report_whole(file):
    """Colored, with the brackets of the accesses."""
    command = [sys.executable, "-m", "tensorexpr", "show", f"{file}:matmul", "f32[2,3]", "f32[3,4]", "--gradient"]
    code = f"import pty, sys; sys.exit(pty.spawn({command!r}))"
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, env=environment
    )
    assert "\x1b[1ma       matmul    a[i, r]" in done.stdout


def test_unknown_options_give_status_2(capsys, file):
    with pytest.raises(SystemExit) as error:
        main(["show", f"{file}:matmul", "--colour"])
    assert error.value.code == 2
    assert "unrecognized arguments: --colour" in capsys.readouterr().err


def test_info_for_people_and_machines(capsys):
    _, out, _ = run(capsys, "info")
    assert out.startswith("python ")
    _, out, _ = run(capsys, "info", "--json")
    facts = json.loads(out)
    assert facts["versions"]["numpy"] and facts["cpu"]["vector_bits"] >= 128 and facts["cpu"]["features"]


def test_info_refuses_a_number_of_threads_that_is_none(capsys, monkeypatch):
    monkeypatch.setenv("TENSOREXPR_NUM_THREADS", "many")
    status, _, err = run(capsys, "info")
    assert status == 1 and "TENSOREXPR_NUM_THREADS: expected a positive integer, got 'many'" in err


def test_the_module_runs_as_a_program_and_is_plain_where_there_is_no_terminal(file):
    done = subprocess.run([sys.executable, "-m", "tensorexpr", "show", f"{file}:doubled"], capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout


def test_mistaken_words_have_suggestions(file, capsys):
    for arguments, told in (
        (("shwo", "a:b"), "did you mean show?"),
        (("show", f"{file}:matmul", "--stge", "nest"), "did you mean --stage? tensorexpr show --help"),
        (("show",), "a file, and an operation in it"),
        (("bench", "--peers", "torhc"), "did you mean torch?"),
    ):
        with pytest.raises(SystemExit) if arguments[0] != "bench" else contextlib.nullcontext():
            main(list(arguments))
        assert told in capsys.readouterr().err
