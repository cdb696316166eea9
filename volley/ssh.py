"""OpenSSH to the head: one connection that several commands share (ControlMaster of ssh_config(5)).

The connection is opened separately, in the background: so a connection error is not an error of a
command, and the connection does not hold a command's pipes open.
"""

import fcntl
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from payload.errors import UserError
from volley.errors import LostError, as_typed, refused
from volley.private import (
    control_path,
    declared_known_hosts,
    digest,
    known_hosts,
    private_folder,
)
from volley.stack import Outputs

CONNECT_S = 10
ALIVE_S = 5
"""Between two keepalive messages; after three without an answer the connection is lost."""
PERSIST_S = 600
"""How long the connection stays open after the last command."""
LOST = 255
"""ssh's own exit code."""
OF_ENTRY = (
    *("HostKeyAlias", "UserKnownHostsFile", "StrictHostKeyChecking", "CheckHostIP"),
    *("HostKeyAlgorithms", "ServerAliveInterval", "ServerAliveCountMax"),
)
"""Settings of a connection that other programs need too."""
CHANGED = "HOST IDENTIFICATION HAS CHANGED"
REFUSED = ("Permission denied", "Too many authentication failures")


@dataclass(frozen=True)
class Connection:
    """The connection to one head. The user's ssh_config applies, for keys and ProxyJump."""

    outputs: Outputs

    def is_open(self) -> bool:
        """Whether ssh runs in the background; it may not have noticed yet that the head is gone."""
        if not shutil.which("ssh"):
            raise refused("ssh is not on the PATH", "install the OpenSSH client")
        command = self._ssh("-O", "check")
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def open(self) -> None:
        """Connects, unless another command has.

        Raises:
            UserError: The head cannot be reached, refuses the key, or shows another host key.
        """
        with self._alone(), tempfile.TemporaryFile("w+") as stderr:
            if self.is_open():
                return
            if not self.outputs.host_key:
                _say_if_blind(self.outputs.login, self.outputs.head_vm_id)
            persist = ["-o", f"ControlPersist={PERSIST_S}"]
            command = self._ssh("-f", "-N", "-o", "ControlMaster=auto", *persist)
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,  # A pipe would be held open by the connection.
                check=False,
            )
            if done.returncode != 0:
                stderr.seek(0)
                raise connect_error(stderr.read(), self.outputs)

    def close(self) -> None:
        """Ends the connection, even if ssh has not noticed that it is lost."""
        subprocess.run(self._ssh("-O", "exit"), capture_output=True, check=False)
        self._socket().unlink(missing_ok=True)

    def command(self, words: Sequence[str], terminal: bool = False) -> list[str]:
        """Returns the ssh command that runs these words on the head; without words, a shell."""
        tty = "-t" if terminal else "-T"
        own = ["-o", "ControlMaster=no", tty]
        return [*self._ssh(*own), *(["--", shlex.join(words)] if words else [])]

    def tunnel(self, ports: Mapping[int, int], words: Sequence[str] = ()) -> list[str]:
        """Returns the ssh command of a tunnel, which is a connection of its own.

        Args:
            ports: Of this machine's loopback, and where they lead on the head's.
            words: A command of the head that runs, and whose end ends the tunnel.
        """
        addresses = [f"127.0.0.1:{port}:127.0.0.1:{far_port}" for port, far_port in ports.items()]
        forward = [word for address in addresses for word in ("-L", address)]
        first, *rest = self.outputs.ssh
        alone = ["-T", "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes"]
        command = ["--", shlex.join(words)] if words else []
        nothing = [] if words else ["-N"]
        return [first, *nothing, *alone, *_options(self.outputs), *forward, *rest, *command]

    def _ssh(self, *own: str) -> list[str]:
        first, *rest = self.outputs.ssh
        shared = ["-o", f"ControlPath={_quoted(self._socket())}", "-o", "ClearAllForwardings=yes"]
        return [first, *own, *shared, *_options(self.outputs), *rest]

    def _socket(self) -> Path:
        return control_path(self.outputs.head_vm_id, *self.outputs.ssh)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lets commands that start at the same time open one connection."""
        name = digest(self.outputs.head_vm_id, *self.outputs.ssh)
        with (private_folder() / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def config_entry(outputs: Outputs, stack: str | None) -> str:
    """Returns an entry of ssh_config(5), for ssh, editors and IDEs."""
    user, _, address = outputs.login.rpartition("@")
    kept = {key: str(value) for key, value in _settings(outputs).items() if key in OF_ENTRY}
    lines = {"HostName": address, "User": user, **kept}
    host = "volley" if stack is None else f"volley-{stack}"
    return "".join([f"Host {host}\n", *(f"    {key} {value}\n" for key, value in lines.items())])


def connect_error(stderr: str, outputs: Outputs) -> UserError:
    """Returns why ssh could not connect, in one line with what to do."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    reason = lines[-1].strip() if lines else "ssh gave no reason"
    if CHANGED in stderr and outputs.host_key:
        return refused(
            f"{outputs.login}: the host key differs from the one that the stack has; nothing was "
            "sent. Someone may be intercepting the connection",
            "find out why; docs/operate.md says how the stack reads new keys",
        )
    if CHANGED in stderr:
        return refused(
            f"{outputs.login}: the host key of this VM has changed; nothing was sent. "
            "Someone may be intercepting the connection",
            f"find out why, then ssh-keygen -f {known_hosts()} -R {outputs.head_vm_id}",
        )
    if any(text in stderr for text in REFUSED):
        return refused(
            f"{outputs.login}: the head refuses your SSH key ({reason})",
            "ssh-add the private key that belongs to `pulumi config get sshPublicKey`",
        )
    return UnreachableError(f"{outputs.login}: the head does not answer ({reason})", reason)


