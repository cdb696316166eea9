"""The stack: its outputs as `pulumi stack output` gives them, and as they were remembered."""

from __future__ import annotations

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
from volley.errors import refused
from volley.private import digest, remember, remembered

PULUMI = "https://www.pulumi.com/docs/iac/download-install/"
ROOT = Path(__file__).parents[1]
"""The project, where `volley` is typed outside of one."""


@dataclass(frozen=True)
class Outputs:
    """The outputs of a stack that has a cluster."""

    values: dict[str, Any]

    @property
    def ssh(self) -> list[str]:
        """The command that logs in on the head: ssh volley@1.2.3.4."""
        return shlex.split(self.values["ssh"])

    @property
    def login(self) -> str:
        return self.ssh[-1]

    @property
    def head_vm_id(self) -> str:
        """Of the VM, which another VM under the same address has not."""
        return str(self.values["headVmId"])

    @property
    def head_id(self) -> str:
        """Azure's resource id of the VM; "" where an older volley has declared it."""
        return str(self.values.get("headId", ""))

    @property
    def price_per_hour(self) -> float:
        """US dollars, of a cluster with all its workers."""
        return _dollars(self.values.get("pricePerHour", "0"))

    @property
    def price_per_hour_asleep(self) -> float | None:
        """US dollars, while the head sleeps; None where an older volley has declared the stack."""
        known = self.values.get("pricePerHourAsleep")
        return None if known is None else _dollars(known)


@dataclass(frozen=True)
class Stack:
    """A stack of the project, or the one that is selected."""

    name: str | None = None

    def outputs(self) -> Outputs:
        """Asks pulumi, which takes seconds, and remembers what it says.

        Raises:
            UserError: No pulumi, no stack, or no cluster in it.
        """
        values = json.loads(self._pulumi("stack", "output", "--json") or "{}")
        which = f"the stack {self.name}" if self.name else "the selected stack"
        if "ssh" not in values:
            raise refused(f"{which} has no cluster", self._command("make up"))
        if "headVmId" not in values:
            raise refused(f"{which} was declared by an older volley", self._command("make up"))
        remember(self._key(), values)
        return Outputs(values)

    def remembered(self) -> Outputs | None:
        """Returns what pulumi said the last time; None if another stack was selected since."""
        values = remembered(self._key())
        return Outputs(values) if values else None

    def head_id(self, outputs: Outputs) -> str:
        """Returns Azure's resource id of the head's VM.

        Raises:
            UserError: An older volley has declared the stack.
        """
        if not outputs.head_id:
            raise refused(
                "the stack has no output headId: an older volley has declared it",
                self._command("make up"),
            )
        return outputs.head_id

    def deletion(self) -> str:
        """Returns what pulumi is deleting, or was when it was killed: "VirtualMachine x-head"."""
        state = json.loads(self._pulumi("stack", "export") or "{}")
        for operation in state.get("deployment", {}).get("pending_operations") or []:
            if operation["type"] == "deleting":
                *_, kind, name = operation["resource"]["urn"].split("::")
                return f"{kind.rpartition(':')[2]} {name}"
        return ""

    def check_not_deleting(self) -> None:
        """Raises UserError while pulumi deletes something, and after it was killed in that."""
        if deleted := self.deletion():
            raise refused(
                f"the stack is being destroyed or changed: pulumi is deleting {deleted}",
                "wait for it; if it was killed, make up or make down",
            )

    def _command(self, make: str) -> str:
        return f'{make} ARGS="--stack {self.name}"' if self.name else make

    def _key(self) -> str:
        """A name for what is remembered of the stack.

        Where none is named, pulumi keeps the selected one in a file; `pulumi stack select` writes
        it.
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
            raise refused("pulumi is not on the PATH", f"see {PULUMI}")
        stack = ["--stack", self.name] if self.name else []
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", *stack],
            cwd=project(),
            # A question for a newer version would take its time.
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
        """Returns pulumi's error in one line."""
        if "no stack selected" in stderr:
            return refused("no stack is selected", "pulumi stack select dev, or volley --stack dev")
        if self.name and "no stack named" in stderr:
            known = [stack["name"] for stack in json.loads(_listed() or "[]")]
            return refused(
                f"--stack {self.name}: no such stack{nearest(self.name, known)}",
                "pulumi stack ls",
            )
        lines = re.findall(r"^error: (.+)$", stderr, re.MULTILINE) or stderr.strip().splitlines()
        said = lines[0] if lines else "it gave no reason"
        return refused(f"pulumi: {said}", self._command("pulumi stack output"))


def _dollars(output: object) -> float:
    """Returns the number of "0.73 US dollars (estimated, eastus, 2026-06)"."""
    return float(str(output).split()[0])


def project() -> Path:
    """Returns the folder of the Pulumi project: this one or one above it, or volley's own."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "Pulumi.yaml").exists():
            return folder
    return ROOT


def _listed() -> str:
    command = ["pulumi", "stack", "ls", "--json"]
    return subprocess.run(
        command, cwd=project(), capture_output=True, text=True, check=False
    ).stdout
