"""Checks of the experiment: the payload accepts it, and the cluster has room for it."""

from collections.abc import Iterator
from pathlib import Path

from infra.config.stack_settings import Problem, StackSettings
from payload.experiment import (
    Cluster,
    Experiment,
    Node,
    UserError,
    in_bytes,
    place,
    problems_of_files,
    read_experiment,
)
from payload.notification import in_files, masked, variable_of
from payload.parcel import MAX_BYTES, largest, sizes


def check_experiment(settings: StackSettings, root: Path) -> Iterator[Problem]:
    """Checks that the payload accepts the experiment and the whole cluster has room for it."""
    path = root / settings.experiment
    try:
        own = read_experiment(path).experiment
    except UserError as error:
        yield Problem("experiment", settings.experiment, str(error).removeprefix(f"{path}: "))
        return
    if own.notify and variable_of(in_files(own.notify)):
        text = f"notify: {masked(own.notify)}: up sends no secrets: they would be in Pulumi's state"
        yield Problem("experiment", settings.experiment, f"{text}; volley submit sends it")
    problems = list(problems_of_files(own))
    for problem in problems:
        yield Problem("experiment", settings.experiment, problem)
    files = sizes(own) if not problems else {}
    if sum(files.values()) > MAX_BYTES:
        yield Problem(
            "experiment",
            settings.experiment,
            f"names files of {sum(files.values()):,} bytes, far more than the 100 KB of a run "
            f"command: {largest(files)}",
        )
    if not {settings.head_size, settings.worker_size} <= set(settings.catalog.sizes):
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


def with_needs(settings: StackSettings, root: Path) -> StackSettings:
    """Returns the settings with what the experiment needs on every machine added.

    An experiment that cannot be read adds nothing: `check_experiment` refuses it.
    """
    try:
        experiment = read_experiment(root / settings.experiment).experiment
    except UserError:
        return settings
    packages = dict.fromkeys([*settings.apt_packages, *experiment.apt_packages])
    shared_memory = -(-in_bytes(experiment.shm_size or "0") // 2**30)
    return settings.model_copy(
        update={
            "apt_packages": list(packages),
            "containers": settings.containers or experiment.image is not None,
            "shared_memory_gib": max(settings.shared_memory_gib, shared_memory),
        }
    )


def needs_of_every_machine(settings: StackSettings, root: Path) -> str:
    """Returns what the experiment needs on every machine, for the preview; empty if nothing.

    A machine's customData is packed: without this the preview would only show that it changes.
    """
    experiment = read_experiment(root / settings.experiment).experiment
    needs = []
    if experiment.apt_packages:
        needs.append(f"apt_packages {', '.join(experiment.apt_packages)}")
    if experiment.shm_size is not None:
        needs.append(f"shm_size {experiment.shm_size}")
    if experiment.image is not None:
        needs.append(f"image {experiment.image}")
    if not needs:
        return ""
    return (
        f"experiment: {settings.experiment}: {' and '.join(needs)} on every machine: "
        f"aptPackages is [{', '.join(settings.apt_packages)}], "
        f"sharedMemoryGib is {settings.shared_memory_gib}, "
        f"containers is {str(settings.containers).lower()}"
    )


def with_stack_layer(settings: StackSettings, root: Path) -> Experiment:
    """Returns the experiment as the head reads it: the file, and over it the stack's numbers."""
    return read_experiment(root / settings.experiment, stack_layer(settings)).experiment


def stack_layer(settings: StackSettings) -> dict[str, dict[str, int]]:
    """Returns the stack's own settings of an experiment, as a layer over the file."""
    number = settings.num_env_runners
    return {"config": {"num_env_runners": number}} if number else {}


def cluster(settings: StackSettings) -> Cluster:
    """Returns Ray's resources when all machines run."""
    head, worker = settings.head, settings.worker
    workers = [Node(worker.vcpus, worker.gpus)] * settings.max_workers
    return Cluster([Node(head.vcpus, head.gpus), *workers])
