"""The language of an experiment: its settings, their old names, and what fits on a cluster.

Needs pydantic and PyYAML alone. The payload, the preview of a stack and the head's scripts read an
experiment here and nowhere else.
"""

from payload.errors import UserError, nearest
from payload.experiment.placement import Cluster, Node, place
from payload.experiment.read import LoadedExperiment, read_experiment
from payload.experiment.settings import Experiment, Settings, Stop

__all__ = [
    "Cluster",
    "Experiment",
    "LoadedExperiment",
    "Node",
    "Settings",
    "Stop",
    "UserError",
    "nearest",
    "place",
    "read_experiment",
]
