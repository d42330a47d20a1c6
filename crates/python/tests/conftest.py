"""Stores in scratch directories. `ATOMDIR_TEST_DIR` is where these go."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import atomdir


@pytest.fixture
def base() -> Iterator[Path]:
    """The directory of a new store."""
    place = os.environ.get("ATOMDIR_TEST_DIR", "/var/tmp")
    with tempfile.TemporaryDirectory(prefix="atomdir-python-", dir=place) as scratch:
        path = Path(scratch).resolve() / "base"
        path.mkdir()
        atomdir.init(path)
        yield path
