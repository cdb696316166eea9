"""Whose a checkpoint is: signed by this user on this machine, or shown before its code runs.

Who plays a checkpoint or resumes a run unpickles its files, installs the packages and imports the
modules that its experiment names, and runs its run_under. The key of the signatures is outside of
every results folder, so no folder can say of itself that it is trusted.
"""

import hashlib
import hmac
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from payload.errors import UserError, printable
from payload.experiment.settings import Experiment
from payload.experiment.wrappers import own_packages
from payload.notification import masked, variable_of

SIGNATURE = ".signature"
"""No cluster saves or sends a file whose name begins with a dot."""
KEY = "checkpoint-key"
KEY_BYTES = 32


@dataclass(frozen=True)
class Signed:
    """Files of a folder, which one signature is of."""

    folder: Path
    files: tuple[str, ...]

    def sign(self) -> None:
        """Writes the signature; writes none where this user can keep no key."""
        with suppress(OSError):
            (self.folder / SIGNATURE).write_text(self._signature() + "\n")

    def is_own(self) -> bool:
        """Whether the signature is of this user's key, and the files are as they were then."""
        try:
            signature = (self.folder / SIGNATURE).read_text().strip()
            return hmac.compare_digest(signature.encode(), self._signature().encode())
        except (OSError, ValueError):
            return False

    def _signature(self) -> str:
        signature = hmac.new(_key(), digestmod=hashlib.sha256)
        for name in self.files:
            content = (self.folder / name).read_bytes()
            signature.update(f"{name} {len(content)}\n".encode() + content)
        return signature.hexdigest()


def check_trust(what: str, signed: Sequence[Signed], code: Mapping[str, str], trust: bool) -> None:
    """Asks before code runs that a folder names, unless this user has made or trusted the folder.

    Args:
        what: The folder, as messages call it.
        signed: All signatures that it must have.
        code: What would run, by kind.
        trust: Whether the person has said already that it may.

    Raises:
        UserError: It may not, or no terminal is there to ask.
    """
    if not code or all(each.is_own() for each in signed):
        return
    if not trust:
        _ask(what, code)
    for each in signed:
        each.sign()


def code_of(experiment: Experiment, pickles: bool) -> dict[str, str]:
    """Returns what an experiment makes run on this machine, by kind."""
    files = [experiment.pip_requirements_file, experiment.conda_dependencies_file]
    packages = [*experiment.pip_packages, *experiment.conda_packages, *filter(None, files)]
    config, notify = experiment.config, experiment.notify or ""
    named = [experiment.env.rpartition(":")[0], *own_packages(config.wrappers), config.module]
    variables = [f"{name}={value}" for name, value in experiment.environment_variables.items()]
    code = {
        "run_under": experiment.run_under or "",
        "notify": "" if variable_of(notify) else masked(notify),
        "packages": ", ".join(packages),
        "modules": ", ".join(filter(None, [*named, experiment.source_directory])),
        "environment variables": ", ".join(variables),
        "pickles": "RLlib's state and networks" if pickles else "",
    }
    return {kind: text for kind, text in code.items() if text}


def _ask(what: str, code: Mapping[str, str]) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        named = "; ".join(f"{kind}: {text}" for kind, text in code.items())
        raise UserError(
            f"{what}: you did not create it on this machine, and it would run code ({named}). "
            "Next: find out whose it is, then add --trust"
        )
    print(printable(f"{what}: you did not create it on this machine, and it would run code:"))
    for kind, text in code.items():
        print(printable(f"  {kind:<22} {text}"))
    if input("Run it? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UserError(f"{what}: not trusted, so none of its code was run")


def _key() -> bytes:
    """Returns this user's key, and makes it if there is none.

    Raises:
        OSError: Its folder cannot be written, or is not only this user's.
    """
    folder = Path(os.environ.get("VOLLEY_HOME") or Path.home() / ".volley")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is not a folder of this user")
    file = folder / KEY
    if not file.exists():
        with tempfile.NamedTemporaryFile(dir=folder) as made:
            made.write(secrets.token_bytes(KEY_BYTES))
            made.flush()
            with suppress(FileExistsError):  # Another process has made it meanwhile.
                os.link(made.name, file)
    key = file.read_bytes()
    if len(key) != KEY_BYTES:
        raise OSError(f"{file} is damaged")
    return key
