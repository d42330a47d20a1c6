"""pandas, pyarrow and zarr in transactions. These are installed only for the long tests."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy
import pandas
import pyarrow
import pyarrow.dataset
import pytest
import zarr
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

import atomdir
from atomdir.fs import AtomdirFileSystem

YEARS = [2021, 2022, 2023]
ROWS = 2_000


def new_fs() -> AtomdirFileSystem:
    return AtomdirFileSystem(skip_instance_cache=True)


def write_version(fs: AtomdirFileSystem, path: str, version: int) -> None:
    columns = {
        "year": numpy.repeat(YEARS, ROWS),
        "version": numpy.full(len(YEARS) * ROWS, version),
    }
    pyarrow.dataset.write_dataset(
        pyarrow.table(columns),
        path,
        filesystem=fs,
        format="parquet",
        partitioning=pyarrow.dataset.partitioning(
            pyarrow.schema([("year", pyarrow.int64())]), flavor="hive"
        ),
        basename_template=f"v{version}-{{i}}.parquet",
    )


def read_versions(fs: AtomdirFileSystem, path: str) -> tuple[set[int], int]:
    found = pyarrow.dataset.dataset(
        path, filesystem=fs, format="parquet", partitioning="hive"
    ).to_table()
    return set(found["version"].to_pylist()), found.num_rows


def test_a_partitioned_data_set_is_replaced_atomically(base: Path) -> None:
    path = f"{base}/data"
    errors: list[BaseException] = []
    seen: list[int] = []
    is_done = threading.Event()

    def read() -> None:
        fs = new_fs()
        try:
            while not is_done.is_set():
                with fs.transaction:
                    versions, rows = read_versions(fs, path)
                (version,) = versions
                assert rows == len(YEARS) * ROWS
                seen.append(version)
        except BaseException as error:
            errors.append(error)

    with atomdir.Store(base):
        fs = new_fs()
        with fs.transaction:
            write_version(fs, path, 0)
        reader = threading.Thread(target=read)
        reader.start()
        try:
            for version in range(1, 8):
                with fs.transaction:
                    fs.rm(path, recursive=True)
                    write_version(fs, path, version)
                with pytest.raises(KeyError):
                    with fs.transaction:
                        fs.rm(path, recursive=True)
                        write_version(fs, path, 1000)
                        raise KeyError
        finally:
            is_done.set()
            reader.join()
        assert not errors, errors
        assert seen == sorted(seen) and seen
        assert read_versions(fs, path) == ({7}, len(YEARS) * ROWS)
    assert sorted(os.listdir(path)) == [f"year={year}" for year in YEARS]
    assert not list(base.glob("**/v1000-*"))


def test_pandas_writes_several_files_in_one_commit(base: Path) -> None:
    frame = pandas.DataFrame({"a": range(1000), "b": "text"})
    fs = pandas_fs()
    with fs.transaction:
        frame.to_parquet(f"atomdir://{base}/out/frame.parquet")
        frame.to_csv(f"atomdir://{base}/out/frame.csv", index=False)
        assert not (base / "out").exists()
    for found in (
        pandas.read_parquet(f"atomdir://{base}/out/frame.parquet"),
        pandas.read_csv(f"atomdir://{base}/out/frame.csv"),
        pandas.read_csv(base / "out/frame.csv"),
    ):
        assert list(found["a"]) == list(range(1000))
    with pytest.raises(KeyError), fs.transaction:
        frame[:1].to_csv(f"atomdir://{base}/out/frame.csv")
        raise KeyError
    assert len(pandas.read_csv(f"atomdir://{base}/out/frame.csv")) == 1000


def pandas_fs() -> Any:
    """The instance that pandas uses for URLs `atomdir://` in this thread."""
    import fsspec

    return fsspec.filesystem("atomdir")


def test_zarr_arrays_change_atomically(base: Path) -> None:
    fs = new_fs()
    store = zarr.storage.FsspecStore(
        AsyncFileSystemWrapper(fs, asynchronous=True), path=f"{base}/array"
    )

    def contents() -> set[int]:
        array = zarr.open_array(f"{base}/array", mode="r")
        return set(numpy.asarray(array[:]).flat)

    with atomdir.Store(base):
        with fs.transaction:
            array = zarr.create_array(
                store, shape=(64, 64), chunks=(8, 8), dtype="int32", fill_value=0
            )
            array[:] = 7
            assert not (base / "array").exists()
        assert contents() == {7}
        with pytest.raises(KeyError), fs.transaction:
            zarr.open_array(store)[:32] = 8
            raise KeyError
        assert contents() == {7}
