"""The administrator's laptop, somewhere on the internet: SSH, the tunnel, and MLflow through it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rehearsal.addresses import ADMIN_ADDRESS
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
        first, *rest = command.split()
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
    """Returns MLflow's newest run: {"info": ..., "data": {"metrics": [...], ...}}."""
    all_runs = runs(laptop, mlflow)
    if not all_runs:
        raise UnexpectedError(f"{mlflow} has no run")
    return all_runs[0]


def runs(laptop: Laptop, mlflow: str) -> list[dict[str, Any]]:
    """Returns MLflow's runs, the newest first."""
    page = laptop.get(f"{mlflow}/api/2.0/mlflow/experiments/search", {"max_results": 100})
    ids = [experiment["experiment_id"] for experiment in page["experiments"]]
    query = {"experiment_ids": ids, "order_by": ["attributes.start_time DESC"]}
    answer = laptop.get(f"{mlflow}/api/2.0/mlflow/runs/search", query)
    return list(answer.get("runs", []))
