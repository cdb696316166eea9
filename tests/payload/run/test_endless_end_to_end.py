"""An environment whose episodes never end, and one that has changed since it was trained in."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.payload.command_line import in_process, run_folder, with_database

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

ENDLESS = """
import os
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Endless(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, size, fails="", worker_index=0, render_mode=None):
        self.observation_space, self.action_space = Box(0, 1, (size,)), Discrete(2)
        self.fails, self.render_mode = fails, render_mode
        if "made" in os.environ:
            print(worker_index, file=open(os.environ["made"], "a"))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}

    def render(self):
        raise RuntimeError("no picture today")


gymnasium.register("Endless-v0", Endless)
"""
EXPERIMENT: dict[str, Any] = {
    "run": "PPO",
    "env": "endless:Endless-v0",
    "source_directory": ".",
    "inputs": {"maps": "maps"},
    "config": {
        "env_config": {"size": 3, "worker_index": 0},
        "num_env_runners": 0,
        "num_envs_per_env_runner": 2,
        "train_batch_size_per_learner": 64,
        "minibatch_size": 32,
        "num_epochs": 1,
        "min_time_s_per_iteration": 0.1,
        "evaluation_interval": 1,
        "evaluation_duration": 2,
    },
    "stop": {"training_iteration": 1},
}


@dataclass(frozen=True)
class Trained:
    folder: Path
    output: str

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return in_process(self.folder, *arguments)

    @property
    def path(self) -> str:
        return str(run_folder(self.folder))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = with_database(tmp_path_factory.mktemp("endless"))
    (folder / "endless.py").write_text(ENDLESS)
    (folder / "maps").mkdir()
    (folder / "endless.json").write_text(json.dumps(EXPERIMENT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("payload.environments.gymnasium_env_runner.MAX_EPISODE_STEPS", 100)
        patch.setattr("payload.run.hints.NO_EPISODE_S", 0.0)
        done = in_process(folder, "train", "endless.json")
    assert done.returncode == 0, done.stdout + done.stderr
    return Trained(folder, done.stdout)


def test_an_evaluation_of_endless_episodes_ends(trained: Trained) -> None:
    assert "FINISHED" in trained.output


def test_a_training_without_an_episode_says_what_helps(trained: Trained) -> None:
    assert "No episode has ended after" in trained.output
    assert "config.env_config.max_episode_steps" in trained.output


def test_evaluate_cuts_off_an_endless_episode(trained: Trained) -> None:
    done = trained.run("evaluate", "--episodes", "2", "--max-episode-steps", "50")
    assert done.returncode == 0, done.stderr
    assert "return 50.00 +- 0.00 over 2 episodes" in done.stdout
    assert "2 of them had not ended after 50 steps (--max-episode-steps)" in done.stdout


def test_a_video_that_fails_is_one_line(trained: Trained) -> None:
    done = trained.run(
        "evaluate", "--episodes", "1", "--max-episode-steps", "9", "--video", "endless.mp4"
    )
    assert done.returncode == 2
    assert "return 9.00" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("payload: --video endless.mp4: RuntimeError: no picture today (")


def test_an_option_replaces_an_input_that_has_moved(trained: Trained, tmp_path: Path) -> None:
    (trained.folder / "maps").rename(tmp_path / "maps")
    try:
        refused = trained.run("evaluate", "--episodes", "1", "--max-episode-steps", "5")
        assert refused.returncode == 2
        assert "maps is not a folder. Next: --input maps=FOLDER" in refused.stderr
        played = trained.run(
            *("evaluate", "--episodes", "1", "--max-episode-steps", "5"),
            *("--input", f"maps={tmp_path / 'maps'}"),
        )
        assert played.returncode == 0, played.stderr
    finally:
        (tmp_path / "maps").rename(trained.folder / "maps")


def test_an_unknown_input_names_those_there_are(trained: Trained) -> None:
    done = trained.run("evaluate", "--input", "map=maps")
    assert done.returncode == 2
    assert "--input map=maps: the experiment has maps (did you mean maps?)" in done.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("Box(0, 1, (size,))", "Box(0, 1, (size + 1,))"), "observations are Box(4,)"),
        # Another size: Python may take a file of the same second and size for the one before.
        (("Discrete(2)", "Discrete(12)"), "actions Discrete(12)"),
    ],
)
def test_a_policy_that_does_not_fit_the_environment_any_more_is_told_before_ray_starts(
    trained: Trained, change: tuple[str, str], words: str
) -> None:
    (trained.folder / "endless.py").write_text(ENDLESS.replace(*change))
    try:
        resumed = trained.run("train", "--resume", trained.path)
        played = trained.run("evaluate", "--episodes", "1")
    finally:
        (trained.folder / "endless.py").write_text(ENDLESS)
    before = "observations are Box(3,), actions Discrete(2)"
    assert (resumed.returncode, played.returncode) == (2, 2)
    (line,) = resumed.stderr.splitlines()
    assert words in line
    assert f"in this run {before}; start a new run" in line
    assert words in played.stderr
    assert f"when the policy was trained, {before}" in played.stderr
    assert "Starting Ray" not in resumed.stdout


def test_another_algorithm_cannot_resume_the_run(trained: Trained) -> None:
    done = trained.run("train", "--resume", trained.path, "--run", "APPO")
    assert done.returncode == 2
    assert "run is PPO in this run and cannot become APPO" in done.stderr


def test_a_resumed_run_says_what_changes(trained: Trained) -> None:
    done = trained.run(
        *("train", "--resume", trained.path, "--config", '{"lr": 0.001}'),
        *("--stop", '{"training_iteration": 2}'),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "config.lr was" in done.stdout
    assert "is 0.001 from here on" in done.stdout
