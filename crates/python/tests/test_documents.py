"""Runs the code in docs/python.md unchanged, in a store of the test; and looks at what `help` shows."""

from __future__ import annotations

import inspect
import pydoc
import re
from pathlib import Path

import atomdir


def blocks(markdown: str) -> list[str]:
    """The indented blocks of code, without the indentation."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", markdown, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def test_the_code_in_the_document_runs(base: Path) -> None:
    document = Path(__file__).parent.parent / "docs" / "python.md"
    # The first installs the package.
    _, begin, retry, past, fsspec = blocks(document.read_text().replace("/srv/data", str(base)))
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


def test_help_shows_everything_that_is_public() -> None:
    missing = []
    for name in atomdir.__all__:
        one = getattr(atomdir, name)
        if isinstance(one, str):
            continue
        members = vars(one).items() if inspect.isclass(one) else []
        public = [(f"{name}.{key}", member) for key, member in members if key[0] != "_"]
        described = [(key, member) for key, member in public if _is_described(member)]
        missing += [key for key, member in [(name, one), *described] if not inspect.getdoc(member)]
        # Attributes without a docstring of their own are listed in that of the class.
        for key in getattr(one, "__dataclass_fields__", {}):
            if one is not atomdir.ShownCommit and f"`{key}`" not in (one.__doc__ or ""):
                missing.append(f"{name}.{key}")
    assert missing == []
    text = pydoc.plain(pydoc.render_doc(atomdir))
    assert 'write_text("port = 80\\n")' in text


def _is_described(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, property)
