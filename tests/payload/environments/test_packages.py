"""The packages of an experiment are installed beside the Python environment that trains."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import payload.__main__
import volley.cli
from payload.environments.conda_worker import LOCK
from payload.environments.machine_requirements import install_packages, provide
from payload.errors import TemporaryError, UserError
from payload.experiment.settings import Experiment
from tests.local_server import local_server

pytestmark = pytest.mark.slow

SMALL = "cowsay==6.1"


def names(folder: Path | None) -> set[str]:
    assert folder is not None
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_an_experiment_without_packages_installs_nothing(tmp_path: Path) -> None:
    assert install_packages(Experiment(), tmp_path) is None


def test_what_is_missing_is_installed_and_can_be_imported(tmp_path: Path) -> None:
    folder = install_packages(Experiment(pip_packages=[SMALL]), tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", "import cowsay; print(cowsay.__file__)"],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(folder))


def test_packages_of_a_file_are_installed_too(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"# mine\n{SMALL}\n")
    found = install_packages(Experiment(pip_requirements_file=str(file)), tmp_path / "packages")
    assert "cowsay" in names(found)


def test_what_is_there_is_not_installed_again(tmp_path: Path) -> None:
    assert names(install_packages(Experiment(pip_packages=["numpy"]), tmp_path)) == set()


def test_a_second_run_installs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = Experiment(pip_packages=[SMALL])
    first = install_packages(experiment, tmp_path)
    capsys.readouterr()
    assert install_packages(experiment, tmp_path) == first
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("package", ["numpy<1.20", "volley-no-such-package"])
def test_what_cannot_be_installed_is_one_line_and_leaves_nothing(
    tmp_path: Path, package: str
) -> None:
    with pytest.raises(UserError, match=r"^pip_packages: .*No solution found"):
        install_packages(Experiment(pip_packages=[package]), tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (503, TemporaryError, "503 Service Unavailable"),
        (None, TemporaryError, "Connection refused"),
        (404, UserError, "was not found in the package registry"),
        (403, UserError, "403 Forbidden"),
    ],
)
def test_a_registry_that_does_not_answer_is_not_the_experiments_mistake(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int | None,
    error: type[Exception],
    reason: str,
) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with local_server(lambda *_: (status or 200, "text/html", b"")) as registry:
        url = f"{registry}/simple" if status else "http://127.0.0.1:9/simple"
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        with pytest.raises(error, match=f"^pip_packages: [FRN].*{reason}"):
            install_packages(Experiment(pip_packages=["volley-no-such-package"]), tmp_path)
    assert not any(tmp_path.iterdir())


def test_the_environment_that_trains_stays_as_it_is(tmp_path: Path) -> None:
    install_packages(Experiment(pip_packages=[SMALL]), tmp_path)
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("cowsay")


# Packages of conda


@pytest.fixture
def conda_file(channel: Path, tmp_path: Path) -> Path:
    """A dependencies file with a copy of the channel and no packages."""
    copied = shutil.copytree(channel, tmp_path / "channel")
    file = tmp_path / "environment.yml"
    file.write_text(f"channels: ['{copied.as_uri()}']\ndependencies: []\n")
    return file


def test_of_conda_packages_a_lock_file_travels(conda_file: Path, tmp_path: Path) -> None:
    experiment = Experiment(conda_packages=["greeter"], conda_dependencies_file=str(conda_file))
    folder = install_packages(experiment, tmp_path / "packages")
    assert names(folder) == {LOCK}
    shutil.rmtree(tmp_path / "channel")
    assert install_packages(experiment, tmp_path / "packages") == folder


def test_pip_takes_what_conda_installs(conda_file: Path, tmp_path: Path) -> None:
    experiment = Experiment(
        conda_packages=["cowsay"],
        conda_dependencies_file=str(conda_file),
        pip_packages=["cowsay", "iniconfig"],
    )
    assert names(install_packages(experiment, tmp_path / "packages")) == {LOCK}


@pytest.mark.parametrize(
    ("conda", "pip", "message"),
    [
        ("cowsay=5", "cowsay==6.1", "pip_packages: cowsay==6.1: conda_packages has cowsay 5.0; "),
        ("nowhere", SMALL, "conda_packages: nowhere: no such package in file://"),
        ("cowsay", "volley-no-such-package", "pip_packages: .*No solution found"),
    ],
)
def test_what_conda_and_pip_cannot_install_together_is_one_line_and_leaves_nothing(
    conda_file: Path, tmp_path: Path, conda: str, pip: str, message: str
) -> None:
    experiment = Experiment(
        conda_packages=[conda], conda_dependencies_file=str(conda_file), pip_packages=[pip]
    )
    with pytest.raises(UserError, match=f"^{message}"):
        install_packages(experiment, tmp_path / "packages")
    assert not any((tmp_path / "packages").iterdir())


@pytest.mark.parametrize("command", [payload.__main__.main, volley.cli.main])
def test_a_channel_that_does_not_answer_is_one_line_and_another_exit_code(
    command: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text("conda_dependencies_file: environment.yml\n")
    (tmp_path / "environment.yml").write_text(
        "channels: ['http://127.0.0.1:9/channel']\ndependencies: [greeter]\n"
    )
    assert command(["train", str(file), "--results", str(tmp_path / "results")]) == 75
    (line,) = capsys.readouterr().err.splitlines()
    assert "conda_packages: the channel does not answer: " in line
    assert not any((tmp_path / "results/.packages").iterdir())


def test_this_process_and_those_that_it_starts_find_conda_packages(
    conda_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    packages = ["greeter", "greeter-home", "greetlib"]
    needs = Experiment(conda_packages=packages, conda_dependencies_file=str(conda_file))
    provide(needs, tmp_path / "results")
    assert subprocess.check_output(["greet"], env=os.environ, text=True) == "hello world\n"
    import greetlib  # type: ignore[import-not-found]

    assert greetlib.__file__.startswith(f"{tmp_path}/results/.packages/conda-")
    assert os.environ["GREETER_HOME"] == f"{os.environ['CONDA_PREFIX']}/x"
