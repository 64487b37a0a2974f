"""Bundles that are damaged, foreign or half there are refused; what is exported is whole; each CPU finds its code."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
import tensorexpr_runtime
from tensorexpr.codegen.bundle import export as export_function
from tensorexpr.codegen.bundle import variants
from tensorexpr.codegen.bundle.table import table_file
from tensorexpr.codegen.bundle.variants import LEVELS, detection_text, variants_of
from tensorexpr.codegen.llvm import host, load
from tensorexpr.records import replace
from tensorexpr_runtime import ArgumentError, BundleError, OutOfBoundsError
from tensorexpr_runtime.files import array_type
from tensorexpr_runtime.function import extent_value
from tests.messages import said
from tests.seeds import share_of
from tests.storage.models import dense, floats
from tests.storage.mutations import as_text, edited

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x, w, y = dense(te.dim("n"))
    ids = te.placeholder((3,), "int64", name="ids")
    rows = te.compute((3, 4), lambda t, j: w[ids[t], j] + te.constant(np.ones(4, np.float32), name="c")[j], name="rows")
    pair = te.compile([rows, te.compute((), lambda: w[0, 0], name="first")], [w, ids])
    return te.export(tmp_path_factory.mktemp("bundles") / "model", f=te.compile(y, [x, w]), rows=pair)


def damaged(bundle: Path, to: Path, name: str, data: bytes) -> str:
    """What is said of a copy of the bundle in which a file has other contents."""
    shutil.copytree(bundle, to, dirs_exist_ok=True)
    (to / name).write_bytes(data)
    with pytest.raises(BundleError) as caught:
        tensorexpr_runtime.load(to)
    return str(caught.value)


def test_every_flipped_byte_of_the_table_is_noticed(bundle: Path, tmp_path: Path):
    data = (bundle / "bundle.json").read_bytes()
    shutil.copytree(bundle, tmp_path / "copy")
    places = [*range(100), *random.Random(0).sample(range(100, len(data)), 700)]  # all of what says and surrounds the digest
    for at in places:
        (tmp_path / "copy" / "bundle.json").write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        with pytest.raises(BundleError):
            tensorexpr_runtime.load(tmp_path / "copy")


def test_every_file_is_checked(bundle: Path, tmp_path: Path):
    for name in ("libmodel.so", "constants.safetensors", "model.h"):
        data = (bundle / name).read_bytes()
        for at in random.Random(1).sample(range(len(data)), 30):
            text = damaged(bundle, tmp_path / name, name, data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
            assert f"{name}: expected the contents that were written, got others: the file is damaged" in text
        text = damaged(bundle, tmp_path / name, name, data[:-1])
        assert f"{name}: expected {len(data)} bytes, got {len(data) - 1}" in text
        (tmp_path / name / name).unlink()
        with pytest.raises(BundleError, match=f"expected a file of {len(data)} bytes, got none that can be read: No such file"):
            tensorexpr_runtime.load(tmp_path / name)


def test_constants_may_be_taken_on_trust(bundle: Path, tmp_path: Path):
    shutil.copytree(bundle, tmp_path / "copy")
    path = tmp_path / "copy" / "constants.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"\x40")
    assert tensorexpr_runtime.load(tmp_path / "copy", verify=False).constants["c"][-1] != 1
    path.write_bytes(data[:-1])
    with pytest.raises(BundleError, match=f"expected a file of {len(data)} bytes, got another one"):
        tensorexpr_runtime.load(tmp_path / "copy", verify=False)


def test_foreign_and_cut_off_tables_are_refused(bundle: Path, tmp_path: Path):
    data = (bundle / "bundle.json").read_bytes()
    assert "expected the table of a bundle, got another file" in damaged(bundle, tmp_path / "a", "bundle.json", b"{}")
    for cut in (0, 5, 60, 78, 79, 200, len(data) - 1):
        damaged(bundle, tmp_path / "b", "bundle.json", data[:cut])
    text = damaged(bundle, tmp_path / "b", "bundle.json", data[:-1])
    assert "bundle.json: expected the contents that were written, got others: the file is damaged or cut off" in text
    table = json.loads(data)
    del table["sha256"]
    text = damaged(bundle, tmp_path / "c", "bundle.json", table_file({**table, "version": 1}))
    assert "expected 'tensorexpr bundle', version 3, got 'tensorexpr bundle', version 1: made by tensorexpr" in text
    text = damaged(bundle, tmp_path / "c", "bundle.json", table_file({**table, "platform": "aarch64-unknown-linux-gnu"}))
    assert f"expected a machine like aarch64-unknown-linux-gnu, got {sys.platform} on {platform.machine()}" in text
    outside = {**table, "files": {**table["files"], "../x": {"bytes": 0, "sha256": ""}}}
    assert "expected files in the folder, got '../x'" in damaged(bundle, tmp_path / "c", "bundle.json", table_file(outside))
    with pytest.raises(BundleError, match=r"expected a bundle, got no bundle\.json that can be read: No such file"):
        tensorexpr_runtime.load(tmp_path / "nowhere")


@pytest.mark.parametrize("seed", share_of(range(24)))
def test_a_table_that_was_edited_and_has_a_new_digest_is_refused(seed: int, bundle: Path, tmp_path: Path):
    """Whatever it says: the code would be called with other shapes than it was made for. Nothing of the bundle has run by then."""
    table = json.loads((bundle / "bundle.json").read_text())
    del table["sha256"]
    rng = random.Random(seed)
    shutil.copytree(bundle, tmp_path / "copy")
    wanted = tensorexpr_runtime.load(bundle).rows(w := floats(6, 4), np.arange(3))
    refused = 0
    for _ in range(40):
        other = edited(table, rng)
        body = as_text(other, rng).decode().removeprefix("{").encode()
        start = f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode()
        (tmp_path / "copy" / "bundle.json").write_bytes(start + body)
        try:
            loaded = tensorexpr_runtime.load(tmp_path / "copy")
        except BundleError:
            refused += 1
        else:  # the same but for what nothing depends on: a file that is not looked for any more, a digest given twice
            assert {**json.loads(start + body), "files": 0, "sha256": 0} == {**table, "files": 0, "sha256": 0}
            for found, value in zip(loaded.rows(w, np.arange(3)), wanted, strict=True):
                np.testing.assert_array_equal(found, value)
    assert refused > 30


def test_names_that_lead_out_of_the_folder_and_code_of_another_table(bundle: Path, tmp_path: Path):
    table = json.loads((bundle / "bundle.json").read_text())
    del table["sha256"]
    (tmp_path / "evil.so").write_bytes((bundle / "libmodel.so").read_bytes())
    for name in ("../evil.so", str(tmp_path / "evil.so"), "..", "", "model\0.so"):
        inside = damaged(bundle, tmp_path / "c", "bundle.json", table_file({**table, "library": name}))
        assert f"expected the library to be one of the files of the bundle, got {name!r}" in inside
        files = {**table["files"], name: table["files"]["libmodel.so"]}
        outside = damaged(bundle, tmp_path / "c", "bundle.json", table_file({**table, "library": name, "files": files}))
        assert f"expected files in the folder, got {name!r}" in outside
        constants = {"name": name, "offset": 0}
        outside = damaged(bundle, tmp_path / "c", "bundle.json", table_file({**table, "constants_file": constants}))
        assert f"expected files in the folder, got {name!r}" in outside
    data = (bundle / "libmodel.so").read_bytes()
    other = data.replace(b"tensorexpr table sha256 ", b"tensorexpr table sha512 ")
    files = {**table["files"], "libmodel.so": {"bytes": len(other), "sha256": hashlib.sha256(other).hexdigest()}}
    (tmp_path / "c" / "libmodel.so").write_bytes(other)
    (tmp_path / "c" / "bundle.json").write_bytes(table_file({**table, "files": files}))
    with pytest.raises(BundleError, match=r"bundle\.json: expected the table that libmodel\.so was made with, got another one"):
        tensorexpr_runtime.load(tmp_path / "c")


def test_tables_that_no_compiler_writes_and_code_that_is_none(bundle: Path, tmp_path: Path):
    table = json.loads((bundle / "bundle.json").read_text())
    del table["sha256"]
    for key, value, error in (("files", [], "AttributeError"), ("constants_file", {}, "KeyError"), ("functions", 3, "AttributeError")):
        told = damaged(bundle, tmp_path / "c", "bundle.json", table_file({**table, key: value}))
        assert re.search(rf"bundle\.json: expected a table as the compiler writes it, got another one \({error}: .*\)", told)
    deep = b'"functions": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    told = damaged(bundle, tmp_path / "c", "bundle.json", f'{{"sha256": "{hashlib.sha256(deep).hexdigest()}",\n'.encode() + deep)
    assert "bundle.json: expected a table as the compiler writes it, got another one (RecursionError: " in told
    code = (bundle / "libmodel.so").read_bytes().replace(b"\x7fELF", b"text", 1)
    files = {**table["files"], "libmodel.so": {"bytes": len(code), "sha256": hashlib.sha256(code).hexdigest()}}
    (tmp_path / "c" / "bundle.json").write_bytes(table_file({**table, "files": files}))
    (tmp_path / "c" / "libmodel.so").write_bytes(code)
    with pytest.raises(BundleError, match=r"c: expected code that the system loads, got: .*invalid ELF header"):
        tensorexpr_runtime.load(tmp_path / "c")


def test_arguments_of_bundle_functions(bundle: Path):
    loaded = tensorexpr_runtime.load(bundle)
    f, rows = loaded.f, loaded["rows"]
    x, w = floats(5, 6), floats(6, 4)
    np.testing.assert_array_equal(f(x, w), f(x=x, **{"layers.0.w": w}))
    np.testing.assert_array_equal(f(x, w), f(np.asfortranarray(x), layers_0_w=np.repeat(w, 2, 1)[:, ::2]))
    out = np.empty((5, 4), np.float32)
    assert f(x, w, out=out) is out and np.array_equal(out, f(x, w))
    apart = np.empty((5, 8), np.float32)[:, ::2]
    assert f(x, w, out=apart) is apart and np.array_equal(apart, out)
    memory = np.empty(f.workspace_bytes(n=5) + 64, np.uint8)
    np.testing.assert_array_equal(f(x, w, workspace=memory), out)
    found, first = rows(w, np.array([0, 5, 2]))
    np.testing.assert_array_equal(found, w[[0, 5, 2]] + 1)
    assert first == w[0, 0] and list(loaded) == ["f", "rows"] and "f(x: float32[n, 6]" in repr(loaded)

    class Recording:
        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise RuntimeError("it requires grad")

    cases = (
        ("f: expected an array for the placeholder layers.0.w, got none", lambda: f(x)),
        ("f: argument x: expected an array, got a Recording: it requires grad", lambda: f(Recording(), w)),
        ("f: expected an array for the placeholder layers.0.w, got two", lambda: f(x, layers_0_w=w, **{"layers.0.w": w})),
        ("f: expected arrays for x, layers.0.w, got one for v", lambda: f(x, w, v=w)),
        ("f: expected arrays for x, layers.0.w, got one for v", lambda: f(x, v=w)),
        ("f: expected arrays for x, layers.0.w, got layers.0.w twice", lambda: f(x, w, **{"layers.0.w": w})),
        ("f: expected arrays for x, layers.0.w, got 3 arrays", lambda: f(x, w, w)),
        ("f: argument x: expected dtype float32, got float64", lambda: f(x.astype(float), w)),
        ("f: argument x: expected 2 axes, got 1", lambda: f(x[0], w)),
        ("f: argument layers.0.w: expected shape [6, 4], got [4, 6]", lambda: f(x, w.T)),
        ("f: out y: expected a writeable array float32[5, 4], got float32[4, 5]", lambda: f(x, w, out=out.T)),
        ("f: out y: expected memory of its own, got an array that overlaps another one", lambda: f(x, w, out=x[:, :4])),
        ("rows: out: expected 2 arrays, got 1", lambda: rows(w, np.arange(3), out=[out])),
        ("f: expected the sizes n, got m", lambda: f.workspace_bytes(m=3)),
    )
    for message, use in cases:
        with pytest.raises(ArgumentError) as caught:
            use()
        assert str(caught.value) == message
    with pytest.raises(BundleError, match="expected a function among f, rows, got g"):
        loaded["g"]
    with pytest.raises(AttributeError, match="has no function 'g': it has f, rows"):
        loaded.g  # noqa: B018


def test_indices_out_of_bounds_come_through(bundle: Path):
    rows = tensorexpr_runtime.load(bundle).rows
    w = floats(6, 4)
    for index in (6, -1):
        with pytest.raises(IndexError) as caught:
            rows(w, np.array([0, index, 1]))
        assert type(caught.value) is OutOfBoundsError
        lines = str(caught.value).splitlines()
        assert lines[0] == f"rows: expected an index of layers_0_w from 0 to 5, got {index}"
        assert lines[1:] == ["  in:   layers_0_w[ids[t], j]", "  at:   axis 0 of layers_0_w"]


def test_what_cannot_be_exported_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    f = te.compile(dense()[2])
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("mine")
    known = "host, x86-64-v4, x86-64-v3, x86-64-v2"
    taken = f"export: expected a new path or a bundle to replace, got {tmp_path}"
    cases = (
        (te.ArgumentError, "export: expected functions by name, got none", "a", {}),
        (te.ArgumentError, f"export: expected a path to write to, got {tmp_path}/file/a: File exists", "file/a", {"f": f}),
        (te.ArgumentError, "export: expected compiled functions, got an int for f", "a", {"f": 3}),
        (te.TargetError, f"export: expected CPUs among {known}, got 'z80'", "a", {"f": f, "cpus": ["z80"]}),
        (te.TargetError, "export: expected at least one CPU or GPU to make code for, got none", "a", {"f": f, "cpus": []}),
        (
            te.ArgumentError,
            "export: expected functions that have names of their own in C, got a_b, whose a_a_b is that of a-b, too",
            "a",
            {"a-b": f, "a_b": f},
        ),
        (
            te.ArgumentError,
            "export: expected functions that have names of their own in C, got threads, whose a_threads is that of every bundle, too",
            "a",
            {"threads": f},
        ),
        (te.ArgumentError, f"{taken}/file", "file", {"f": f}),
        (te.ArgumentError, f"{taken}/folder", "folder", {"f": f}),
    )
    for kind, message, name, arguments in cases:
        assert said(kind, lambda: te.export(tmp_path / name, **arguments))[0] == message  # noqa: B023
    other = replace(host(), triple="aarch64-unknown-linux-gnu")
    with monkeypatch.context() as patch:
        patch.setattr(variants, "host", lambda: other)
        message = f"export: expected a Linux machine of the architecture x86-64, got {other.triple}"
        assert said(te.TargetError, lambda: te.export(tmp_path / "a", f=f))[0] == message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
    te.export(tmp_path / "model", f=f)
    before = {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    real, calls = os.fsync, []

    def failing(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 3:
            raise OSError("the disk is full")
        real(handle)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="the disk is full"):
        te.export(tmp_path / "model", g=f)
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()} == before
    te.export(tmp_path / "model", g=f)
    assert list(tensorexpr_runtime.load(tmp_path / "model")) == ["g"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder", "model"]
    f.export(tmp_path / "short")
    assert list(tensorexpr_runtime.load(tmp_path / "short")) == ["y"]


def test_a_bundle_in_the_place_of_another_one_is_loaded(tmp_path: Path):
    """Though the system has a library by that path already."""
    x = te.placeholder((3,), name="x")
    a, loaded = floats(3), []
    for k in range(3):
        te.export(tmp_path / "model", f=te.compile(te.compute((3,), lambda i, k=k: x[i] + float(k), name="y"), [x]))
        loaded.append(tensorexpr_runtime.load(tmp_path / "model"))
        loaded.append(tensorexpr_runtime.load(tmp_path / "model"))
    for k, one in enumerate(loaded):
        np.testing.assert_array_equal(one.f(a), a + np.float32(k // 2))


def test_names_that_c_cannot_tell_apart_are_numbered(tmp_path: Path):
    n = te.dim("n")
    x, other, size = te.placeholder((n,), name="x"), te.placeholder((n,), name="X"), te.placeholder((n,), name="size_n")
    f = te.compile(te.compute((n,), lambda i: x[i] + other[i] * size[i], name="placeholders"), [x, other, size])
    lines = (te.export(tmp_path / "model", f=f) / "model.h").read_text().splitlines()
    assert "enum { MODEL_F_X, MODEL_F_X_2, MODEL_F_SIZE_N, MODEL_F_PLACEHOLDERS, MODEL_F_PLACEHOLDERS_2 };" in lines
    assert "enum { MODEL_F_SIZE_N_2 };" in lines


def test_equal_exports_have_equal_bytes(tmp_path: Path):
    for name in ("a", "b"):
        te.export(tmp_path / name / "model", f=te.compile(dense()[2]))
    for path in sorted((tmp_path / "a" / "model").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / "model" / path.name).read_bytes()


def test_a_cpu_without_what_the_code_needs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if "+fma4" in host().features.split(","):
        pytest.skip("this CPU has fma4, which later ones have not")
    (here,) = variants_of(["host"])
    missing = variants.Variant("bulldozer", here.machine, here.target, ("avx", "fma4"))
    monkeypatch.setattr(importlib.import_module("tensorexpr.codegen.bundle.export"), "variants_of", lambda cpus: (missing,))
    te.export(tmp_path / "model", f=te.compile(dense()[2]))
    with pytest.raises(BundleError) as caught:
        tensorexpr_runtime.load(tmp_path / "model")
    wanted = "expected a CPU with the features of one of its variants (bulldozer: avx, fma4), got one without"
    assert str(caught.value) == f"{tmp_path / 'model'}: {wanted}"


def test_tables_that_say_what_the_loader_does_not_know(monkeypatch: pytest.MonkeyPatch):
    assert extent_value(["add", "n", ["mul", 2, ["floordiv", "m", 3]]], {"n": 1, "m": 7}) == 5
    assert [extent_value([name, -7, 2], {}) for name in ("mod", "floordiv", "minimum", "maximum", "sub")] == [1, -4, -7, 2, -9]
    with pytest.raises(BundleError, match="expected an operation on extents that is known, got 'pow'"):
        extent_value(["pow", 2, 3], {})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(BundleError, match="bfloat16: expected the package ml_dtypes, which NumPy takes it from, got none installed"):
        array_type("bfloat16")


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_runs_on_a_cpu_that_has_it(level: str, tmp_path: Path):
    x, w, y = dense(te.dim("n"))
    f = te.compile(y, [x, w])
    te.export(tmp_path / "model", f=f, cpus=[level])
    try:
        loaded = tensorexpr_runtime.load(tmp_path / "model")
    except BundleError as error:
        assert f"expected a CPU with the features of one of its variants ({level}: " in str(error)
        assert not {f"+{name}" for name in LEVELS[level][0]} <= set(host().features.split(","))
        return
    a, b = floats(9, 6), floats(6, 4)
    np.testing.assert_allclose(loaded.f(a, b), f(a, b), rtol=1e-5, atol=1e-6)
    assert loaded.variant == level


def test_the_code_sees_the_features_that_llvm_sees():
    """One variant after the other that needs a single feature: detected where LLVM reports it, passed over where not."""
    (whole,) = variants_of(["host"])
    reported = {f[1:]: f[0] == "+" for f in host().features.split(",")}
    for name in variants._BITS:
        single = variants.Variant(name, whole.machine, whole.target, (name,))
        module = load(detection_text(whole.machine.triple, [single]), passes="none")
        found = ctypes.CFUNCTYPE(ctypes.c_int32)(module.address("te_bundle_variant"))()
        assert (found == 0) == reported.get(name, False), name


def test_threads_are_a_positive_number(bundle: Path):
    for wrong in (0, "x", True):
        with pytest.raises(tensorexpr_runtime.BundleError, match=f"expected a positive number of threads, got {wrong!r}"):
            tensorexpr_runtime.load(bundle).threads(wrong)  # type: ignore[arg-type]


def test_a_fork_works_on(bundle: Path):
    code = f"""
