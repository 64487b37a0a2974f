"""ONNX models that were altered: an error of ours or a function, never anything else."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
from tests.messages import said
from tests.seeds import share_of
from tests.storage.mutations import altered

onnx = pytest.importorskip("onnx")

MODEL = """
<ir_version: 10, opset_import: ["" : 17, "own" : 1]>
main (float[3, 4] x, float[4, 5] w) => (float[3, 5] y, float[15] flat)
<float[5] b = {1, 2, 3, 4, 5}, int64[1] all = {-1}>
{
   p = MatMul (x, w)
   q = own.twice (p)
   r = Add (q, b)
   y = Softmax <axis = 1> (r)
   s = ReduceSum <keepdims = 1> (y, all)
   t = Div (y, s)
   flat = Reshape (t, all)
}
<domain: "own", opset_import: ["" : 17]>
twice (a) => (c)
{
   c = Add (a, a)
}
"""


@pytest.fixture(scope="module")
def data() -> bytes:
    return onnx.parser.parse_model(MODEL).SerializeToString()


def test_a_file_is_read_as_its_model(data: bytes, tmp_path: Path) -> None:
    from tensorexpr.interop.onnx import from_onnx  # noqa: PLC0415 -- after the package was looked for

    (tmp_path / "m.onnx").write_bytes(data)
    x, w = np.random.default_rng(0).random((3, 4), np.float32), np.random.default_rng(1).random((4, 5), np.float32)
    for found, wanted in zip(from_onnx(tmp_path / "m.onnx")(x, w), from_onnx(onnx.load_from_string(data))(x, w), strict=True):
        np.testing.assert_array_equal(found, wanted)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("no model")
    for path, message in (
        (tmp_path / "nothing", r"from_onnx: expected the file of a model, got .*nothing: FileNotFoundError: "),
        (tmp_path / "text", r"from_onnx: expected the file of a model, got .*text: DecodeError: "),
        (tmp_path / "pipe", r"from_onnx: expected the file of a model, got .*pipe, which is no plain file"),
        (3, "from_onnx: expected a ModelProto or the path of one, got an int"),
    ):
        (line, *_) = said(te.ArgumentError, lambda path=path: from_onnx(path))
        assert re.match(message, line), line


@pytest.mark.parametrize("seed", share_of(range(12)))
def test_models_that_were_altered(seed: int, data: bytes, tmp_path: Path) -> None:
    from tensorexpr.interop.onnx import from_onnx  # noqa: PLC0415

    rng, refused = random.Random(seed), 0
    for _ in range(40):
        (tmp_path / "m.onnx").write_bytes(altered(data, rng))
        try:
            from_onnx(str(tmp_path / "m.onnx"))
        except te.TensorExprError as error:
            refused += 1
            assert type(error) is not te.InternalError, error
    assert refused > 10
