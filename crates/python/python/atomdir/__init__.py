r"""ACID transactions over the files of a directory.

    import atomdir

    with atomdir.transaction("/srv/data") as tx:
        (tx / "conf" / "a.toml").write_text("port = 80\n")
        (tx / "state.new").replace("state")

`atomdir.init("/srv/data")` makes the directory a store, once.

The end of the block commits its changes: all of them, at once, and durably. If the block raises, or
the process is killed, nothing is changed. `atomdir.retry` runs a function again after a conflict,
and `atomdir.fs` is a file system for fsspec.
"""

from ._errors import (
    BeginError,
    CommitConflict,
    CommitError,
    Conflict,
    ConflictingChange,
    Error,
    FileConflict,
    FileError,
    InitError,
    LockConflict,
    LockError,
    NoStore,
    NotKept,
    OpenError,
    OutsideStore,
    SavepointError,
    SettingsError,
    StoreError,
    StoreHeld,
    TransactionEnded,
    UndoConflict,
    UndoError,
)
from ._native import __version__, find, init
from ._path import Path
from ._records import (
    Commit,
    Differences,
    EndedTransaction,
    History,
    OpenTransaction,
    ShownCommit,
)
from ._retry import retry
from ._store import Store, transaction
from ._transaction import Change, PartReceipt, Receipt, Texts, Transaction

__all__ = [
    "BeginError",
    "Change",
    "Commit",
    "CommitConflict",
    "CommitError",
    "Conflict",
    "ConflictingChange",
    "Differences",
    "EndedTransaction",
    "Error",
    "FileConflict",
    "FileError",
    "History",
    "InitError",
    "LockConflict",
    "LockError",
    "NoStore",
    "NotKept",
    "OpenError",
    "OpenTransaction",
    "OutsideStore",
    "PartReceipt",
    "Path",
    "Receipt",
    "SavepointError",
    "SettingsError",
    "ShownCommit",
    "Store",
    "StoreError",
    "StoreHeld",
    "Texts",
    "Transaction",
    "TransactionEnded",
    "UndoConflict",
    "UndoError",
    "__version__",
    "find",
    "init",
    "retry",
    "transaction",
]
