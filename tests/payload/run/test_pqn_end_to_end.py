"""PQN from training to evaluation and export."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from tests.local_ray import local_ray
from tests.payload.command_line import ALONE, in_process, run_folder, with_database
from volley.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which PQN was trained on Pong for a moment."""
    folder = with_database(tmp_path_factory.mktemp("pqn"))
    local_ray()
    stop = '{"training_iteration": 3}'
    done = in_process(folder, "train", "--run", "PQN", "--config", ALONE, "--stop", stop)
    assert "FINISHED" in done.stdout, done.stdout + done.stderr
    return folder


def test_its_metrics_are_those_of_action_values(trained: Path) -> None:
    with (run_folder(trained) / "progress.csv").open() as file:
        (*_, last) = csv.DictReader(file)
    module = "learners/default_policy/"
    reported = {name for name in last if name.startswith(module) and last[name] not in ("", "nan")}
    assert {f"{module}qf_mean", f"{module}total_loss", f"{module}vf_explained_var"} <= reported
    assert f"{module}policy_loss" not in reported
    assert math.isclose(float(last[f"{module}temperature"]), 0.0, abs_tol=1e-5)


def test_evaluation_takes_the_best_action_with_exploration_too(trained: Path) -> None:
    played = [
        in_process(trained, "evaluate", "--episodes", "1", "--seed", "3", *explore).stdout
        for explore in ((), ("--explore",))
    ]
    returns = [[line for line in output.splitlines() if "return" in line] for output in played]
    assert returns[0] == returns[1] != []


def test_a_model_names_its_action_values(trained: Path) -> None:
    done = in_process(trained, "export", "--onnx", "policy.onnx", command=main)
    assert done.returncode == 0, done.stderr
    assert "the same actions, q_values within" in done.stdout
