"""Where a training's metrics go: a server, an experiment of MLflow, Weights & Biases."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from payload.commands.prepare import check_wandb, choose_tracking_uri, load_experiment
from payload.errors import UserError
from payload.experiment.settings import Experiment
from payload.tracking.mlflow_run import Tracking
from volley.arguments import parse


def chosen(given: str | None) -> str | None:
    options = argparse.Namespace(tracking_uri=given, results=Path("results"))
    choose_tracking_uri(options)
    uri: str | None = options.tracking_uri
    return uri


def test_mlflows_own_variable_is_used_and_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@mlflow.example")
    assert chosen(None) == "https://me:secret@mlflow.example"
    assert capsys.readouterr().out == "MLflow: MLFLOW_TRACKING_URI=https://***@mlflow.example\n"


def test_the_option_is_stronger_than_the_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example")
    assert chosen("http://127.0.0.1:5000") == "http://127.0.0.1:5000"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("variable", ["file:///home/me/mlruns", "mlruns"])
def test_a_variable_that_names_no_server_is_reported_and_not_used(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", variable)
    assert chosen(None) is None
    line = capsys.readouterr().out
    assert line.startswith(f"MLFLOW_TRACKING_URI={variable} is not used: must start with one of")
    assert line.endswith("MLflow's database is in results\n")


def test_azure_ml_is_used_where_its_package_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "azureml_mlflow-1.62.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: azureml-mlflow\nVersion: 1.62.0\n")
    plugin = "[mlflow.tracking_store]\nazureml = azureml.mlflow.entry_point_loaders:builder\n"
    (installed / "entry_points.txt").write_text(plugin)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "azureml://west.example/workspaces/w")
    assert chosen(None) is None
    monkeypatch.syspath_prepend(str(tmp_path))
    assert chosen(None) == "azureml://west.example/workspaces/w"


def test_no_variable_is_nothing_to_tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert chosen(None) is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("file", "variable", "expected"),
    [("{}", None, None), ("{}", "mine", "mine"), ("{experiment_name: own}", "mine", "own")],
)
def test_mlflows_own_variable_names_the_experiment_that_nothing_else_names(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    variable: str | None,
    expected: str | None,
) -> None:
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    if variable is not None:
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", variable)
    path = tmp_path / "experiment.yaml"
    path.write_text(file)
    options = parse(["train", str(path)])
    assert load_experiment(options, None).experiment.experiment_name == expected


def test_weights_and_biases_needs_a_key_unless_it_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for variable in "WANDB_API_KEY", "WANDB_MODE":
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(
        UserError, match="wandb: team: WANDB_API_KEY is not set; on a cluster: --se"
    ):
        check_wandb(Experiment(wandb="team"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_wandb(Experiment(wandb="team"))


def test_the_page_of_a_run_shows_no_password(tmp_path: Path) -> None:
    page = Tracking.at("https://me:secret@mlflow.example/", tmp_path, "run").page("1", "r")
    assert page.startswith("https://***@mlflow.example/#/experiments/1/runs/r/")
