"""Replaces files atomically, so that a crash cannot leave a half-written one."""

import os
from pathlib import Path


def replace_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Writes the new text to another file and renames it: the old or the new one always exists.

    Args:
        mode: Permissions, less those of the umask.
    """
    aside = path.with_suffix(".tmp")
    aside.touch(mode)
    with aside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # Else a power cut may leave an empty file.
    aside.replace(path)
