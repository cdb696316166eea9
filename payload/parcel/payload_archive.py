"""The payload as a tar file, small enough for a run command."""

from __future__ import annotations

import io
import tokenize
from itertools import pairwise
from pathlib import Path

import payload
from payload.parcel.experiment_files import archive

STAYS = ("payload/parcel/", "payload/experiment/document.py")
"""Only a laptop uses them."""


def payload_archive() -> bytes:
    """Returns a tar file of the payload's modules; the same code gives the same bytes.

    It is unpacked on a machine, not installed.
    """
    package = Path(payload.__file__).parent
    paths = sorted(package.rglob("[!.]*.py"))
    modules = {path.relative_to(package.parent).as_posix(): path for path in paths}
    travelling = {name: path for name, path in modules.items() if not name.startswith(STAYS)}
    return archive(
        {name: without_words(path.read_text("utf-8")).encode() for name, path in travelling.items()}
    )


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
