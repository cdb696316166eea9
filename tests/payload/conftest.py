"""Fixtures of several tests: reports, an algorithm that only writes files, its checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from payload.experiment.settings import Experiment, Stop
from payload.run.checkpoints import Checkpoint, CheckpointStore
from payload.run.progress import Progress
from payload.tracking.report import Report

FIRST_REPORT = Report(
    iteration=1,
    time_total_s=10.0,
    env_steps=1000,
    env_steps_trained=900,
    sampled_per_s=100.0,
    trained_per_s=90.0,
    episodes=3,
    return_mean=math.nan,
    return_min=math.nan,
    return_max=math.nan,
    current_return=math.nan,
    length_mean=math.nan,
    env_runners=2,
    values={},
)


class NoLearners:
    """A learner group without learners."""

    def foreach_learner(self, function: Callable[[object], object]) -> list[object]:
        return []


class FileAlgorithm:
    """The part of RLlib's Algorithm that a checkpoint needs: it writes files into a folder."""

    learner_group = NoLearners()

    def save_to_path(self, path: Path) -> None:
        path.mkdir()
        (path / "weights").write_bytes(b"learned")

    def restore_from_path(self, path: Path) -> None:
        assert (path / "weights").read_bytes() == b"learned"


@pytest.fixture
def algorithm() -> FileAlgorithm:
    return FileAlgorithm()


@pytest.fixture
def make_report() -> Callable[..., Report]:
    """Makes a report of ten seconds and a thousand steps, with the given changes."""

    def make(**changes: object) -> Report:
        return replace(FIRST_REPORT, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture
def save_checkpoint(algorithm: FileAlgorithm) -> Callable[..., Checkpoint]:
    """Saves a checkpoint of an iteration into a folder of checkpoints."""

    def save(folder: Path, iteration: int = 1, env: str = "CartPole-v1") -> Checkpoint:
        progress = Progress(iteration=iteration)
        experiment = Experiment(env=env, stop=Stop(time_total_s=60.0))
        return CheckpointStore(folder).save(algorithm, experiment, progress)

    return save
