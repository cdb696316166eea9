"""Env runners that were lost or failed and came back: says why, ends a run that samples nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME

MOST_IN_A_ROW = 5
"""Times that an env runner may come back while no env runner samples anything."""
ANSWER_S = 5.0


class EnvRunnersFailingError(Exception):
    """An env runner fails again and again, and nothing is sampled."""


class EnvRunnerLosses:
    """Counts the env runners of one run that were lost or failed and came back."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """
        Args:
            say: Shows a person a line.
        """
        self._say = say
        self._said: Counter[str] = Counter()
        self._in_a_row: Counter[int] = Counter()
        self._env_steps = 0

    def back(self, algorithm: Any, env_runner_group: Any, indices: list[int]) -> None:
        """Notes which env runners RLlib has taken back into service.

        Raises:
            EnvRunnersFailingError: One of them came back MOST_IN_A_ROW times without a step.
        """
        path = (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)
        env_steps = int(algorithm.metrics.peek(path, default=0))
        if env_steps > self._env_steps:
            self._in_a_row.clear()
            self._env_steps = env_steps
        for index, reason in _reasons(env_runner_group, indices).items():
            self._in_a_row[index] += 1
            what, why = ("failed", f": {reason}") if reason else ("was lost", "")
            self._say_seldom(f"Env runner {index} {what} and is back{why}")
            if self._in_a_row[index] >= MOST_IN_A_ROW:
                raise EnvRunnersFailingError(
                    f"env runner {index} {what} {MOST_IN_A_ROW} times, and nothing was sampled "
                    f"meanwhile{why}"
                )

    def _say_seldom(self, line: str) -> None:
        """Says a line the first, second, fourth, eighth ... time."""
        self._said[line] += 1
        times = self._said[line]
        if times & (times - 1) == 0:
            self._say(line if times == 1 else f"{line} ({times} times)")


def _reasons(env_runner_group: Any, indices: list[int]) -> dict[int, str | None]:
    """Asks each env runner for its last failure; None for a process that has had none."""
    answers = env_runner_group.foreach_env_runner(
        lambda env_runner: (env_runner.worker_index, env_runner.take_fault()),
        remote_worker_ids=indices,
        local_env_runner=False,
        timeout_seconds=ANSWER_S,
    )
    reasons: dict[int, str | None] = dict.fromkeys(indices)
    return reasons | dict(answers)
