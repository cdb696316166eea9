"""A run's folder: its name, its files, which run a resume means, and who may write."""

from __future__ import annotations

import csv
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from payload.errors import UserError
from payload.experiment.settings import Experiment
from payload.run.checkpoints import Checkpoint
from payload.run.run_folder import RunFolder, check_writable, create_run_folder, find_run_to_resume
from payload.run.terminal import LogStream, redirect_output, restore_output
from payload.tracking.metrics import METRICS, STEPS, metrics
from payload.tracking.report import Report
from tests.payload.conftest import FIRST_REPORT

Save = Callable[..., Checkpoint]
MakeReport = Callable[..., Report]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


@pytest.fixture
def run_with_checkpoint(save_checkpoint: Save) -> Callable[..., Path]:
    """Makes results/runs/<name> with a checkpoint, last modified at a given time."""

    def make(results: Path, name: str, touched: int = 1) -> Path:
        path = results / "runs" / name
        save_checkpoint(path / "checkpoints")
        os.utime(path, (touched, touched))
        return path

    return make


def rows(folder: RunFolder) -> list[dict[str, str]]:
    with folder.progress_file.open() as file:
        return list(csv.DictReader(file))


# Making one


def test_a_run_is_named_after_algorithm_and_environment(tmp_path: Path) -> None:
    experiment = Experiment(run="APPO", env="CartPole-v1")
    folder = create_run_folder(tmp_path, experiment)
    assert folder.path.name.startswith("APPO_CartPole-v1_")


def test_an_environments_slash_makes_no_folder(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, Experiment(env="ALE/Pong-v5"))
    assert folder.path.parent == tmp_path / "runs"


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    runs = {create_run_folder(tmp_path, Experiment()).path for _ in range(5)}
    assert len(runs) == 5


def test_a_new_run_holds_its_experiment(tmp_path: Path) -> None:
    folder = create_run_folder(tmp_path, Experiment(env="CartPole-v1"))
    assert yaml.safe_load(folder.experiment_file.read_text()) == {"env": "CartPole-v1"}


# Its files


def test_each_iteration_is_a_row(folder: RunFolder, make_report: MakeReport) -> None:
    folder.append_progress(make_report(env_steps=1000))
    folder.append_progress(make_report(env_steps=2000))
    assert [row[STEPS] for row in rows(folder)] == ["1000", "2000"]


def test_a_row_has_the_report(folder: RunFolder, make_report: MakeReport) -> None:
    folder.append_progress(make_report(return_mean=-20.5, length_mean=900.0))
    (row,) = rows(folder)
    assert list(row) == [metric.name for metric in METRICS]
    known = {name: value for name, value in row.items() if value != "nan"}
    assert known == {
        "training_iteration": "1",
        "time_total_s": "10",
        "num_env_steps_sampled_lifetime": "1000",
        "num_env_steps_sampled_lifetime_throughput": "100",
        "env_runners/episode_return_mean": "-20.5",
        "env_runners/episode_len_mean": "900",
        "env_runners/num_episodes_lifetime": "3",
        "fault_tolerance/num_healthy_workers": "2",
        "learners/__all_modules__/num_env_steps_trained_lifetime": "900",
        "learners/__all_modules__/num_env_steps_trained_lifetime_throughput": "90",
        "learners/__all_modules__/num_env_steps_dropped_lifetime": "0",
    }


@given(st.floats())
def test_a_row_keeps_a_value_to_six_digits(value: float) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path))
        folder.append_progress(replace(FIRST_REPORT, return_mean=value))
        (row,) = rows(folder)
    read = float(row["env_runners/episode_return_mean"])
    assert read == pytest.approx(value, rel=1e-5, nan_ok=True)


def test_a_return_not_yet_known_is_nan(folder: RunFolder, make_report: MakeReport) -> None:
    folder.append_progress(make_report())
    assert math.isnan(float(rows(folder)[0]["env_runners/episode_return_mean"]))


def test_a_resumed_run_writes_no_second_header(folder: RunFolder, make_report: MakeReport) -> None:
    folder.append_progress(make_report())
    RunFolder(folder.path).append_progress(make_report())
    assert folder.progress_file.read_text().count(STEPS + ",") == 1


