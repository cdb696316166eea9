"""Which VMs have joined Ray, from its global control store (GCS).

A worker's Ray starts with RAY_CLOUD_INSTANCE_ID=<the VM's name>, which is NodeState.instance_id.
"""

from __future__ import annotations

from ray.autoscaler.v2.sdk import get_cluster_resource_state
from ray.core.generated.autoscaler_pb2 import NodeStatus
from ray.experimental.internal_kv import internal_kv_get_gcs_client


def joined_addresses() -> dict[str, str]:
    """Returns the addresses of the VMs that have ever joined this GCS, by the VMs' names.

    A lost node keeps its address: Ray deletes it when its heartbeat is late.
    """
    state = get_cluster_resource_state(internal_kv_get_gcs_client())
    # The living last: a VM whose Ray has restarted is both.
    nodes = sorted(state.node_states, key=lambda node: node.status != NodeStatus.DEAD)
    return {node.instance_id: node.node_ip_address for node in nodes if node.instance_id}
