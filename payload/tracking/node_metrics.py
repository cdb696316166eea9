"""CPU, memory, disk, GPU and object store of every node, without waiting for any of them.

The names are those of MLflow's own system metrics (mlflow.system_metrics), so that its UI
shows them on its page "System metrics"; MLflow's monitor sees the driver's node only.
"""

import contextlib
import os
from typing import Any

import psutil
import ray
from ray._private.state import available_resources_per_node
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

MB = 1e6


class NodeMonitor:
    """Measures its node; on other nodes than the driver's, as a Ray actor without resources."""

    def __init__(self) -> None:
        psutil.cpu_percent()

    def read(self) -> dict[str, float]:
        """Returns use of CPU, memory, disk and GPUs, in per cent and megabytes."""
        memory, disk = psutil.virtual_memory(), psutil.disk_usage(os.sep)
        values = {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_percentage": memory.percent,
            "system_memory_usage_megabytes": memory.used / MB,
            "disk_usage_percentage": disk.percent,
            "disk_available_megabytes": disk.free / MB,
        }
        with contextlib.suppress(Exception):  # No NVIDIA driver: no GPU metrics.
            values |= _gpus()
        return values


class NodeMonitors:
    """One NodeMonitor for each node of the cluster; each call returns the latest answers."""

    def __init__(self) -> None:
        self._own = ray.get_runtime_context().get_node_id()
        self._here = NodeMonitor()
        self._actors: dict[str, Any] = {}
        self._pending: dict[Any, str] = {}
        self._latest: dict[str, dict[str, float]] = {}

    def metrics(self) -> dict[str, float]:
        """Returns {"system/<address>/cpu_utilization_percentage": ...}; asks for the next."""
        self._collect()
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        self._actors = {key: a for key, a in self._actors.items() if key in alive}
        self._latest[self._own] = self._here.read()
        for node_id in alive.keys() - {self._own}:
            if node_id not in self._actors:
                affinity = NodeAffinitySchedulingStrategy(node_id, soft=False)
                self._actors[node_id] = (
                    ray.remote(NodeMonitor)
                    .options(num_cpus=0, scheduling_strategy=affinity)
                    .remote()
                )
            if node_id not in self._pending.values():
                self._pending[self._actors[node_id].read.remote()] = node_id
        # Ray has no public call for what a node's object store holds.
        free = available_resources_per_node()
        values = {}
        for node_id, node in alive.items():
            total = node["Resources"].get("object_store_memory", 0.0)
            used = total - free.get(node_id, {}).get("object_store_memory", total)
            own = {**self._latest.get(node_id, {}), "object_store_usage_megabytes": used / MB}
            for name, value in own.items():
                values[f"system/{node['NodeManagerAddress']}/{name}"] = value
        return values

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


def _gpus() -> dict[str, float]:
    import pynvml

    pynvml.nvmlInit()
    values = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
        rates = pynvml.nvmlDeviceGetUtilizationRates(device)
        values[f"gpu_{index}_utilization_percentage"] = float(rates.gpu)
        values[f"gpu_{index}_memory_usage_percentage"] = 100.0 * memory.used / memory.total
        values[f"gpu_{index}_memory_usage_megabytes"] = memory.used / MB
    return values
