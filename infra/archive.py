"""Tar files that are the same bytes for the same content, whoever makes them and when."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Container, Mapping


def archive(files: Mapping[str, bytes], executable: Container[str] = ()) -> bytes:
    """Returns a tar file of these files, in their order, without owner and time.

    Args:
        files: Content by place in the archive.
        executable: Places of the files that may be executed.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755 if name in executable else 0o644
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()
