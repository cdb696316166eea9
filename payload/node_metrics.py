"""CPU, memory, GPU and object store of every node, without waiting for any of them."""

from __future__ import annotations

import contextlib
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

MIB = 1 << 20


class NodeMonitor:
    """Runs on one node, as a Ray actor without resources of its own."""

    def __init__(self) -> None:
        psutil.cpu_percent()

    def read(self) -> dict[str, float]:
        """Returns per cent of CPU and memory, and of each GPU's cores and memory."""
        values = {
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": psutil.virtual_memory().percent,
            "memory_used_mib": psutil.virtual_memory().used / MIB,
        }
        with contextlib.suppress(Exception):  # No NVIDIA driver: no GPU metrics.
            values |= _gpus()
        return values


class NodeMonitors:
    """One NodeMonitor for each node of the cluster; each call returns the latest answers."""

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}
        self._pending: dict[Any, str] = {}
        self._latest: dict[str, dict[str, float]] = {}

    def metrics(self) -> dict[str, float]:
        """Returns {"node/<address>/cpu_percent": ...}; asks anew for the next call."""
        self._collect()
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        self._actors = {key: a for key, a in self._actors.items() if key in alive}
        for node_id in alive:
            if node_id not in self._actors:
                affinity = NodeAffinitySchedulingStrategy(node_id, soft=False)
                self._actors[node_id] = (
                    ray.remote(NodeMonitor)
                    .options(num_cpus=0, scheduling_strategy=affinity)
                    .remote()
                )
            if node_id not in self._pending.values():
                self._pending[self._actors[node_id].read.remote()] = node_id
        values = {}
        for node_id, node in alive.items():
            for name, value in self._latest.get(node_id, {}).items():
                values[f"node/{node['NodeManagerAddress']}/{name}"] = value
        return values | _object_store()

    def _collect(self) -> None:
        if not self._pending:
            return
        ready, _ = ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        for reference in ready:
            node_id = self._pending.pop(reference)
            try:
                self._latest[node_id] = ray.get(reference)
            except ray.exceptions.RayError:  # The node went away.
                self._latest.pop(node_id, None)
                self._actors.pop(node_id, None)


def _object_store() -> dict[str, float]:
    """Memory of all nodes' object stores together, in MiB."""
    total = ray.cluster_resources().get("object_store_memory", 0.0)
    free = ray.available_resources().get("object_store_memory", 0.0)
    return {
        "object_store/used_mib": (total - free) / MIB,
        "object_store/total_mib": total / MIB,
    }


def _gpus() -> dict[str, float]:
    import pynvml

    pynvml.nvmlInit()
    values = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
        rates = pynvml.nvmlDeviceGetUtilizationRates(device)
        values[f"gpu{index}_percent"] = float(rates.gpu)
        values[f"gpu{index}_memory_percent"] = 100.0 * memory.used / memory.total
    return values
