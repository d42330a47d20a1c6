"""Stores in scratch directories, which are made in `ATOMDIR_TEST_DIR`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import atomdir


MEMORY = "/dev/shm"


@pytest.fixture
def base(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The directory of a new store. It is in memory for tests that make thousands of commits."""
    place = os.environ.get("ATOMDIR_TEST_DIR", "/var/tmp")
    if request.node.get_closest_marker("many_commits") and os.access(MEMORY, os.W_OK):
        place = MEMORY
    with tempfile.TemporaryDirectory(prefix="atomdir-python-", dir=place) as scratch:
        path = Path(scratch).resolve() / "base"
        path.mkdir()
        atomdir.init(path)
        yield path


@pytest.fixture(params=["embedded", "service"])
def store(request: pytest.FixtureRequest, base: Path) -> Iterator[atomdir.Store]:
    if request.param == "embedded":
        with atomdir.Store(base, door="embedded") as opened:
            yield opened
        return
    command = os.environ.get("ATOMDIR_BIN")
    if command is None:
        pytest.skip("ATOMDIR_BIN does not name the command")
    if os.geteuid() != 0 and not os.access("/dev/fuse", os.W_OK):
        pytest.skip("this user cannot mount views")
    try:
        with atomdir.Store(base, door="service", service_program=command) as opened:
            yield opened
    finally:
        subprocess.run([command, "-C", base, "service", "stop", "--abort"], check=True)
