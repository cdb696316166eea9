"""A metric has one name, wherever it is shown."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from payload.experiment.settings import INFO_MEAN, Stop
from payload.tracking.metrics import METRICS, MODULE, Metric, metrics
from payload.tracking.report import Report
from payload.tracking.train_result import train_result
from tests.documents import table_rows


def learner_metrics(**module: object) -> dict[str, float]:
    return train_result({"learners": {"default_policy": module}}).values


def test_no_name_stands_twice() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)


def test_every_stop_criterion_is_a_metric_of_that_name() -> None:
    criteria = {field.alias or name for name, field in Stop.model_fields.items()}
    criteria.remove(INFO_MEAN.rstrip("/"))  # Names of `info_metrics`.
    assert criteria <= {metric.name for metric in METRICS}


def test_the_documented_metrics_are_those_of_the_table() -> None:
    documented = table_rows("docs/algorithm.md", "Metrics")
    assert documented == {metric.name: [metric.meaning] for metric in METRICS}


def test_the_returns_are_among_the_first_four_charts_of_mlflow() -> None:
    # Charts with a path come first, in alphabetical order.
    charts = sorted(metric.name for metric in METRICS if "/" in metric.name)
    assert "env_runners/episode_return_mean" in charts[:4]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        *((name, name) for name in ("policy_loss", "vf_loss", "entropy", "mean_kl_loss")),
        ("mean_pi_loss", "policy_loss"),
        ("mean_vf_loss", "vf_loss"),
    ],
)
def test_a_learner_metric_has_one_name_on_both_paths(key: str, name: str) -> None:
    assert learner_metrics(**{key: np.float32(0.5)}) == {f"{MODULE}{name}": 0.5}


def test_of_two_names_the_fast_paths_own_counts() -> None:
    assert learner_metrics(mean_vf_loss=1.0, vf_loss=2.0) == {f"{MODULE}vf_loss": 2.0}


def test_a_value_of_rllibs_result_needs_a_row_of_the_table_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "env_runners/env_to_module_connector/timers/connectors/frame_stacking"
    table = (*METRICS, Metric(name, "Seconds in the frame-stacking connector"))
    monkeypatch.setattr("payload.tracking.train_result.METRICS", table)
    timers = {"timers": {"connectors": {"frame_stacking": 0.25}}}
    result = train_result({"env_runners": {"env_to_module_connector": timers}})
    assert result.values == {name: 0.25}


def test_mlflow_is_told_the_mean_return_by_rllibs_name(make_report: Callable[..., Report]) -> None:
    assert metrics(make_report(return_mean=2.0))["env_runners/episode_return_mean"] == 2.0


def test_mlflow_is_not_told_what_is_not_known_yet(make_report: Callable[..., Report]) -> None:
    report = make_report(return_mean=math.nan, values={f"{MODULE}entropy": math.nan})
    unknown = {"env_runners/episode_return_mean", f"{MODULE}entropy", f"{MODULE}policy_loss"}
    assert not unknown & set(metrics(report))
