"""Ray's nodes and jobs, which the queue reads through the dashboard."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import requests
from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.job_submission import JobDetails, JobSubmissionClient
from ray.util.state import list_nodes

from .cluster_state import RayNode
from .plan import process

REQUEST_S = 10
"""Time limit of each request to Ray."""
MOST_NODES = 10_000
WORKER = "worker"
"""Each worker has one unit of this resource: infra/boot/files/worker/.../start-ray-worker."""

Answer = TypeVar("Answer")


class RayAwayError(Exception):
    """Ray or its dashboard does not answer."""


class JobClient(JobSubmissionClient):
    """Ray's job client, which has no time limits of its own.

    Raises builtin ConnectionError if no dashboard listens.
    """

    limit_s = float(REQUEST_S)

    def _do_request(self, *args: Any, **kwargs: Any) -> requests.Response:
        limits = {"timeout": self.limit_s}
        response: requests.Response = super()._do_request(*args, **{**limits, **kwargs})
        return response


class RayCluster:
    """The cluster of this head; methods raise RayAwayError if Ray does not answer."""

    def __init__(self) -> None:
        self._client: JobClient | None = None
        """It asks for Ray's version when it is made, so it is kept."""

    def nodes(self) -> list[RayNode]:
        """Returns the nodes that are alive, the head first."""
        address = os.environ["RAY_API_SERVER_ADDRESS"]
        # If Ray filters for live nodes, it takes the dead ones for missing.
        nodes = [
            RayNode(
                name=node.node_name,
                address=node.node_ip,
                role="head" if node.is_head_node else "worker",
                cpus=int(node.resources_total.get("CPU", 0)),
                gpus=node.resources_total.get("GPU", 0.0),
            )
            for node in _ask(lambda: list_nodes(address, limit=MOST_NODES, timeout=REQUEST_S))
            if node.state == "ALIVE"
        ]
        return sorted(nodes, key=lambda node: (node.role, node.address, node.name))

    def jobs(self) -> tuple[Mapping[str, JobDetails], int]:
        """Returns the jobs of experiments by submission id, and the number of other live jobs.

        The others belong to people who are connected to Ray or have submitted a job.
        """
        jobs = self._ask_client(lambda client: client.list_jobs())
        experiments = {
            job.submission_id: job
            for job in jobs
            if job.submission_id is not None and "experiment" in (job.metadata or {})
        }
        live = sum(not job.status.is_terminal() for job in jobs)
        return experiments, live - sum(not job.status.is_terminal() for job in experiments.values())

    def stop(self, job: str) -> None:
        """Tells a job to write its checkpoint and end, without waiting for it."""
        self._ask_client(lambda client: client.stop_job(job))

    def request_workers(self, count: int) -> None:
        """Requests at least this many workers from Ray's autoscaler, until the next request.

        ray.autoscaler.sdk.request_resources does the same, but needs a driver.
        """
        key = AUTOSCALER_RESOURCE_REQUEST_CHANNEL
        bundles = json.dumps([{WORKER: 1}] * count).encode()

        def put() -> None:
            gcs = GcsClient(address=canonicalize_bootstrap_address_or_die("auto"))
            gcs.internal_kv_put(key, bundles, True, None, timeout=REQUEST_S)

        _ask(put)

    def start(
        self, folder: Path, job: str, env_runners: int, output: Path
    ) -> subprocess.Popen[bytes]:
        """Starts the process that submits an experiment as a job."""
        command, environment = process("head.queue.start", folder, job, str(env_runners))
        # Not even a pipe in its place blocks the queue.
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666)
        with os.fdopen(handle, "ab") as file:
            return subprocess.Popen(
                command, env=environment, stdout=file, stderr=file, start_new_session=True
            )

    def _ask_client(self, question: Callable[[JobClient], Answer]) -> Answer:
        try:
            self._client = self._client or _ask(JobClient)
            client = self._client
            return _ask(lambda: question(client))
        except RayAwayError:
            self._client = None
            raise


def _ask(question: Callable[[], Answer]) -> Answer:
    try:
        return question()
    except Exception as error:  # requests, the job client and the state API raise different errors.
        reason = " ".join(str(error).split())[:300]
        raise RayAwayError(f"{type(error).__name__}: {reason}") from None