import os, sys
import numpy as np
sys.path.insert(0, {str(ROOT)!r})
import tensorexpr_runtime
b = tensorexpr_runtime.load({str(bundle)!r})
b.threads(2)
x, w = np.ones((5000, 6), np.float32), np.ones((6, 4), np.float32)
wanted = b.f(x, w)
child = os.fork()
if not child:
    os._exit(0 if np.array_equal(b.f(x, w), wanted) else 1)
print(os.waitpid(child, 0)[1])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.strip() == "0", done.stderr


def test_the_loader_imports_nothing_of_the_compiler():
    for path in sorted((ROOT / "tensorexpr_runtime").glob("*.py")):
        for line in path.read_text().splitlines():
            words = line.split()
            if words[:1] in (["import"], ["from"]):
                root = words[1].split(".")[0]
                assert root in ("tensorexpr_runtime", "numpy", "ml_dtypes") or root in sys.stdlib_module_names, f"{path.name}: {line}"
                assert root not in ("pickle", "marshal", "shelve", "runpy", "importlib"), f"{path.name}: {line}"
            assert not {"eval", "exec", "compile", "allow_pickle"} & set(re.findall(r"(?<![.\w])\w+(?=[(=])", line)), f"{path.name}: {line}"
    assert export_function is te.export
    for wrong in ("0", "x"):
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tensorexpr_runtime.bundle as b; b._default_threads()"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "TENSOREXPR_NUM_THREADS": wrong}, check=False
        )
        assert f"TENSOREXPR_NUM_THREADS: expected a positive integer, got '{wrong}'" in done.stderr