def test_a_resumed_run_drops_the_rows_that_it_will_write_again(
    folder: RunFolder, make_report: MakeReport
) -> None:
    for iteration in (1, 2, 3):
        folder.append_progress(make_report(iteration=iteration))
    folder.cut_progress(2)
    folder.append_progress(make_report(iteration=3))
    assert [row["training_iteration"] for row in rows(folder)] == ["1", "2", "3"]


def test_a_resumed_run_continues_after_a_row_that_was_cut_off(
    folder: RunFolder, make_report: MakeReport
) -> None:
    folder.append_progress(make_report())
    with folder.progress_file.open("a") as file:
        file.write("2,15")
    folder.cut_progress(2)
    assert [row["training_iteration"] for row in rows(folder)] == ["1"]


def test_a_row_that_was_cut_off_anywhere_is_left_out(
    folder: RunFolder, make_report: MakeReport
) -> None:
    folder.append_progress(make_report())
    first = folder.progress_file.read_text()
    folder.append_progress(make_report(iteration=2))
    second = folder.progress_file.read_text().removeprefix(first)
    for length in range(len(second) - 1):
        folder.progress_file.write_text(first + second[:length])
        assert len(list(folder.progress_rows())) == 1


def test_a_resumed_run_of_another_version_has_the_columns_of_this_one(folder: RunFolder) -> None:
    folder.progress_file.write_text("training_iteration,gone\r\n1,0.5\r\n")
    folder.cut_progress(1)
    (row,) = rows(folder)
    assert list(row) == [metric.name for metric in METRICS]
    assert (row["training_iteration"], row[STEPS]) == ("1", "nan")


def test_a_number_of_info_that_comes_later_gets_a_column(
    folder: RunFolder, make_report: MakeReport
) -> None:
    folder.append_progress(make_report(iteration=1))
    folder.append_progress(make_report(iteration=2, info={"success": 0.5}))
    folder.append_progress(make_report(iteration=3, info={"time": 7.0}))
    folder.append_progress(make_report(iteration=4, info={"time": 8.0, "success": 1.0}))
    names = "training_iteration", "env_runners/info/success", "env_runners/info/time"
    assert [[row[name] for name in names] for row in rows(folder)] == [
        ["1", "nan", "nan"],
        ["2", "0.5", "nan"],
        ["3", "nan", "7"],
        ["4", "1", "8"],
    ]
    folder.cut_progress(2)
    assert [row["env_runners/info/success"] for row in rows(folder)] == ["nan", "0.5"]


def test_a_row_that_is_longer_than_an_earlier_versions_header_is_read(folder: RunFolder) -> None:
    folder.progress_file.write_text("training_iteration\r\n1\r\n2,0.5\r\n")
    assert [row["training_iteration"] for row in folder.progress_rows()] == [1, 2]


def test_the_metrics_of_each_row_can_be_read_again(
    folder: RunFolder, make_report: MakeReport
) -> None:
    folder.append_progress(make_report(env_steps=1000, return_mean=math.nan))
    ((env_steps, values),) = folder.recorded_metrics()
    assert env_steps == 1000
    assert values == metrics(make_report(env_steps=1000, return_mean=math.nan))


def test_a_new_run_has_no_mlflow_run(folder: RunFolder) -> None:
    assert folder.mlflow_run_id("sqlite:///x") is None


def test_the_mlflow_run_is_remembered(folder: RunFolder) -> None:
    folder.remember_mlflow_run("abc", "sqlite:///x")
    assert RunFolder(folder.path).mlflow_run_id("sqlite:///x") == "abc"


def test_another_tracking_server_does_not_know_the_mlflow_run(folder: RunFolder) -> None:
    folder.remember_mlflow_run("abc", "sqlite:///x")
    assert folder.mlflow_run_id("http://127.0.0.1:5000") is None


def test_remembering_the_mlflow_run_leaves_nothing_aside(folder: RunFolder) -> None:
    folder.remember_mlflow_run("abc", "sqlite:///x")
    assert list(folder.path.iterdir()) == [folder.mlflow_run_file]


# Finding the one to resume


