"""The administrator's laptop on the internet: SSH, MLflow through the tunnel, and `volley`."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from payload.tracking.script_runs import SUBMISSION
from rehearsal.addresses import ADMIN_ADDRESS
from rehearsal.backend import storage_accounts
from rehearsal.drivers.pulumi_cli import PulumiProject
from rehearsal.host_paths import ROOT
from rehearsal.host_shell import CommandError, run
from rehearsal.network.bridges import INTERNET
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

ON_THE_INTERNET = ["ip", "netns", "exec", INTERNET]
LEAN_MLFLOW = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Environment of a server without its seven processes for evaluations of language models."""
COMMAND_S = 300.0
SSH = '#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n'
"""Stands for the administrator's ~/.ssh/config."""
AZ = '#!/bin/sh\nexec {python} -m rehearsal.azure.az "$@"\n'


class Laptop:
    """A machine on the internet; the stack knows its public key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = folder / "id_ed25519"
        self.ssh_config = folder / "ssh_config"

    @property
    def public_key(self) -> str:
        if not self.key.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rehearsal", "-f", self.key)
            self.ssh_config.write_text(
                f"IdentityFile {self.key}\nIdentitiesOnly yes\nStrictHostKeyChecking no\n"
                "UserKnownHostsFile /dev/null\nLogLevel ERROR\nExitOnForwardFailure yes\n"
                f"BindAddress {ADMIN_ADDRESS}\n"
            )
        return self.key.with_suffix(".pub").read_text().strip()

    def ssh(self, command: str) -> str:
        """Runs a command from the stack's outputs, "ssh volley@198.51.100.1 ..."."""
        return run(*self.with_key(command), timeout_s=30).stdout

    def with_key(self, command: str) -> list[str]:
        """Returns an ssh command as this laptop runs it: with its key, on the internet."""
        first, *rest = shlex.split(command)
        assert first == "ssh"
        return [*ON_THE_INTERNET, "ssh", "-F", str(self.ssh_config), *rest]

    @contextmanager
    def tunnel(self, command: str) -> Iterator[Laptop]:
        """Runs the stack's tunnel command while this is open."""
        port = re.findall(r"-L (\d+):", command)[0]

        def is_open() -> bool:
            if process.poll() is not None:
                assert process.stderr is not None
                raise CommandError(f"{command}: {process.stderr.read().strip()}")
            return bool(run(*ON_THE_INTERNET, "ss", "-Hltn", f"sport = :{port}").stdout.strip())

        process = subprocess.Popen(self.with_key(command), stderr=subprocess.PIPE, text=True)
        try:
            until(is_open, 30, "the tunnel")
            yield self
        finally:
            process.terminate()
            process.communicate()

    def get(self, url: str, body: dict[str, Any] | None = None, token: str = "") -> Any:
        """Requests JSON from this laptop, through the open tunnel if the URL is on loopback."""
        command = [*ON_THE_INTERNET, "curl", "--silent", "--fail", "--max-time", "20"]
        if body is not None:
            command += ["--json", json.dumps(body)]
        if token:
            command += ["--header", f"Authorization: Bearer {token}"]
        return json.loads(run(*command, url, timeout_s=30).stdout)


def newest_run(laptop: Laptop, mlflow: str) -> dict[str, Any]:
    """Returns MLflow's newest run of a training: {"info": ..., "data": {"metrics": [...], ...}}."""
    all_runs = [run for run in runs(laptop, mlflow) if not is_of_script(run)]
    if not all_runs:
        raise UnexpectedError(f"{mlflow} has no run")
    return all_runs[0]


def is_of_script(run: dict[str, Any]) -> bool:
    return any(tag["key"] == SUBMISSION for tag in run["data"].get("tags", []))


def runs(laptop: Laptop, mlflow: str) -> list[dict[str, Any]]:
    """Returns MLflow's runs, the newest first."""
    page = laptop.get(f"{mlflow}/api/2.0/mlflow/experiments/search", {"max_results": 100})
    ids = [experiment["experiment_id"] for experiment in page["experiments"]]
    query = {"experiment_ids": ids, "order_by": ["attributes.start_time DESC"]}
    answer = laptop.get(f"{mlflow}/api/2.0/mlflow/runs/search", query)
    return list(answer.get("runs", []))


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

    def type(
        self, *words: str, text: str | None = None, variables: Mapping[str, str] | None = None
    ) -> str:
        """Runs a verb, which must succeed; returns its output.

        Args:
            text: Its input.
            variables: Added to its environment.
        """
        stdin = subprocess.DEVNULL if text is None else subprocess.PIPE
        process = self.begin(*words, stdin=stdin, variables=variables)
        try:
            stdout, stderr = process.communicate(text, timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        if process.returncode != 0:
            raise UnexpectedError(f"volley {' '.join(words)}: {stderr.strip()}")
        return stdout

    def begin(
        self,
        *words: str,
        stdin: int = subprocess.DEVNULL,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Starts a verb in its own process group."""
        return subprocess.Popen(
            [*ON_THE_INTERNET, sys.executable, "-m", "volley", *words],
            cwd=self.folder,
            env={**self._environment, **(variables or {})},
            stdin=stdin,
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
