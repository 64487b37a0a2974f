"""Places that other users can write to: no code and no choices come from there, whatever part of the path it is."""

from __future__ import annotations

import grp
import logging
import os
import pwd
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tensorexpr as te
import tensorexpr_runtime
from tensorexpr.codegen import disk
from tensorexpr.codegen.cuda import host
from tensorexpr.codegen.disk import Entry
from tensorexpr.codegen.tuning import records
from tensorexpr_runtime import BundleError, places
from tensorexpr_runtime.places import ForeignPlaceError, make_own, own, read_own
from tests.codegen.tuning.test_records import RECORD, other
from tests.storage.models import dense, floats
from tests.storage.strangers import STRANGER, give_away

Attack = Callable[[Path, pytest.MonkeyPatch], object]


def _given_away(part: str) -> Attack:
    return lambda base, patch: give_away(base / part, patch)


def _open_to(part: str, mode: int) -> Attack:
    return lambda base, _: (base / part).chmod(mode)


def _linked(base: Path, patch: pytest.MonkeyPatch) -> None:
    """A folder of one's own, put in place by another user."""
    (base / "a" / "b").rename(base / "elsewhere")
    (base / "a").chmod(0o1777)
    (base / "a" / "b").symlink_to(base / "elsewhere")
    give_away(base / "a" / "b", patch)


def _of_a_group(base: Path, patch: pytest.MonkeyPatch) -> None:
    (base / "a").chmod(0o775)
    patch.setattr(grp, "getgrgid", lambda number: SimpleNamespace(gr_name="staff", gr_mem=[]))


