"""Ray's autoscaler on the workers' scale set: a node provider for `ray start --autoscaling-config`.

Ray decides how many workers there should be; the provider requests them of identity.service and
writes their state to a file, which `volley status` and sleep read.
https://docs.ray.io/en/latest/cluster/vms/user-guides/community/index.html
"""

import logging
import time
from collections import Counter
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any

from ray.autoscaler._private.util import NodeID
from ray.autoscaler.batching_node_provider import BatchingNodeProvider, NodeData, ScaleRequest
from ray.autoscaler.tags import NODE_KIND_HEAD, NODE_KIND_WORKER, STATUS_UP_TO_DATE
from ray.autoscaler.v2.sdk import get_cluster_resource_state
from ray.core.generated.autoscaler_pb2 import NodeStatus
from ray.experimental.internal_kv import internal_kv_get_gcs_client

from ..files import replace_json
from ..identity.client import Workers as Azure
from ..paths import WORKERS
from ..resource_manager import CHANGED, NO_ANSWER, ResourceManagerError
from .first_workers import take_operation
from .growth import Pause
from .scale_set import Operations, VirtualMachine

HEAD, WORKER = "head", "worker"
"""Ray's node types."""
BOOTING = "booting"
DELETE_AGAIN_S = 300.0
"""A VM that still exists after this time is deleted again."""


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workers:
    """The workers; VMs by their names."""

    wanted: int
    there: list[str]
    """Workers that have joined Ray."""
    coming: list[str]
    leaving: list[str]
    sizes: dict[str, int]
    """The number of workers that stay, by VM size; there may be several sizes."""
    why: str
    """Why some are missing; empty if nothing is wrong."""
    next_try: float | None
    """The time of the next request to Azure, in seconds since the epoch."""
    problem: str
    """Why Azure does not answer or does not delete a worker; empty if nothing is wrong."""

    @property
    def missing(self) -> int:
        """How many wanted workers are neither running nor coming."""
        return max(0, self.wanted - len(self.there) - len(self.coming))


def write_report(workers: Workers) -> None:
    """Replaces the file; a full disk does not stop the autoscaler."""
    values = {"time": time.time(), **asdict(workers), "missing": workers.missing}
    if not workers.missing:  # Earlier problems are over.
        values |= {"why": "", "next_try": None}
    try:
        replace_json(WORKERS, values)
    except OSError as error:
        logger.warning("%s: %s", WORKERS, error)


