"""The ranking of settings by what their trials have reached."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from payload.experiment.settings import EPISODE_RETURN_MEAN, EVALUATION_RETURN_MEAN
from payload.run.run_status import RunStatus
from payload.search.ranking import Record, ranking, read_record
from payload.search.search_folder import SearchFolder, status_file
from payload.search.search_plan import Planned
from payload.tracking.report import Report


def record(lr: float, seed: int, return_mean: float, state: str = "FINISHED") -> Record:
    trial = Planned(f"trial_{lr}_{seed}", {"lr": lr}, seed)
    return Record(trial, state=state, return_mean=return_mean)  # type: ignore[arg-type]


def order(*records: Record) -> list[float]:
    return [setting.values["lr"] for setting in ranking(records)]


def test_the_score_of_a_setting_is_the_mean_over_its_seeds() -> None:
    records = [record(1, 0, 100), record(2, 0, 70), record(1, 1, 20), record(2, 1, 80)]
    assert [(s.values["lr"], s.score) for s in ranking(records)] == [(2, 75), (1, 60)]


def test_a_setting_with_a_failed_seed_comes_last() -> None:
    assert order(record(1, 0, 100), record(1, 1, 100, "FAILED"), record(2, 0, 5)) == [2, 1]


def test_a_setting_without_a_finished_episode_comes_last() -> None:
    assert order(record(1, 0, math.nan), record(2, 0, -500)) == [2, 1]


def test_a_seed_that_has_not_begun_counts_for_nothing() -> None:
    (setting,) = ranking([record(1, 0, 100), record(1, 1, math.nan, "WAITING")])
    assert setting.score == 100


def test_settings_that_have_not_begun_have_no_score() -> None:
    (setting,) = ranking([record(1, 0, math.nan, "WAITING")])
    assert setting.score == -math.inf


def test_a_trial_is_what_its_folder_says(
    tmp_path: Path, make_report: Callable[..., Report]
) -> None:
    folder, trial = SearchFolder(tmp_path), Planned("trial_000", {"lr": 1}, 0)
    # By their texts: from Python 3.13 on, NaN makes equal records differ.
    assert repr(read_record(folder, trial, EPISODE_RETURN_MEAN)) == repr(Record(trial))
    own = folder.trial("trial_000")
    own.path.mkdir()
    RunStatus("FINISHED", str(own.path), "stopped by ASHA").write(status_file(own))
    for iteration in (1, 2):
        own.append_progress(make_report(iteration=iteration, env_steps=iteration * 1000))
    own.append_progress(make_report(env_steps=3000, return_mean=12.5))
    with own.progress_file.open("a") as file:
        file.write("4,40.0,")  # Cut off.
    found = read_record(folder, trial, EPISODE_RETURN_MEAN)
    assert (found.state, found.reason) == ("FINISHED", "stopped by ASHA")
    assert (found.env_steps, found.return_mean) == (3000, 12.5)


def test_a_trials_score_is_that_of_its_last_evaluation(
    tmp_path: Path, make_report: Callable[..., Report]
) -> None:
    folder, trial = SearchFolder(tmp_path), Planned("trial_000", {"lr": 1}, 0)
    own = folder.trial("trial_000")
    own.path.mkdir()
    for iteration, returns in ((1, ()), (2, (90.0, 110.0)), (3, ())):
        own.append_progress(make_report(iteration=iteration, evaluation_returns=returns))
    found = read_record(folder, trial, EVALUATION_RETURN_MEAN)
    assert (found.env_steps, found.return_mean) == (1000, 100.0)
