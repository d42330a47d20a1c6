"""Where paths of the file system for fsspec are: in which store, and what is there."""

from __future__ import annotations

import contextlib
import os
import stat as stat_bits
from collections.abc import Iterator
from typing import Any

from . import _native
from ._path import Path


def locate(path: str) -> tuple[str, str, str]:
    """The root of the store that contains the path; the same directory as the path names it; and the
    path relative to that."""
    above = path
    # The path may not exist, or only in the transaction: find its nearest existing directory.
    while not os.path.isdir(above) and above != "/":
        above = os.path.dirname(above)
    root = _native.find(above)
    # Find where the path enters the store. The transaction follows links within the store.
    while above != "/" and not os.path.samefile(above, root):
        above = os.path.dirname(above)
    return root, above, os.path.relpath(path, above)


@contextlib.contextmanager
def absolute_names(entered: str) -> Iterator[None]:
    """Lets errors name the paths that the caller knows, which begin with the store's directory. In a
    transaction paths are relative to it."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str) and error.filename:
            error.filename = os.path.normpath(os.path.join(entered, error.filename))
        raise


def describe(name: str, at: Path) -> dict[str, Any]:
    found = at.lstat()
    is_link = stat_bits.S_ISLNK(found.st_mode)
    if is_link:
        # If the target is missing or outside the store, show the link itself.
        with contextlib.suppress(OSError):
            found = at.stat()
    kinds = {stat_bits.S_IFDIR: "directory", stat_bits.S_IFREG: "file"}
    info: dict[str, Any] = {
        "name": name,
        "size": found.st_size,
        "type": kinds.get(stat_bits.S_IFMT(found.st_mode), "other"),
        "islink": is_link,
        "mode": found.st_mode,
        "uid": found.st_uid,
        "gid": found.st_gid,
        "mtime": found.st_mtime,
        "ino": found.st_ino,
        "nlink": found.st_nlink,
    }
    if is_link:
        info["destination"] = str(at.readlink())
    return info
