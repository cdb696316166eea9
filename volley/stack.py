"""The stack: its outputs as `pulumi stack output` gives them, and as they were remembered."""

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from payload.errors import UserError, nearest
from volley.errors import CLONE, refused
from volley.private import digest, remember, remembered

KNOWN = "KnownHostsCommand="
INSTALL_PULUMI = "https://www.pulumi.com/docs/iac/download-install/"


class NoClusterError(UserError):
    """The stack has no cluster: none yet, or none any more."""


@dataclass(frozen=True)
class Outputs:
    """The outputs of a stack that has a cluster."""

    values: dict[str, Any]

    @property
    def ssh(self) -> list[str]:
        """The command that logs in on the head: ssh volley@1.2.3.4.

        It has no KnownHostsCommand, which OpenSSH before 8.5 lacks: volley has the key in a file.
        """
        words = shlex.split(self.values["ssh"])
        known = next((i for i, word in enumerate(words) if word.startswith(KNOWN)), None)
        return words if known is None else [*words[: known - 1], *words[known + 1 :]]

    @property
    def login(self) -> str:
        return self.ssh[-1]

    @property
    def head_vm_id(self) -> str:
        """Azure's id of this VM; another VM under the same address has another one."""
        return str(self.values["headVmId"])

    @property
    def host_key(self) -> str:
        """The head's, "ssh-ed25519 AAAA..."; "" if an older volley has deployed the stack."""
        key = str(self.values.get("headHostKey") or "")
        return key if re.fullmatch(r"ssh-ed25519 [A-Za-z0-9+/=]+", key) else ""

    @property
    def head_id(self) -> str:
        return str(self.values["headId"])

    @property
    def price_per_hour(self) -> float:
        """US dollars, of a cluster with all its workers."""
        return float(self.values.get("pricePerHourUsd", "nan"))

    @property
    def price_per_hour_asleep(self) -> float:
        """US dollars, while the head sleeps."""
        return float(self.values.get("pricePerHourAsleepUsd", "nan"))


@dataclass(frozen=True)
class Stack:
    """A stack of the project, or the one that is selected."""

    name: str | None = None

    def outputs(self) -> Outputs:
        """Asks pulumi, which takes seconds, and remembers the answer.

        Raises:
            UserError: No pulumi, no stack, or no cluster in it.
        """
        values = json.loads(self._pulumi("stack", "output", "--json") or "{}")
        if "headVmId" not in values:
            which = f"the stack {self.name}" if self.name else "the selected stack"
            raise NoClusterError(f"{which} has no cluster. Next: {self.command('volley up')}")
        remember(self._key(), values)
        return Outputs(values)

    def remembered(self) -> Outputs | None:
        """Returns pulumi's last answer; None if another stack was selected since."""
        values = remembered(self._key())
        return Outputs(values) if values else None

    def deletion(self) -> str:
        """Returns what pulumi is deleting, or was when it was killed: "VirtualMachine x-head"."""
        state = json.loads(self._pulumi("stack", "export") or "{}")
        for operation in state.get("deployment", {}).get("pending_operations") or []:
            if operation["type"] == "deleting":
                *_, kind, name = operation["resource"]["urn"].split("::")
                return f"{kind.rpartition(':')[2]} {name}"
        return ""

    def check_not_deleting(self) -> None:
        """Raises UserError while pulumi deletes something, and after it was killed meanwhile."""
        if deleted := self.deletion():
            raise refused(
                f"the stack is being destroyed or changed: pulumi is deleting {deleted}",
                "wait until it has finished; if it was killed, volley up or volley down",
            )

    def command(self, command: str) -> str:
        """Returns a command with this stack: "volley up --stack dev"."""
        return f"{command} --stack {self.name}" if self.name else command

    def _key(self) -> str:
        """Returns the name under which the stack's outputs are remembered.

        Without a name it depends on the selected one, which `pulumi stack select` writes to a file.
        """
        home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
        selected = sorted(
            f"{file.name} {file.stat().st_mtime_ns}" for file in home.glob("workspaces/*.json")
        )
        which = [self.name] if self.name else [os.environ.get("PULUMI_STACK", ""), *selected]
        backend = os.environ.get("PULUMI_BACKEND_URL", "")
        return f"outputs-{digest(str(project()), backend, *which)}"

    def _pulumi(self, *arguments: str) -> str:
        if not shutil.which("pulumi"):
            raise refused("the Pulumi CLI is not on the PATH", f"install it, {INSTALL_PULUMI}")
        stack = ["--stack", self.name] if self.name else []
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", *stack],
            cwd=project(),
            # Looking for a newer version takes time.
            env={**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise self._explained(done.stderr)
        return done.stdout

    def _explained(self, stderr: str) -> UserError:
        if "no stack selected" in stderr:
            return refused("no stack is selected", "pulumi stack select dev, or add --stack dev")
        if self.name and "no stack named" in stderr:
            command = ["pulumi", "stack", "ls", "--json"]
            done = subprocess.run(command, cwd=project(), capture_output=True, check=False)
            names = [stack["name"] for stack in json.loads(done.stdout or "[]")]
            return refused(
                f"--stack {self.name}: no such stack{nearest(self.name, names)}", "pulumi stack ls"
            )
        lines = re.findall(r"^error: (.+)$", stderr, re.MULTILINE) or stderr.strip().splitlines()
        reason = lines[0] if lines else "it gave no reason"
        return refused(f"pulumi: {reason}", self.command("pulumi stack output"))


def project() -> Path:
    """Returns the folder of the Pulumi project: this one, one above it, or volley's clone.

    Raises:
        UserError: There is none.
    """
    here = Path.cwd()
    for folder in (here, *here.parents, CLONE):
        if (folder / "Pulumi.yaml").exists():
            return folder
    raise refused(f"{here}: no Pulumi.yaml here or in a folder above", "volley new DIR")