class UnreachableError(LostError):
    """Nothing answers under the head's address."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        """ssh's own words."""


def _quoted(path: Path) -> str:
    """Returns a path as ssh_config(5) reads it: with quotes for spaces, % for its tokens."""
    return '"{}"'.format(str(path).replace("%", "%%"))


def _options(outputs: Outputs) -> list[str]:
    """Returns the options of every connection to the head; they override the user's ssh_config."""
    return [word for key, value in _settings(outputs).items() for word in ("-o", f"{key}={value}")]


def _trusted(outputs: Outputs) -> dict[str, str | int]:
    """Returns which host key is accepted: the stack's, or of an older stack the first one seen."""
    if not outputs.host_key:
        file = known_hosts()
        return {"UserKnownHostsFile": _quoted(file), "StrictHostKeyChecking": "accept-new"}
    file = declared_known_hosts(outputs.head_vm_id, outputs.host_key)
    return {
        "UserKnownHostsFile": _quoted(file),
        "StrictHostKeyChecking": "yes",
        "HostKeyAlgorithms": "ssh-ed25519",
    }


@cache
def _say_if_blind(login: str, host: str) -> None:
    """Prints a line, once, before a key is accepted that nobody has confirmed."""
    file = known_hosts()
    seen = file.read_text().splitlines() if file.exists() else []
    if not any(line.startswith(f"{host} ") for line in seen):
        text = (
            f"volley: {login}: the stack does not have the head's host key, so volley accepts "
            "the key that the head shows now. To have it checked: volley up"
        )
        print(as_typed(text), file=sys.stderr)


def _settings(outputs: Outputs) -> dict[str, str | int]:
    return {
        "BatchMode": "yes",
        "ConnectTimeout": CONNECT_S,
        "ServerAliveInterval": ALIVE_S,
        "ServerAliveCountMax": 3,
        # Another VM is another host; a changed key of the same VM is refused.
        "HostKeyAlias": outputs.head_vm_id,
        **_trusted(outputs),
        "CheckHostIP": "no",
        "HashKnownHosts": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "PermitLocalCommand": "no",
        "RemoteCommand": "none",
        "LogLevel": "ERROR",
    }
