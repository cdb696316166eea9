"""Runs with names, tags and notes, one that begins with another's weights, and their list."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from mlflow.entities import Run
from ray.rllib.core.rl_module.rl_module import RLModule

from payload.run.checkpoints import find_checkpoint
from tests.payload.command_line import in_process, tracked_runs, with_database
from volley.cli import main as volley

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

QUICK = """{num_env_runners: 0, train_batch_size_per_learner: 100, minibatch_size: 50,
  num_epochs: 1, min_time_s_per_iteration: 0, lr: LR, fcnet_hiddens: [8]}"""
STOP = ("--stop", "{training_iteration: 1}")


def config(lr: float) -> tuple[str, str]:
    return "--config", QUICK.replace("LR", str(lr))


@dataclass(frozen=True)
class Trained:
    folder: Path
    second: str
    """Output of the run that began with the first one's weights."""

    @property
    def runs(self) -> dict[str, Run]:
        uri = f"sqlite:///{self.folder}/results/mlflow.db"
        return {str(run.info.run_name): run for run in tracked_runs(uri)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A policy of CartPole, and one of Acrobot, with more observations and actions, that has
    learned nothing since it began with the first one's weights."""
    folder = with_database(tmp_path_factory.mktemp("named"))
    named = ("--name", "first", "--tag", "team=red", "--tag", "size=1", "--notes", "**a try**")
    train = ("train", "--run", "PPO", *STOP)
    first = in_process(folder, *train, "--env", "CartPole-v1", *config(0.001), *named)
    assert first.returncode == 0, first.stdout + first.stderr
    second = ("--name", "second", "--init-from", "results/runs/first")
    done = in_process(folder, *train, "--env", "Acrobot-v1", *config(1e-30), *second)
    assert done.returncode == 0, done.stdout + done.stderr
    return Trained(folder, done.stdout)


def test_folder_and_mlflow_run_have_the_name(trained: Trained) -> None:
    assert sorted(path.name for path in trained.folder.glob("results/runs/*")) == [
        "first",
        "second",
    ]
    assert set(trained.runs) == {"first", "second"}


def test_a_classic_environment_is_filmed(trained: Trained) -> None:
    assert (trained.folder / "results/runs/second/evaluation.mp4").stat().st_size > 1000
    assert "Hello from" not in trained.second


def test_mlflow_has_tags_and_notes(trained: Trained) -> None:
    tags = trained.runs["first"].data.tags
    assert (tags["team"], tags["size"]) == ("red", "1")
    assert tags["mlflow.note.content"] == "**a try**"


def test_weights_of_the_same_shape_are_the_first_ones(trained: Trained) -> None:
    (line,) = [line for line in trained.second.splitlines() if line.startswith("Loaded ")]
    assert "results/runs/first/checkpoints" in line
    assert "; not " in line
    first, second = (
        RLModule.from_checkpoint(
            find_checkpoint(trained.folder / "results/runs" / name).module
        ).state_dict()
        for name in ("first", "second")
    )
    same = {name for name, of in first.items() if of.shape == second[name].shape}
    assert 0 < len(same) < len(first)
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in same)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--name", "first"), "--name first: exists. Next: --resume results/runs/first"),
        (("--name", "a/b"), "--name a/b: may have letters, digits"),
        (("--tag", "red"), "'red': is not KEY=VALUE"),
        (("--init-from", "nowhere"), "nowhere: no checkpoint"),
        (("--resume", "results/runs/first", "--init-from", "results/runs/first"), "--init-from: a"),
    ],
)
def test_bad_input_is_one_line(trained: Trained, arguments: tuple[str, ...], words: str) -> None:
    done = in_process(trained.folder, "train", *arguments)
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[-1]


def test_runs_are_listed_and_deleted(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained.folder)
    assert volley(["runs"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["first", "second"]
    assert volley(["runs", "--delete", "secnd"]) == 2
    assert "did you mean second?" in capsys.readouterr().err
    assert volley(["runs", "--delete", "second"]) == 0
    assert not (trained.folder / "results/runs/second").exists()
    assert set(trained.runs) == {"first"}
