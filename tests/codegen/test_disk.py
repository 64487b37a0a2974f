"""Object code on disk: the same bits from another process, nothing believed that is damaged or foreign, a bounded folder."""

from __future__ import annotations

import errno
import io
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import threading
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen import disk, executable, gpu_code
from tensorexpr.codegen.cuda.emitter.source import Source
from tensorexpr.codegen.disk import Entry
from tensorexpr.codegen.llvm import host
from tensorexpr.codegen.llvm.process import jit
from tensorexpr.codegen.llvm.process.pool import default_threads, pool
from tensorexpr.codegen.tuning import records
from tensorexpr.errors import ArgumentError

PROGRAM = """
import logging, sys
logging.basicConfig(stream=sys.stderr, level=logging.DEBUG)
import numpy as np, tensorexpr as te
x, ids = te.placeholder((40, 24), name="x"), te.placeholder((7,), "int64", name="ids")
table = te.constant(np.linspace(0, 1, 24, dtype="float32"))
top = te.compute((40,), lambda i: te.max(lambda k: x[i, k], 24))
y = te.compute((40, 24), lambda i, j: te.exp(x[i, j] - top[i]) * table[j], name="y")
rows = te.compute((7, 24), lambda t, j: te.sum(lambda i: y[i, j], 40) + x[ids[t], j], name="rows")
f = te.build([y, rows], [x, ids])
rng = np.random.default_rng(3)
data = rng.random((40, 24), np.float32)
a, b = f(data, np.arange(7) * 5)
print(a.tobytes().hex(), b.tobytes().hex())
n = te.dim("n")
v = te.placeholder((n, 3), name="v")
mean = te.compute((3,), lambda j: te.sum(lambda i: v[i, j], n) / te.cast(n, "float32"), name="mean")
g = te.build(te.compute((n, 3), lambda i, j: v[i, j] - mean[j], name="centered"), [v])
print(g(data[:9, :3]).tobytes().hex())
print(len(str(f.nest)), len(f.source("llvm")), "te_" in f.source("asm"), len(str(f.schedule)), f.cost)
try:
    f(data, np.arange(7) * 9)
except IndexError as error:
    print(error)
"""


ROOT = Path(__file__).resolve().parents[2]


def sources() -> list[tuple[str, int]]:
    """The files that keys depend on, as they are now."""
    files = (file for room in ("tensorexpr", "autodiff", "codegen") for file in (ROOT / room).rglob("*.py"))
    return sorted((str(file), file.stat().st_mtime_ns) for file in files)


