"""Runs that this machine does not have: `identity` sends them, and Ray's user writes them.

So whatever link an experiment has left there leads nowhere that Ray's user could not write.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ..archive import open_stream
from ..below import Below
from ..paths import RUNS
from .client import IdentityError, connect, send

END = ".end"
"""The last member of a whole archive; it has the reason if the runs are not restored."""
PART_S = 10 * 60.0
"""For the next part of an archive: a large file comes from Blob first."""
PRIVATE = 0o600


def restore(key: str) -> None:
    """Restores the runs of one experiment, all or none, unless this machine has some.

    Raises:
        IdentityError: They cannot be restored now.
    """
    if (RUNS / key).exists():
        return
    aside = RUNS / f".{key}"
    with suppress(OSError):
        aside.unlink()  # If it is a link.
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        with connect(PART_S) as connection, connection.makefile("rb") as stream:
            send(connection, "restore", key=key)
            reason = unpack(stream, aside)
    except (OSError, tarfile.TarError) as error:
        reason = f"the runs arrived incomplete: {error}"
    if reason:
        shutil.rmtree(aside, ignore_errors=True)
        raise IdentityError(reason)
    if any(aside.iterdir()):
        aside.rename(RUNS / key)
    else:
        aside.rmdir()


def unpack(stream: BinaryIO, folder: Path) -> str:
    """Unpacks files and links; returns why they are not all, or "".

    Raises:
        OSError, tarfile.TarError: They cannot be received or written.
    """
    with open_stream(stream) as archive, Below(folder) as below:
        for member in archive:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts:
                return f"{path} is outside the folder"
            if member.issym():
                below.replace_link(path, member.linkname)
            elif (content := archive.extractfile(member)) is None:
                return f"{path} is not a file"
            elif member.name == END:
                return content.read().decode()
            else:
                with below.writing(path, int(member.mtime) * 10**9, PRIVATE) as file:
                    shutil.copyfileobj(content, file)
                    file.flush()
                    os.fsync(file.fileno())
    return "the archive has no end"
