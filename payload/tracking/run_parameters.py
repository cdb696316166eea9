"""What MLflow shows as a run's parameters: enough to repeat the run."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

import ray

import payload
from payload.experiment.common_settings import CommonSettings
from payload.experiment.settings import Experiment
from payload.tracking.git_commit import git_commit
from payload.tracking.mlflow_run import flatten

PACKAGES = ("ray", "torch", "gymnasium", "ale-py", "mlflow", "numpy")


def run_parameters(experiment: Experiment, settings: CommonSettings) -> dict[str, Any]:
    """Returns the whole experiment, versions, seed, git commit and the cluster's shape."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    resources = ray.cluster_resources()
    return {
        "run": experiment.run,
        "env": experiment.env,
        **dict(flatten({"config": settings.model_dump()})),
        **dict(flatten({"stop": experiment.stop.model_dump(exclude_none=True)})),
        **{f"version.{name}": version(name) for name in PACKAGES},
        "version.volley": payload.__version__,
        "version.python": sys.version.split()[0],
        "git_commit": git_commit(),
        "cluster.nodes": len(nodes),
        "cluster.cpus": resources.get("CPU", 0.0),
        "cluster.gpus": resources.get("GPU", 0.0),
    }
