"""A network of one's own trains and plays: an environment fails at an action that it masks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.payload.command_line import in_process, run_folder, with_database

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

MASKED = "tests.payload.faulty_environment.masked"
ACTION_MASK = "ray.rllib.examples.rl_modules.classes.action_masking_rlm:ActionMaskingTorchRLModule"


def train(folder: Path, run: str, **config: Any) -> Any:
    experiment = {
        "run": run,
        "env": f"{MASKED}:Masked-v0",
        "config": {"min_time_s_per_iteration": 0, "evaluation_interval": 1, **config},
        "stop": {"training_iteration": 2},
    }
    (folder / "masked.json").write_text(json.dumps(experiment))
    return in_process(folder, "train", "masked.json")


@pytest.mark.parametrize(
    ("run", "config"),
    [
        (
            "PPO",
            {
                "module": ACTION_MASK,
                "module_config": {"fcnet_hiddens": [8]},
                "train_batch_size_per_learner": 200,
                "num_epochs": 2,
                "num_env_runners": 0,
            },
        ),
        (
            "IMPALA",
            {
                "module": f"{MASKED}:Linear",
                "module_config": {"bias": True},
                "num_env_runners": 1,
                "rollout_fragment_length": 20,
            },
        ),
    ],
)
def test_it_trains_evaluates_and_plays(run: str, config: dict[str, Any], tmp_path: Path) -> None:
    folder = with_database(tmp_path)
    done = train(folder, run, **config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed and is back" not in done.stdout
    done = in_process(folder, "evaluate", str(run_folder(folder)))
    assert "return 10.00 +- 0.00 over 20 episodes" in done.stdout, done.stdout + done.stderr


def test_a_module_that_cannot_be_built_leaves_nothing(tmp_path: Path) -> None:
    done = train(tmp_path, "PPO", module=f"{MASKED}:Linear")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "config.module: " in line
    assert "KeyError: 'bias'" in line
    assert not (tmp_path / "results" / "runs").exists()
