"""A script as a file or the command line gives it."""

from __future__ import annotations

import datetime
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from payload.errors import UserError
from payload.experiment import read_experiment
from payload.experiment.script import Script, read_script, resume_key


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with source/train.py."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/train.py").touch()
    return tmp_path


def read(folder: Path, *params: str, **values: Any) -> Script:
    """Reads a file with these keys in a folder."""
    file = folder / "script.yaml"
    file.write_text(yaml.safe_dump(values, sort_keys=False))
    return read_script(file, list(params))


def test_a_python_file_is_a_script_without_other_needs(folder: Path) -> None:
    script = read_script(folder / "source/train.py", ["--run", "IMPALA"])
    assert (script.entry_script, script.script_params) == (
        str(folder / "source/train.py"),
        ["--run", "IMPALA"],
    )


def test_entry_script_is_relative_to_source_directory(folder: Path) -> None:
    script = read(folder, source_directory="source", entry_script="train.py")
    assert script.entry_script == str(folder / "source/train.py")


def test_entry_script_is_relative_to_the_file_without_a_source_directory(folder: Path) -> None:
    script = read(folder, entry_script="source/train.py")
    assert script.entry_script == str(folder / "source/train.py")


def test_azure_mls_older_name_of_a_dependencies_file_is_translated(folder: Path) -> None:
    script = read(folder, entry_script="source/train.py", conda_dependencies_file_path="conda.yml")
    assert script.conda_dependencies_file == str(folder / "conda.yml")


def test_a_mapping_of_parameters_becomes_options_and_flags(folder: Path) -> None:
    params = {"--run": "IMPALA", "--config": {"lr": 0.1}, "--cpus": 2, "--verbose": ""}
    script = read(folder, entry_script="source/train.py", script_params=params)
    expected = ["--run", "IMPALA", "--config", '{"lr": 0.1}', "--cpus", "2", "--verbose"]
    assert script.script_params == expected


def test_a_list_of_parameters_stays_as_it_is(folder: Path) -> None:
    params = ["--name", "", 1, True, datetime.date(2024, 1, 1)]
    script = read(folder, entry_script="source/train.py", script_params=params)
    assert script.script_params == ["--name", "", "1", "true", "2024-01-01"]


def test_parameters_of_the_command_line_replace_those_of_the_file(folder: Path) -> None:
    script = read(folder, "--a", entry_script="source/train.py", script_params=["--b", 1])
    assert script.script_params == ["--a"]


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        (
            {"entry_script": "trian.py"},
            "trian.py is not a file (did you mean train.py?)",
        ),
        ({"entry_script": "../other.py"}, "entry_script: ../other.py is not in source_directory"),
        ({}, "entry_script: is missing"),
        ({"entry_script": "train.py", "env": "CartPole-v1"}, "has entry_script and env"),
        ({"entry_script": "train.py", "script_params": 3}, "script_params: 3 is neither a mapping"),
        (
            {"entry_script": "train.py", "input": {}},
            "unknown key (did you mean inputs?)",
        ),
        (
            {"entry_script": "train.py", "max_run_duration_seconds": 0},
            "max_run_duration_seconds: 0: input should be greater than",
        ),
        (
            {"entry_script": "train.py", "num_cpus": 2, "num_workers": 2},
            "num_workers: cannot be given together with num_cpus",
        ),
        ({"entry_script": "train.py", "num_gpus": math.inf}, "num_gpus: inf: input should be"),
        ({"entry_script": "train.py", "num_gpus": 1.5}, "num_gpus: 1.5 is neither whole nor less"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    folder: Path, values: dict[str, Any], refusal: str
) -> None:
    (folder / "other.py").touch()
    with pytest.raises(UserError, match=re.escape(refusal)):
        read(folder, source_directory="source", **values)


def test_a_source_directory_of_the_command_line_is_relative_to_the_current_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "source")
    script = read_script(folder / "source/train.py", [], "../source")
    assert script.source_directory == str(folder / "source")


def test_only_what_it_does_decides_whether_its_results_are_kept(folder: Path) -> None:
    def key(*params: str, **values: Any) -> str:
        return resume_key(read(folder, *params, entry_script="source/train.py", **values))

    assert key(num_cpus=4, max_run_duration_seconds=60) == key(num_workers=2)
    assert key("--a") != key("--b")
    assert key(environment_variables={"LEVEL": "hard"}) != key()


def test_a_script_is_not_an_experiment(folder: Path) -> None:
    read(folder, entry_script="source/train.py")
    with pytest.raises(UserError, match=r"entry_script: describes a script\. Next: .* run FILE"):
        read_experiment(folder / "script.yaml")


def test_an_experiment_is_not_a_script(tmp_path: Path) -> None:
    (tmp_path / "pong.yaml").write_text("env: PongNoFrameskip-v4")
    with pytest.raises(UserError, match=r"has env, so it is an experiment\. Next: .*volley train "):
        read_script(tmp_path / "pong.yaml", [])
