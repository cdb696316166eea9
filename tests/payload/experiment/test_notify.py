"""The key `notify`: a URL is read, and written into no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from payload.errors import UserError
from payload.experiment import read_experiment, resume_key, to_yaml
from payload.experiment.file import read_mapping
from payload.experiment.script import read_script
from payload.experiment.script import resume_key as script_key
from payload.experiment.script import to_yaml as script_yaml

URL = "https://hooks.example.com/services/T0KEN"


@pytest.mark.parametrize(
    ("notify", "written"),
    [
        (URL, "$VOLLEY_NOTIFY"),
        (f"curl -d @- {URL}", "$VOLLEY_NOTIFY"),
        ("$SLACK_URL", "$SLACK_URL"),
        ("./tell.sh", "./tell.sh"),
    ],
)
def test_a_url_is_written_into_no_file(notify: str, written: str, tmp_path: Path) -> None:
    experiment = read_experiment({"env": "CartPole-v1"}, {"notify": f" {notify}\n"}).experiment
    assert experiment.notify == notify
    assert read_mapping(to_yaml(experiment))["notify"] == written
    assert "T0KEN" not in repr(experiment)
    assert experiment.setting({}).notify == notify
    (tmp_path / "main.py").touch()
    script = read_script(tmp_path / "main.py", [], keys={"notify": notify})
    assert read_mapping(script_yaml(script))["notify"] == written


def test_it_changes_nothing_that_is_learned(tmp_path: Path) -> None:
    without, told = ({"env": "CartPole-v1"}, {"env": "CartPole-v1", "notify": URL})
    keys = {resume_key(read_experiment(layer).experiment) for layer in (without, told)}
    assert len(keys) == 1
    (tmp_path / "main.py").touch()
    given: list[dict[str, Any]] = [{}, {"notify": "./tell.sh"}]
    assert len({script_key(read_script(tmp_path / "main.py", [], keys=k)) for k in given}) == 1


@pytest.mark.parametrize("notify", ["", "ftp://h/T0KEN", "https://", ["https://h/T0KEN"], 5])
def test_what_cannot_be_told_is_refused_without_the_url(notify: object) -> None:
    with pytest.raises(UserError) as error:
        read_experiment({"notify": notify})
    assert str(error.value).startswith("notify: ")
    assert "T0KEN" not in str(error.value)
