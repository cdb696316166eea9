"""The project's documents, as tests read them."""

from __future__ import annotations

import re

from tests.project import ROOT


def document(name: str) -> str:
    return (ROOT / name).read_text()


def table_rows(name: str, heading: str) -> dict[str, list[str]]:
    """Returns the rows below a heading that begin with a `name`: name -> the other cells."""
    _, below = document(name).split(f"\n## {heading}\n")
    section, *_ = below.split("\n## ")
    found = re.findall(r"^\| `([^`]+)` \| (.*) \|$", section, re.MULTILINE)
    assert len(dict(found)) == len(found), "a name stands in two rows"
    return {row: rest.split(" | ") for row, rest in found}
