"""A run's parameters, whatever an environment's arguments are."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient

from payload.tracking.run_parameters import flatten


def test_nested_settings_are_flat() -> None:
    assert dict(flatten({"config": {"lr": 0.1, "env_config": {"size": {"x": 1}}}})) == {
        "config.lr": 0.1,
        "config.env_config.size.x": 1,
    }


def test_a_mapping_whose_keys_are_not_names_stays_whole() -> None:
    arguments = {"goals": {(0, 1): "a"}, "prizes": {0: -1.0}, "level(s)": 1}
    assert dict(flatten({"env_config": arguments})) == {"env_config": arguments}
    del arguments["level(s)"]
    assert dict(flatten({"env_config": arguments})) == {
        "env_config.goals": {(0, 1): "a"},
        "env_config.prizes.0": -1.0,
    }


@pytest.mark.slow
def test_mlflow_accepts_every_name(tmp_path: Path) -> None:
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    run = client.create_run(client.create_experiment("arguments")).info.run_id
    arguments = {
        "goals": {(0, 1): "a"},
        "by name": {"a b": 1, "c": 2},
        "paths": {"../d/": 1},
        "more": {"e(f)": 3},
    }
    for name, value in flatten({"env_config": arguments}):
        client.log_param(run, name, value)
    assert len(client.get_run(run).data.params) == 5
