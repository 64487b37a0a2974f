"""Whether a file or folder can be altered by other users: the one question before code or choices are loaded from it.

A path is walked from the root, links followed by hand. Each part has to belong to this user or to the system, and nobody else may
write to it; in a folder that all may write to but not rename in (`/tmp`, with the sticky bit) only what belongs to this user or the
system counts. What has passed can be replaced by nobody else, so the path that comes back, which is free of links, names the same
files until they are opened: there is no moment between looking and opening in which another user could act.

A group is nobody else where it is the user's private one: of the user's name, with no other member. Where the system has no users
(Windows), every place passes.
"""

from __future__ import annotations

import errno
import os
import stat
from functools import cache

_LINKS = 40
_UNMAPPED = 65534
"""The owner that Linux shows in a user namespace for those that it has no number for, root of the machine among them."""


class ForeignPlaceError(PermissionError):
    """A place that another user could put something in; the message names the part of the path and the reason."""


def own(path: str | os.PathLike[str]) -> str:
    """The path without links. Raises `ForeignPlaceError` where another user may alter what is there, `OSError` where nothing is."""
    if not hasattr(os, "getuid"):
        return os.path.realpath(path)
    todo = os.path.join(os.getcwd(), os.fspath(path)).split("/")[::-1]
    here, links, status = "/", 0, os.lstat("/")
    _check_parent(here, status)
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), here)
        _check_parent(here, status)
        if name == "..":
            here = os.path.dirname(here)
            status = os.lstat(here)
            continue
        inner = os.path.join(here, name)
        found = os.lstat(inner)
        if stat.S_ISLNK(found.st_mode):
            _check_owner(inner, found, (os.getuid(), 0))
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
            target = os.readlink(inner)
            if target.startswith("/"):
                here, status = "/", os.lstat("/")
            todo += target.split("/")[::-1]
        else:
            here, status = inner, found
    check_status(here, status)
    return here


def read_own(path: str | os.PathLike[str], most: int) -> bytes:
    """The contents of a plain file of at most so many bytes. Raises as `own` does, and `OSError` for what is no such file.

    What was opened is what is looked at: a pipe is not waited for, and no link is followed at the last step.
    """
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY", "O_NOCTTY"))
    handle = os.open(own(path), flags)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no plain file", os.fspath(path))
        check_status(path, status)
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"{status.st_size} bytes, more than {most}", os.fspath(path))
        return file.read(most)


def make_own(path: str | os.PathLike[str]) -> str:
    """As `own`, of a folder that is made where it is missing, with the folders above it: for this user alone."""
    missing, place = [], os.path.join(os.getcwd(), os.fspath(path))
    while not os.path.lexists(place):
        missing.append(place)
        place = os.path.dirname(place)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:  # by another process meanwhile
            if not os.path.isdir(folder):
                raise
    found = own(path)
    if not os.path.isdir(found):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(path))
    return found


def check_status(path: str | os.PathLike[str], status: os.stat_result) -> None:
    """Raises `ForeignPlaceError` where somebody else owns what has this status or may write to it."""
    if hasattr(os, "getuid"):
        _check_owner(path, status, (os.getuid(), 0))
        _check_writers(path, status)


def _check_parent(path: str, status: os.stat_result) -> None:
    owners = (os.getuid(), 0, _UNMAPPED) if _has_unmapped_owners() else (os.getuid(), 0)
    _check_owner(path, status, owners)
    if not status.st_mode & stat.S_ISVTX:
        _check_writers(path, status)


def _check_owner(path: str | os.PathLike[str], status: os.stat_result, owners: tuple[int, ...]) -> None:
    if status.st_uid not in owners:
        raise ForeignPlaceError(errno.EPERM, f"it belongs to another user (number {status.st_uid})", os.fspath(path))


def _check_writers(path: str | os.PathLike[str], status: os.stat_result) -> None:
    group = status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid)
    if status.st_mode & stat.S_IWOTH or group:
        writers = "other users" if status.st_mode & stat.S_IWOTH else "its group"
        raise ForeignPlaceError(errno.EPERM, f"{writers} may write to it", os.fspath(path))


@cache
def _is_private(group: int) -> bool:
    """Whether a group is this user alone, as where each user has one of the same name."""
    import grp  # noqa: PLC0415 -- not on every system
    import pwd  # noqa: PLC0415

    try:
        user, found = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}


@cache
def _has_unmapped_owners() -> bool:
    """Whether this is a user namespace in which the number of owners without one is nobody's."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            ranges = [tuple(map(int, line.split())) for line in file]
    except (OSError, ValueError):
        return False
    return bool(ranges) and not any(first <= _UNMAPPED < first + count for first, _, count in ranges)
