"""The language of an experiment: its settings, their old names, and what fits on a cluster.

Needs pydantic and PyYAML alone. The payload, the preview of a stack and the head's scripts read an
experiment here and nowhere else.
"""

from payload.errors import UserError, nearest
from payload.experiment.common_settings import CommonSettings
from payload.experiment.file import to_yaml
from payload.experiment.placement import Cluster, place
from payload.experiment.read import LoadedExperiment, read_experiment
from payload.experiment.search_space import SearchSpace
from payload.experiment.settings import (
    LEFT_OUT,
    MAX_TRAVEL_BYTES,
    Experiment,
    Settings,
    Stop,
    in_bytes,
    named_paths,
)
from payload.room import Node

__all__ = [
    "LEFT_OUT",
    "MAX_TRAVEL_BYTES",
    "Cluster",
    "CommonSettings",
    "Experiment",
    "LoadedExperiment",
    "Node",
    "SearchSpace",
    "Settings",
    "Stop",
    "UserError",
    "in_bytes",
    "named_paths",
    "nearest",
    "place",
    "read_experiment",
    "to_yaml",
]
