"""Ray's autoscaler: how long an idle worker is kept, and how many workers there may be.

https://docs.ray.io/en/latest/cluster/vms/references/ray-cluster-configuration.html
"""

from dataclasses import dataclass
from typing import Any

import yaml

from infra.config.vm_sizes import Machine

PROVIDER = "head.autoscaler.scale_set_provider.ScaleSetProvider"
HEAD, WORKER = "head", "worker"
JOIN_MINUTES = 20
"""A worker that has not joined Ray by then is deleted; its first boot takes 5 to 10 minutes."""


@dataclass(frozen=True)
class WorkerLimits:
    """The number of workers, and how long an idle worker is kept."""

    min_workers: int
    max_workers: int
    idle_minutes: float
    """An idle worker is deleted after this time."""


def autoscaling_config(head_ip: str, head: Machine, worker: Machine, limits: WorkerLimits) -> str:
    """Returns the file for `ray start --head --autoscaling-config`.

    Ray reads it again in each update, except `provider`.
    """
    config: dict[str, Any] = {
        "cluster_name": "volley",
        "max_workers": limits.max_workers,
        # Requests all wanted workers at once; Ray's default doubles the cluster each time.
        "upscaling_speed": 100,
        "idle_timeout_minutes": limits.idle_minutes,
        "provider": {
            "type": "external",
            "module": PROVIDER,
            # Ray's BatchingNodeProvider requires these: VMs set themselves up.
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "foreground_node_launch": True,
            "worker_liveness_check": True,
            "head_ip": head_ip,
            "join_minutes": JOIN_MINUTES,
        },
        "auth": {},
        "head_node_type": HEAD,
        "available_node_types": {
            HEAD: _node_type(head, 0, 0),
            WORKER: _node_type(worker, limits.min_workers, limits.max_workers),
        },
        "file_mounts": {},
        "cluster_synced_files": [],
        "worker_setup_commands": [],
        "worker_start_ray_commands": [],
    }
    return yaml.safe_dump(config, sort_keys=False)


def _node_type(machine: Machine, least: int, most: int) -> dict[str, Any]:
    gpus = {"GPU": machine.gpus} if machine.gpus else {}
    # The same as in start-ray-worker: the queue requests workers by it.
    own = {WORKER: 1} if most else {}
    return {
        "resources": {"CPU": machine.vcpus, **gpus, **own},
        "node_config": {},
        "min_workers": least,
        "max_workers": most,
    }
