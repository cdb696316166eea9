"""The payload's wheel, small enough for a run command."""

from __future__ import annotations

import io
import tempfile
import tokenize
import zipfile
from itertools import pairwise
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder


def build_wheel(root: Path) -> tuple[str, bytes]:
    """Returns name and content of the payload's wheel; the same code gives the same bytes.

    Files are stored uncompressed: the wheel as a whole compresses a third better. It is unpacked
    and not installed, so that what describes the distribution stays behind: a ninth of the whole.
    """
    stored = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        (path,) = WheelBuilder(str(root)).build(directory=folder, versions=["standard"])
        with zipfile.ZipFile(path) as built, zipfile.ZipFile(stored, "w") as wheel:
            for info in built.infolist():
                if ".dist-info/" in info.filename:
                    continue
                content = built.read(info)
                if info.filename.endswith(".py"):
                    content = without_words(content.decode()).encode()
                info.compress_type = zipfile.ZIP_STORED
                wheel.writestr(info, content)
    return Path(path).name, stored.getvalue()


def without_words(source: str) -> str:
    """Returns Python without comments and docstrings, every statement on the line where it was."""
    lines = source.splitlines()
    begins = True
    for token, after in pairwise(tokenize.generate_tokens(io.StringIO(source).readline)):
        (first, column), (last, _) = token.start, token.end
        if token.type == tokenize.COMMENT:
            lines[first - 1] = lines[first - 1][:column].rstrip()
        elif token.type == tokenize.STRING and begins and after.type == tokenize.NEWLINE:
            # A class may consist of its docstring.
            lines[first - 1 : last] = [" " * column + '""', *[""] * (last - first)]
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            begins = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    return "\n".join(lines) + "\n"
