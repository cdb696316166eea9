"""Every algorithm trains, evaluates and plays environments of unusual spaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.payload.command_line import in_process, run_folder, with_database

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

UNUSUAL = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

SPACES = {
    "grid": Box(0, 9, (36, 36), np.int64),
    "far": Discrete(3, start=-1),
    "nested": Dict(
        arm=Tuple([Box(0, np.inf, (2,)), MultiDiscrete([2, 3], start=[5, -1])]),
        none=Box(0, 1, (0,)),
        switches=MultiBinary([2, 2]),
    ),
    "bounded": Dict(gas=Box(0, 100, (), np.int32), wheel=Box(-30, 30, (1, 2), np.float64)),
    "one bound": Box(0, np.inf, (2,)),
    "empty": Box(0, 1, (0,)),
    "mission": Dict(image=Box(0, 1, (3,)), mission=Text(9)),
    "huge": Dict(cell=Discrete(50_000_000), wind=Box(-1, 1, (2,))),
}


class Unusual(gymnasium.Env):
    def __init__(self, observations, actions):
        self.observation_space, self.action_space = SPACES[observations], SPACES[actions]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        if action not in self.action_space:
            raise ValueError(f"{action} is not in {self.action_space}")
        self.length += 1
        return self.observation_space.sample(), 1.0, self.length == 5, False, {}


gymnasium.register("Unusual-v0", Unusual)
"""
QUICK = {"num_env_runners": 0, "min_time_s_per_iteration": 0.1}
SMALL_BATCH = {"train_batch_size_per_learner": 64, "minibatch_size": 32, "num_epochs": 2}
SHORT = {"num_envs_per_env_runner": 2, "rollout_fragment_length": 10}
FEW_UPDATES = {"num_steps_sampled_before_learning_starts": 900, "training_intensity": 1}
EVALUATED = {"evaluation_interval": 1, "evaluation_duration": 2}


def command(folder: Path, verb: str, run: str, spaces: tuple[str, str], **config: Any) -> Any:
    """Trains an iteration, with evaluations, in an environment of these spaces."""
    (folder / "unusual.py").write_text(UNUSUAL)
    arguments = {"observations": spaces[0], "actions": spaces[1]}
    experiment = {
        "run": run,
        "env": "unusual:Unusual-v0",
        "source_directory": ".",
        "config": {**QUICK, **EVALUATED, "env_config": arguments, **config},
        "stop": {"training_iteration": 1},
    }
    (folder / "unusual.yaml").write_text(json.dumps(experiment))
    return in_process(with_database(folder), verb, "unusual.yaml")


@pytest.mark.parametrize(
    ("run", "spaces", "config"),
    [
        (
            "PPO",
            ("nested", "nested"),
            SMALL_BATCH,
        ),
        (
            "PPO",
            ("grid", "one bound"),
            {**SMALL_BATCH, "use_lstm": True},
        ),
        ("IMPALA", ("nested", "nested"), SHORT),
        ("APPO", ("bounded", "nested"), {**SHORT, "use_lstm": True, "max_seq_len": 5}),
        ("DQN", ("grid", "far"), {**FEW_UPDATES, "num_envs_per_env_runner": 8}),
        ("SAC", ("nested", "bounded"), FEW_UPDATES),
    ],
)
def test_unusual_spaces_are_trained_evaluated_and_played(
    tmp_path: Path, run: str, spaces: tuple[str, str], config: dict[str, Any]
) -> None:
    done = command(tmp_path, "train", run, spaces, **config)
    assert "FINISHED" in done.stdout, done.stdout + done.stderr
    assert "failed and is back" not in done.stdout
    for explore in [], ["--explore"]:
        played = in_process(tmp_path, "evaluate", str(run_folder(tmp_path)), *explore)
        assert "return 5.00 +- 0.00" in played.stdout, played.stdout + played.stderr


@pytest.mark.parametrize(
    ("run", "spaces", "words"),
    [
        ("PPO", ("empty", "far"), "observation_space is empty"),
        ("PPO", ("mission", "far"), 'observation_space["mission"] is Text'),
        ("DQN", ("huge", "far"), 'observation_space["cell"] is Discrete(50000000), 50,000,000 of'),
        ("PPO", ("far", "huge"), 'action_space["cell"] is Discrete(50000000), 50,000,000 of'),
        ("SAC", ("far", "one bound"), "SAC needs actions with two bounds"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_starts(
    tmp_path: Path, run: str, spaces: tuple[str, str], words: str
) -> None:
    done = command(tmp_path, "train", run, spaces)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "results/runs").exists()
