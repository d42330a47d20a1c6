"""fsspec's own test suite for file systems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.tests import abstract

import atomdir
from atomdir.fs import AtomdirFileSystem


pytestmark = pytest.mark.many_commits


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self) -> AtomdirFileSystem:
        # Use the name, to test that the file system is registered.
        fs = fsspec.filesystem("atomdir")
        assert isinstance(fs, AtomdirFileSystem)
        return fs

    @pytest.fixture
    def fs_path(self, base: Path) -> Iterator[str]:
        # Keep the store open between the calls, each of which is a transaction.
        with atomdir.Store(base):
            yield str(base)


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass
