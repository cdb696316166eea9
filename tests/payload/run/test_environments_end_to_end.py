"""Every algorithm learns a user's own environment in a folder of its own."""

from __future__ import annotations

import csv
import functools
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.local_ray import leave_local_ray, local_ray
from tests.payload.command_line import in_process, run_folder, with_database

pytestmark = pytest.mark.slow

WALK = '''
import os
from pathlib import Path

import gymnasium
import numpy as np


class Walk(gymnasium.Env):
    """From a place on a line to the goal, three steps away: 7 is the best return.

    The way forward is another action at odd places than at even ones: an untrained policy, which
    acts everywhere alike, does not arrive.
    """

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
        forward = action[0] > 0 if self.continuous else action == self.place % 2
        self.place = min(7, max(0, self.place + (1 if forward else -1)))
        over = self.place == self.goal
        return self._seen(), 10.0 * over - 1, over, False, {}


gymnasium.register("Walk-v0", Walk, max_episode_steps=50)
'''
BEST_RETURN = 7
QUICK = {"num_env_runners": 0, "min_time_s_per_iteration": 0.2}
"""The driver samples: an env runner process takes six seconds to start."""
FEW_UPDATES = {"num_steps_sampled_before_learning_starts": 900, "training_intensity": 1}
"""RLlib's DQN samples at least 1,000 environment steps in an iteration, and would make a gradient
step for each."""
SMALL_BATCHES = {"num_envs_per_env_runner": 16, "rollout_fragment_length": 16}
ALGORITHMS: dict[str, dict[str, object]] = {
    "PPO": {"lr": 0.01, "train_batch_size_per_learner": 256, "num_epochs": 8},
    "IMPALA": {"lr": 0.01, **SMALL_BATCHES, "image_size": 42},
    "APPO": {"lr": 0.003, **SMALL_BATCHES},
    "DQN": {
        "lr": 0.003,
        "training_intensity": 4,
        "epsilon": [[0, 1.0], [1000, 0.02]],
        "num_steps_sampled_before_learning_starts": 300,
        "num_envs_per_env_runner": 8,
    },
}
"""PPO comes first: it starts its own Ray. SAC learns it too, but RLlib's takes two minutes."""
EVALUATION_RETURN = "evaluation/env_runners/episode_return_mean"


@dataclass(frozen=True)
class Trained:
    """A run in the walk that reached its stop criterion."""

    folder: Path
    """The folder in which it was started."""
    run: Path
    output: str


def train(folder: Path, run: str, config: dict[str, object], stop: dict[str, float]) -> Trained:
    """Trains an experiment that has a package and data beside it."""
    (folder / "walks/walk").mkdir(parents=True)
    (folder / "walks/walk/__init__.py").write_text(WALK)
    (folder / "maps").mkdir()
    (folder / "maps/goal.txt").write_text("6")
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
    if config.get("evaluation_num_env_runners"):
        # The command starts its own Ray, whose processes have to find the environment too.
        leave_local_ray()
    else:
        local_ray()
    done = in_process(with_database(folder), "train", "walk.yaml")
    assert "FINISHED" in done.stdout, done.stdout + done.stderr
    return Trained(folder, run_folder(folder), done.stdout)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    """Trains an algorithm on the walk, once for all tests."""

    @functools.cache
    def learned(run: str) -> Trained:
        config = {
            **ALGORITHMS[run],
            "evaluation_interval": 2,
            "evaluation_duration": 5,
            # PPO's has an env runner for it.
            "evaluation_num_env_runners": int(run == "PPO"),
        }
        # Sampled actions may arrive before the most probable ones do.
        stop = {EVALUATION_RETURN: float(BEST_RETURN), "time_total_s": 120.0}
        return train(tmp_path_factory.mktemp(run), run, config, stop)

    return learned


def mean_return(folder: Path, run: Path, episodes: int = 2) -> float:
    played = in_process(folder, "evaluate", str(run), "--episodes", str(episodes))
    mean = re.search(r"return ([-\d.]+) \+-", played.stdout)
    assert mean, played.stdout + played.stderr
    return float(mean[1])


@pytest.mark.parametrize("run", ALGORITHMS)
def test_an_environment_in_a_folder_is_learned_and_played(
    learned: Callable[[str], Trained], run: str
) -> None:
    trained = learned(run)
    assert mean_return(trained.folder, trained.run) == BEST_RETURN


