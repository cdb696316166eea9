"""take_environment.py NAME FOLDER: unpacks the Python environment that a head has shared.

Only a head's root writes the blob NAME, which has the archive's hash. The archive is unpacked after
its hash is checked, and not by root. Exit code 1: nobody has shared it, or it cannot be used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from http.client import HTTPException
from pwd import getpwnam
from typing import IO
from urllib.error import HTTPError

from blob import Container

PATIENCE_S = 30.0
"""For roles that have no effect yet; the registries have the packages too."""
PAUSE_S = 3.0
UNPACKER = "identity"
"""The user that unpacks."""
# Without permissions, a program is neither setuid nor setgid.
TAR = ("tar", "--extract", "--zstd", "--no-same-owner", "--no-same-permissions")


class NotSharedError(Exception):
    """No environment can be used."""


def main(name: str, folder: str) -> int:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            take(name, folder)
        except NotSharedError as error:
            print(error, flush=True)
        except (OSError, HTTPException) as error:
            print(f"{name}: {error}", flush=True)
            if time.monotonic() < end:
                time.sleep(PAUSE_S)
                continue
        else:
            return 0
        shutil.rmtree(folder, ignore_errors=True)
        return 1


def take(name: str, folder: str) -> None:
    """Downloads an environment, checks its hash and unpacks it into a folder.

    Raises:
        NotSharedError: There is none, or its content is another one than the head has packed.
        OSError: Azure or the connection failed; it may be tried again.
    """
    container = Container(os.environ["ENVIRONMENT_CONTAINER"])
    try:
        wanted = b"".join(container.read(name)).decode().strip()
        archive = f"{wanted}.tar.zst"
        found = hashlib.sha256()
        # Beside the folder: /tmp can be memory.
        with tempfile.TemporaryFile(dir=os.path.dirname(folder)) as file:
            for part in container.read(archive):
                found.update(part)
                file.write(part)
            if found.hexdigest() != wanted:
                raise NotSharedError(f"{archive} has another hash, {found.hexdigest()}")
            file.seek(0)
            unpack(file, folder)
    except HTTPError as error:
        if error.code == 404:
            raise NotSharedError(f"{name} is not in {container.host}") from None
        raise


def unpack(archive: IO[bytes], folder: str) -> None:
    """Unpacks as UNPACKER, who can neither leave the folder nor make devices; then it is root's.

    Raises:
        NotSharedError: The archive has members that an environment does not have.
    """
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    user = getpwnam(UNPACKER)
    os.chown(folder, user.pw_uid, user.pw_gid)
    tar = subprocess.run(
        TAR,
        stdin=archive,
        cwd=folder,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        umask=0o022,
        check=False,
    )
    if tar.returncode != 0:
        raise NotSharedError("tar could not unpack the environment")
    os.chown(folder, 0, 0)
    for parent, folders, files in os.walk(folder):
        for path in (os.path.join(parent, name) for name in folders + files):
            os.chown(path, 0, 0, follow_symlinks=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
