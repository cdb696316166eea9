"""A small file cannot become large, endless or too deep: one line, and no time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from payload.errors import UserError
from payload.experiment import read_experiment
from payload.experiment.conda_dependencies import read_conda_dependencies
from payload.experiment.script import read_script
from volley.submission import line_of

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 9)
)
READERS: list[Callable[[Path], Any]] = [
    read_experiment,
    read_conda_dependencies,
    lambda path: read_script(path, []),
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS, "with its aliases it has more than 100,000 values"),
        (MERGES, "with its aliases it has more than 100,000 values"),
        ("config: &a {env_config: *a}", "an alias refers to what contains it"),
        (f"config: {'[' * 5000}", "its values are nested too deeply"),
    ],
)
def test_a_file_that_would_grow_without_end_is_refused(
    read: Callable[[Path], Any], text: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=f"is not YAML: {reason}"):
        read(path)
    assert line_of(path, ["config"]) is None


def test_aliases_of_a_reasonable_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(
        "env: CartPole-v1\nrun: PPO\nenvironment_variables: &v {A: '1'}\n"
        "config: {env_config: {a: *v, b: {<<: *v, B: '2'}}}\n"
    )
    config = read_experiment(path).experiment.config
    assert config.env_config == {"a": {"A": "1"}, "b": {"A": "1", "B": "2"}}
