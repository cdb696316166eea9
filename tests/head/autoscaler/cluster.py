"""Ray's own autoscaler on a scale set of the Azure stand-in, with a clock that the test controls.

The nodes that Ray's global control store (GCS) reports follow from the stand-in's machines. The
monitor reads them as it does in a cluster, and the provider calls Azure over HTTP.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray.autoscaler._private.autoscaler import StandardAutoscaler
from ray.autoscaler._private.load_metrics import LoadMetrics
from ray.autoscaler._private.monitor import Monitor
from ray.core.generated import autoscaler_pb2, gcs_pb2, gcs_service_pb2

from infra.config.vm_sizes import Machine
from infra.stack.idle_workers import WorkerLimits, autoscaling_config
from rehearsal.azure.resources.scale_set_machines import SetMachine
from tests.rehearsal.azure.resources.scale_set_cloud import Cloud

HEAD_IP = "10.42.0.4"
HEAD = Machine.named("Standard_D4as_v5")
WORKER = Machine.named("Standard_D2as_v5")
UPDATE_S = 10


class Clock:
    """The clock of Ray, the provider and the stand-in; it moves only by `advance` and `set`."""

    def __init__(self) -> None:
        self.now = time.time() + 5  # Role assignments carry the time of another clock.
        self._passed = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self._passed += seconds

    def set(self, ahead_s: float) -> None:
        """Sets the clock ahead, as NTP does after a boot with a wrong one."""
        self.now += ahead_s

    def monotonic(self) -> float:
        return self._passed


@dataclass
class Gcs:
    """The GCS's answers: a node for the head, and one for each machine that has joined."""

    cloud: Cloud
    clock: Clock
    demand: list[dict[str, float]] = field(default_factory=list)
    """Resources of the tasks and actors that wait."""
    busy: set[str] = field(default_factory=set)
    """Workers at work, by name."""
    lost: set[str] = field(default_factory=set)
    """Workers whose Ray has ended."""
    forgotten: set[str] = field(default_factory=set)
    """Workers that have not rejoined since the GCS restarted."""
    used: dict[str, float] = field(default_factory=dict)
    """The time at which each node was last busy."""

    def get_all_resource_usage(self, timeout: float) -> gcs_service_pb2.GetAllResourceUsageReply:
        shapes = [
            gcs_pb2.ResourceDemand(shape=shape, num_ready_requests_queued=1)
            for shape in self.demand
        ]
        load = gcs_pb2.ResourceLoad(resource_demands=shapes)
        usage = gcs_pb2.ResourceUsageBatchData(resource_load_by_shape=load)
        return gcs_service_pb2.GetAllResourceUsageReply(resource_usage_data=usage)

    def get_cluster_resource_state(self) -> bytes:
        machines = self.cloud.machines().values()
        nodes = [self._node("head", HEAD_IP, HEAD.vcpus, busy=True)]
        nodes += [self._worker(one) for one in machines if self._has_joined(one)]
        state = autoscaler_pb2.ClusterResourceState(node_states=nodes)
        reply = autoscaler_pb2.GetClusterResourceStateReply(cluster_resource_state=state)
        return bytes(reply.SerializeToString())

    def drain_nodes(self, node_ids: set[bytes], timeout: float) -> set[bytes]:
        return node_ids

    def internal_kv_get(self, *_: object, **__: object) -> None:
        return None

    def joined(self) -> list[str]:
        return [one.name for one in self.cloud.machines().values() if self._has_joined(one)]

    def _has_joined(self, machine: SetMachine) -> bool:
        provisioned = machine.state(self.clock.now) != "Creating"
        return machine.joins and provisioned and machine.name not in self.forgotten

    def _worker(self, machine: SetMachine) -> autoscaler_pb2.NodeState:
        address = f"10.42.1.{4 + machine.place}"
        dead = machine.name in self.lost or machine.state(self.clock.now) == "Deleting"
        busy = machine.name in self.busy
        return self._node(machine.name, address, WORKER.vcpus, busy, dead)

    def _node(
        self, name: str, address: str, cpus: int, busy: bool, dead: bool = False
    ) -> autoscaler_pb2.NodeState:
        if busy or name not in self.used:
            self.used[name] = self.clock.now
        return autoscaler_pb2.NodeState(
            node_id=name.encode(),
            instance_id="" if name == "head" else name,
            node_ip_address=address,
            total_resources={"CPU": cpus},
            available_resources={} if busy else {"CPU": cpus},
            idle_duration_ms=int(1000 * (self.clock.now - self.used[name])),
            status="DEAD" if dead else "RUNNING",
        )


class Cluster:
    """The head of a cluster: Ray's monitor and autoscaler."""

    def __init__(self, cloud: Cloud, gcs: Gcs, folder: Path, limits: WorkerLimits) -> None:
        self.cloud, self.gcs, self._clock = cloud, gcs, gcs.clock
        self.config = folder / "autoscaling.yaml"
        self.report_file = folder / "cluster-workers.json"
        self.set_limits(limits)
        self._monitor = Monitor.__new__(Monitor)
        self._monitor.gcs_client = gcs
        self._monitor.load_metrics = LoadMetrics()
        self._monitor.readonly_config = None
        self.autoscaler = StandardAutoscaler(
            str(self.config),
            self._monitor.load_metrics,
            gcs,
            update_interval_s=UPDATE_S,
            max_failures=1000,
        )
        self._monitor.autoscaler = self.autoscaler

    def set_limits(self, limits: WorkerLimits) -> None:
        """Rewrites the configuration, which Ray reads in each update."""
        text = autoscaling_config(HEAD_IP, HEAD, WORKER, limits)
        self.config.write_text(text)

    def update(self, seconds: float = UPDATE_S, every_s: float = UPDATE_S) -> None:
        """Advances the clock by `seconds`, with an update every `every_s`."""
        for _ in range(round(seconds / every_s)):
            self._clock.advance(every_s)
            self._monitor.update_load_metrics()
            self.autoscaler.update()

    def report(self) -> dict[str, Any]:
        """Returns the report that `volley status` reads."""
        found: dict[str, Any] = json.loads(self.report_file.read_text())
        return found

    @property
    def there(self) -> list[str]:
        """The machines that are not being deleted."""
        return [one.name for one in self.cloud.machines().values() if one.gone is None]