def test_the_latest_run_is_the_one_touched_last(
    tmp_path: Path, run_with_checkpoint: Callable[..., Path]
) -> None:
    run_with_checkpoint(tmp_path, "a", touched=1)
    latest = run_with_checkpoint(tmp_path, "b", touched=3)
    run_with_checkpoint(tmp_path, "c", touched=2)
    assert find_run_to_resume(tmp_path, "latest").path == latest


def test_an_old_run_whose_end_reaches_mlflow_today_is_not_the_latest(
    tmp_path: Path, run_with_checkpoint: Callable[..., Path]
) -> None:
    old = run_with_checkpoint(tmp_path, "old", touched=1)
    for path, trained in ((old, 1), (run_with_checkpoint(tmp_path, "new", touched=2), 2)):
        (path / "progress.csv").touch()
        os.utime(path / "progress.csv", (trained, trained))
    (old / "mlflow_run.json").touch()
    assert find_run_to_resume(tmp_path, "latest").path.name == "new"


def test_a_run_without_a_checkpoint_is_not_the_latest(
    tmp_path: Path, run_with_checkpoint: Callable[..., Path]
) -> None:
    whole = run_with_checkpoint(tmp_path, "a", touched=1)
    (tmp_path / "runs" / "b").mkdir()
    assert find_run_to_resume(tmp_path, "latest").path == whole


def test_a_stray_file_among_the_runs_is_not_a_run(
    tmp_path: Path, run_with_checkpoint: Callable[..., Path]
) -> None:
    whole = run_with_checkpoint(tmp_path, "a", touched=1)
    (tmp_path / "runs" / "notes.txt").touch()
    assert find_run_to_resume(tmp_path, "latest").path == whole


def test_a_run_given_by_its_folder_is_that_run(
    tmp_path: Path, run_with_checkpoint: Callable[..., Path]
) -> None:
    asked = run_with_checkpoint(tmp_path, "a", touched=1)
    run_with_checkpoint(tmp_path, "b", touched=2)
    assert find_run_to_resume(tmp_path, str(asked)).path == asked


def test_nothing_to_resume_names_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^--resume: nothing to resume, no run in {tmp_path}/runs"):
        find_run_to_resume(tmp_path, "latest")


def test_a_folder_without_a_checkpoint_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^--resume {tmp_path}: no checkpoint in {tmp_path}/check"):
        find_run_to_resume(tmp_path, str(tmp_path))


# Who may write


@pytest.mark.parametrize("below", [".", "new", "new/deep"])
def test_a_folder_that_can_be_made_is_writable(tmp_path: Path, below: str) -> None:
    check_writable(tmp_path / below)


def test_asking_whether_a_folder_is_writable_makes_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_relative_folder_is_looked_for_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_writable(Path("results"))


@pytest.mark.parametrize("below", ["", "below", "far/below"])
def test_a_path_below_a_file_cannot_be_written(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UserError, match=r"^--results .*/file.*: cannot be written \(Not a direct"):
        check_writable(file / below)


def test_a_kernels_folder_cannot_be_written() -> None:
    with pytest.raises(UserError, match=r"^--results /proc/results: cannot be written \("):
        check_writable(Path("/proc/results"))


# The log


def test_redirected_output_is_in_the_log(folder: RunFolder) -> None:
    old = redirect_output(folder.log)
    os.write(1, b"a library\n")
    os.write(2, b"its warning\n")
    restore_output(old)
    assert folder.log.read_text() == "a library\nits warning\n"


def test_redirected_output_is_not_on_the_terminal(
    folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    old = redirect_output(folder.log)
    os.write(1, b"a library\n")
    os.write(2, b"its warning\n")
    restore_output(old)
    assert capfd.readouterr() == ("", "")


def test_restored_output_is_on_the_terminal(
    folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    restore_output(redirect_output(folder.log))
    os.write(1, b"visible\n")
    assert capfd.readouterr().out == "visible\n"


def test_a_resumed_run_continues_in_its_log(folder: RunFolder) -> None:
    folder.log.write_text("before\n")
    old = redirect_output(folder.log)
    os.write(1, b"after\n")
    restore_output(old)
    assert folder.log.read_text() == "before\nafter\n"


def test_a_full_disk_costs_lines_of_the_log_and_not_the_run() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        stream = LogStream(full.fileno())
        assert stream.write("lost") == len("lost")
        stream.flush()
