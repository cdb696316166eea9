"""Runs a function once on every machine of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def on_every_node(
    function: Callable[..., Any], *arguments: Any, runtime_env: dict[str, Any] | None = None
) -> dict[Any, str]:
    """Starts a task that reserves nothing on each machine of the cluster.

    Returns:
        The machines' names by the references to the tasks' answers.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0, runtime_env=runtime_env)(function)
    names = {}
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            answer = task.options(scheduling_strategy=there).remote(*arguments)
            names[answer] = node["NodeManagerHostname"]
    return names
