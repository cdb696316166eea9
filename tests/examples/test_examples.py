"""Each example program runs to its end with `volley run`, and its MLflow runs are finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.payload.command_line import run_folder, tracked_runs, volley, with_database
from tests.project import ROOT

pytestmark = pytest.mark.slow

RLLIB = ("--run", "PPO", "--config", '{"num_env_runners": 0, "train_batch_size": 200}')
EXAMPLES = {
    "parallel_episodes": (("--tasks", "2", "--seconds", "1"), 1, "answer.json"),
    "tune_asha": (("--samples", "2"), 2, "search"),
    "rllib_entry_script": ((*RLLIB, "--stop", '{"time_total_s": 1}'), 1, "checkpoint"),
}
"""Arguments, MLflow runs, and what lies in the results."""


def test_every_example_is_run() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_to_its_end(name: str, tmp_path: Path) -> None:
    arguments, runs, result = EXAMPLES[name]
    folder = with_database(tmp_path)
    example = str(ROOT / "examples" / f"{name}.py")
    done = volley(folder, "run", example, "--", *arguments)
    assert "FINISHED: the script has ended\n" in done.stdout, done.stdout + done.stderr
    tracked = tracked_runs(f"sqlite:///{folder}/results/mlflow.db")
    assert [run.info.status for run in tracked] == ["FINISHED"] * runs
    assert (run_folder(folder) / "output" / result).exists()
