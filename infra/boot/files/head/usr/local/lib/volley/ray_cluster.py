"""Ray as the queue sees it, through the dashboard: the nodes, and the jobs of experiments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.experimental.internal_kv import _initialize_internal_kv, _internal_kv_put
from ray.job_submission import JobDetails, JobSubmissionClient
from ray.util.state import list_nodes

START = Path(__file__).with_name("start_experiment.py")
MOST_NODES = 10_000
WORKER = "worker"
"""A resource of which each worker has one: start-ray-worker."""

Found = TypeVar("Found")


class RayAwayError(Exception):
    """Ray or its dashboard does not answer."""


class RayCluster:
    """The cluster of this head."""

    def nodes(self) -> list[dict[str, Any]]:
        """Returns the nodes that are alive, the head first.

        Raises:
            RayAwayError
        """
        address = os.environ["RAY_API_SERVER_ADDRESS"]
        # With a filter for those alive, Ray takes the dead ones for missing.
        found = _ask(lambda: list_nodes(address, limit=MOST_NODES))
        nodes = [
            {
                "name": node.node_name,
                "address": node.node_ip,
                "role": "head" if node.is_head_node else "worker",
                "cpus": int(node.resources_total.get("CPU", 0)),
                "gpus": node.resources_total.get("GPU", 0.0),
                "state": node.state,
            }
            for node in found
            if node.state == "ALIVE"
        ]
        return sorted(nodes, key=lambda node: (node["role"], node["address"], node["name"]))

    def jobs(self) -> tuple[Mapping[str, JobDetails], int]:
        """Returns the jobs of experiments that Ray knows, by their submission id.

        Also how many other jobs run: of people who are connected to Ray or have submitted one.

        Raises:
            RayAwayError
        """
        jobs = _ask(lambda: JobSubmissionClient().list_jobs())
        experiments = {
            job.submission_id: job
            for job in jobs
            if job.submission_id is not None and "experiment" in (job.metadata or {})
        }
        live = sum(not job.status.is_terminal() for job in jobs)
        return experiments, live - sum(not job.status.is_terminal() for job in experiments.values())

    def stop(self, job: str) -> None:
        """Tells a job to write its checkpoint and end, and does not wait for it.

        Raises:
            RayAwayError
        """
        _ask(lambda: JobSubmissionClient().stop_job(job))

    def request_workers(self, count: int) -> None:
        """Asks Ray's autoscaler for so many workers at least, until it is asked for others.

        As ray.autoscaler.sdk.request_resources does, which needs a driver.

        Raises:
            RayAwayError
        """
        bundles = json.dumps([{WORKER: 1}] * count)

        def put() -> None:
            gcs = GcsClient(address=canonicalize_bootstrap_address_or_die("auto"))
            _initialize_internal_kv(gcs)
            _internal_kv_put(AUTOSCALER_RESOURCE_REQUEST_CHANNEL, bundles, overwrite=True)

        _ask(put)

    def start(
        self, folder: Path, job: str, env_runners: int, output: Path
    ) -> subprocess.Popen[Any]:
        """Starts the process that submits an experiment as a job."""
        command = [sys.executable, str(START), str(folder), job, str(env_runners)]
        with output.open("ab") as file:
            return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)


def _ask(question: Callable[[], Found]) -> Found:
    try:
        return question()
    except Exception as error:  # Of requests, of the job client and of the state API.
        reason = " ".join(str(error).split())[:300]
        raise RayAwayError(f"{type(error).__name__}: {reason}") from None
