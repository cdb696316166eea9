"""The payload's archive, unpacked as on the head: everything is in it, and it runs from there."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from payload.parcel import payload_archive, without_words
from tests.project import ROOT


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(payload_archive())) as archive:
        # Debian 12's Python 3.11.2 has no argument `filter`.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    return tmp_path


def files(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


STAYS = {
    "archive.py",
    "parcel.py",
    "commands/convert.py",
    "experiment/convert.py",
    "experiment/document.py",
    "py.typed",
}
"""Only a laptop uses these files."""


def test_the_archive_has_every_file_of_the_payload_but_what_a_laptop_runs(unpacked: Path) -> None:
    assert files(unpacked / "payload") == files(ROOT / "payload") - STAYS


def test_the_archive_has_nothing_but_the_payload(unpacked: Path) -> None:
    assert [path.name for path in unpacked.iterdir()] == ["payload"]


@pytest.mark.slow
def test_the_payload_runs_from_the_archive(unpacked: Path) -> None:
    code = "import payload.__main__ as cli; print(cli.__file__); cli.main(['--help'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=unpacked, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{unpacked}/payload/")


COMPARE = """
import ast, sys
from pathlib import Path
from payload.parcel import without_words

def statements(source):
    kinds = ast.Assign | ast.AnnAssign | ast.Return | ast.Raise | ast.Assert | ast.Import
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return [(ast.unparse(node), node.lineno) for node in found]

paths = [path for path in Path("payload").rglob("*.py") if "bench" not in path.parts]
for path in paths:
    assert statements(without_words(path.read_text())) == statements(path.read_text()), path
print(len(paths))
"""


@pytest.mark.slow
def test_code_without_words_has_the_same_statements_on_the_same_lines() -> None:
    # Python 3.11's ast sometimes fails beside pytest (python/cpython#106905).
    command = [sys.executable, "-c", COMPARE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


def test_comments_and_docstrings_do_not_travel() -> None:
    source = 'x = "# no comment"  # one\n\n\nclass A:\n    """Two\n    lines."""\n'
    assert without_words(source) == 'x = "# no comment"\n\n\nclass A:\n    ""\n\n'
