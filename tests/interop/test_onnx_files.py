"""ONNX models that were altered: an error of ours or a function, never anything else."""

from __future__ import annotations

import os
import random
import re
import tracemalloc
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


def model(body: str, functions: str = "", version: int = 17) -> object:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {version}, "own" : 1]>\nmain {body}\n{functions}')


LARGE = {
    "ConstantOfShape": "n = Constant <value_ints = [1099511627776, 3]> () c = ConstantOfShape (n)",
    "Expand": "n = Constant <value_ints = [1099511627776]> () o = Constant <value_floats = [1.0]> () c = Expand (o, n)",
    "Tile": "n = Constant <value_ints = [1099511627776]> () o = Constant <value_floats = [1.0]> () c = Tile (o, n)",
    "Range": "a = Constant <value_float = 0.0> () b = Constant <value_float = 1e12> () d = Constant <value_float = 1.0> ()"
    " c = Range (a, b, d)",
    "Pad": "n = Constant <value_ints = [0, 1099511627776]> () o = Constant <value_floats = [1.0]> () c = Pad (o, n)",
    "Resize": "s = Constant <value_floats = [1e12]> () o = Constant <value_floats = [1.0]> () c = Resize (o, , s)",
    "OneHot": "n = Constant <value_int = 1099511627776> () o = Constant <value_ints = [1]> () v = Constant <value_floats = [0.0, 1.0]> ()"
    " c = OneHot (o, n, v)",
    "HannWindow": "n = Constant <value_int = 1099511627776> () c = HannWindow (n)",
    "RandomNormal": "c = RandomNormal <shape = [1048576, 1048576]> ()",
    "MatMul": "n = Constant <value_ints = [16000, 1]> () m = Constant <value_ints = [1, 32000]> () a = ConstantOfShape (n)"
    " b = ConstantOfShape (m) c = MatMul (a, b)",
    "Concat": "n = Constant <value_ints = [40000000]> () a = ConstantOfShape (n)"
    " b = Concat <axis = 0> (a, a, a) c = Concat <axis = 0> (b, b, b)",
}


@pytest.mark.parametrize("operator", LARGE)
def test_constants_that_ask_for_far_more_than_the_model_holds(operator: str) -> None:
    """Refused before it is computed: the sum of all such results is bounded."""
    from tensorexpr.interop.onnx import from_onnx  # noqa: PLC0415

    given = model(f"(float[3] x) => (float[3] y) {{ {LARGE[operator]} s = Constant <value_ints = [3]> () y = Expand (x, s) }}")
    tracemalloc.start()
    (line, *_) = said(te.TargetError, lambda: from_onnx(given))
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    expected = (
        f"from_onnx: ai.onnx.{operator}: expected at most 1073741824 bytes of constants, or 4 times those of the model, to compute, got "
    )
    assert line.startswith(expected) and re.search(r"\d+ more, with \d+ left$", line), line
    assert held < 300 << 20


LONG = {
    "MatMul": "n = Constant <value_ints = [2048, 4096]> () a = Expand (c, n) t = Transpose (a) d = MatMul (a, t)",
    "Conv": "n = Constant <value_ints = [1, 1, 4096, 4096]> () a = Expand (c, n) m = Constant <value_ints = [1, 1, 512, 512]> ()"
    " w = ConstantOfShape (m) d = Conv <pads = [256, 256, 256, 256]> (a, w)",
    "TopK": "n = Constant <value_ints = [1048576]> () a = Expand (c, n) o = Constant <value_ints = [1]> () d, e = TopK (a, o)",
    "Det": "n = Constant <value_ints = [4096, 4096]> () a = Expand (c, n) d = Det (a)",
}


@pytest.mark.parametrize("operator", LONG)
def test_constants_that_would_take_far_longer_to_compute_than_the_model_to_read(operator: str) -> None:
    """Refused before it is computed: terms of all elements are counted."""
    from tensorexpr.interop.onnx import from_onnx  # noqa: PLC0415

    start = "l = Constant <value_ints = [1]> () c = ConstantOfShape (l)"
    given = model(f"(float[3] x) => (float[3] y) {{ {start} {LONG[operator]} y = Neg (x) }}")
    (line, *_) = said(te.TargetError, lambda: from_onnx(given))
    expected = (
        f"from_onnx: ai.onnx.{operator}: expected at most 8589934592 steps to compute constants, or 256 times the bytes of the model, got "
    )
    assert line.startswith(expected) and re.search(r"\d+ more, with \d+ left$", line), line


OWN = '<domain: "own", opset_import: ["" : 17, "own" : 1]>'


