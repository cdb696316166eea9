"""Which training a benchmark resumes; test_games.py checks that it resumes one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.trainer import _begun
from payload.experiment.file import to_yaml
from payload.experiment.read import read_experiment
from payload.experiment.settings import Experiment
from payload.run.progress import Progress
from payload.run.run_folder import RunFolder
from tests.payload.conftest import FileAlgorithm


def appo(seed: int) -> Experiment:
    return read_experiment(
        {"run": "APPO", "env": "CartPole-v1", "config": {"seed": seed}}
    ).experiment


@pytest.fixture
def begin(tmp_path: Path) -> Callable[[str], Path]:
    """Makes the folder of a run with a checkpoint and the given text as its experiment."""

    def begin(experiment: str) -> Path:
        run = RunFolder(tmp_path / f"run_{len(list(tmp_path.iterdir()))}")
        run.checkpoints().save(FileAlgorithm(), appo(seed=5), Progress())
        run.experiment_file.write_text(experiment)
        return run.path

    return begin


def test_the_newest_run_of_the_same_experiment_is_resumed(
    tmp_path: Path, begin: Callable[[str], Path]
) -> None:
    begin(to_yaml(appo(seed=5)))
    newest = begin(to_yaml(appo(seed=5)))
    assert _begun(tmp_path, appo(seed=5)) == newest


def test_a_run_with_another_seed_begins_again(tmp_path: Path, begin: Callable[[str], Path]) -> None:
    begin(to_yaml(appo(seed=5)))
    assert _begun(tmp_path, appo(seed=6)) is None


def test_a_run_of_another_version_is_left_alone(
    tmp_path: Path, begin: Callable[[str], Path]
) -> None:
    begin("config: {gone: 1}\n")
    assert _begun(tmp_path, appo(seed=5)) is None
