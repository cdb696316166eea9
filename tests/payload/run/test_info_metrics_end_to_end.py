"""Numbers of `info` as metrics, as a stop criterion, and as what a search compares."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.payload.command_line import in_process, mlflow_run, run_folder, with_database

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

EXPERIMENT: dict[str, Any] = {
    "run": "PPO",
    # All processes of Ray import it as the tests do.
    "env": "tests.payload.faulty_environment.telling:Telling-v0",
    "config": {
        "info_metrics": ["success", "colisions"],
        "num_env_runners": 0,
        "train_batch_size_per_learner": 200,
        "minibatch_size": 100,
        "num_epochs": 1,
        "min_time_s_per_iteration": 0,
    },
    "stop": {"env_runners/info/success": 0.9, "training_iteration": 20},
}
SUCCESS = "env_runners/info/success"


@dataclass(frozen=True)
class Trained:
    folder: Path
    output: str

    def write(self, **changes: Any) -> None:
        (self.folder / "telling.json").write_text(json.dumps({**EXPERIMENT, **changes}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = with_database(tmp_path_factory.mktemp("telling"))
    run = Trained(folder, "")
    run.write()
    done = in_process(folder, "train", "telling.json")
    assert done.returncode == 0, done.stdout + done.stderr
    return Trained(folder, done.stdout)


def test_training_stops_when_the_number_is_reached(trained: Trained) -> None:
    assert "FINISHED: mean success 1 reached 0.9" in trained.output


def test_progress_and_mlflow_have_the_number(trained: Trained) -> None:
    with (run_folder(trained.folder) / "progress.csv").open() as file:
        assert float(list(csv.DictReader(file))[-1][SUCCESS]) == 1.0
    assert mlflow_run(trained.folder).data.metrics[SUCCESS] == 1.0


def test_a_number_that_no_info_has_is_told_with_those_there_are(trained: Trained) -> None:
    (line,) = [line for line in trained.output.splitlines() if "info_metrics" in line]
    assert line.startswith("config.info_metrics: colisions: not in info at the end of any of ")
    assert line.endswith("which had collisions, success (did you mean collisions?)")


def test_a_resumed_run_keeps_the_column(trained: Trained) -> None:
    stop = '{"training_iteration": 3}'
    done = in_process(trained.folder, "train", "--resume", "--stop", stop)
    assert done.returncode == 0, done.stdout + done.stderr
    with (run_folder(trained.folder) / "progress.csv").open() as file:
        assert [float(row[SUCCESS]) for row in csv.DictReader(file)] == [1.0] * 3


def test_a_search_compares_the_number(trained: Trained) -> None:
    config = {**EXPERIMENT["config"], "lr": {"grid_search": [0.001, 0.01]}}
    trained.write(metric=SUCCESS, config=config, stop={"training_iteration": 1})
    done = in_process(trained.folder, "tune", "telling.json")
    assert done.returncode == 0, done.stdout + done.stderr
    (table,) = trained.folder.glob("results/runs/tune_*/trials.csv")
    with table.open() as file:
        assert [row[SUCCESS] for row in csv.DictReader(file)] == ["1.0", "1.0"]
    assert "success 1.00" in done.stdout
    best = yaml.safe_load((table.parent / "best.yaml").read_text())
    assert best["config"]["info_metrics"] == ["success", "colisions"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stop": {"env_runners/info/sucess": 1}}, "is never reached without config.info_metrics"),
        ({"metric": "env_runners/info/sucess"}, "(did you mean env_runners/info/success?)"),
        ({"metric": "loss"}, "metric: loss: must be one of env_runners/episode_return_mean, "),
    ],
)
def test_bad_input_is_one_line(trained: Trained, changes: dict[str, Any], words: str) -> None:
    trained.write(**changes)
    done = in_process(trained.folder, "train", "telling.json")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert words in line
