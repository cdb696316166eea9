"""volley's own folder on the laptop: host keys, open connections, remembered values."""

import hashlib
import os
import shlex
from pathlib import Path
from typing import Any

from head.files import read_json, replace, replace_json
from volley.errors import refused

MAX_SOCKET_BYTES = 104
"""Maximum length of a Unix socket's path on macOS, with the zero byte (sys/un.h)."""
SSH_SUFFIX = 18
"""Length of what ssh appends to the path while it creates the socket."""


def private_folder() -> Path:
    """Returns the folder, $VOLLEY_HOME or ~/.volley, which only this user can read.

    Raises:
        UserError: It belongs to another user, or is a link, which another user may have made.
    """
    folder = Path(os.environ.get("VOLLEY_HOME") or Path.home() / ".volley").absolute()
    if folder.is_symlink():
        raise refused(
            f"{folder} is a link", f"export VOLLEY_HOME={shlex.quote(str(folder.resolve()))}"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid():
        raise refused(f"{folder} belongs to another user", "export VOLLEY_HOME=~/.volley-mine")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def known_hosts() -> Path:
    """Returns the file of keys that were accepted when a head was seen first."""
    return private_folder() / "known_hosts"


def declared_known_hosts(host: str, key: str) -> Path:
    """Returns a file with a host's only key."""
    file = private_folder() / f"known_hosts-{digest(host)}"
    line = f"{host} {key}\n".encode()
    if not file.exists() or file.read_bytes() != line:
        replace(file, line, mode=0o600)
    return file


def control_path(*names: str) -> Path:
    """Returns the path of a connection's socket.

    Raises:
        UserError: The folder's path is too long for a socket.
    """
    path = private_folder() / digest(*names)
    if len(os.fsencode(path)) + SSH_SUFFIX > MAX_SOCKET_BYTES:
        raise refused(
            f"{path.parent}: the path is too long for a socket",
            "export VOLLEY_HOME=/tmp/volley-$UID",
        )
    return path


def remember(name: str, value: dict[str, Any]) -> None:
    """Writes a value to a file of the folder."""
    replace_json(private_folder() / f"{name}.json", value, mode=0o600)


def remembered(name: str) -> dict[str, Any]:
    """Returns a remembered value; empty if there is none, or it cannot be read."""
    return read_json(private_folder() / f"{name}.json")


def digest(*names: str) -> str:
    """Returns a short name for these names together."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]
