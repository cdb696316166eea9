"""A run's parameters in MLflow: enough to repeat the run."""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray

import payload
from payload.experiment.settings import Experiment
from payload.experiment.settings_of_every_algorithm import AlgorithmSettings

NAME = re.compile(r"[\w. :-]+", re.ASCII)
"""Matches a part of a parameter's name. A slash would have to stand where it does in a path."""
PACKAGES = ("ray", "torch", "gymnasium", "ale-py", "mlflow", "numpy")


def run_parameters(experiment: Experiment, settings: AlgorithmSettings) -> dict[str, Any]:
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


def git_commit() -> str:
    """Returns the commit of this package's source, with "-dirty" if files differ from it."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def flatten(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields ("config.lr", 0.0006) for {"config": {"lr": 0.0006}}: MLflow's parameters are flat.

    A mapping with a key that MLflow does not take as a part of a name stays whole.
    """
    for key, value in values.items():
        if isinstance(value, dict) and value and all(NAME.fullmatch(str(inner)) for inner in value):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
