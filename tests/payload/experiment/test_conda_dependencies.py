"""conda's dependencies file, and the keys that ask for conda packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from payload.errors import UserError
from payload.experiment.conda_dependencies import CondaDependencies, read_conda_dependencies
from payload.experiment.machine_needs import conda_dependencies, pip_requirements, problems_of_files
from payload.experiment.read import read_experiment
from payload.experiment.settings import Experiment

AZURE_ML = """
name: project_environment
channels: [conda-forge, nodefaults]
dependencies:
- python=3.11
- swig
- pip:
  - pettingzoo==1.24
- ffmpeg>=6
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "environment.yml"
    path.write_text(AZURE_ML)
    return path


def test_a_file_of_azure_ml_is_read(file: Path) -> None:
    assert read_conda_dependencies(file) == CondaDependencies(
        ["conda-forge"], ["python=3.11", "swig", "ffmpeg>=6"], ["pettingzoo==1.24"]
    )


def test_a_file_without_channels_takes_conda_forge(file: Path) -> None:
    file.write_text("dependencies: [swig]")
    assert read_conda_dependencies(file).channels == ["conda-forge"]


def test_both_keys_and_those_of_pip_are_taken_together(file: Path) -> None:
    experiment = Experiment(
        conda_packages=["box2d-py"], conda_dependencies_file=str(file), pip_packages=["cowsay"]
    )
    assert conda_dependencies(experiment).packages[:2] == ["box2d-py", "python=3.11"]
    assert pip_requirements(experiment) == ["cowsay", "pettingzoo==1.24"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dependencies: [swig", "is not YAML: while parsing a flow sequence"),
        ("- swig", "is not a mapping with dependencies, as conda's environment.yml"),
        ("channels: [conda-forge]", "is not a mapping with dependencies"),
        ("dependencies: swig", "dependencies: 'swig' is not a list"),
        ("dependencies: [3]", "dependencies: 3 is not the name of a package or channel"),
        ("dependencies: [{npm: [x]}]", "dependencies: {'npm': ['x']} is not the name"),
        ("dependencies: [{pip: x}]", "dependencies: pip: 'x' is not a list"),
        (
            "dependencies: [{pip: [-r other.txt]}]",
            "dependencies: pip: '-r other.txt' is not the name",
        ),
        ("dependencies: [swig]\nchannels: x", "channels: 'x' is not a list"),
        ("dependencies: [swig]\nchanels: [x]", "chanels: unknown key (did you mean channels?)"),
        ("\udc80", "is not UTF-8 text"),
    ],
)
def test_what_is_not_condas_format_is_one_line(file: Path, text: str, words: str) -> None:
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    (problem,) = problems_of_files(Experiment(conda_dependencies_file=str(file)))
    assert problem.startswith(f"conda_dependencies_file: {file}: {words}")
    with pytest.raises(UserError):
        read_conda_dependencies(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    experiment = Experiment(conda_dependencies_file=str(tmp_path / "none.yml"))
    expected = f"conda_dependencies_file: {tmp_path}/none.yml does not exist"
    assert list(problems_of_files(experiment)) == [expected]


@pytest.mark.parametrize("key", ["conda_packages", "conda_dependencies_file"])
def test_a_container_image_has_its_own_packages(key: str, file: Path) -> None:
    value = ["swig"] if key == "conda_packages" else str(file)
    with pytest.raises(UserError) as error:
        read_experiment({"image": "registry.io/maze:1", key: value})
    assert str(error.value) == f"{key}: cannot be given together with image, which has its own"
