"""Shared by the test programs: loads the extension, and opens connections."""

import os
import sqlite3
import sys

EXTENSION, STORE = sys.argv[1:3]
DOOR = next((argument for argument in sys.argv[3:] if argument.startswith("&door=")), "")

_first = sqlite3.connect(":memory:")
_first.enable_load_extension(True)
_first.load_extension(EXTENSION)

BUSY_SNAPSHOT = sqlite3.SQLITE_BUSY | 2 << 8


def uri(name="db", options=""):
    return f"file:{os.path.join(STORE, name)}?vfs=atomdir{options.replace(DOOR, '')}{DOOR}"


def connect(name="db", options="", **more):
    """A connection in autocommit mode: Python's sqlite3 sends no BEGIN or COMMIT by itself."""
    return sqlite3.connect(uri(name, options), uri=True, isolation_level=None, timeout=0, **more)


def plain(name="db"):
    return sqlite3.connect(os.path.join(STORE, name))


def code_of(act):
    """Calls `act`. Returns the extended result code of its error, or 0."""
    try:
        act()
    except sqlite3.Error as error:
        return error.sqlite_errorcode
    return 0


def expect(found, wanted):
    assert found == wanted, f"{found!r} instead of {wanted!r}"
