"""Placement: from the CPUs and GPUs of head and workers to env runners and learners.

The preview of a stack and the payload both use it; the head's queue shares a cluster by the same
rules, which are in payload/room.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from payload.errors import UserError
from payload.experiment.settings_of_every_algorithm import AlgorithmSettings
from payload.room import Needs, Node, Room


@dataclass(frozen=True)
class Cluster:
    """The machines that a run may use."""

    nodes: Sequence[Node]
    local: bool = False
    """Whether Ray was started for this run alone, so that env runners get every CPU. On a cluster
    the driver keeps one, as in the articles' 6 + 8 - 1 = 13."""

    @property
    def cpus(self) -> int:
        return sum(node.cpus for node in self.nodes)


def needs(settings: AlgorithmSettings) -> Needs:
    """Returns the resources that `place` looks for on a cluster."""
    gpus = settings.num_gpus_per_learner
    return Needs(
        num_env_runners=settings.num_env_runners,
        cpus_per_env_runner=settings.num_cpus_per_env_runner,
        evaluation_env_runners=for_evaluation(settings),
        cpu_learners=_cpu_learners(settings),
        # Without learner processes the driver is the learner.
        gpu_learners=max(1, settings.num_learners) if gpus else 0,
        gpus_per_learner=gpus,
    )


def place(settings: AlgorithmSettings, cluster: Cluster, shrink: bool = False) -> int:
    """Returns the number of env runners: the requested number, or as many as fit.

    Args:
        shrink: If the settings request more than fits, take what fits: a cluster may have lost
            workers.

    Raises:
        UserError: The cluster has no room for the env runners or the learners.
    """
    _check_learners(settings, cluster)
    room = room_for_env_runners(settings, cluster)
    asked = settings.num_env_runners
    if asked is None or (shrink and asked > room):
        asked = max(1, room)
    evaluating = for_evaluation(settings)
    if asked > room:
        raise UserError(
            f"config.num_env_runners: {asked} is more than the {room} that fit on "
            f"{_in_words(cluster)} ({_cpu_learners(settings)} CPUs for learners, "
            f"{settings.num_cpus_per_env_runner} for each env runner"
            + (f", {evaluating} env runners for evaluation)" if evaluating else ")")
        )
    return asked


def place_trials(settings: AlgorithmSettings, cluster: Cluster, trials: int) -> int:
    """Returns the number of env runners of each trial of a search.

    A number in the settings is kept. Otherwise as many of `trials` train at once as fit with one
    env runner each, and share the CPUs evenly.

    Raises:
        UserError: The cluster has no room for a single trial.
    """
    alone = place(settings, cluster)
    if settings.num_env_runners is not None:
        return alone
    at_once = [n for n in range(1, trials + 1) if room_for_env_runners(settings, cluster, n) >= n]
    if settings.num_gpus_per_learner > 0:
        learners, each = max(1, settings.num_learners), settings.num_gpus_per_learner
        room = sum(int((node.gpus or 0) / each) for node in cluster.nodes)
        at_once = [n for n in at_once if n * learners <= room]
    most = max(at_once, default=1)
    return max(1, room_for_env_runners(settings, cluster, most) // most)


def cpus_of_trials_driver(settings: AlgorithmSettings, cluster: Cluster, env_runners: int) -> int:
    """Returns the CPUs that a trial reserves for its own process, by the rules of `place`."""
    if env_runners == 0:
        return 1  # The trial's own process samples.
    env_runners += for_evaluation(settings)
    free = cluster.cpus - env_runners * settings.num_cpus_per_env_runner - _cpu_learners(settings)
    return int(not cluster.local and _cpu_learners(settings) == 0 and free > 0)


def room_for_env_runners(settings: AlgorithmSettings, cluster: Cluster, trials: int = 1) -> int:
    """Returns how many env runners fit beside the learners and the drivers of some trials."""
    asked = needs(settings)
    room = Room(cluster.nodes)
    for _ in range(trials * asked.cpu_learners):
        room.take_cpu(asked.cpus_per_env_runner)
    room.take_env_runners(asked, trials * asked.evaluation_env_runners)
    # The first env runner comes before the drivers, so that a cluster of one CPU can train.
    first = 0 if cluster.local else room.take_env_runners(asked, 1)
    if not cluster.local:
        for _ in range(trials):
            room.take_driver(asked)
    return first + room.take_env_runners(asked, cluster.cpus)


def for_evaluation(settings: AlgorithmSettings) -> int:
    """Returns the number of env runners that only evaluate."""
    return 0 if settings.evaluation_interval is None else settings.evaluation_num_env_runners


def _cpu_learners(settings: AlgorithmSettings) -> int:
    return settings.num_learners if settings.num_gpus_per_learner == 0 else 0


def _check_learners(settings: AlgorithmSettings, cluster: Cluster) -> None:
    """Raises UserError unless every learner has a CPU, or its GPUs on one node."""
    learners, each = settings.num_learners, settings.num_gpus_per_learner
    if _cpu_learners(settings) > cluster.cpus:
        raise UserError(
            f"config.num_learners: {learners} is more than the {cluster.cpus} CPUs of "
            f"{_in_words(cluster)}"
        )
    gpus = [node.gpus for node in cluster.nodes if node.gpus is not None]
    if each == 0 or len(gpus) < len(cluster.nodes):
        return
    # Without learner processes the driver is the learner.
    if sum(int(gpu / each) for gpu in gpus) < max(1, learners):
        raise UserError(
            f"config.num_gpus: {max(1, learners) * each:g} is more than the {sum(gpus):g} GPUs of "
            f"{_in_words(cluster)}"
        )


def _in_words(cluster: Cluster) -> str:
    nodes = f"{len(cluster.nodes)} machines" if len(cluster.nodes) > 1 else "this machine"
    return f"{nodes} with {cluster.cpus} CPUs"
