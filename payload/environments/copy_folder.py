"""Folders that an experiment names, as they travel: without caches, links replaced by files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from payload.errors import UserError
from payload.experiment.settings import LEFT_OUT


def files_in(folder: Path) -> Iterator[Path]:
    """Yields each file that `copy_folder` copies."""
    for parent, names, files in os.walk(folder, followlinks=True):
        names[:] = sorted(name for name in names if name not in LEFT_OUT)
        for path in (Path(parent, name) for name in sorted(files) if name not in LEFT_OUT):
            # A dangling link is not copied.
            if path.is_file():
                yield path


def copy_folder(folder: Path, place: Path) -> None:
    """Copies a folder to `place`, which may have other files already.

    Raises:
        UserError: A file cannot be copied, for this reason.
    """
    try:
        shutil.copytree(
            folder,
            place,
            ignore=shutil.ignore_patterns(*LEFT_OUT),
            ignore_dangling_symlinks=True,
            dirs_exist_ok=True,
        )
    except shutil.Error as error:
        source, _, reason = error.args[0][0]
        raise UserError(f"{source} cannot be copied: {reason}") from None
    except OSError as error:
        raise UserError(f"{folder} cannot be copied: {error.strerror}") from None
