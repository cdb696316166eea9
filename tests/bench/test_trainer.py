"""A training that a benchmark measures is resumed where one was interrupted."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from bench.process import Child
from bench.trainer import Row, measure_scores, read_progress

pytestmark = pytest.mark.slow

ENV, STEPS = "CartPole-v1", 20_000
STOP = json.dumps({"num_env_steps_sampled_lifetime": STEPS})


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("experiment") / "appo.yaml"
    path.write_text("run: APPO\nconfig: {num_env_runners: 1, min_time_s_per_iteration: 1}\n")
    return path


@pytest.fixture(scope="module")
def results(experiment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results in which a run with the seed 5 was interrupted."""
    results = tmp_path_factory.mktemp("results")
    arguments = [str(experiment), "--env", ENV, "--seed", "5", "--stop", STOP]
    command = [sys.executable, "-m", "payload", "train", "--results", str(results), *arguments]
    with Child(command, results / "log.txt") as child:
        child.wait_for(lambda: len(rows_of(results)) > 1, 300)
    return results


def rows_of(results: Path) -> list[Row]:
    """Of the only run."""
    return [row for path in results.glob("runs/*/progress.csv") for row in read_progress(path)]


def test_an_interrupted_run_is_resumed(experiment: Path, results: Path) -> None:
    before = rows_of(results)
    assert before[-1].env_steps < STEPS
    rows = measure_scores(experiment, ENV, 5, STEPS, results, results / "log.txt")
    seconds = [row.time_total_s for row in before]
    assert [row.time_total_s for row in rows[: len(before)]] == seconds
    assert rows[-1].env_steps >= STEPS
    assert len(list(results.glob("runs/*"))) == 1


def test_a_run_with_another_seed_begins_again(experiment: Path, results: Path) -> None:
    measure_scores(experiment, ENV, 6, 2000, results, results / "log.txt")
    assert len(list(results.glob("runs/*"))) == 2


def test_a_run_of_another_version_is_left_alone(experiment: Path, tmp_path: Path) -> None:
    old = "config: {gone: 1}\n"
    checkpoint = tmp_path / "runs/APPO_old/checkpoints/checkpoint_000001"
    checkpoint.mkdir(parents=True)
    for folder in (checkpoint, tmp_path / "runs/APPO_old"):
        (folder / "experiment.yaml").write_text(old)
    sums = f"{hashlib.sha256(old.encode()).hexdigest()}  experiment.yaml\n"
    (checkpoint / "SHA256SUMS").write_text(sums)
    measure_scores(experiment, ENV, 5, 1000, tmp_path, tmp_path / "log.txt")
    assert len(list(tmp_path.glob("runs/*"))) == 2
