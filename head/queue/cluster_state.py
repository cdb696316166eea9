"""The queue's last view of Ray, in a file for the command and for sleep."""

from dataclasses import asdict, dataclass, field

from ..files import read_json, replace_json
from ..paths import CLUSTER_STATE


@dataclass(frozen=True)
class RayNode:
    """A node that is alive."""

    name: str
    address: str
    role: str
    """head or worker."""
    cpus: int
    gpus: float
    state: str = "ALIVE"


@dataclass(frozen=True)
class ClusterState:
    """Ray as the queue saw it last."""

    time: float = 0.0
    """In seconds since the epoch; 0: the queue has not seen Ray yet."""
    nodes: list[RayNode] = field(default_factory=list)
    """The head first."""
    drivers: int = 0
    """Ray jobs that no experiment of the queue has started."""

    def write(self) -> None:
        replace_json(CLUSTER_STATE, asdict(self))


def read_cluster_state() -> ClusterState:
    values = read_json(CLUSTER_STATE)
    try:
        nodes = [RayNode(**node) for node in values["nodes"]]
        return ClusterState(values["time"], nodes, values["drivers"])
    except (KeyError, TypeError):
        return ClusterState()
