"""This process gets what an environment needs, or an error names what is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from payload.environments.machine_requirements import check_requirements, provide
from payload.environments.runtime_env import runtime_env
from payload.errors import UserError
from payload.experiment.machine_needs import MAX_TRAVEL_BYTES
from payload.experiment.settings import Experiment


def refusal(experiment: Experiment) -> str:
    with pytest.raises(UserError) as error:
        check_requirements(experiment)
    return str(error.value)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores afterwards what `provide` changes."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("PYTHONPATH", "MAZE_LEVEL", "VOLLEY_INPUT_MAPS"):
        monkeypatch.setenv(name, "before")


@pytest.mark.usefixtures("process")
def test_processes_find_the_folder_the_variables_and_the_inputs(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.mkdir()
    (maps / "goal.txt").write_text("7")
    experiment = Experiment(
        source_directory=str(tmp_path),
        environment_variables={"MAZE_LEVEL": "hard"},
        inputs={"maps": str(maps)},
    )
    provide(experiment, tmp_path / "results")
    assert sys.path[0] == str(tmp_path)
    assert os.environ["PYTHONPATH"] == f"{tmp_path}{os.pathsep}before"
    assert os.environ["MAZE_LEVEL"] == "hard"
    assert Path(os.environ["VOLLEY_INPUT_MAPS"], "goal.txt").read_text() == "7"


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        (Experiment(source_directory="/none"), "source_directory: /none does not exist"),
        (Experiment(source_directory=__file__), f"source_directory: {__file__} is not a folder"),
        (Experiment(inputs={"maps": "/none"}), "inputs.maps: /none does not exist"),
        (Experiment(pip_requirements_file="/"), "pip_requirements_file: / is not a file"),
        (Experiment(conda_dependencies_file="/"), "conda_dependencies_file: / is not a file"),
        (Experiment(run_under="volley-no-such -a"), "run_under: volley-no-such is not on the PATH"),
        (Experiment(shm_size="900g"), "shm_size: 900g is more than the "),
    ],
)
def test_what_is_missing_is_named(experiment: Experiment, message: str) -> None:
    assert refusal(experiment).startswith(message)


@pytest.mark.slow
def test_a_missing_apt_package_is_named_with_the_command_that_helps() -> None:
    if not Path("/usr/bin/dpkg-query").exists():
        pytest.skip("no dpkg-query on this machine")
    experiment = Experiment(apt_packages=["dpkg", "volley-no-such-package"])
    assert refusal(experiment) == (
        "apt_packages: volley-no-such-package: not installed on this machine; "
        "sudo apt-get install volley-no-such-package"
    )


def test_ray_carries_code_packages_and_inputs_in_one_folder(tmp_path: Path) -> None:
    for place in ("source/maze/__pycache__", "installed/extra", "maps"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "file.txt").write_text(place)
    (tmp_path / "source/maze/__init__.py").write_text("")
    experiment = Experiment(
        source_directory=str(tmp_path / "source"),
        inputs={"maps": str(tmp_path / "maps"), "same": str(tmp_path / "maps")},
        run_under="xvfb-run -a",
    )
    staging = tmp_path / "staging"
    found = runtime_env(experiment, Path("/payload"), tmp_path / "installed", staging)
    assert found["working_dir"] == str(staging)
    assert found["py_executable"] == f"xvfb-run -a {sys.executable}"
    carried = {str(path.relative_to(staging)) for path in staging.rglob("*") if path.is_file()}
    inputs = {"volley_inputs/maps/file.txt", "volley_inputs/same/file.txt"}
    assert carried == {"maze/__init__.py", "extra/file.txt"} | inputs


def test_what_is_too_large_for_ray_is_named(tmp_path: Path) -> None:
    (tmp_path / "source/maps").mkdir(parents=True)
    with (tmp_path / "source/maps/large.bin").open("wb") as file:
        file.truncate(MAX_TRAVEL_BYTES + 2**20)
    experiment = Experiment(source_directory=str(tmp_path / "source"))
    large = rf"513 MiB together, more than the 512 MiB .*: {tmp_path}/source/maps 513 MiB"
    with pytest.raises(UserError, match=large):
        runtime_env(experiment, Path("/payload"), None, tmp_path / "staging")
    assert not (tmp_path / "staging").exists()


def test_a_file_that_cannot_be_copied_is_named(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "source/pipe")
    experiment = Experiment(source_directory=str(tmp_path / "source"))
    runtime_env(experiment, Path("/payload"), None, tmp_path / "staging")
    assert list((tmp_path / "staging").iterdir()) == []  # These stay behind.
    (tmp_path / "installed/maze").mkdir(parents=True)
    (tmp_path / "source/maze").touch()
    with pytest.raises(UserError, match=rf"^{tmp_path}/source/maze cannot be copied: Is a dir"):
        runtime_env(experiment, Path("/payload"), tmp_path / "installed", tmp_path / "staging")
