"""An environment of a user's own, in a folder of its own, is learned by every algorithm."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import pytest

from tests.payload.command_line import payload, run_folder

pytestmark = pytest.mark.slow

WALK = '''
import os
from pathlib import Path

import gymnasium
import numpy as np


class Walk(gymnasium.Env):
    """From the middle of a line to its end: 6 is the best return."""

    observation_space = gymnasium.spaces.Dict(
        place=gymnasium.spaces.Discrete(8), wind=gymnasium.spaces.Box(-1, 1, (2, 2))
    )

    def __init__(self, continuous=False):
        goal = Path(os.environ["VOLLEY_INPUT_MAPS"], "goal.txt")
        assert not goal.stat().st_mode & 0o222
        self.goal = int(goal.read_text())
        assert os.environ["WALK_LEVEL"] == "hard"
        self.continuous = continuous
        box = gymnasium.spaces.Box(-2, 2, (1,))
        self.action_space = box if continuous else gymnasium.spaces.Discrete(2)

    def _seen(self):
        return {"place": self.place, "wind": np.zeros((2, 2), np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 3
        return self._seen(), {}

    def step(self, action):
        forward = action[0] > 0 if self.continuous else action == 1
        self.place = min(7, max(0, self.place + (1 if forward else -1)))
        over = self.place == self.goal
        return self._seen(), 10.0 * over - 1, over, False, {}


gymnasium.register("Walk-v0", Walk, max_episode_steps=50)
'''
QUICK = {"num_env_runners": 1, "min_time_s_per_iteration": 1}
ALGORITHMS: dict[str, dict[str, object]] = {
    "IMPALA": {"lr": 0.003},
    "APPO": {"lr": 0.003},
    "PPO": {"lr": 0.003, "train_batch_size_per_learner": 512, "num_epochs": 8},
    "DQN": {"lr": 0.003, "training_intensity": 8, "epsilon": [[0, 1.0], [2000, 0.02]]},
}
"""SAC learns it too, but RLlib's own takes two minutes for it: 8 environment steps a second."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An experiment's folder, with a package and data beside it."""
    (tmp_path / "walks/walk").mkdir(parents=True)
    (tmp_path / "walks/walk/__init__.py").write_text(WALK)
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps/goal.txt").write_text("7")
    return tmp_path


def trained(folder: Path, run: str, config: dict[str, object], stop: dict[str, float]) -> Path:
    """Trains until a criterion is met; returns the run's folder."""
    experiment = {
        "run": run,
        "env": "walk:Walk-v0",
        "source_directory": "walks",
        "inputs": {"maps": "maps"},
        "environment_variables": {"WALK_LEVEL": "hard"},
        "config": {**QUICK, **config},
        "stop": stop,
    }
    (folder / "walk.yaml").write_text(json.dumps(experiment))
    done = payload(folder, "train", "walk.yaml")
    assert "FINISHED" in done.stdout, done.stdout + done.stderr
    return run_folder(folder)


def mean_return(folder: Path, run: Path) -> float:
    played = payload(folder, "evaluate", str(run))
    found = re.search(r"return ([-\d.]+) \+-", played.stdout)
    assert found, played.stdout + played.stderr
    return float(found[1])


@pytest.mark.parametrize("run", ALGORITHMS)
def test_an_environment_in_a_folder_is_learned_and_played(folder: Path, run: str) -> None:
    stop = {"env_runners/episode_return_mean": 4.5, "time_total_s": 120}
    assert mean_return(folder, trained(folder, run, ALGORITHMS[run], stop)) == 6


@pytest.mark.parametrize(
    ("run", "config"),
    [
        ("SAC", {"env_config": {"continuous": True}}),
        ("PPO", {"env_config": {"continuous": True}, "train_batch_size_per_learner": 256}),
    ],
)
def test_a_policy_of_continuous_actions_can_be_played(
    folder: Path, run: str, config: dict[str, object]
) -> None:
    learning = {"num_steps_sampled_before_learning_starts": 50} if run == "SAC" else {}
    path = trained(folder, run, {**config, **learning}, {"training_iteration": 2})
    assert mean_return(folder, path) <= 6


