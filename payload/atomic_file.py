"""Replaces files atomically, so that a crash cannot leave a half-written one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


def replace_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Writes the new text to another file and renames it: the old or the new one always exists.

    Args:
        mode: Permissions, less those of the umask.
    """
    with replaced(path, mode) as file:
        file.write(text)


@contextmanager
def replaced(path: Path, mode: int = 0o666) -> Iterator[TextIO]:
    """Yields a file for the new text, as it is without translated line ends; see replace_text."""
    aside = path.with_suffix(".tmp")
    aside.touch(mode)
    with aside.open("w", newline="") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())  # Else a power cut may leave an empty file.
    aside.replace(path)
