"""The language of an experiment: its settings, their old names, and what fits on a cluster.

It needs only pydantic, PyYAML and pathspec. The payload, the preview of a stack and the head's
scripts all read experiments through it.
"""

from payload.errors import UserError, nearest
from payload.experiment.file import to_yaml
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.machine_needs import (
    MAX_TRAVEL_BYTES,
    VARIABLE,
    MachineNeeds,
    in_bytes,
    problems_of_files,
)
from payload.experiment.placement import Cluster, place
from payload.experiment.read import read_experiment
from payload.experiment.resume import resume_key
from payload.experiment.settings import Experiment
from payload.room import Node

__all__ = [
    "MAX_TRAVEL_BYTES",
    "VARIABLE",
    "Cluster",
    "Experiment",
    "ImpalaSettings",
    "MachineNeeds",
    "Node",
    "UserError",
    "in_bytes",
    "nearest",
    "place",
    "problems_of_files",
    "read_experiment",
    "resume_key",
    "to_yaml",
]