class ScaleSetProvider(BatchingNodeProvider):
    """The VMs of a scale set in Flexible orchestration are Ray's workers.

    It sends Azure no request before the first update: an exception in the constructor ends Ray's
    monitor, and with it `ray start --block`, while Ray logs an exception in an update.
    """

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._config = provider_config
        self._azure = Azure()
        self._machines: list[VirtualMachine] = []
        self._seen: dict[str, float] = {}
        """When each VM was listed first: Azure's clock is not the head's, and either may be set."""
        self._joined: set[str] = set()
        """Names of the VMs that have joined since the monitor started."""
        self._leaving: dict[str, float] = {}
        """Names of the VMs to delete, and the time of the next request to delete each."""
        self._operations = Operations()
        self._allocation, self._joining = Pause(), Pause()
        self._unreachable, self._undeleted = "", ""
        """Reasons why Azure does not answer, and why it does not delete."""

    def get_node_data(self) -> dict[NodeID, NodeData]:
        """Returns the head and the workers that stay, from a complete list.

        Raises:
            ResourceManagerError: Azure does not answer; Ray tries again in its next update.
        """
        self._operations.add(take_operation())
        try:
            self._machines = self._azure.machines()
        except Exception as error:
            self._unreachable = str(error)
            self._report(None)
            raise
        self._unreachable = ""
        self._follow_operations()
        addresses = joined_addresses()
        self._remove_unfit(addresses)
        head = NodeData(NODE_KIND_HEAD, HEAD, self._config["head_ip"], STATUS_UP_TO_DATE)
        return {HEAD: head, **{vm.name: _worker(vm, addresses) for vm in self._staying()}}

    def submit_scale_request(self, scale_request: ScaleRequest) -> None:
        """Deletes VMs by name and raises the capacity; never sets a lower one."""
        for name in scale_request.workers_to_delete:
            self._leaving.setdefault(name, 0)
        self._delete()
        self._grow(scale_request.desired_num_workers.get(WORKER, 0))

    def post_process(self) -> None:
        wanted = self.scale_request.desired_num_workers.get(WORKER, 0)
        try:
            super().post_process()
        finally:
            self._report(wanted)

    def _staying(self) -> list[VirtualMachine]:
        return [
            vm for vm in self._machines if vm.state != "Deleting" and vm.name not in self._leaving
        ]

    def _remove_unfit(self, addresses: dict[str, str]) -> None:
        """Deletes VMs that have failed or never joined: Ray would count on them indefinitely."""
        now = monotonic()
        names = {vm.name for vm in self._machines}
        if (addresses.keys() & names) - self._joined:
            self._joining.reset()
        self._joined = addresses.keys() & names
        self._seen = {name: self._seen.get(name, now) for name in names}
        self._leaving = {name: at for name, at in self._leaving.items() if name in names}
        self._undeleted = self._undeleted if self._leaving else ""
        booting = [vm for vm in self._staying() if vm.name not in self._joined]
        for vm in booting:
            if vm.state == "Failed":
                self._leaving[vm.name] = 0
                self._allocation.begin(vm.error or f"{vm.name} has failed", now)
        self._remove_late([vm.name for vm in booting if vm.state != "Failed"], now)
        self._delete()

    def _remove_late(self, booting: list[str], now: float) -> None:
        """Deletes VMs that have not joined in time: at most half of them before a pause.

        If the fault is not theirs, some are still there when it is over.
        """
        join_s = 60.0 * self._config["join_minutes"]
        late = sorted(
            (name for name in booting if now - self._seen[name] > join_s),
            key=self._seen.__getitem__,
        )
        if not late or now < self._joining.until:
            return
        self._leaving.update(dict.fromkeys(late[: max(1, len(booting) // 2)], 0))
        self._joining.begin(f"{late[0]} did not join Ray in {join_s / 60:.0f} min", now)

    def _delete(self) -> None:
        now = monotonic()
        due = tuple(sorted(name for name, at in self._leaving.items() if at <= now))
        if not due:
            return
        try:
            self._operations.add(self._azure.delete(due), due)
            again_s, self._undeleted = DELETE_AGAIN_S, ""
        except ResourceManagerError as error:
            self._undeleted = f"{', '.join(due)} cannot be deleted: {error}"
            again_s = max(error.retry_after_s, 30)
        self._leaving.update(dict.fromkeys(due, now + again_s))

    def _grow(self, wanted: int) -> None:
        if wanted > len(self._machines) and monotonic() < self._paused_until:
            return
        try:
            self._operations.add(self._azure.grow(wanted, self._operations.growing))
        except ResourceManagerError as error:
            # Without an answer, the next capacity shows whether the request took effect.
            if error.status not in {NO_ANSWER, CHANGED}:
                self._allocation.begin(str(error), monotonic(), error.retry_after_s)

    def _follow_operations(self) -> None:
        for operation, deletes in self._operations.take_ended(self._azure):
            if deletes and operation.failed:
                again = self._leaving.keys() & set(deletes)
                self._leaving.update(dict.fromkeys(again, monotonic()))
            elif operation.failed:
                self._allocation.begin(operation.error, monotonic())
            elif not deletes:
                self._allocation.reset()

    @property
    def _paused_until(self) -> float:
        return max(self._allocation.until, self._joining.until)

    def _report(self, wanted: int | None) -> None:
        staying = self._staying()
        there = [vm.name for vm in staying if vm.name in self._joined]
        coming = [vm.name for vm in staying if vm.name not in self._joined]
        pause = max(self._allocation, self._joining, key=lambda pause: pause.until)
        write_report(
            Workers(
                wanted=len(staying) if wanted is None else wanted,
                there=there,
                coming=coming,
                leaving=[vm.name for vm in self._machines if vm not in staying],
                sizes=dict(Counter(vm.size for vm in staying)),
                why=pause.reason,
                next_try=time.time() + pause.until - monotonic() if pause.until else None,
                problem=self._unreachable or self._undeleted,
            )
        )


def _worker(vm: VirtualMachine, addresses: dict[str, str]) -> NodeData:
    """Returns a worker; up to date once it has joined, when Ray begins to expect heartbeats."""
    address = addresses.get(vm.name)
    return NodeData(NODE_KIND_WORKER, WORKER, address, STATUS_UP_TO_DATE if address else BOOTING)


def joined_addresses() -> dict[str, str]:
    """Returns the addresses of the VMs that have ever joined this GCS, by the VMs' names.

    A worker's Ray starts with RAY_CLOUD_INSTANCE_ID=<the VM's name>, which becomes
    NodeState.instance_id. A lost node keeps its address: Ray deletes it when its heartbeat is late.
    """
    state = get_cluster_resource_state(internal_kv_get_gcs_client())
    # Live nodes last: a VM whose Ray has restarted has a dead node too.
    nodes = sorted(state.node_states, key=lambda node: node.status != NodeStatus.DEAD)
    return {node.instance_id: node.node_ip_address for node in nodes if node.instance_id}
