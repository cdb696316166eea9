"""The project's documents, as tests read them."""

from __future__ import annotations

import re

from tests.project import ROOT


def document(name: str) -> str:
    return (ROOT / name).read_text()


def table_rows(name: str) -> dict[str, list[str]]:
    """Returns the rows of a document's tables that begin with `a name`: name -> other cells."""
    found = re.findall(r"^\| `([^`]+)` \| (.*) \|$", document(name), re.MULTILINE)
    assert len(dict(found)) == len(found), "a name stands in two rows"
    return {row: rest.split(" | ") for row, rest in found}