ATTACKS: dict[str, Attack] = {
    "the file belongs to another user": _given_away("a/b/file"),
    "the folder belongs to another user": _given_away("a/b"),
    "a folder above belongs to another user": _given_away("a"),
    "all may write to the file": _open_to("a/b/file", 0o666),
    "all may write to the folder": _open_to("a/b", 0o777),
    "all may write to the folder, not rename": _open_to("a/b", 0o1777),
    "all may write to a folder above": _open_to("a", 0o777),
    "a group may write to a folder above": _of_a_group,
    "a link of another user": _linked,
}
LAST = {"all may write to the folder, not rename"}
"""What is no matter for a file of one's own in the folder, but for the folder itself, where others may add some."""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"mine")
    places._is_private.cache_clear()
    return tmp_path


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_part_of_a_path_counts(attack: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own(base / "a" / "b") == os.path.realpath(base / "a" / "b")
    assert read_own(base / "a" / ".." / "a" / "b" / "file", 9) == b"mine"
    ATTACKS[attack](base, monkeypatch)
    for part in ("a/b/file",) if attack not in LAST else ("a/b",):
        with pytest.raises(ForeignPlaceError, match=r"another user \(number \d+\)|may write to it"):
            own(base / part)
    monkeypatch.undo()
    places._is_private.cache_clear()


def test_links_and_private_groups_are_followed(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base / "link").symlink_to("a/../a/b")
    (base / "loop").symlink_to("loop")
    monkeypatch.chdir(base / "a")
    assert own("../link/./file") == os.path.realpath(base / "a/b/file")
    with pytest.raises(OSError, match="Too many levels"):
        own(base / "loop")
    for wrong in ("a/nothing/..", "a/b/file/..", "a/b/file/x"):
        with pytest.raises(OSError, match=r"No such file|Not a directory"):
            own(base / wrong)
    user = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwuid", lambda number: SimpleNamespace(pw_name="ann", pw_gid=user.pw_gid))
    (base / "a").chmod(0o775)
    for group, private in ((("ann", ["ann"]), True), (("ann", ["bob"]), False), (("staff", []), False)):
        places._is_private.cache_clear()
        monkeypatch.setattr(grp, "getgrgid", lambda number, g=group: SimpleNamespace(gr_name=g[0], gr_mem=g[1]))
        monkeypatch.setattr(os, "lstat", _all_of_group(user.pw_gid))
        if private:
            own(base / "a" / "b")
        else:
            with pytest.raises(ForeignPlaceError, match="its group may write to it"):
                own(base / "a" / "b")
    monkeypatch.undo()
    places._is_private.cache_clear()


def _all_of_group(group: int, real: Callable[..., os.stat_result] = os.lstat) -> Callable[..., os.stat_result]:
    def lstat(path: str) -> os.stat_result:
        found = real(path)
        return os.stat_result((*found[:5], group, *found[6:]))

    return lstat


def test_only_plain_files_of_a_bounded_size_are_read(base: Path) -> None:
    os.mkfifo(base / "pipe")
    (base / "device").symlink_to("/dev/zero")
    for name, message in (
        ("pipe", "no plain file"),
        ("device", "other users may write to it"),
        ("a", "no plain file|directory"),
        ("nothing", "No such file"),
    ):
        with pytest.raises(OSError, match=message):
            read_own(base / name, 100)
    with pytest.raises(OSError, match="4 bytes, more than 3"):
        read_own(base / "a/b/file", 3)


def test_folders_are_made_for_this_user_alone(base: Path) -> None:
    before = os.umask(0)
    try:
        assert make_own(base / "new" / "inner") == os.path.realpath(base / "new" / "inner")
    finally:
        os.umask(before)
    assert [(base / name).stat().st_mode & 0o777 for name in ("new", "new/inner")] == [0o700, 0o700]
    with pytest.raises(NotADirectoryError):
        make_own(base / "a/b/file")


# ------------------------------------------------------------------------------------------- what is loaded from places


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_cache_of_code_is_off_there(attack: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = base / "a" / "b"
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(place))
    disk.save("k", Entry({}, b"code"))
    assert disk.load("k") == Entry({}, b"code")
    (place / "k.teo").replace(place / "file")
    (place / "file").rename(place / "k.teo")
    (place / "file").symlink_to("k.teo")
    ATTACKS[attack](base, monkeypatch)
    monkeypatch.setattr(disk, "_warned", set())
    if attack.startswith(("all may write to the file", "the file belongs")):
        (os.chown(place / "k.teo", STRANGER, STRANGER) if os.getuid() == 0 else (place / "k.teo").chmod(0o666))
    with pytest.warns(te.CacheWarning) as told:
        assert disk.load("k") is None and disk.load("k") is None
    assert len(told) == 1 and "not read, the folder is not this user's own" in str(told[0].message)
    if "file" not in attack:
        disk.save("other", Entry({}, b"code"))
        assert not (place / "other.teo").exists()


@pytest.mark.parametrize("attack", ATTACKS)
def test_records_of_tuning_are_not_read_there(
    attack: str, base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = base / "a" / "b" / "file"
    path.unlink()
    records.write(path, [RECORD])
    ATTACKS[attack](base, monkeypatch)
    if attack in LAST:
        assert records.read(path) == [RECORD]
        return
    with caplog.at_level(logging.WARNING, "tensorexpr.tuning"):
        assert records.read(path) == []
    assert "may write to it" in caplog.text or "another user" in caplog.text
    before = path.read_bytes()
    with pytest.raises(
        te.ArgumentError, match=r"file: expected a file that no other user can write to, got /.*: (it belongs|other users|its group)"
    ):
        records.write(path, [other(1)])
    assert path.read_bytes() == before


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x, w, y = dense()
    return te.export(tmp_path_factory.mktemp("bundles") / "model", f=te.compile(y, [x, w]))


@pytest.mark.parametrize("attack", ATTACKS)
def test_bundles_are_not_loaded_there_unless_that_is_said(attack: str, base: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = base / "a" / "b"
    shutil.rmtree(place)
    shutil.copytree(bundle, place)
    (place / "libmodel.so").rename(place / "file")
    (place / "libmodel.so").symlink_to("file")
    x, w = floats(5, 6), floats(6, 4)
    wanted = tensorexpr_runtime.load(place).f(x, w)
    ATTACKS[attack](base, monkeypatch)
    if attack not in LAST:
        with pytest.raises(
            BundleError,
            match=r"b: expected a place that no other user can write to, as code is loaded from it, got /.*: .*; "
            r"load\(path, trusted=True\) takes it all the same",
        ):
            tensorexpr_runtime.load(place)
    np.testing.assert_array_equal(tensorexpr_runtime.load(place, trusted=True).f(x, w), wanted)


def test_exports_can_be_written_by_their_user_alone(base: Path) -> None:
    before = os.umask(0o002)
    try:
        place = te.export(base / "model", f=te.compile(dense()[2]))
    finally:
        os.umask(before)
    assert place.stat().st_mode & 0o777 == 0o755 and {p.stat().st_mode & 0o777 for p in place.iterdir()} == {0o644}


@pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("attack", ["belongs to another user", "all may write", "a link"])
def test_kernels_on_the_cpu_are_not_loaded_from_a_folder_that_was_there(attack: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is known beforehand, and the temporary folder is open to all."""
    base.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    monkeypatch.setattr(disk, "_warned", set())
    host._folder.cache_clear()
    text = {"kernels.cpp": 'extern "C" int answer() { return 42; }\n'}
    known = host._compiled(text)
    assert known.parent.name == f"tensorexpr-host-{os.getuid()}" and known.parent.stat().st_mode & 0o777 == 0o700
    assert host._compiled(text) == known
    known.write_bytes(b"planted")
    match attack:
        case "all may write":
            known.parent.chmod(0o777)
        case "a link":
            known.parent.rename(base / "a" / "planted")
            known.parent.symlink_to(base / "a" / "planted")
            give_away(known.parent, monkeypatch)
        case _:
            give_away(known.parent, monkeypatch)
    host._folder.cache_clear()
    if os.getuid():
        with pytest.raises(te.TargetError, match="TMPDIR names one"):  # all is another user's, where that is pretended
            host._compiled(text)
    else:
        with pytest.warns(te.CacheWarning, match="not used for the kernels of this process"):
            made = host._compiled(text)
        assert made != known and made.read_bytes().startswith(b"\x7fELF") and known.read_bytes() == b"planted"
    host._folder.cache_clear()


@pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler")
def test_kernels_on_the_cpu_want_a_folder_that_can_be_written(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = {"kernels.cpp": 'extern "C" int answer() { return 43; }\n'}
    monkeypatch.setattr(disk, "_warned", set())
    monkeypatch.setattr(tempfile, "tempdir", str(base / "a/b/file"))
    host._folder.cache_clear()
    missing = (
        "expected a folder for temporary files that only this user can write to, to run CUDA kernels on a CPU, got none: .*Not a directory"
    )
    with pytest.warns(te.CacheWarning, match="not used for the kernels of this process"), pytest.raises(te.TargetError, match=missing):
        host._compiled(text)
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    host._folder().rmdir()  # by whoever cleans up the folder of temporary files
    gone = "expected a folder for the kernels of this process that can be written, got .*No such file"
    with pytest.raises(te.TargetError, match=gone):
        host._compiled(text)
    host._folder.cache_clear()
