"""Runs the code in docs/python.md unchanged, in a store of the test."""

from __future__ import annotations

import re
from pathlib import Path

import atomdir


def blocks(markdown: str) -> list[str]:
    """The indented blocks of code, without the indentation."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", markdown, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def test_the_code_in_the_document_runs(base: Path) -> None:
    document = Path(__file__).parent.parent / "docs" / "python.md"
    begin, retry, past, fsspec = blocks(document.read_text().replace("/srv/data", str(base)))
    (base / "conf").mkdir()
    (base / "state.new").write_text("1")
    names: dict[str, object] = {}
    exec(begin, names)
    assert (base / "conf/b.toml").read_text() == "port = 81\n"
    assert (base / "state").read_text() == "1"
    (base / "visits").write_text("41")
    exec(retry + "\ncount_visit()", names)
    assert (base / "visits").read_text() == "42"
    with atomdir.transaction(base) as tx:
        (tx / "conf" / "a.toml").write_text("port = 8080\n")
    exec(past, names)
    assert (base / "conf/a.toml").read_text() == "port = 80\n"
    # Running this needs pyarrow. tests/full runs similar code.
    compile(fsspec, "fsspec", "exec")
