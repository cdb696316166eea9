"""Runs the experiment as a Ray job until it ends; resumes it after an interruption.

Exit codes: 0 finished, 2 refused (a retry would fail in the same way), 1 anything else.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import ray
from ray.job_submission import JobStatus, JobSubmissionClient

from blob import container, retry, write
from sync_results import HOME, RUNS, restore_runs
from training_plan import (
    TRAINING,
    env_runners,
    finish_runs,
    job_environment,
    key_of,
    payload_command,
    read_plan,
    run_to_resume,
)

if TYPE_CHECKING:
    from payload.experiment import Node

REFUSAL = 2
"""The payload's exit code for input that it refuses."""
FINISHED = TRAINING / "finished"
"""Marks a finished training, which a boot does not start again."""
CPUS = HOME / "cpus"
"""The CPUs that the training had; the run command removes it, since it waits for nodes itself."""
DASHBOARD_TIMEOUT_S = 120.0
WORKERS_TIMEOUT_S = float(os.environ.get("WORKERS_TIMEOUT_S", "120"))
"""Workers reconnect to a restarted head after about 24 s; an evicted worker may never return.
A rehearsal evicts one and waits less."""
POLL_S = 5.0


def main() -> int:
    from payload.experiment import UserError

    try:
        experiment = read_plan(TRAINING)
        environment = job_environment(experiment)
    except UserError as error:
        print(error, flush=True)
        return REFUSAL
    key = key_of(TRAINING)
    blobs = os.environ["RESULTS_CONTAINER"]
    retry(f"{blobs}/runs/{key}", lambda: restore_runs(container(blobs), key))
    client = connect()
    stop_others(client)
    unfinished = run_to_resume(RUNS / key)
    before = remembered_cpus()
    nodes = nodes_of_cluster(before)
    write(CPUS, str(sum(node.cpus for node in nodes)).encode())
    try:
        number, reason = env_runners(experiment, nodes)
    except UserError as error:
        print(error, flush=True)
        # A training that has begun once had room: its workers may come back.
        return REFUSAL if unfinished is None and before == 0 else 1
    print(reason, flush=True)
    verb = "tune" if experiment.search else "train"
    command = payload_command(TRAINING, RUNS / key, unfinished, number, verb)
    job = client.submit_job(
        entrypoint=shlex.join(command),
        submission_id=f"train-{key}-{int(time.time())}",
        runtime_env=environment,
        metadata={"experiment": key},
    )
    print(f"{job}: {shlex.join(command)}", flush=True)
    status, exit_code = follow(client, job)
    print(f"{job}: {status}", flush=True)
    if status == JobStatus.SUCCEEDED:
        FINISHED.touch()
        finish_runs(RUNS / key)
        return 0
    return REFUSAL if exit_code == REFUSAL else 1


def connect() -> JobSubmissionClient:
    """Waits for Ray's dashboard, which is up some seconds after Ray."""
    end = time.monotonic() + DASHBOARD_TIMEOUT_S
    while True:
        try:
            return JobSubmissionClient()
        except ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(1)


def stop_others(client: JobSubmissionClient) -> None:
    """Stops jobs that an earlier start of this unit has left running."""
    for job in client.list_jobs():
        if job.submission_id is not None and not job.status.is_terminal():
            print(f"{job.submission_id} still runs: stopping it", flush=True)
            client.stop_job(job.submission_id)
            # It may be writing its last checkpoint.
            while not client.get_job_status(job.submission_id).is_terminal():
                time.sleep(1)


def remembered_cpus() -> int:
    text = CPUS.read_text() if CPUS.exists() else ""
    # A power cut can leave an empty file.
    return int(text) if text.isdecimal() else 0


def nodes_of_cluster(before: int) -> list[Node]:
    """Waits until the cluster has its workers again; returns the nodes that are there then."""
    ray.init(address="auto", log_to_driver=False)
    try:
        wait_for_cpus(before, lambda: int(ray.cluster_resources().get("CPU", 0)))
        return [node_of(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    finally:
        ray.shutdown()


def node_of(resources: dict[str, float]) -> Node:
    from payload.experiment import Node

    return Node(int(resources.get("CPU", 0)), resources.get("GPU", 0.0))


def wait_for_cpus(before: int, there: Callable[[], int]) -> int:
    """Waits until the cluster has its workers again; returns the CPUs that are there then."""
    cpus = there()
    if cpus >= before:
        return cpus
    print(
        f"{cpus} CPUs are there, the training had {before}: "
        f"waiting for its workers, at most {WORKERS_TIMEOUT_S:.0f} s",
        flush=True,
    )
    end = time.monotonic() + WORKERS_TIMEOUT_S
    while cpus < before and time.monotonic() < end:
        time.sleep(1)
        cpus = there()
    print(f"{cpus} CPUs are there", flush=True)
    return cpus


def follow(client: JobSubmissionClient, job: str) -> tuple[JobStatus, int | None]:
    """Copies the job's output to the journal; returns its end and the payload's exit code."""
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    stopping = False
    shown = 0
    while True:
        over = client.get_job_status(job)
        output = client.get_job_logs(job)
        print(output[shown:], end="", flush=True)
        shown = len(output)
        if over.is_terminal():
            return over, client.get_job_info(job).driver_exit_code
        if stopping:
            time.sleep(0.5)
        elif asked_to_stop.wait(POLL_S):
            client.stop_job(job)
            stopping = True


if __name__ == "__main__":
    sys.exit(main())
