"""The whole command line, as a user types it, on a tiny run: train, resume, evaluate."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from mlflow import MlflowClient

from payload.run.run_status import RunStatus
from tests.payload.command_line import (
    ALONE,
    TINY,
    in_process,
    mlflow_run,
    payload,
    run_folder,
    steps,
)
from tests.payload.event_files import curves

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]


SHORT = ALONE.replace("{", '{"env_config": {"max_episode_frames": 400}, ', 1)
"""A video of a few seconds."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which a tiny run was trained to its end, and what it printed.

    It left none of Ray's files behind.
    """
    folder = tmp_path_factory.mktemp("trained")
    options = ("--stop", '{"timesteps_total": 600}', "--seed", "1", "--env-runners", "env_runners")
    with (
        tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as temporary,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("RAY_TMPDIR", temporary)
        done = payload(folder, "train", "--tensorboard", "--config", SHORT, *options)
        left = [path.name for path in Path(temporary).iterdir()]
    assert (done.returncode, left) == (0, []), done.stdout + done.stderr
    return folder, done.stdout


@pytest.fixture(scope="module")
def resumed(trained: tuple[Path, str]) -> tuple[Path, str, int]:
    """The same folder after a resume, the resume's output, and the steps before it.

    The newest checkpoint is damaged, so the resume uses the previous one. It has env runners now:
    as many of the requested 99 as fit.
    """
    folder, _ = trained
    before = steps(folder)[-1]
    checkpoints = run_folder(folder) / "checkpoints"
    shutil.copytree(max(checkpoints.glob("checkpoint_*")), checkpoints / "checkpoint_000999")
    for state in (checkpoints / "checkpoint_000999").rglob("module_state*"):
        state.write_bytes(state.read_bytes()[:1000])
    (folder / "env_runners").write_text("99")
    config = json.dumps(json.loads(TINY) | {"num_cpus_per_worker": 2})
    stop = f'{{"timesteps_total": {before + 300}}}'
    options = ("--env-runners", "env_runners", "--status", "status.json", "--stop", stop)
    done = in_process(folder, "train", "--resume", "--config", config, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout, before


def test_old_names_are_translated_before_the_eyes_of_the_user(trained: tuple[Path, str]) -> None:
    assert "config.sample_batch_size is now rollout_fragment_length: 8" in trained[1]


def test_a_driver_that_samples_itself_ignores_the_number_of_env_runners(
    trained: tuple[Path, str],
) -> None:
    assert "--env-runners env_runners is ignored: config.num_env_runners is 0" in trained[1]


def test_a_finished_run_says_why_it_stopped_and_what_to_type_next(
    trained: tuple[Path, str],
) -> None:
    assert "FINISHED: limit of 600 environment steps reached" in trained[1]
    assert "volley evaluate" in trained[1]


def test_a_resumed_run_continues_from_the_steps_it_had(resumed: tuple[Path, str, int]) -> None:
    folder, _, before = resumed
    assert steps(folder)[-1] >= before + 300


def test_a_truncated_checkpoint_is_named_and_the_one_before_is_taken(
    resumed: tuple[Path, str, int],
) -> None:
    assert "checkpoint_000999 cannot be read; trying the one before" in resumed[1]


def test_a_resumed_run_takes_as_many_env_runners_as_fit_of_the_number_of_then(
    resumed: tuple[Path, str, int],
) -> None:
    assert "env runners 1/99" in resumed[1]


def test_the_status_of_a_finished_run_has_no_env_runners(resumed: tuple[Path, str, int]) -> None:
    status = RunStatus.read(resumed[0] / "status.json")
    assert (status.state, status.num_env_runners) == ("FINISHED", 0)


def test_a_resumed_run_continues_in_the_same_mlflow_run(resumed: tuple[Path, str, int]) -> None:
    folder, _, before = resumed
    run = mlflow_run(folder)
    client = MlflowClient(f"sqlite:///{folder}/results/mlflow.db")
    axis = [m.step for m in client.get_metric_history(run.info.run_id, "training_iteration")]
    assert min(axis) <= before < max(axis)
    assert run.info.status == "FINISHED"


def test_event_files_have_the_names_and_steps_of_mlflow(resumed: tuple[Path, str, int]) -> None:
    folder, run = resumed[0], mlflow_run(resumed[0])
    client = MlflowClient(f"sqlite:///{folder}/results/mlflow.db")
    found = curves(run_folder(folder))
    axes = {name: [step for step, _ in points] for name, points in found.items()}
    histories = {name: client.get_metric_history(run.info.run_id, name) for name in found}
    assert found.keys() == run.data.metrics.keys()
    assert axes == {name: [point.step for point in points] for name, points in histories.items()}


def test_mlflow_holds_parameters_and_artifacts(resumed: tuple[Path, str, int]) -> None:
    run = mlflow_run(resumed[0])
    client = MlflowClient(f"sqlite:///{resumed[0]}/results/mlflow.db")
    artifacts = {file.path for file in client.list_artifacts(run.info.run_id)}
    expected = {
        "checkpoints",
        "driver_log.txt",
        "evaluation.mp4",
        "experiment.yaml",
        "learning_curve.png",
    }
    assert expected <= artifacts
    checkpoints = [file.path for file in client.list_artifacts(run.info.run_id, "checkpoints")]
    assert checkpoints == ["checkpoints/best"]
    assert run.data.params["config.rollout_fragment_length"] == "8"
    assert run.data.params["version.ray"]


def test_the_log_takes_rays_noise_and_the_terminal_does_not(trained: tuple[Path, str]) -> None:
    assert "WARNING" not in trained[1]
    assert (run_folder(trained[0]) / "driver_log.txt").stat().st_size > 0


def test_evaluate_plays_a_checkpoint_without_a_cluster(resumed: tuple[Path, str, int]) -> None:
    folder = resumed[0]
    done = payload(
        folder, "evaluate", str(run_folder(folder)), "--episodes", "2", "--video", "v.mp4"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "over 2 episodes" in done.stdout
    assert (folder / "v.mp4").read_bytes()[4:8] == b"ftyp"
