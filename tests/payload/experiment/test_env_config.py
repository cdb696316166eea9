"""An environment's arguments arrive as they were written, wherever they travel."""

from __future__ import annotations

import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from payload.errors import UserError
from payload.experiment.file import read_mapping, to_yaml
from payload.experiment.read import read_experiment
from payload.experiment.resume import resume_key
from payload.parcel import experiment_files
from volley.experiment_arguments import experiment_of, write_file

WRITTEN = """\
env: CartPole-v1
config:
  env_config:
    prizes: {0: 1.5, 1: no}
    day: 2026-11-29
    moment: 2026-11-29 18:00:00+01:00
    size: !!python/tuple [3, [4, 5]]
    raw: !!binary aGk=
    names: !!set {b, a}
    none: null
    text: '1e6'
    big: 1e6
    by_place: {? !!python/tuple [0, 1] : goal}
"""
MEANT = {
    "prizes": {0: 1.5, 1: False},
    "day": datetime.date(2026, 11, 29),
    "moment": datetime.datetime(2026, 11, 29, 17, tzinfo=datetime.UTC),
    "size": (3, [4, 5]),
    "raw": b"hi",
    "names": {"a", "b"},
    "none": None,
    "text": "1e6",
    "big": 1e6,
    "by_place": {(0, 1): "goal"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "maze.yaml"
    path.write_text(WRITTEN)
    return path


def same(arguments: Any) -> bool:
    """Whether arguments are as they were written, in type too."""
    return bool(arguments == MEANT) and all(
        type(arguments[name]) is type(value) for name, value in MEANT.items()
    )


def test_a_file_says_arguments_of_any_type_of_yaml(file: Path) -> None:
    assert same(read_experiment(file).experiment.config.env_config)


def test_a_checkpoints_experiment_has_the_same_arguments(file: Path) -> None:
    text = to_yaml(read_experiment(file).experiment)
    assert same(read_experiment(read_mapping(text)).experiment.config.env_config)


def test_a_cluster_gets_the_same_arguments(file: Path, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    file.write_text(WRITTEN + "source_directory: source\n")
    (tmp_path / "source/maze.py").touch()
    sent = read_mapping(experiment_files(file).experiment.decode())
    assert same(read_experiment(sent).experiment.config.env_config)


def test_arguments_from_python_travel_as_they_are(tmp_path: Path) -> None:
    keys = {"env": "CartPole-v1", "env_config": MEANT}
    path = write_file(experiment_of(None, keys), None, tmp_path)
    assert same(read_experiment(path).experiment.config.env_config)


def test_the_same_arguments_have_the_same_key(file: Path) -> None:
    first, second = (read_experiment(file).experiment for _ in range(2))
    assert resume_key(first) == resume_key(second)


@pytest.mark.parametrize(
    ("first", "second"), [((1,), [1]), ({0: 1}, {"0": 1}), (b"a", "a"), (1, 1.0)]
)
def test_other_arguments_have_another_key(first: Any, second: Any) -> None:
    keys = {
        resume_key(read_experiment({"config": {"env_config": {"x": value}}}).experiment)
        for value in (first, second)
    }
    assert len(keys) == 2


class Level:
    """An object that no file can hold."""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"level": Level()}, "config.env_config.level: a value of type Level cannot be written"),
        ({"a": [{"b": Level}]}, "config.env_config.a: a value of type type cannot be written"),
        ({"map": PurePosixPath("x")}, "config.env_config.map: a value of type PurePosixPath"),
        ({"by": {Level(): 1}}, "config.env_config.by: a value of type Level cannot be written"),
        ({0: "goal"}, "config.env_config: 0: an argument's name is text"),
    ],
)
def test_an_argument_that_no_file_can_hold_is_refused(arguments: Any, said: str) -> None:
    with pytest.raises(UserError) as error:
        read_experiment({"config": {"env_config": arguments}})
    assert str(error.value).startswith(said)


def test_an_argument_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UserError, match=r"^config.env_config.x: "):
        read_experiment({"config": {"env_config": {"x": endless}}})


@pytest.mark.parametrize("tag", ["python/name:os.system", "python/object/apply:os.getcwd"])
def test_no_code_comes_with_a_file(tmp_path: Path, tag: str) -> None:
    file = tmp_path / "evil.yaml"
    file.write_text(f"config: {{env_config: {{x: !!{tag} []}}}}")
    with pytest.raises(UserError, match="is not YAML"):
        read_experiment(file)
