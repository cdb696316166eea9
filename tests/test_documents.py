"""Everything that the documents refer to exists."""

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
    "bench",
    "head",
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
SUFFIXES = (".py", ".sh")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_in_a_document_exists(name: str) -> None:
    paths = re.findall(rf"`((?:{'|'.join(map(re.escape, FOLDERS))})/[^`\s<>*]*)`", document(name))
    assert [path for path in paths if not exists(*path.split("::"))] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_in_a_document_leads_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", document(name))
    relative = [link for link in links if not link.startswith("https://")]
    assert [link for link in relative if not leads_somewhere(link, name)] == []


@pytest.mark.parametrize(
    ("name", "heading", "ours"),
    [
        ("docs/operate.md", "When something is wrong", ""),
        ("docs/azure.md", "Troubleshooting", "(volley: |The )"),  # Others are Azure's.
    ],
)
def test_every_quoted_message_is_printed(name: str, heading: str, ours: str) -> None:
    messages = [quote for quote in quoted_messages(name, heading) if re.match(ours, quote)]
    assert messages
    parts = [part for message in messages for part in message.split("...")]
    code = printing_code()
    assert [part for part in parts if part.removeprefix("volley: ").strip() not in code] == []


def exists(path: str, test: str = "") -> bool:
    """Returns whether the project has a path, and the test in it, if it names one."""
    file = ROOT / path
    return file.exists() and (not test or f"\ndef {test}(" in file.read_text())


def quoted_messages(name: str, heading: str) -> list[str]:
    """Returns the messages in the first column of the table below a heading."""
    _, below = document(name).split(f"\n## {heading}\n")
    section, *_ = below.split("\n## ")
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", section, re.MULTILINE)
    return [quote for cell in cells for quote in re.findall(r"`([^`]*)`", cell) if " " in quote]


def printing_code() -> str:
    """Returns the code that prints messages, with each string joined into one line."""
    folders = ("head", "infra", "volley")
    files = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES
    ]
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in sorted(files)))


def leads_somewhere(link: str, name: str) -> bool:
    """Returns whether the file of a relative link exists, and its heading, if it names one."""
    file, _, anchor = link.partition("#")
    target = (ROOT / name).parent / file if file else ROOT / name
    return target.is_file() and (not anchor or anchor in anchors(target))


def anchors(file: Path) -> set[str]:
    """Returns the anchors that GitHub creates for a document's headings."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
