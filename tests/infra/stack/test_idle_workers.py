"""The configuration of Ray's autoscaler."""

from __future__ import annotations

from typing import Any

import yaml
from ray.autoscaler._private.util import validate_config

from infra.config.vm_sizes import Machine
from infra.stack.idle_workers import WorkerLimits, autoscaling_config

HEAD, GPU = Machine.named("Standard_D4as_v5"), Machine.named("Standard_NC4as_T4_v3")


def config(worker: Machine = HEAD, limits: WorkerLimits = WorkerLimits(1, 4, 5)) -> dict[str, Any]:  # noqa: B008
    text = autoscaling_config("10.42.0.4", HEAD, worker, limits)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_ray_accepts_it() -> None:
    validate_config(config())


def test_a_workers_cpus_and_gpus_are_those_of_its_size() -> None:
    types = config(GPU)["available_node_types"]
    assert types["worker"]["resources"] == {"CPU": 4, "GPU": 1, "worker": 1}
    assert types["head"]["resources"] == {"CPU": 4}


def test_ray_starts_no_second_head() -> None:
    head = config()["available_node_types"]["head"]
    assert (head["min_workers"], head["max_workers"]) == (0, 0)