def test_every_dtype_and_a_workspace_of_open_size(tmp_path: Path):
    n = te.dim("n")
    x = te.placeholder((n, 8), "bfloat16", name="x")
    table = te.constant(np.arange(8, dtype=np.int16), name="table")
    flags = te.constant(np.arange(8) % 2 == 0, name="flags")
    s = te.compute((n, 8), lambda i, j: te.sum(lambda k: te.cast(x[i, k], "float64") * te.cast(table[j], "float64"), 8), name="s")
    total = te.compute((8,), lambda j: te.sum(lambda i: s[i, j] * s[i, 7 - j], n), name="total")
    y = te.compute((n, 8), lambda i, j: te.cast(te.where(flags[j], s[i, j], total[j]), "bfloat16"), name="y")
    f = te.compile(y, [x])
    te.export(tmp_path / "model", f=f)
    loaded = tensorexpr_runtime.load(tmp_path / "model")
    a = floats(6, 8).astype(y.dtype.numpy)
    assert np.array_equal(loaded.f(a).view(np.uint16), f(a).view(np.uint16))
    assert loaded.f.workspace_bytes(n=6) == f.workspace_bytes(n=6)
    small = np.empty(0, np.uint8)
    if f.workspace_bytes(n=6):
        with pytest.raises(ArgumentError, match=r"f: workspace: expected .* writeable bytes at a multiple of 64, got 0 bytes"):
            loaded.f(a, workspace=small)
    assert {c["dtype"] for c in loaded.table["constants"]} <= {"int16", "bool", "float64"}


