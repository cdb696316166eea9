"""uv installs the packages of an experiment beside the Python environment that trains."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from payload.environments.machine_requirements import install_packages
from payload.errors import UserError
from payload.experiment.settings import Experiment

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


def test_the_environment_that_trains_stays_as_it_is(tmp_path: Path) -> None:
    install_packages(Experiment(pip_packages=[SMALL]), tmp_path)
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("cowsay")
