"""Where a training's MLflow run is: --tracking-uri, MLFLOW_TRACKING_URI, or beside the results."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from payload.commands.prepare import choose_tracking_uri
from payload.tracking.mlflow_run import Tracking


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


def test_no_variable_is_nothing_to_tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert chosen(None) is None
    assert capsys.readouterr().out == ""


def test_the_page_of_a_run_shows_no_password(tmp_path: Path) -> None:
    page = Tracking.at("https://me:secret@mlflow.example/", tmp_path, "run").page("1", "r")
    assert page.startswith("https://***@mlflow.example/#/experiments/1/runs/r/")
