"""Checks of the experiment: the payload accepts it, and the cluster has room for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infra.config.problem import Problem
from infra.config.stack_settings import StackSettings
from infra.config.vm_sizes import SIZES
from payload.experiment import Cluster, Experiment, Node, UserError, place, read_experiment


def check_experiment(settings: StackSettings, root: Path) -> Iterator[Problem]:
    """The payload accepts the experiment, and the whole cluster has room for it."""
    path = root / settings.experiment
    try:
        own = read_experiment(path).experiment
    except UserError as error:
        yield Problem("experiment", settings.experiment, str(error).removeprefix(f"{path}: "))
        return
    if settings.head_size not in SIZES or settings.worker_size not in SIZES:
        return
    key, value = "experiment", settings.experiment
    try:
        if settings.num_env_runners:
            # The stack's number replaces the experiment's.
            place(own.config.model_copy(update={"num_env_runners": None}), cluster(settings))
            key, value = "numEnvRunners", str(settings.num_env_runners)
        place(with_stack_layer(settings, root).config, cluster(settings))
    except UserError as error:
        yield Problem(key, value, str(error))


def with_stack_layer(settings: StackSettings, root: Path) -> Experiment:
    """Returns the experiment as the head reads it: the file, and over it the stack's numbers."""
    return read_experiment(root / settings.experiment, stack_layer(settings)).experiment


def stack_layer(settings: StackSettings) -> dict[str, dict[str, int]]:
    """Returns what the stack says of an experiment, as a layer of it."""
    number = settings.num_env_runners
    return {"config": {"num_env_runners": number}} if number else {}


def cluster(settings: StackSettings) -> Cluster:
    """Returns what Ray has when all machines are there."""
    head, worker = settings.head, settings.worker
    workers = [Node(worker.vcpus, worker.gpus)] * settings.max_workers
    return Cluster([Node(head.vcpus, head.gpus), *workers])