def run(folder: Path | str, code: str = PROGRAM) -> tuple[str, str]:
    environment = {**os.environ, "TENSOREXPR_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_another_process_finds_the_same_function(tmp_path: Path) -> None:
    for attempt in range(5):
        before, cache = sources(), tmp_path / f"cache{attempt}"
        first, told = run(cache)
        assert ": found" not in told
        assert cache.stat().st_mode & 0o777 == 0o700
        kept = sorted(cache.iterdir())
        assert len(kept) >= 3 and all(path.suffix == ".teo" for path in kept)
        second, told = run(cache)
        if sources() == before:
            break  # else somebody edited the package meanwhile, and what was kept does not count any more
    assert second == first
    assert told.count(": found") == len(kept)
    assert "rows: expected an index of x from 0 to 39, got 45" in second and 'File "<string>"' not in told

    for path, damage in zip(kept, (b"", kept[1].read_bytes()[:-1], kept[2].read_bytes().replace(b"ELF", b"FLE")), strict=False):
        path.write_bytes(damage)
    before = sources()
    third, told = run(cache)
    assert third == first
    assert told.count("damaged, made anew") == 3 or sources() != before


def test_a_folder_that_others_may_write_to_is_not_read(tmp_path: Path) -> None:
    first, _ = run(tmp_path / "cache")
    (tmp_path / "cache").chmod(0o777)
    second, told = run(tmp_path / "cache")
    assert second == first
    assert ": found" not in told and "the folder is not this user's own" in told


def test_nothing_is_kept_where_the_name_is_empty_or_no_folder(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    code = PROGRAM.split("rng =")[0]
    run("", code)
    _, told = run(blocked / "cache", code)
    assert "not kept" in told
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_entries_come_back_as_they_were(cache: Path) -> None:
    entry = Entry({"exports": ["f"], "sizes": [1, ["add", "n", 2]], "long": True}, bytes(range(256)) * 9)
    assert disk.load("k") is None
    disk.save("k", entry)
    assert disk.load("k") == entry
    assert disk.usage() == (cache, 1, (cache / "k.teo").stat().st_size, 512 << 20)
    assert disk.clear() == 1
    assert disk.load("k") is None and disk.usage().entries == 0


def test_an_entry_is_that_of_its_key(cache: Path) -> None:
    """Whole, but of another key: made anew, as where any byte is another one."""
    for key in ("a", "b"):
        disk.save(key, Entry({"of": key}, bytes(30)))
    whole = (cache / "a.teo").read_bytes()
    (cache / "b.teo").write_bytes(whole)
    assert disk.load("b") is None and disk.load("a") is not None
    for place in range(len(whole)):
        (cache / "a.teo").write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        assert disk.load("a") is None
        (cache / "a.teo").write_bytes(whole[:place])
        assert disk.load("a") is None


def test_what_is_no_file_counts_as_not_there_and_is_not_waited_for(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry({"exports": []}, bytes(9))
    cache.mkdir(mode=0o700)
    os.mkfifo(cache / "pipe.teo")
    (cache / "loop.teo").symlink_to("loop.teo")
    (cache / "device.teo").symlink_to("/dev/zero")
    for key in ("pipe", "loop", "device"):
        assert disk.load(key) is None
        disk.save(key, entry)  # in its place
        assert disk.load(key) == entry
    (cache / "folder.teo").mkdir()
    disk.save("folder", entry)
    assert disk.load("folder") is None
    monkeypatch.setenv("TENSOREXPR_CACHE_SIZE", "1")
    with (cache / "large.teo").open("wb") as file:
        file.truncate(1 << 40)  # of holes
    assert disk.load("large") is None


def test_a_full_disk_keeps_nothing_and_leaves_nothing_begun(cache: Path) -> None:
    code = (
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        "from tensorexpr.codegen import disk\nfrom tensorexpr.codegen.disk import Entry\n"
        "disk.save('small', Entry({}, bytes(100)))\ndisk.save('large', Entry({}, bytes(9000)))\n"
        "print(disk.load('small') is not None, disk.load('large'))"
    )
    told, _ = run(cache, code)
    assert told.split() == ["True", "None"] and [path.name for path in cache.iterdir()] == ["small.teo"]


@pytest.mark.parametrize("wrong", ["-1", "1.5", "many", "\u0663", "\u00b2"])
def test_numbers_in_the_environment_are_digits(wrong: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, reader, expected in (
        ("TENSOREXPR_CACHE_SIZE", disk.bound, "a number of MiB"),
        ("TENSOREXPR_NUM_THREADS", default_threads, "a positive integer"),
    ):
        monkeypatch.setenv(name, wrong)
        with pytest.raises(ArgumentError, match=f"{name}: expected {expected}, got '{wrong}'"):
            reader()


def test_what_a_killed_process_had_begun_goes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_fill", {})
    cache.mkdir(mode=0o700)
    for name in (".new-old", ".new-now"):
        (cache / name).write_bytes(bytes(9))
    os.utime(cache / ".new-old", (1, 1))
    disk.save("k", Entry({}, b""))
    assert {path.name for path in cache.iterdir()} == {".new-now", "k.teo"}


def test_the_folder_is_bounded_and_what_is_used_stays(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOREXPR_CACHE_SIZE", "1")
    for number in range(9):
        disk.save(f"k{number}", Entry({}, bytes(100_000)))
        os.utime(cache / f"k{number}.teo", (number, number))
    assert disk.load("k0") is not None  # used: now the youngest
    disk.save("k9", Entry({}, bytes(100_000)))
    disk.save("k10", Entry({}, bytes(100_000)))
    left = {path.stem for path in cache.iterdir()}
    assert disk.usage().bytes <= 1 << 20
    assert {"k0", "k10"} <= left and "k1" not in left
    disk.save("huge", Entry({}, bytes(2 << 20)))
    assert disk.load("huge") is None
    monkeypatch.setenv("TENSOREXPR_CACHE_SIZE", "much")
    with pytest.raises(te.ArgumentError, match="TENSOREXPR_CACHE_SIZE: expected a number of MiB, got 'much'"):
        disk.save("k", Entry({}, b""))


def test_files_are_counted_now_and_then(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOREXPR_CACHE_SIZE", "16")
    counted: list[Path] = []
    files = disk._files
    monkeypatch.setattr(disk, "_files", lambda place: counted.append(place) or files(place))
    for number in range(50):
        disk.save(f"k{number}", Entry({}, bytes(1000)))
    assert counted == [cache]
    (cache / "other.teo").write_bytes(bytes(20 << 20))  # another process, which left more than the bound
    os.utime(cache / "other.teo", (1, 1))
    for number in range(3):
        disk.save(f"large{number}", Entry({}, bytes(400_000)))
    assert len(counted) == 2 and not (cache / "other.teo").exists() and (cache / "k0.teo").exists()
    monkeypatch.setenv("TENSOREXPR_CACHE_SIZE", "1")
    disk.save("last", Entry({}, bytes(10)))
    assert len(counted) == 3 and disk.usage().bytes <= 1 << 20


def test_many_writers_at_once(cache: Path) -> None:
    entries = [Entry({"n": number}, bytes([number]) * 50_000) for number in range(8)]

    def work(entry: Entry) -> None:
        for _ in range(20):
            disk.save("same", entry)
            assert disk.load("same") in entries

    threads = [threading.Thread(target=work, args=(entry,)) for entry in entries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in cache.iterdir()] == ["same.teo"]


def test_the_key_depends_on_all_that_the_code_depends_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(tmp_path / "kept"))
    te.build(te.compute((64, 64), lambda i, j: te.exp(1.0 * i * j)))()  # the pool's code and that of calls is kept as well
    pool()
    seen: list[str] = []
    monkeypatch.setattr(disk, "load", lambda key: seen.append(key))
    monkeypatch.setattr(executable, "_executables", executable.Memo(8))

    def build(scale: float, offset: float = 0.0, split: bool = False) -> None:
        x, table = te.placeholder((6, 40), name="x"), te.constant(np.full(40, offset, np.float32), name="table")
        y = te.compute((6, 40), lambda i, j: x[i, j] * scale + table[j], name="y")
        if split:
            s = te.schedule(y)
            s[y].split("j", 8)
            te.build(s)
        else:
            te.build(y)

    for arguments in ({"scale": 2.0}, {"scale": 3.0}, {"scale": 2.0, "offset": 1.0}, {"scale": 2.0, "split": True}):
        build(**arguments)
    executable._executables.clear()
    monkeypatch.setattr(disk, "makers", lambda: "another version")
    build(2.0)
    assert len(set(seen)) == len(seen) == 5
    executable._executables.clear()
    build(2.0)
    assert seen[-1] == seen[-2]


def test_every_key_depends_on_what_makes_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of programs, of texts of LLVM, of kernels: code that an older version of this package made is not found."""
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(tmp_path / "kept"))
    made, seen = disk.makers(), []
    monkeypatch.setattr(disk, "load", lambda key: seen.append(key))
    monkeypatch.setattr(executable, "_executables", executable.Memo(8))
    monkeypatch.setattr(gpu_code.nvrtc, "version", lambda: (13, 0))
    monkeypatch.setattr(gpu_code.nvrtc, "compile_text", lambda text, arch: gpu_code.nvrtc.Compiled(arch, b"", "", "", {}))
    for maker in ("this", "the next"):
        monkeypatch.setattr(disk, "makers", lambda maker=maker: maker)
        te.build(te.compute((3,), lambda i: 2.0 * i))
        jit.NativeModule.compiled("define i64 @one() {\n  ret i64 1\n}\n", host(), "registers")
        gpu_code.compiled_text(Source("", ()), "sm_90")
        executable._executables.clear()
    assert len(set(seen)) == len(seen) and len(seen) == 6
    assert all(part in made for part in ("codegen/disk.py", "cuda/nvidia/nvrtc.py", "prelude.cuh", version("llvmlite")))


# --------------------------------------------------------------------------------------------------------- odd machines


def test_without_a_home_the_cache_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: object) -> None:
        raise KeyError("no entry")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "XDG_CACHE_HOME", "TENSOREXPR_TUNING"):
        monkeypatch.delenv(name, raising=False)
    for named in (None, "~nosuchuser/x", "~/x"):
        monkeypatch.setattr(disk, "_warned", set())
        if named is None:
            monkeypatch.delenv("TENSOREXPR_CACHE_DIR", raising=False)
        else:
            monkeypatch.setenv("TENSOREXPR_CACHE_DIR", named)
        with pytest.warns(te.CacheWarning) as told:
            assert disk.folder() is None and disk.load("k") is None and disk.usage().entries == 0 and records.places() == ()
            disk.save("k", Entry({}, b""))
        assert len(told) == 1 and "is off" in str(told[0].message) and "the home of the user is unknown" in str(told[0].message)
    monkeypatch.setenv("TENSOREXPR_TUNING", "~nosuchuser/t.jsonl")
    assert records.places() == ()


def test_a_user_whom_the_system_does_not_know_can_compile() -> None:
    """As in containers: no HOME, no entry in the password file."""
    code = """
import os
import numpy as np, tensorexpr as te
x = te.placeholder((4,), name="x")
built = lambda scale: te.build(te.compute((4,), lambda i: x[i] * scale), [x])(np.ones(4, np.float32))[0]
built(1.0)  # what it imports may be out of reach of another user
for name in ("HOME", "XDG_CACHE_HOME", "TENSOREXPR_CACHE_DIR"):
    os.environ.pop(name, None)
if os.getuid():
    import pwd
    pwd.getpwuid = {}.__getitem__
else:
    os.setuid(54321)
print(built(2.0), built(3.0), built(4.0))
"""
    told, warned = run("", code)
    assert told.split() == ["2.0", "3.0", "4.0"] and warned.count("the home of the user is unknown") == 1 == warned.count("CacheWarning")


def _no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _read_only(*_: object, **__: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


class Full(io.BytesIO):
    """A file that takes nothing."""

    def __init__(self, handle: int, *_: object) -> None:
        os.close(handle)
        super().__init__()

    write = _no_space  # type: ignore[assignment]


def _odd_folder(kind: str, place: Path, patch: pytest.MonkeyPatch) -> None:
    match kind:
        case "a file":
            place.write_bytes(b"mine")
        case "in a file":
            place.parent.rmdir()
            place.parent.write_bytes(b"mine")
        case "a dangling link":
            place.symlink_to("nowhere")
        case "a link to itself":
            place.symlink_to(place)
        case "a pipe":
            os.mkfifo(place)
        case "cannot be made":
            patch.setattr(os, "mkdir", _read_only)
        case "read-only":
            place.mkdir()
            patch.setattr(tempfile, "mkstemp", _read_only)
        case "full":
            patch.setattr(os, "fdopen", Full)
        case "full at the end":
            patch.setattr(os, "replace", _no_space)
        case "vanishes":
            real = os.replace
            patch.setattr(os, "replace", lambda *names: (shutil.rmtree(place), real(*names)))
        case "a name too long":
            patch.setenv("TENSOREXPR_CACHE_DIR", str(place / ("x" * 300)))


ODD_FOLDERS = (
    "a file", "in a file", "a dangling link", "a link to itself", "a pipe", "cannot be made", "read-only", "full", "full at the end",
    "vanishes", "a name too long",
)  # fmt: skip


@pytest.mark.parametrize("kind", ODD_FOLDERS)
def test_an_odd_folder_costs_one_warning(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "above" / "cache"
    place.parent.mkdir()
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(place))
    monkeypatch.setattr(disk, "_warned", set())
    with monkeypatch.context() as patch, pytest.warns(te.CacheWarning) as told:
        _odd_folder(kind, place, patch)
        for key in ("k", "l"):
            assert disk.load(key) is None
            disk.save(key, Entry({}, bytes(100)))
            if kind not in ("full", "cannot be made"):
                assert disk.load(key) is None
        assert disk.usage().entries == 0 and disk.clear() == 0
    assert len(told) == 1 and "not kept, compiled code will be made again by the next process" in str(told[0].message)
    assert not place.is_dir() or list(place.iterdir()) == []
    assert place.parent.is_dir() or place.parent.read_bytes() == b"mine"