def test_a_schedule_with_other_arguments_and_a_training_step(tmp_path: Path):
    x, w, y = dense()
    schedule = te.schedule(y)
    schedule[y].split("j", 2)
    built = te.build(schedule, [w, x])
    target = te.placeholder((5, 4), name="target")
    loss = te.compute((), lambda: te.sum(lambda i, j: (y[i, j] - target[i, j]) * (y[i, j] - target[i, j]), (5, 4)), name="loss")
    slope = te.gradient(loss, [w])[0]
    new = te.compute((6, 4), lambda k, j: w[k, j] - 0.1 * slope[k, j], name="new")
    step = te.compile(loss, [x, w, target], mode="training", updates={w: new})
    te.export(tmp_path / "model", built=built, step=step, cpus=("host", "x86-64-v2"))
    loaded = tensorexpr_runtime.load(tmp_path / "model")
    a, b, t = floats(5, 6), floats(6, 4), floats(5, 4)
    np.testing.assert_array_equal(loaded.built(b, a), built(b, a))
    np.testing.assert_array_equal(loaded.built(x=a, layers_0_w=b), built(b, a))
    context = te.Context({"layers.0.w": b.copy()})
    wanted = step.run(context, x=a, target=t)
    found, weights = loaded.step(a, b, t)
    assert found == wanted and loaded.step.updates == ("layers_0_w",) and loaded.table["functions"]["step"]["mode"] == "training"
    np.testing.assert_array_equal(weights, context["layers.0.w"])
