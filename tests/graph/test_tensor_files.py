"""Files of tensors: what is written reads back with the same bits, here and by the format's own library; what is not whole is refused."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors import deserialize, safe_open

from tensorexpr.errors import ArgumentError
from tensorexpr.graph.modules.tensor_files import read_tensors, write_tensors

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", ml_dtypes.bfloat16,
)  # fmt: skip
SHAPES = ((), (0,), (3, 0, 2), (7,), (2, 3, 5))


def arrays():
    rng = np.random.default_rng(0)
    return {
        f"{np.dtype(kind).name}.{'x'.join(map(str, shape))}": np.asarray(100 * rng.standard_normal(shape)).astype("int64").astype(kind)
        for kind in DTYPES
        for shape in SHAPES
    }


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_every_dtype_and_shape_reads_back(tmp_path):
    given = arrays()
    write_tensors(tmp_path / "all.safetensors", given, {"step": "3", "name": "größer"})
    found, metadata = read_tensors(tmp_path / "all.safetensors")
    assert metadata == {"step": "3", "name": "größer"}
    assert sorted(found) == sorted(given) and all(same(found[name], given[name]) for name in given)


def test_the_library_of_the_format_reads_the_same(tmp_path):
    given = arrays()
    file = tmp_path / "all.safetensors"
    write_tensors(file, given, {"step": "3"})
    found = dict(deserialize(file.read_bytes()))
    assert {name: (tuple(entry["shape"]), bytes(entry["data"])) for name, entry in found.items()} == {
        name: (array.shape, array.tobytes()) for name, array in given.items()
    }
    with safe_open(file, framework="np") as opened:
        assert opened.metadata() == {"step": "3"}
        assert same(opened.get_tensor("float32.2x3x5"), given["float32.2x3x5"])


def test_what_the_library_writes_reads_here(tmp_path):
    numpy_files = pytest.importorskip("safetensors.numpy")
    given = {name: array for name, array in arrays().items() if not name.startswith("bfloat16")}
    numpy_files.save_file(given, tmp_path / "theirs.safetensors", metadata={"a": "b"})
    found, metadata = read_tensors(tmp_path / "theirs.safetensors")
    assert metadata == {"a": "b"} and all(same(found[name], given[name]) for name in given)


def test_views_are_written_in_their_own_order(tmp_path):
    base = np.arange(24, dtype="float32").reshape(4, 6)
    given = {"transposed": base.T, "sliced": base[::2, 1::3], "reversed": base[::-1]}
    write_tensors(tmp_path / "views.safetensors", given, {})
    found, _ = read_tensors(tmp_path / "views.safetensors")
    assert all(np.array_equal(found[name], given[name]) for name in given)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside(tmp_path):
    file = tmp_path / "kept.safetensors"
    write_tensors(file, {"a": np.ones(3)}, {})
    before = file.read_bytes()

    class Broken(np.ndarray):
        def tobytes(self, order="C"):
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_tensors(file, {"a": np.zeros(3).view(Broken)}, {})
    assert file.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    write_tensors(tmp_path / "new.safetensors", {"a": np.ones(3)}, {})
    assert (tmp_path / "new.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode
    with pytest.raises(FileNotFoundError, match="missing"):
        write_tensors(tmp_path / "missing" / "new.safetensors", {"a": np.ones(3)}, {})


def whole(header, body):
    text = json.dumps(header).encode() if isinstance(header, dict) else header
    return len(text).to_bytes(8, "little") + text + body


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BROKEN = {
    "empty": (b"", "expected a whole safetensors file, got 0 bytes with a header of 0"),
    "short": (whole({"a": GOOD}, b"12345678")[:20], "got 20 bytes with a header of"),
    "no json": (whole(b"{nonsense", b""), r"got a header that does not read \(JSONDecodeError"),
    "cut": (whole({"a": GOOD}, b"1234"), r"got a of shape \[2\] at bytes 0 to 8 of 4"),
    "offsets": (whole({"a": GOOD | {"data_offsets": [4, 8]}}, b"12345678"), r"got a of shape \[2\] at bytes 4 to 8 of 8"),
    "negative": (whole({"a": GOOD | {"shape": [-1, -2]}}, b"12345678"), r"got a of shape \[-1, -2\]"),
    "dtype": (whole({"a": GOOD | {"dtype": "F8_E4M3"}}, b"12345678"), "got a of dtype F8_E4M3, which has no counterpart here"),
    "entry": (whole({"a": {"dtype": "F32"}}, b""), r"got a header that does not read \(KeyError"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_not_whole_is_refused(case, tmp_path):
    data, message = BROKEN[case]
    (tmp_path / "broken.safetensors").write_bytes(data)
    with pytest.raises(ArgumentError, match=message) as caught:
        read_tensors(tmp_path / "broken.safetensors")
    assert "broken.safetensors: expected a whole safetensors file" in str(caught.value)
