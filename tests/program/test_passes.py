"""The pass runner: the order, what it logs, and how it names the guilty pass."""

import logging
from dataclasses import replace

import pytest

from tensorexpr.errors import DefinitionError, InternalError
from tensorexpr.ir import Program
from tensorexpr.parse import parse_program
from tensorexpr.rewrite.passes import run_passes

PROGRAM = parse_program("A: f32[3] = input()\nB[i]: f32[3] = A[i] + 1.0\nC[i]: f32[3] = B[i] * 2.0\nreturn C")


def drop_first(program: Program) -> Program:
    return replace(program, definitions=program.definitions[1:])


def drop_last(program: Program) -> Program:
    return replace(program, definitions=program.definitions[:-1], outputs=("B",))


def keep(program: Program) -> Program:
    return program


def crash(program: Program) -> Program:
    raise KeyError("lost")


def refuse(program: Program) -> Program:
    raise DefinitionError("expected a user who reads, got one who does not")


def give_up(program: Program) -> Program:
    raise InternalError("expected a case that was thought of, got another")


def test_passes_run_in_order_and_are_logged(caplog):
    with caplog.at_level(logging.DEBUG, "tensorexpr.passes"):
        result = run_passes(PROGRAM, [keep, drop_last])
    assert result == drop_last(PROGRAM)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("keep ") and first.endswith("(unchanged)")
    assert second.startswith("drop_last ") and "unchanged" not in second


def test_unchanged_programs_stay_the_same_object():
    assert run_passes(PROGRAM, [keep, keep]) is PROGRAM


def test_the_guilty_pass_is_named_with_both_programs(monkeypatch):
    message = "pass drop_first broke an invariant: invariant 'order': expected a tensor defined before, got B"
    with pytest.raises(InternalError, match=message) as caught:
        run_passes(PROGRAM, [keep, drop_first])
    assert f"before:\n{PROGRAM}\nafter:\n{drop_first(PROGRAM)}" in str(caught.value)
    monkeypatch.setenv("TENSOREXPR_VERIFY", "0")
    assert run_passes(PROGRAM, [drop_first]) == drop_first(PROGRAM)


def test_a_pass_that_fails_is_named_with_the_program():
    with pytest.raises(InternalError, match="pass crash failed: KeyError: 'lost'") as caught:
        run_passes(PROGRAM, [crash])
    assert str(PROGRAM) in str(caught.value)
    with pytest.raises(InternalError, match="pass give_up failed: expected a case that was thought of, got another"):
        run_passes(PROGRAM, [give_up])


def test_errors_of_the_user_go_through():
    with pytest.raises(DefinitionError, match="expected a user who reads"):
        run_passes(PROGRAM, [refuse])


def test_the_debug_channel_prints_changed_programs(monkeypatch, capsys):
    monkeypatch.setenv("TENSOREXPR_DEBUG", "rules,passes")
    run_passes(PROGRAM, [keep, drop_last])
    assert capsys.readouterr().err == f"# after drop_last\n{drop_last(PROGRAM)}\n\n"
