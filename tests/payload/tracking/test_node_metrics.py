"""The metrics of the cluster's nodes, on the tests' own Ray."""

from __future__ import annotations

import pytest
import ray

from payload.tracking.node_metrics import NodeMonitors

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("ray_here")
def test_the_drivers_own_node_is_measured_at_once_and_without_a_process() -> None:
    before = ray._private.state.actors()
    metrics = NodeMonitors().metrics()
    names = {name.rpartition("/")[2] for name in metrics}
    assert {"cpu_utilization_percentage", "system_memory_usage_megabytes"} <= names
    assert "disk_available_megabytes" in names
    assert ray._private.state.actors() == before
