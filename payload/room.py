"""Room: which processes of an experiment fit on the nodes of a cluster.

The payload uses it to place one experiment, and the head's queue to share the cluster: the link
head/room.py puts this file into the head's package. It needs only the standard library.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Node:
    """The resources that a machine offers Ray."""

    cpus: int
    gpus: float | None = 0.0
    """None: not known yet."""


@dataclass(frozen=True)
class Needs:
    """The resources that an experiment requests of a cluster."""

    num_env_runners: int | None = None
    """None: as many as fit."""
    cpus_per_env_runner: int = 1
    evaluation_env_runners: int = 0
    """They only evaluate."""
    cpu_learners: int = 0
    """Each of them takes a CPU."""
    gpu_learners: int = 0
    gpus_per_learner: float = 0.0
    search: bool = False
    """Whether it searches settings: it keeps the env runners that it starts with."""

    @property
    def least(self) -> int:
        """Number of env runners that it needs to train; without any, the driver samples."""
        return 0 if self.num_env_runners == 0 else 1


class Room:
    """The free resources of the nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._free = list(nodes)

    def take_least(self, needs: Needs) -> bool:
        """Takes all that an experiment cannot train without, or nothing."""
        before = list(self._free)
        # Without env runners the driver steps the environments.
        cpus = needs.cpu_learners + (needs.least == 0)
        env_runners = needs.least + needs.evaluation_env_runners
        whole = (
            all(self._take_gpus(needs.gpus_per_learner) for _ in range(needs.gpu_learners))
            and all(self.take_cpu(needs.cpus_per_env_runner) for _ in range(cpus))
            and self.take_env_runners(needs, env_runners) == env_runners
        )
        if not whole:
            self._free = before
        return whole

    def take_driver(self, needs: Needs) -> None:
        """Takes a CPU, if there is one, for a driver that has no learner to share one with."""
        if needs.cpu_learners == 0 and needs.least > 0:
            self.take_cpu(needs.cpus_per_env_runner)

    def take_env_runners(self, needs: Needs, count: int) -> int:
        """Takes as many as fit, at most `count`; an env runner has all its CPUs on one node."""
        for taken in range(count):
            if not self._take(needs.cpus_per_env_runner, self._free_cpus()):
                return taken
        return max(0, count)

    def take_cpu(self, each: int) -> bool:
        """Takes one CPU, if possible where it costs no env runner of `each` CPUs."""
        spare = {place: cpus for place, cpus in self._free_cpus().items() if cpus % each}
        return self._take(1, spare or self._free_cpus())

    def _free_cpus(self) -> dict[int, int]:
        return {place: node.cpus for place, node in enumerate(self._free)}

    def _take(self, cpus: int, candidates: dict[int, int]) -> bool:
        """Takes CPUs from the candidate that has the fewest of those with enough."""
        enough = [place for place, free in candidates.items() if free >= cpus]
        if not enough:
            return False
        place = min(enough, key=lambda place: candidates[place])
        self._free[place] = replace(self._free[place], cpus=self._free[place].cpus - cpus)
        return True

    def _take_gpus(self, gpus: float) -> bool:
        for place, node in enumerate(self._free):
            if (node.gpus or 0) >= gpus - 1e-9:
                self._free[place] = replace(node, gpus=(node.gpus or 0) - gpus)
                return True
        return False