CORRIDOR = '''
import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    """A T-maze: the way to go at its end is shown at its start alone. 1 is the best return."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def _seen(self):
        return np.array([self.cue if self.place == 0 else 0, self.place == 3], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.place = int(self.np_random.choice([-1, 1])), 0
        return self._seen(), {}

    def step(self, action):
        over = self.place == 3
        right = 2 * action - 1 == self.cue
        self.place += 1
        return self._seen(), float(over and right), over, False, {}


gymnasium.register("Corridor-v0", Corridor)
'''


@pytest.mark.parametrize("run", ["IMPALA", "PPO"])
def test_what_was_seen_before_is_remembered_with_an_lstm(tmp_path: Path, run: str) -> None:
    (tmp_path / "corridor.py").write_text(CORRIDOR)
    memory = {"use_lstm": True, "lstm_cell_size": 32, "max_seq_len": 8}
    sizes = {"train_batch_size_per_learner": 512, "num_epochs": 8} if run == "PPO" else {}
    experiment = {
        "run": run,
        "env": "corridor:Corridor-v0",
        "source_directory": ".",
        "config": {**QUICK, **memory, **sizes, "lr": 0.003},
        "stop": {"env_runners/episode_return_mean": 0.95, "time_total_s": 90},
    }
    (tmp_path / "corridor.yaml").write_text(json.dumps(experiment))
    done = payload(tmp_path, "train", "corridor.yaml")
    assert "FINISHED: mean return" in done.stdout, done.stdout + done.stderr
    assert mean_return(tmp_path, run_folder(tmp_path)) == 1


@pytest.mark.parametrize(
    ("run", "config"),
    [
        ("PPO", {"train_batch_size_per_learner": 256, "use_lstm": True, "epsilon": 0.1}),
        ("DQN", {"num_steps_sampled_before_learning_starts": 50, "replay_buffer_capacity": 1000}),
    ],
)
def test_a_policy_of_an_atari_game_can_be_played(
    tmp_path: Path, run: str, config: dict[str, object]
) -> None:
    short = {"image_size": 42, "env_config": {"max_episode_frames": 800}}
    experiment = {
        "run": run,
        "env": "PongNoFrameskip-v4",
        "config": {**QUICK, **short, **config},
        "stop": {"training_iteration": 2},
    }
    (tmp_path / "pong.yaml").write_text(json.dumps(experiment))
    done = payload(tmp_path, "train", "pong.yaml")
    assert "FINISHED" in done.stdout, done.stdout + done.stderr
    assert (run_folder(tmp_path) / "evaluation.mp4").exists()
    assert mean_return(tmp_path, run_folder(tmp_path)) <= 0


@pytest.mark.parametrize(("run", "env_runners"), [("IMPALA", 0), ("PPO", 1)])
def test_an_evaluation_stops_training_and_is_the_best_checkpoint(
    folder: Path, run: str, env_runners: int
) -> None:
    evaluation = {
        "evaluation_interval": 2,
        "evaluation_duration": 5,
        "evaluation_num_env_runners": env_runners,
    }
    goal = "evaluation/env_runners/episode_return_mean"
    stop = {goal: 6.0, "time_total_s": 120}
    path = trained(folder, run, {**ALGORITHMS[run], **evaluation}, stop)
    with (path / "progress.csv").open() as file:
        means = {int(row["training_iteration"]): float(row[goal]) for row in csv.DictReader(file)}
    assert {iteration for iteration, mean in means.items() if not math.isnan(mean)} == set(
        range(2, len(means) + 1, 2)
    )
    best = (path / "checkpoints/best").resolve()
    assert means[int(best.name.split("_")[1])] == 6