def outside() -> onnx.ModelProto:
    """A model whose initializer is said to be in a file above its folder."""
    found = model("(float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Add (x, w) }")
    found.graph.initializer[0].ClearField("float_data")
    found.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "../secret"), ("length", "12")):
        found.graph.initializer[0].external_data.add(key=key, value=value)
    return found


def test_what_models_may_not_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorexpr.interop.onnx import bounds, from_onnx  # noqa: PLC0415

    monkeypatch.setattr(bounds, "MOST_NODES", 256)
    monkeypatch.setattr(bounds, "_TIMES_NODES", 2)
    deep = "\n".join(f"{OWN} f{k} (a) => (c) {{ b = own.f{k + 1} (a) c = own.f{k + 1} (b) }}" for k in range(40))
    deep += f"\n{OWN} f40 (a) => (c) {{ c = Neg (a) }}"
    itself = f"{OWN} f (a) => (c) {{ c = own.f (a) }}"
    twice = f"{OWN} f (a) => (c) {{ c = Neg (a) }}\n{OWN} f (a) => (c) {{ c = Abs (a) }}"
    sequence = model("(float[3] x) => (seq(float[3]) x) { y = Neg (x) }")
    again = model("(float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Add (x, w) }")
    again.graph.initializer.append(again.graph.initializer[0])
    for given, message in (
        (model("(float[3] x) => (float[3] y) { y = own.f0 (x) }", deep),
         r"from_onnx: own.f\d+: expected at most 256 nodes to run, or 2 times those of the model, got functions that make more"),
        (model("(float[3] x) => (float[3] y) { y = own.f (x) }", itself),
         r"from_onnx: own.f: expected at most 256 nodes to run|from_onnx: .* got one that fails by RecursionError"),
        (model("(float[3] x) => (float[3] y) { y = own.f (x) }", twice), r"from_onnx: expected every function once, got own.f twice"),
        (model("(float[3] x, float[3] x) => (float[3] y) { y = Neg (x) }"), r"from_onnx: expected every input once, got x twice"),
        (again, r"from_onnx: expected every initializer once, got w twice"),
        (model("(float[3] x) => (float[3] y) { y = Neg (x) y = Abs (x) }"),
         r"from_onnx: ai.onnx.Abs: expected results with names of their own, got y, which something else is called"),
        (model("(float[3] x) => (float[3] y) { x = Neg (x) y = Abs (x) }"),
         r"from_onnx: ai.onnx.Neg: expected results with names of their own, got x, which something else is called"),
        (outside(), r"from_onnx: expected tensors with their data, got w with its data in another file"),
        (sequence, r"from_onnx: output x: expected a sequence_type, as the model declares, got a tensor"),
    ):  # fmt: skip
        (line, *_) = said(te.TargetError, lambda given=given: from_onnx(given))
        assert re.match(message, line), line


def test_steps_are_counted_over_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorexpr.interop.onnx import bounds, from_onnx  # noqa: PLC0415

    monkeypatch.setattr(bounds, "MOST_STEPS", 1200)
    monkeypatch.setattr(bounds, "_TIMES_STEPS", 1)
    sums = " ".join(f"d{k} = ReduceSum (c)" for k in range(9))
    few, many = (f"n = Constant <value_ints = [{size}]> () c = ConstantOfShape (n) {sums}" for size in (20, 200))
    assert from_onnx(model(f"(float[3] x) => (float[3] y) {{ {few} y = Add (x, d8) }}"))(np.ones(3, np.float32)).shape == (3,)
    expected = r"from_onnx: ai.onnx.ReduceSum: expected at most 1200 steps to compute constants, .*, got 200 more, with \d+ left"
    with pytest.raises(te.TargetError, match=expected):
        from_onnx(model(f"(float[3] x) => (float[3] y) {{ {many} y = Add (x, d8) }}"))


def test_data_beside_a_file_is_in_its_folder(tmp_path: Path) -> None:
    from tensorexpr.interop.onnx import from_onnx  # noqa: PLC0415

    given, path = outside(), tmp_path / "models" / "m.onnx"
    path.parent.mkdir()
    (tmp_path / "secret").write_bytes(np.ones(3, np.float32).tobytes())
    (path.parent / "inside").write_bytes(np.ones(3, np.float32).tobytes())
    (path.parent / "link").symlink_to(tmp_path / "secret")
    for location in ("../secret", str(tmp_path / "secret"), "link", "missing", "inside"):
        given.graph.initializer[0].external_data[0].value = location
        path.write_bytes(given.SerializeToString())
        if location == "inside":
            np.testing.assert_array_equal(from_onnx(path)(np.ones(3, np.float32)), np.full(3, 2, np.float32))
        else:
            (line, *_) = said(te.ArgumentError, lambda: from_onnx(path))
            assert re.match(r"from_onnx: expected the file of a model, got .*m.onnx: \w+: .*", line), line
