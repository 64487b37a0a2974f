"""The transformer of the examples: a short run learns, and one that was interrupted goes on bit for bit."""

import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.examples import char_transformer

SMALL = ["--features", "16", "--heads", "2", "--blocks", "1", "--context", "12", "--batch", "4", "--write", "0", "--quiet"]
TEXT = "a transformer reads what was written and writes what comes next. " * 20


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    return ["--text", str(tmp_path / "text.txt"), *SMALL]


def test_a_short_run_learns_and_writes(text, capsys):
    assert char_transformer.main([*text, "--steps", "40", "--write", "30"]) == 0
    out = capsys.readouterr().out
    first, last = map(float, re.search(r"loss ([\d.]+) -> ([\d.]+), [\d.]+ ms a step", out).groups())
    assert last < first - 0.3
    assert re.search(r"one step \(loss, gradients, update\) traced and compiled in [\d.]+ s: \d+ kernels", out)
    assert "1 variables" not in out and "Attention" in out
    assert len(out.splitlines()[-1]) == 31 and set(out.splitlines()[-1]) <= set(TEXT)


def test_an_interrupted_run_goes_on_bit_for_bit(text, tmp_path, capsys):
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    run = [*text, "--schedule", "7"]
    assert char_transformer.main([*run, "--steps", "7", "--checkpoint", str(whole)]) in (0, 1)
    char_transformer.main([*run, "--steps", "3", "--checkpoint", str(parts)])
    assert whole.read_bytes() != parts.read_bytes()
    char_transformer.main([*run, "--steps", "7", "--checkpoint", str(parts)])
    assert "going on at step 3" in capsys.readouterr().out
    assert whole.read_bytes() == parts.read_bytes()


def test_a_checkpoint_of_another_text_or_model_is_refused(text, tmp_path):
    file = tmp_path / "model.safetensors"
    char_transformer.main([*text, "--steps", "1", "--checkpoint", str(file)])
    (tmp_path / "text.txt").write_text(TEXT[::-1])
    with pytest.raises(SystemExit, match=r"expected the text that .* was trained on, got another"):
        char_transformer.main([*text, "--steps", "2", "--checkpoint", str(file)])
    with pytest.raises(
        te.ArgumentError, match=r"training: expected an entry that fits each of its variables, got missing: .*model\.blocks\.1"
    ):
        char_transformer.main([*text, "--steps", "2", "--blocks", "2", "--checkpoint", str(file)])


def test_the_compiled_step_does_what_the_strict_interpreter_does(text):
    options = char_transformer.parsed([*text, "--steps", "4", "--features", "8", "--context", "6", "--batch", "2"])
    data = char_transformer.Text(TEXT)
    compiled, strict = char_transformer.made(options, data), char_transformer.made(options, data)
    batch = data.batch(0, 2, 6, 0)
    np.testing.assert_allclose(compiled.step(*batch), strict.step.strict(*batch), rtol=1e-5)
    ours, theirs = te.state_dict(compiled), te.state_dict(strict)
    assert all(np.allclose(ours[path], theirs[path], rtol=2e-3, atol=2e-5) for path in ours)


def test_the_documents_are_there():
    assert len(char_transformer.documents()) > 50_000
