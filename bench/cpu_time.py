"""Where a training's CPU time goes: seconds by the kind of thread that takes them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil

EMULATOR, ENV_RUNNERS, LEARNER, DRIVER, RAY = "emulator", "env_runners", "learner", "driver", "ray"
IN_WORDS = {
    EMULATOR: "the emulator",
    ENV_RUNNERS: "inference and rollout fragments",
    LEARNER: "the learner",
    DRIVER: "the driver",
    RAY: "Ray's own processes",
}
"""The kinds of threads, and what each does."""
ENV_RUNNER = "ray::AtariEnvRunner"
"""Begins the name of an env runner's process."""


def kind_of(command: str, is_driver: bool, is_main: bool) -> str:
    """Returns which part of a training a thread is.

    The emulator steps games in threads of its own, and RLlib's learner has one in the driver.

    Args:
        command: The name of its process.
        is_driver: Whether the process is the training's own.
        is_main: Whether it is the main thread of its process.
    """
    if command.startswith(ENV_RUNNER):
        return ENV_RUNNERS if is_main else EMULATOR
    if is_driver:
        return DRIVER if is_main else LEARNER
    return RAY


def cpu_seconds(driver: int, processes: Iterable[psutil.Process]) -> dict[str, float]:
    """Returns the CPU seconds so far by kind of thread.

    Args:
        driver: The process id of the training itself.
        processes: All of the training's.
    """
    seconds = dict.fromkeys(IN_WORDS, 0.0)
    for process in processes:
        with suppress(psutil.NoSuchProcess, IndexError):
            command = process.cmdline()[0]
            for thread in process.threads():
                kind = kind_of(command, process.pid == driver, thread.id == process.pid)
                seconds[kind] += thread.user_time + thread.system_time
    return seconds
