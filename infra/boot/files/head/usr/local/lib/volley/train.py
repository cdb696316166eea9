"""Runs the experiment as a Ray job and follows it to its end; resumes it after any interruption.

Exit codes: 0 finished, 2 refused (nothing would be different the next time), 1 anything else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ray
from blob import container
from ray.job_submission import JobStatus, JobSubmissionClient
from results import RUNS, restore_runs

TRAINING = Path("/opt/volley/training")
DASHBOARD = "http://127.0.0.1:8265"
DASHBOARD_TIMEOUT_S = 120.0
REFUSED = "payload: "
"""How the payload's one line about bad input starts."""


def main() -> int:
    experiment = TRAINING / "experiment.yaml"
    # What an experiment has learnt belongs to it: a changed one starts from nothing.
    key = hashlib.sha256(experiment.read_bytes()).hexdigest()[:12]
    restore_runs(container(os.environ["RESULTS_CONTAINER"]), key)
    results = RUNS / key
    if (results / "finished").exists():
        print(f"{experiment} has finished already; its runs are in {results}")
        return 0
    client = connect()
    stop_others(client)
    command = [sys.executable, "-m", "payload", "train", str(experiment)]
    command += ["--address", "auto", "--results", str(results)]
    command += ["--tracking-uri", os.environ["MLFLOW_TRACKING_URI"]]
    command += ["--config", json.dumps({"num_env_runners": env_runners()})]
    if list(results.glob("runs/*/checkpoints/checkpoint_*")):
        command.append("--resume")
    job = client.submit_job(
        entrypoint=shlex.join(command),
        submission_id=f"train-{key}-{int(time.time())}",
        # Ray takes the package to the workers.
        runtime_env={"py_modules": [str(TRAINING / "payload")]},
        metadata={"experiment": key},
    )
    print(f"{job}: {shlex.join(command)}", flush=True)
    status, last = follow(client, job)
    print(f"{job}: {status}", flush=True)
    if status == JobStatus.SUCCEEDED:
        (results / "finished").touch()
        return 0
    return 2 if last.startswith(REFUSED) else 1


def connect() -> JobSubmissionClient:
    """Waits for Ray's dashboard, which is up some seconds after Ray."""
    end = time.monotonic() + DASHBOARD_TIMEOUT_S
    while True:
        try:
            return JobSubmissionClient(DASHBOARD)
        except ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(1)


def stop_others(client: JobSubmissionClient) -> None:
    """Stops what an earlier life of this unit has left running."""
    for job in client.list_jobs():
        if job.submission_id is not None and not job.status.is_terminal():
            client.stop_job(job.submission_id)


def env_runners() -> int:
    """Every CPU of the cluster but one for the driver, unless the configuration says."""
    if "NUM_ENV_RUNNERS" in os.environ:
        return int(os.environ["NUM_ENV_RUNNERS"])
    ray.init(address="auto", log_to_driver=False)
    cpus = int(ray.cluster_resources()["CPU"])
    ray.shutdown()
    return max(1, cpus - 1)


def follow(client: JobSubmissionClient, job: str) -> tuple[JobStatus, str]:
    """Copies the job's output to the journal; returns its end and its last line."""

    def stop(*_: Any) -> None:
        client.stop_job(job)

    signal.signal(signal.SIGTERM, stop)
    shown = 0
    while True:
        over = client.get_job_status(job)
        output = client.get_job_logs(job)
        print(output[shown:], end="", flush=True)
        shown = len(output)
        if over.is_terminal():
            lines = [line for line in output.splitlines() if line.strip()]
            return over, lines[-1] if lines else ""
        time.sleep(5)


if __name__ == "__main__":
    sys.exit(main())