@pytest.mark.parametrize("run", ALGORITHMS)
def test_an_evaluation_stops_training_and_is_the_best_checkpoint(
    learned: Callable[[str], Trained], run: str
) -> None:
    path = learned(run).run
    with (path / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    means = {int(row["training_iteration"]): float(row[EVALUATION_RETURN]) for row in rows}
    assert {iteration for iteration, mean in means.items() if not math.isnan(mean)} == set(
        range(2, len(means) + 1, 2)
    )
    best = (path / "checkpoints/best").resolve()
    assert means[int(best.name.split("_")[1])] == BEST_RETURN


def test_a_setting_of_atari_games_is_said_to_be_ignored(
    learned: Callable[[str], Trained],
) -> None:
    assert "config.image_size is ignored" in learned("IMPALA").output


@pytest.mark.parametrize(
    ("run", "config"),
    [
        ("SAC", {"env_config": {"continuous": True}, **FEW_UPDATES}),
        ("PPO", {"env_config": {"continuous": True}, "train_batch_size_per_learner": 256}),
    ],
)
def test_a_policy_of_continuous_actions_can_be_played(
    tmp_path: Path, run: str, config: dict[str, object]
) -> None:
    trained = train(tmp_path, run, config, {"training_iteration": 2})
    assert mean_return(tmp_path, trained.run) <= BEST_RETURN


CORRIDOR = '''
import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    """A T-maze: the way to go at its end is shown at its start alone. 1 is the best return."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def _seen(self):
        return np.array([self.cue if self.place == 0 else 0, self.place == 2], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.place = int(self.np_random.choice([-1, 1])), 0
        return self._seen(), {}

    def step(self, action):
        over = self.place == 2
        right = 2 * action - 1 == self.cue
        self.place += 1
        return self._seen(), float(over and right), over, False, {}


gymnasium.register("Corridor-v0", Corridor)
'''


@pytest.mark.parametrize("run", ["IMPALA", "PPO"])
@pytest.mark.usefixtures("ray_here")
def test_what_was_seen_before_is_remembered_with_an_lstm(tmp_path: Path, run: str) -> None:
    (tmp_path / "corridor.py").write_text(CORRIDOR)
    memory = {"use_lstm": True, "lstm_cell_size": 32, "max_seq_len": 4}
    sizes = {"PPO": {"train_batch_size_per_learner": 512, "num_epochs": 8}, "IMPALA": SMALL_BATCHES}
    experiment = {
        "run": run,
        "env": "corridor:Corridor-v0",
        "source_directory": ".",
        "config": {**QUICK, **memory, **sizes[run], "lr": 0.003},
        # Without a memory, 0.5 is the best return.
        "stop": {"env_runners/episode_return_mean": 0.85, "time_total_s": 90},
    }
    (tmp_path / "corridor.yaml").write_text(json.dumps(experiment))
    done = in_process(with_database(tmp_path), "train", "corridor.yaml")
    assert "FINISHED: mean return" in done.stdout, done.stdout + done.stderr
    assert mean_return(tmp_path, run_folder(tmp_path), episodes=10) == 1


@pytest.mark.parametrize(
    ("run", "config"),
    [
        ("PPO", {"train_batch_size_per_learner": 256, "use_lstm": True, "epsilon": 0.1}),
        ("DQN", {"replay_buffer_capacity": 1000, "num_envs_per_env_runner": 8, **FEW_UPDATES}),
    ],
)
@pytest.mark.usefixtures("ray_here")
def test_a_policy_of_an_atari_game_can_be_played(
    tmp_path: Path, run: str, config: dict[str, object]
) -> None:
    short = {"image_size": 42, "env_config": {"max_episode_frames": 120}}
    experiment = {
        "run": run,
        "env": "PongNoFrameskip-v4",
        "config": {**QUICK, **short, **config},
        "stop": {"training_iteration": 1},
    }
    (tmp_path / "pong.yaml").write_text(json.dumps(experiment))
    done = in_process(with_database(tmp_path), "train", "pong.yaml")
    assert "FINISHED" in done.stdout, done.stdout + done.stderr
    assert (run_folder(tmp_path) / "evaluation.mp4").exists()
    assert mean_return(tmp_path, run_folder(tmp_path)) <= 0
