"""The act in which the laptop operates the cluster by the command `volley`, over SSH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from infra.experiment_files import experiment_name
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.drivers.pulumi_project import PulumiProject
from rehearsal.paths import ROOT
from rehearsal.scenario.context import Context
from rehearsal.scenario.laptop import ON_THE_INTERNET, Laptop
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

SECOND = "second"
EXPERIMENT = ROOT / "rehearsal/scenario/second_experiment.yaml"
STARTS_IN_S = 90.0
COMMAND_S = 120.0


def operate(context: Context, driver: PulumiCli) -> str:
    """Submits a second experiment, follows it, stops and resumes it, and pulls what it has made."""
    volley = Volley(context.laptop, driver.project)
    first = experiment_name(Path(context.config["experiment"]))
    volley.ask("submit", str(EXPERIMENT), "--name", SECOND)
    trains = f"{first} and {SECOND} train side by side"
    seconds = until(lambda: _training(volley) == {first, SECOND}, STARTS_IN_S, trains)
    if "First learner update" not in volley.type("logs", SECOND, "--lines", "200"):
        raise UnexpectedError(f"volley logs {SECOND} does not show its first learner update")
    volley.ask("stop", SECOND)
    stopped = volley.ask("pull", SECOND)
    volley.ask("resume", SECOND)
    until(lambda: SECOND in _training(volley), STARTS_IN_S, f"{SECOND} trains again")
    volley.ask("stop", SECOND)
    continued = volley.ask("pull", SECOND)
    runs = list((volley.folder / "results" / SECOND / "runs").iterdir())
    if len(runs) != 1 or not any(runs[0].glob("checkpoints/checkpoint_*")):
        raise UnexpectedError(f"pulled {', '.join(run.name for run in runs) or 'nothing'}")
    if _training(volley) != {first}:
        raise UnexpectedError(f"{first} does not train any more")
    pulled = f"{stopped['files']} files, then {continued['files']} new ones"
    return f"two trained {seconds:.0f} s after the command; pulled {pulled}"


class Volley:
    """`volley` as it is typed on the laptop, in the folder of the Pulumi project."""

    def __init__(self, laptop: Laptop, project: PulumiProject) -> None:
        self.folder = project.folder
        programs = laptop.folder / "programs"
        programs.mkdir(exist_ok=True)
        # The administrator's ~/.ssh/config.
        ssh = programs / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {laptop.ssh_config} "$@"\n')
        ssh.chmod(0o755)
        self._environment = {
            **project.environment,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "VOLLEY_HOME": str(laptop.folder / "volley"),
        }

    def ask(self, *words: str) -> dict[str, Any]:
        """Returns what a verb says with --json."""
        answer: dict[str, Any] = json.loads(self.type(*words, "--json"))
        return answer

    def type(self, *words: str) -> str:
        """Returns what a verb prints.

        Raises:
            UnexpectedError: It fails.
        """
        command = [*ON_THE_INTERNET, sys.executable, "-m", "operate", *words]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        if done.returncode != 0:
            raise UnexpectedError(f"volley {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


def _training(volley: Volley) -> set[str]:
    """Returns the names of the experiments that train."""
    found = volley.ask("status")["experiments"]
    return {one["name"] for one in found if one["state"] == "TRAINING"}
