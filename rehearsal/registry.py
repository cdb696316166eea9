"""A registry of container images on this machine, and images for it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rehearsal import background_process
from rehearsal.host_paths import BASE, REGISTRY
from rehearsal.host_shell import run

CONFIG = """\
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}/storage}}}}
http: {{addr: '{address}:{port}'{tls}}}
{auth}
"""
TLS = ", tls: {{certificate: '{}', key: '{}'}}"
AUTH = "auth: {{htpasswd: {{realm: private, path: '{}'}}}}"
BCRYPT = "print crypt($ARGV[0], q($2y$05$abcdefghijklmnopqrstuu))"
LEFT_OUT = ("etc/ssh", "*/systemd", "*/dri", "*/libLLVM*", "*/libicu*", "*/libz3*", "*/gconv")
"""Of the machines' Debian, what an image has no use for; and usr/share."""


@dataclass(frozen=True)
class Registry:
    """A registry that runs, unless `stop` was called."""

    folder: Path
    address: str
    port: int
    inside: Sequence[str] = ()
    """What a command begins with that runs where the registry does, in a network namespace."""
    login: tuple[str, str] | None = None
    """User and password, without which nobody may pull."""

    def start(self, certificate: Path | None = None, key: Path | None = None) -> None:
        """Starts it, with TLS if there is a certificate."""
        tls = TLS.format(certificate, key) if certificate else ""
        auth = AUTH.format(self._passwords()) if self.login else ""
        where = {"folder": self.folder, "address": self.address, "port": self.port}
        config = self.folder / "config.yml"
        config.write_text(CONFIG.format(**where, tls=tls, auth=auth))
        background_process.start(
            [*self.inside, REGISTRY / "usr/bin/docker-registry", "serve", config],
            pid_file=self.folder / "pid",
            log=self.folder / "log",
            address=self.address,
            port=self.port,
        )

    def stop(self) -> None:
        background_process.stop(self.folder / "pid")

    def push(self, name: str, layers: Sequence[Path], environment: Mapping[str, str]) -> str:
        """Pushes an image; returns its reference by digest.

        Args:
            name: With a tag: team/catch:1.
            layers: Tar files, the lowest first.
            environment: The image's own variables.
        """
        layout = self.folder / "layout"
        tag = f"{layout}:{name.replace('/', '-').replace(':', '-')}"
        if not layout.exists():
            run("umoci", "init", "--layout", layout)
        run("umoci", "new", "--image", tag)
        for layer in layers:
            run("umoci", "raw", "add-layer", "--image", tag, layer)
        for variable in environment.items():
            run("umoci", "config", "--image", tag, "--config.env", "=".join(variable))
        target = f"{self.address}:{self.port}/{name}"
        login = ["--dest-creds", ":".join(self.login)] if self.login else []
        copy = ["skopeo", "copy", "--dest-tls-verify=false", *login, f"oci:{tag}"]
        digest = self.folder / "digest"
        run(*self.inside, *copy, f"--digestfile={digest}", f"docker://{target}")
        return f"{target.rpartition(':')[0]}@{digest.read_text()}"

    def _passwords(self) -> Path:
        """Writes the file of users that the registry reads; perl is on every machine."""
        assert self.login is not None, "the caller has looked"
        user, password = self.login
        file = self.folder / "htpasswd"
        file.write_text(f"{user}:{run('perl', '-e', BCRYPT, password).stdout}\n")
        return file


def debian_layer(file: Path) -> Path:
    """Writes the machines' Debian with its Python as a layer of 190 MB."""
    excluded = [f"--exclude={pattern}" for pattern in (*LEFT_OUT, "usr/share")]
    parts = ("bin", "lib", "lib64", "sbin", "usr", "etc")
    run("tar", f"--directory={BASE}", *excluded, "-cf", file, *parts)
    return file


def layer(file: Path, content: Mapping[str, bytes | str]) -> Path:
    """Writes a layer of files, by their paths without the first slash; all may be executed.

    Args:
        content: Of each file; of a symbolic link its target, as text.
    """
    with tarfile.open(file, "w") as archive:
        for name, value in content.items():
            member = tarfile.TarInfo(name)
            if isinstance(value, str):
                member.type, member.linkname = tarfile.SYMTYPE, value
                archive.addfile(member)
            else:
                member.size, member.mode = len(value), 0o755
                archive.addfile(member, io.BytesIO(value))
    return file
