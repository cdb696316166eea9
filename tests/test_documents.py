"""What documents refer to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import document
from tests.project import ROOT

DOCUMENTS = sorted(
    str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
)
FOLDERS = (
    "payload",
    "infra",
    "volley",
    "rehearsal",
    "tests",
    "experiments",
    "requirements",
    "docs",
    ".github",
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_in_a_document_exists(name: str) -> None:
    paths = re.findall(rf"`((?:{'|'.join(map(re.escape, FOLDERS))})/[^`\s<>*]*)`", document(name))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_in_a_document_leads_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", document(name))
    relative = [link for link in links if not link.startswith("https://")]
    assert [link for link in relative if not leads_somewhere(link, name)] == []


def leads_somewhere(link: str, name: str) -> bool:
    """Whether a file, and a heading in it, is what a relative link says."""
    file, _, anchor = link.partition("#")
    target = (ROOT / name).parent / file if file else ROOT / name
    return target.is_file() and (not anchor or anchor in anchors(target))


def anchors(file: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
