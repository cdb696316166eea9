"""The command `volley`, typed on the administrator's laptop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rehearsal.backend import storage_accounts
from rehearsal.drivers.pulumi_cli import PulumiProject
from rehearsal.host_paths import ROOT
from rehearsal.scenario.laptop import ON_THE_INTERNET, Laptop
from rehearsal.scenario.outcomes import UnexpectedError

COMMAND_S = 300.0
SSH = '#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n'
"""Stands for the administrator's ~/.ssh/config."""
AZ = '#!/bin/sh\nexec {python} -m rehearsal.azure.az "$@"\n'


class Volley:
    """Runs `volley` in the folder of the Pulumi project."""

    def __init__(self, laptop: Laptop, project: PulumiProject) -> None:
        self.folder = project.folder
        self._record: Path | None = None
        programs = laptop.folder / "programs"
        programs.mkdir(exist_ok=True)
        scripts = {
            "ssh": SSH.format(config=laptop.ssh_config),
            "az": AZ.format(python=sys.executable),
        }
        for name, script in scripts.items():
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)
        self._environment = {
            **project.environment,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "VOLLEY_HOME": str(laptop.folder / "volley"),
            "REQUESTS_CA_BUNDLE": str(storage_accounts().ca_certificate),
        }

    def record_to(self, file: Path) -> None:
        """Begins a file, to which `say` then writes."""
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
        self._record = file

    def say(self, *words: str) -> None:
        """Runs a verb; records the command line and its output."""
        output = self.type(*words)
        command = ["volley", *(word.removeprefix(f"{ROOT}/") for word in words)]
        self.record(" ".join(command), output)

    def record(self, command: str, output: str) -> None:
        """Appends a command line and its output to the record."""
        assert self._record is not None
        with self._record.open("a") as record:
            record.write(f"$ {command}\n{output.strip()}\n\n")

    def ask(self, *words: str) -> dict[str, Any]:
        """Runs a verb with --json; returns its answer."""
        answer: dict[str, Any] = json.loads(self.type(*words, "--json"))
        return answer

    def type(self, *words: str) -> str:
        """Runs a verb, which must succeed; returns what it prints."""
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
        """Starts a verb in its own process group."""
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
        """Returns each experiment as `volley status` reports it, by name."""
        return {experiment["name"]: experiment for experiment in self.ask("status")["experiments"]}

    def training(self) -> set[str]:
        experiments = self.experiments().items()
        return {name for name, experiment in experiments if experiment["state"] == "TRAINING"}

    def states(self) -> dict[str, str]:
        """Returns the experiments' states; nothing while the head does not answer."""
        try:
            experiments = self.experiments().items()
        except (UnexpectedError, subprocess.TimeoutExpired):
            return {}
        return {name: experiment["state"] for name, experiment in experiments}

    def training_count(self) -> int:
        return list(self.states().values()).count("TRAINING")

    def finished(self) -> set[str]:
        """Returns the names of the experiments that are finished; none may have failed."""
        states = self.states().items()
        if failed := [name for name, state in states if state == "FAILED"]:
            raise UnexpectedError(f"{', '.join(failed)} failed")
        return {name for name, state in states if state == "FINISHED"}
