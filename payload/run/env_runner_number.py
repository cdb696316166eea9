"""Adapts the number of env runners during training to a file that another process writes.

RLlib's own EnvRunnerGroup.add_workers is not used: the group waits indefinitely for an env runner
that has no place yet, and would reuse the index of a removed one, with its seeds.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private.state import actors, available_resources_per_node

from payload.errors import first_line
from payload.experiment.placement import Cluster, room_for_env_runners
from payload.experiment.settings_of_every_algorithm import AlgorithmSettings
from payload.room import Node
from payload.run.env_runner_joining import join, set_number
from payload.run.interruption import Interruption
from payload.run.panel import Say, View

LEAVE_S = 10.0
"""Time that an env runner has to close its environments before it is killed."""
ROOM_EVERY_S = 0.5
"""Pause between two checks for room while no env runner fits."""
AGAIN_S = 30.0
"""Pause after an env runner has failed to start."""


LONGEST = 20
"""Characters shown of text that is not an integer."""


class NumberFile:
    """The last number that a file held, at least 1."""

    def __init__(self, path: Path, say: Say) -> None:
        self._path, self._say = path, say
        self._number: int | None = None
        self._seen: tuple[int, int, int] | None = None
        self._problem = ""

    def read(self) -> int | None:
        """Returns the number, None before the first one; reads the file only if it has changed.

        If the file is missing or holds something else, it says so once and keeps the number.
        """
        text = ""
        try:
            stat = self._path.stat()
            seen = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if seen != self._seen:
                text = self._path.read_text()
                self._seen = seen
                self._number, self._problem = max(1, int(text)), ""
        except OSError as error:
            self._seen = None
            self._say_problem(error.strerror or str(error))
        except ValueError:
            self._say_problem(f"{text.strip()[:LONGEST]!r} is not an integer")
        return self._number

    def _say_problem(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        there = "as they are" if self._number is None else f"at {self._number}"
        self._say(f"--env-runners {self._path}: {problem}; the env runners stay {there}")


@dataclass(frozen=True)
class Starting:
    """An env runner that Ray has not placed yet, or that still makes its environments."""

    index: int
    actor: Any


class EnvRunnerNumber:
    """Keeps as many env runners of one training running as a file requests.

    An env runner joins RLlib's group once it answers, and leaves it before it ends: RLlib neither
    waits for one that has no place nor restarts one that was removed.
    """

    def __init__(self, file: Path | None, settings: AlgorithmSettings, say: Say) -> None:
        """
        Args:
            file: Holds the target number; None keeps that of the settings.
        """
        self.target = settings.num_env_runners or 0
        self._settings, self._say = settings, say
        self._file = None if file is None or self.target == 0 else NumberFile(file, say)
        self._starting: dict[ray.ObjectRef, Starting] = {}
        """Keyed by the pending answer of each."""
        self._leaving: dict[ray.ObjectRef, tuple[Any, float]] = {}
        """The actor and when to kill it, by the pending answer to its termination."""
        self._last_index = 0
        self._again_at = 0.0
        self._failure = ""

    def number_that_fits(self) -> int:
        """Returns how many of the target number can be placed now, beside the learners."""
        if self._file is None:
            return self.target
        self.target = self._file.read() or self.target
        free = Cluster(free_nodes(), local=True)
        return min(self.target, room_for_env_runners(self._settings, free))

    def wait_for_room(self, view: View, interruption: Interruption) -> int | None:
        """Waits for room for an env runner; returns how many fit, None if a signal came first.

        RLlib would wait indefinitely for env runners that cannot be placed.
        """
        number = self.number_that_fits()
        if number < min(1, self.target):
            view.wait_for("Waiting for free CPUs")
        while number < min(1, self.target):
            if interruption.requested:
                return None
            time.sleep(ROOM_EVERY_S)
            number = self.number_that_fits()
        return number

    def follow(self, algorithm: Any) -> None:
        """Adds and removes env runners as far as possible without waiting."""
        if self._file is None:
            return
        self.target = self._file.read() or self.target
        group = algorithm.env_runner_group
        before = group.num_remote_env_runners()
        self._add_ready(algorithm)
        self._kill_overdue()
        missing = self.target - group.num_remote_env_runners() - len(self._starting)
        if missing > 0:
            self._start(group, missing)
        elif missing < 0:
            self._remove(group, -missing)
        now = group.num_remote_env_runners()
        if now != before:
            set_number(algorithm, now)
            self._say(f"Env runners: now {now} (were {before}, target {self.target})")

    def end(self) -> None:
        """Kills the env runners outside RLlib's group, which would wait for some of them."""
        for actor in [starting.actor for starting in self._starting.values()]:
            ray.kill(actor)
        for actor, _ in self._leaving.values():
            ray.kill(actor)
        self._starting.clear()
        self._leaving.clear()

    def _start(self, group: Any, missing: int) -> None:
        if time.monotonic() < self._again_at:
            return
        each = self._settings.num_cpus_per_env_runner
        # One that is starting may not have taken its CPUs yet.
        room = sum(node.cpus // each for node in free_nodes()) - len(self._starting)
        for _ in range(min(missing, room)):
            self._last_index = max(self._last_index, *group._worker_manager.actor_ids()) + 1
            actor = group._make_worker(
                env_creator=group._env_creator,
                validate_env=None,
                worker_index=self._last_index,
                num_workers=self.target,
                config=group._remote_config_obj_ref,
            )
            self._starting[actor.ping.remote()] = Starting(self._last_index, actor)

    def _add_ready(self, algorithm: Any) -> None:
        newcomers = []
        for answer in _ready(self._starting):
            newcomer = self._starting.pop(answer)
            try:
                ray.get(answer)
            except ray.exceptions.RayError as error:
                ray.kill(newcomer.actor)
                self._again_at = time.monotonic() + AGAIN_S
                # As in EnvRunnerGroup: the error contains what the constructor has raised.
                inside = error.args[0] if getattr(error, "actor_init_failed", False) else error
                self._say_failure(f"An env runner could not start: {first_line(inside)}")
            else:
                newcomers.append(newcomer)
        if newcomers:
            join(algorithm, {newcomer.index: newcomer.actor for newcomer in newcomers})

    def _remove(self, group: Any, surplus: int) -> None:
        """Removes env runners: first those still starting, then lost ones, then the newest."""
        for answer in list(self._starting)[::-1][:surplus]:
            ray.kill(self._starting.pop(answer).actor)
            surplus -= 1
        manager = group._worker_manager
        newest_first = sorted(manager.actor_ids(), reverse=True)
        alive = {index: _is_alive(manager, index) for index in newest_first}
        for index in sorted(newest_first, key=alive.__getitem__)[:surplus]:
            actor = manager.remove_actor(index)
            if not alive[index]:
                ray.kill(actor)
                continue
            actor.stop.remote()
            # Ray does not restart an actor that ends itself.
            self._leaving[actor.__ray_terminate__.remote()] = (actor, time.monotonic() + LEAVE_S)

    def _kill_overdue(self) -> None:
        for answer in _ready(self._leaving):
            del self._leaving[answer]
        for answer, (actor, until) in list(self._leaving.items()):
            if time.monotonic() > until:
                ray.kill(actor)
                del self._leaving[answer]

    def _say_failure(self, line: str) -> None:
        if line != self._failure:
            self._failure = line
            self._say(line)


def free_nodes() -> list[Node]:
    """Returns the resources of each node that no actor and no task has taken."""
    # Ray has no public call for it.
    free = available_resources_per_node().values()
    return [Node(int(has.get("CPU", 0)), has.get("GPU", 0.0)) for has in free]


def _is_alive(manager: Any, index: int) -> bool:
    """Whether an env runner is neither lost nor on its way back; RLlib may not know it yet."""
    state: str | None = actors(manager._actors[index]._actor_id.hex()).get("State")
    return bool(manager.is_actor_healthy(index)) and state == "ALIVE"


def _ready(answers: Iterable[ray.ObjectRef]) -> list[ray.ObjectRef]:
    waiting = list(answers)
    if not waiting:
        return []
    ready: list[ray.ObjectRef] = ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]
    return ready
