"""ASHA on environment steps, also after a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from payload.experiment.settings import EPISODE_RETURN_MEAN, Stop
from payload.search.asha import FIRST_RUNG, ResumableASHA
from payload.search.search_folder import SearchFolder
from payload.tracking.metrics import STEPS
from payload.tracking.report import Report

END = 27_000
"""Environment steps of the experiment: rungs are at 1,000, 3,000 and 9,000."""
STOP = Stop(num_env_steps_sampled_lifetime=END)
Write = Callable[[str, int, float], None]


@pytest.fixture
def write(tmp_path: Path, make_report: Callable[..., Report]) -> Write:
    """Writes what a trial reported into its folder."""

    def write(name: str, steps: int, return_mean: float) -> None:
        own = SearchFolder(tmp_path).trial(name)
        own.path.mkdir(exist_ok=True)
        own.append_progress(make_report(env_steps=steps, return_mean=return_mean))

    return write


def report(asha: ResumableASHA, name: str, steps: int, **result: float) -> str:
    """Returns ASHA's decision on a trial's report."""
    trial: Any = SimpleNamespace(trial_id=name, config={"name": name})
    if name not in asha._trial_info:
        asha.on_trial_add(None, trial)
    decision: str = asha.on_trial_result(None, trial, {STEPS: steps, **result})
    return decision


def at(value: float) -> dict[str, float]:
    return {EPISODE_RETURN_MEAN: value}


def test_a_trial_continues_while_it_is_in_the_best_third(tmp_path: Path) -> None:
    asha = ResumableASHA(SearchFolder(tmp_path), STOP, EPISODE_RETURN_MEAN, [])
    assert report(asha, "a", 1000, **at(10)) == "CONTINUE"
    assert report(asha, "b", 999, **at(1)) == "CONTINUE"
    assert report(asha, "b", 1000, **at(1)) == "STOP"
    assert report(asha, "c", 1200, **at(20)) == "CONTINUE"


def test_a_trial_without_a_finished_episode_is_judged_by_its_first_return(tmp_path: Path) -> None:
    asha = ResumableASHA(SearchFolder(tmp_path), STOP, EPISODE_RETURN_MEAN, [])
    report(asha, "a", 1000, **at(10))
    assert report(asha, "b", 2000) == "CONTINUE"
    assert report(asha, "b", 2500, **at(1)) == "STOP"


def test_a_trial_is_compared_with_none_that_was_reported_after_later_steps(tmp_path: Path) -> None:
    asha = ResumableASHA(SearchFolder(tmp_path), STOP, EPISODE_RETURN_MEAN, [])
    report(asha, "fast", 4000, **at(10))
    report(asha, "fast", 8000, **at(50))
    assert report(asha, "slow", 1000, **at(20)) == "CONTINUE"
    assert report(asha, "slow", 3000, **at(5)) == "STOP"


def test_without_an_end_in_steps_the_first_rung_is_a_fixed_one(tmp_path: Path) -> None:
    asha = ResumableASHA(SearchFolder(tmp_path), Stop(time_total_s=60.0), EPISODE_RETURN_MEAN, [])
    report(asha, "a", FIRST_RUNG, **at(10))
    assert report(asha, "b", FIRST_RUNG - 1, **at(1)) == "CONTINUE"
    assert report(asha, "b", FIRST_RUNG, **at(1)) == "STOP"


def test_trials_that_were_over_before_a_resume_are_compared_to(
    tmp_path: Path, write: Write
) -> None:
    write("over", 1000, 10)
    asha = ResumableASHA(SearchFolder(tmp_path), STOP, EPISODE_RETURN_MEAN, ["over"])
    assert report(asha, "new", 1000, **at(1)) == "STOP"


def test_a_trial_that_continues_is_not_compared_to_itself(tmp_path: Path, write: Write) -> None:
    write("resumed", 1000, 10)
    asha = ResumableASHA(SearchFolder(tmp_path), STOP, EPISODE_RETURN_MEAN, [])
    assert report(asha, "resumed", 2000, **at(1)) == "CONTINUE"
    assert report(asha, "other", 1000, **at(5)) == "STOP"
