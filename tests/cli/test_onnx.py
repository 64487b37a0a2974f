"""`python -m tensorexpr onnx MODEL.onnx`."""

import json
import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.cli import onnx as command
from tensorexpr.cli.main import main

onnx = pytest.importorskip("onnx")

W = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


@pytest.fixture
def path(tmp_path):
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> m (float[n, 4] x) => (float[n, 3] y) { y = MatMul (x, w) }')
    model.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_a_model_is_shown(path, capsys):
    assert main(["onnx", path, "--size", "n=5"]) == 0
    text = capsys.readouterr().out
    assert "# x: float32[5, 4]" in text and "1 compiled functions, 2 kernels; gives y" in text and "sum(" in text
    assert main(["onnx", path, "--gradient"]) == 0
    assert "gives x, w" in capsys.readouterr().out


def test_a_model_is_timed_and_a_bundle(path, capsys, tmp_path):
    folder = tmp_path / "bundle"
    assert main(["onnx", path, "--gradient", "--bench", "--json", "--size", "n=2", "--bundle", str(folder)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["arguments"] == {"x": "float32[2, 4]"} and facts["results"] == ["x", "w"] and facts["whole"]
    assert facts["milliseconds"]["tensorexpr"] > 0 and facts["bundle"] == str(folder)
    bundle = te.load(folder)
    x = np.ones((3, 4), np.float32)
    np.testing.assert_allclose(bundle.forward(x)[0], x @ W, rtol=1e-6)


def test_what_cannot_be_a_model_is_said(path, capsys, tmp_path, monkeypatch):
    (tmp_path / "text.onnx").write_text("no model")
    assert main(["onnx", str(tmp_path / "text.onnx")]) == 1
    assert "from_onnx: expected the file of a model" in capsys.readouterr().err
    assert main(["onnx", path, "--size", "n"]) == 1
    assert "expected a size like n=1000, got 'n'" in capsys.readouterr().err
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    assert main(["onnx", path]) == 1
    assert "onnx: expected the package onnx, got none installed" in capsys.readouterr().err


def test_a_bundle_is_of_one_compiled_function(capsys, tmp_path):
    body = "body = step (int64 t, bool c, float[3] a) => (bool d, float[3] b) { b = Add (a, a) l = Constant <value_float = 0.9> ()"
    body += " m = ReduceMax <keepdims = 0> (b) d = Less (m, l) }"
    text = (
        f"m (float[3] x, int64 n) => (float[3] y) {{ c = Constant <value_int = 1> () g = Cast <to = 9> (c) y = Loop (n, g, x) <{body}> }}"
    )
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}'), tmp_path / "loop.onnx")
    assert main(["onnx", str(tmp_path / "loop.onnx"), "--bundle", str(tmp_path / "bundle")]) == 1
    expected = r"onnx: expected a model of one compiled function for a bundle, got \d+ with work of the host between them"
    assert re.search(expected, capsys.readouterr().err) and not (tmp_path / "bundle").exists()
