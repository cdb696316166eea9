"""The command `volley` as it is typed on the administrator's laptop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rehearsal.backend import storage_accounts
from rehearsal.drivers.pulumi_project import PulumiProject
from rehearsal.paths import ROOT
from rehearsal.scenario.laptop import ON_THE_INTERNET, Laptop
from rehearsal.scenario.outcomes import UnexpectedError

COMMAND_S = 300.0
SSH = '#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n'
"""The administrator's ~/.ssh/config."""
AZ = '#!/bin/sh\nexec {python} -m rehearsal.azure.az "$@"\n'


class Volley:
    """Runs `volley` in the folder of the Pulumi project."""

    def __init__(self, laptop: Laptop, project: PulumiProject) -> None:
        self.folder = project.folder
        self._record: Path | None = None
        programs = laptop.folder / "programs"
        programs.mkdir(exist_ok=True)
        for name, text in (
            ("ssh", SSH.format(config=laptop.ssh_config)),
            ("az", AZ.format(python=sys.executable)),
        ):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self._environment = {
            **project.environment,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "VOLLEY_HOME": str(laptop.folder / "volley"),
            "REQUESTS_CA_BUNDLE": str(storage_accounts().ca_certificate),
        }

    def record_to(self, file: Path) -> None:
        """Lets `say` write to a file, which it begins."""
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
        self._record = file

    def say(self, *words: str) -> None:
        """Types a verb as people do; records it with what it prints.

        Raises:
            UnexpectedError: It fails.
        """
        said = self.type(*words)
        self.record(" ".join(("volley", *(word.removeprefix(f"{ROOT}/") for word in words))), said)

    def record(self, typed: str, said: str) -> None:
        """Appends a command and what it printed to the record."""
        assert self._record is not None
        with self._record.open("a") as record:
            record.write(f"$ {typed}\n{said.strip()}\n\n")

    def ask(self, *words: str) -> dict[str, Any]:
        """Returns what a verb says with --json."""
        answer: dict[str, Any] = json.loads(self.type(*words, "--json"))
        return answer

    def type(self, *words: str) -> str:
        """Returns what a verb prints.

        Raises:
            UnexpectedError: It fails.
        """
        process = self.begin(*words)
        try:
            stdout, stderr = process.communicate(timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        if process.returncode != 0:
            raise UnexpectedError(f"volley {' '.join(words)}: {stderr.strip()}")
        return stdout

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Starts a verb, with a process group of its own."""
        return subprocess.Popen(
            [*ON_THE_INTERNET, sys.executable, "-m", "volley", *words],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def experiments(self) -> dict[str, dict[str, Any]]:
        """Returns what `volley status` says of each experiment, by name."""
        return {one["name"]: one for one in self.ask("status")["experiments"]}
