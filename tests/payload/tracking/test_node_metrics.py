"""The metrics of the cluster's nodes, on a Ray of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray

from payload.tracking.node_metrics import NodeMonitors

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def _ray() -> Iterator[None]:
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("_ray")
def test_the_drivers_own_node_is_measured_at_once_and_without_a_process() -> None:
    metrics = NodeMonitors().metrics()
    names = {name.rpartition("/")[2] for name in metrics}
    assert {"cpu_utilization_percentage", "system_memory_usage_megabytes"} <= names
    assert ray._private.state.actors() == {}
