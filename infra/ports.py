"""Every port, once: NSG rules, `ray start` flags, units and outputs take them from here.

The ports that must be open between nodes were found by closing them one by one.
"""

from dataclasses import dataclass

GCS = 6379
"""The head's global control store: every node connects to it."""
OBJECT_MANAGER = 8076
NODE_MANAGER = 8077
WORKER_MIN, WORKER_MAX = 10100, 10199
"""One port for each Ray worker process of a node: driver, env runners, learners, idle workers."""
DASHBOARD_AGENT_GRPC = 52366
"""`ray logs` and job supervision of another node."""

DASHBOARD = 8265
DASHBOARD_AGENT_HTTP = 52365
RUNTIME_ENV_AGENT = 52367
METRICS_EXPORT = 52368
RAY_CLIENT = 10001
"""Pinned so that none of them can take one of the ports above; no NSG opens them."""

SSH = 22
MLFLOW = 5000
JUPYTER = 8888
"""On the head's loopback, as the dashboard is: all three are reached through an SSH tunnel."""


@dataclass(frozen=True)
class OpenPorts:
    """Ports that one NSG rule opens between nodes."""

    name: str
    ports: tuple[str, ...]
    """As Azure writes them: "8076" or "10100-10199"."""
    reason: str


TO_EVERY_NODE = (
    OpenPorts("ray-object-manager", (str(OBJECT_MANAGER),), "Objects move between nodes"),
    OpenPorts("ray-node-manager", (str(NODE_MANAGER),), "Tasks and actors are leased"),
    OpenPorts("ray-workers", (f"{WORKER_MIN}-{WORKER_MAX}",), "Ray workers call each other"),
    OpenPorts("ray-dashboard-agent", (str(DASHBOARD_AGENT_GRPC),), "Logs of another node"),
)
TO_HEAD = (OpenPorts("ray-gcs", (str(GCS),), "Nodes join the cluster"), *TO_EVERY_NODE)


def reserved_ports() -> str:
    """Returns all pinned ports as net.ipv4.ip_local_reserved_ports takes them."""
    single = [
        *(GCS, OBJECT_MANAGER, NODE_MANAGER, DASHBOARD),
        *(DASHBOARD_AGENT_HTTP, DASHBOARD_AGENT_GRPC, RUNTIME_ENV_AGENT, METRICS_EXPORT),
        RAY_CLIENT,
    ]
    return ",".join([*map(str, single), f"{WORKER_MIN}-{WORKER_MAX}"])


def head_flags(address: str) -> list[str]:
    """Returns address and ports as flags of `ray start --head`; the dashboard on loopback."""
    return [
        f"--node-ip-address={address}",
        "--dashboard-host=127.0.0.1",
        f"--port={GCS}",
        f"--dashboard-port={DASHBOARD}",
        f"--ray-client-server-port={RAY_CLIENT}",
        *node_flags(),
    ]


def worker_flags(head_address: str) -> list[str]:
    """Returns address and ports as flags of a worker's `ray start`."""
    return [f"--address={head_address}:{GCS}", *node_flags()]


def node_flags() -> list[str]:
    """Returns the flags that head and workers share."""
    return [
        f"--node-manager-port={NODE_MANAGER}",
        f"--object-manager-port={OBJECT_MANAGER}",
        f"--min-worker-port={WORKER_MIN}",
        f"--max-worker-port={WORKER_MAX}",
        f"--dashboard-agent-listen-port={DASHBOARD_AGENT_HTTP}",
        f"--dashboard-agent-grpc-port={DASHBOARD_AGENT_GRPC}",
        f"--runtime-env-agent-port={RUNTIME_ENV_AGENT}",
        f"--metrics-export-port={METRICS_EXPORT}",
    ]
