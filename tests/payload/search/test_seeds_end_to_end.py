"""One setting trained with several seeds, and the picture of several settings."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import pytest

from payload.experiment.read import read_experiment
from payload.run.run_folder import UNDELIVERED
from payload.run.undelivered import deliver
from payload.tracking.mlflow_experiment import PARENT
from tests.payload.command_line import in_process, tracked_runs, wait_for, with_database

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

EXPERIMENT = """
run: PPO
env: CartPole-v1
config: {num_env_runners: 0, train_batch_size_per_learner: 500, minibatch_size: 100, seed: 4,
  num_epochs: 1, min_time_s_per_iteration: 0}
stop: {training_iteration: 2}
"""


@dataclass(frozen=True)
class Trained:
    folder: Path
    group: Path
    output: str
    resumed: str
    """Output of a resume after the end."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Two seeds of one setting, and a single run of another one."""
    folder = with_database(tmp_path_factory.mktemp("seeds"))
    (folder / "cart.yaml").write_text(EXPERIMENT)
    single = in_process(folder, "train", "cart.yaml", "--config", '{"lr": 0.01}')
    assert single.returncode == 0, single.stdout + single.stderr
    done = in_process(folder, "train", "cart.yaml", "--seeds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    (group,) = folder.glob("results/runs/seeds_*")
    more = ("--stop", '{"training_iteration": 3}')
    resumed = in_process(folder, "train", "--resume", str(group), *more)
    assert resumed.returncode == 0, resumed.stderr
    # On a busy machine both may end before MLflow has everything.
    wait_for(lambda: not [*deliver(folder / "results"), *folder.rglob(UNDELIVERED)])
    return Trained(folder, group, done.stdout, resumed.stdout)


def test_each_seed_has_a_run_of_its_own(trained: Trained) -> None:
    assert [path.parent.name for path in sorted(trained.group.glob("*/progress.csv"))] == [
        "seed_4",
        "seed_5",
    ]


def test_what_they_reach_together_is_said(trained: Trained) -> None:
    (line,) = [line for line in trained.output.splitlines() if "interquartile mean" in line]
    assert line.startswith("PPO on CartPole-v1, 2 seeds: mean ")
    assert "95% interval" in line
    assert "ASHA" not in trained.output


def test_the_table_has_a_line_for_each_seed(trained: Trained) -> None:
    with (trained.group / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted((row["trial"], row["state"]) for row in rows) == [
        ("seed_4", "FINISHED"),
        ("seed_5", "FINISHED"),
    ]
    assert (trained.group / "trials.png").stat().st_size > 10_000


def test_mlflow_has_them_below_one_run(trained: Trained) -> None:
    runs = tracked_runs(f"sqlite:///{trained.folder}/results/mlflow.db")
    parents = [run.data.tags.get(PARENT) for run in runs]
    (parent,) = {name for name in parents if name is not None}
    assert parents.count(parent) == 2
    assert parent in [run.info.run_id for run in runs]


def test_finished_seeds_have_nothing_to_resume(trained: Trained) -> None:
    assert "2 trials are already over" in trained.resumed


def test_the_next_resume_begins_with_what_this_one_changed(trained: Trained) -> None:
    experiment = read_experiment(trained.group / "experiment.yaml").experiment
    assert experiment.stop.training_iteration == 3


def test_a_plot_joins_seeds_and_names_what_differs(trained: Trained) -> None:
    (single,) = trained.folder.glob("results/runs/PPO_*")
    done = in_process(
        trained.folder, "plot", str(single), str(trained.group), "--output", "both.png"
    )
    assert done.returncode == 0, done.stderr
    first, second, files = done.stdout.splitlines()
    assert first.startswith("lr=0.01: ")
    assert second.startswith("lr=default, 2 seeds: mean ")
    assert files == "both.png, both.csv"
    with (trained.folder / "both.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["seeds"] for row in rows} == {"1", "2"}
    assert (trained.folder / "both.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plot", "nowhere"), "nowhere: has no run with a progress.csv"),
        (("plot", "--metric", "episode_return"), "did you mean env_runners/episode_return_"),
        (("plot", "--output", "a.csv"), "--output a.csv: must end in .png, .svg, .pdf"),
        (("plot", "--output", "nowhere/a.png"), "--output nowhere/a.png: the folder does not"),
        (("train", "cart.yaml", "--seeds", "0"), "--seeds 0: must be greater than 0"),
    ],
)
def test_bad_input_is_one_line(trained: Trained, arguments: tuple[str, ...], words: str) -> None:
    done = in_process(trained.folder, *arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert words in line
