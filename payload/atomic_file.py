"""Replaces files atomically, so that a crash cannot leave a half-written one."""

from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Writes a file's new text aside and renames it: at any moment the old or the new is there."""
    aside = path.with_suffix(".tmp")
    aside.write_text(text)
    aside.replace(path)
