"""Files that an experiment names are sent to the head, and their paths become the head's."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from infra.config.check_experiment import needs_of_every_machine
from infra.config.read_stack import ConfigError, read_settings
from infra.stack.run_command_script import ScriptTooLargeError
from infra.stack.training import training_script
from payload.environments.runtime_env import runtime_env
from payload.errors import UserError
from payload.experiment import read_experiment
from payload.parcel import MAX_BYTES, ExperimentFiles, experiment_files
from tests.infra.declared_stack import REQUIRED
from tests.project import ROOT

WriteExperiment = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteExperiment:
    """Writes an experiment file, beside a package and data."""
    (tmp_path / "maze/__pycache__").mkdir(parents=True)
    (tmp_path / "maze/__init__.py").write_text("import gymnasium\n")
    (tmp_path / "maze/__pycache__/old.pyc").write_bytes(b"old")
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps/one.txt").write_text("#..#")
    (tmp_path / "needs.txt").write_text("networkx\n")
    (tmp_path / "conda.yml").write_text("dependencies: [swig]\n")
    (tmp_path / "experiments").mkdir()

    def write(text: str) -> Path:
        path = tmp_path / "experiments/maze.yaml"
        path.write_text(text)
        return path

    return write


def archived(files: ExperimentFiles) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(files.archive.content())) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]


def test_an_experiment_that_names_nothing_is_sent_as_it_is(write: WriteExperiment) -> None:
    path = write("run: IMPALA # mine\n")
    assert experiment_files(path) == ExperimentFiles(path.read_bytes())


def test_what_it_names_is_in_the_archive(write: WriteExperiment) -> None:
    named = "source_directory: ../maze\ninputs: {maps: ../maps}\n"
    named += "pip_requirements_file: ../needs.txt\nconda_dependencies_file: ../conda.yml\n"
    files = experiment_files(write(named))
    assert archived(files) == {
        "source/__init__.py": b"import gymnasium\n",
        "inputs/maps/one.txt": b"#..#",
        "requirements.txt": b"networkx\n",
        "environment.yml": b"dependencies: [swig]\n",
    }


def test_the_paths_of_the_experiment_are_the_head_s(write: WriteExperiment) -> None:
    named = "source_directory: ../maze\ninputs: {maps: ../maps}\n"
    files = experiment_files(write(f"{named}conda_dependencies_file: ../conda.yml\n"))
    assert yaml.safe_load(files.experiment) == {
        "source_directory": "source",
        "conda_dependencies_file": "environment.yml",
        "inputs": {"maps": "inputs/maps"},
        "stop": {"time_total_s": 3600.0},
    }


@pytest.mark.parametrize("key", ["source_directory: ../maze", "inputs: {maps: ../maze}"])
def test_a_link_out_of_a_folder_does_not_travel(
    write: WriteExperiment, tmp_path: Path, key: str
) -> None:
    path = write(f"{key}\n")
    (tmp_path / "maze/inside").symlink_to("__init__.py")
    (tmp_path / "maze/dangling").symlink_to("/nowhere")
    (tmp_path / "maze/.venv").symlink_to("/usr")
    assert any(name.endswith("/inside") for name in archived(experiment_files(path)))
    (tmp_path / "key").write_text("secret")
    (tmp_path / "maze/notes").symlink_to(tmp_path / "key")
    with pytest.raises(UserError, match=r"maze/notes is a link to .*/key, outside the folder"):
        experiment_files(path)
    with pytest.raises(UserError, match=r"maze/notes is a link to .*/key, outside the folder"):
        runtime_env(read_experiment(path).experiment, ROOT / "payload", None, tmp_path / "staging")


def test_the_same_files_give_the_same_bytes(write: WriteExperiment) -> None:
    path = write("source_directory: ../maze\n")
    before = experiment_files(path).archive.content()
    (path.parent.parent / "maze/__init__.py").touch()
    assert experiment_files(path).archive.content() == before


def test_a_folder_that_is_not_there_is_refused_by_the_preview(write: WriteExperiment) -> None:
    path = write("source_directory: ../mase\n")
    with pytest.raises(ConfigError, match=r"source_directory: .*mase does not exist"):
        read_settings({**REQUIRED, "experiment": str(path)}, path.parent)


def test_a_dependencies_file_that_conda_cannot_read_is_refused_by_the_preview(
    write: WriteExperiment,
) -> None:
    path = write("conda_dependencies_file: ../needs.txt\n")
    with pytest.raises(ConfigError, match=r"conda_dependencies_file: .*is not a mapping"):
        read_settings({**REQUIRED, "experiment": str(path)}, path.parent)


def test_files_that_can_never_fit_are_refused_at_once(write: WriteExperiment) -> None:
    path = write("source_directory: ../maze\n")
    large = path.parent.parent / "maze/large.bin"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES)
    words = rf"names files of 20,971,537 bytes.*: {large} 20,971,520, "
    with pytest.raises(ConfigError, match=words):
        read_settings({**REQUIRED, "experiment": str(path)}, path.parent)


def test_files_that_do_not_fit_a_run_command_are_named(write: WriteExperiment) -> None:
    path = write("source_directory: ../maze\n")
    large = path.parent.parent / "maze/large.bin"
    large.write_bytes(random.Random(0).randbytes(100_000))
    settings = read_settings({**REQUIRED, "experiment": str(path)}, ROOT)
    with pytest.raises(ScriptTooLargeError, match=rf"files.tar .*names: {large} 100,000, "):
        training_script(settings, ROOT)


def test_the_preview_says_what_the_machines_must_have(write: WriteExperiment) -> None:
    path = write("apt_packages: [xvfb]\n")
    settings = read_settings({**REQUIRED, "experiment": str(path)}, path.parent)
    assert needs_of_every_machine(settings, path.parent) == (
        f"experiment: {path}: apt_packages xvfb on every machine: "
        "aptPackages is [xvfb], sharedMemoryGib is 0, containers is false"
    )


def test_what_the_machines_must_have_is_added_to_the_stack(write: WriteExperiment) -> None:
    path = write("apt_packages: [xvfb]\nshm_size: 1500m\n")
    config = {**REQUIRED, "experiment": str(path), "aptPackages": '["htop"]'}
    settings = read_settings(config, path.parent)
    assert settings.apt_packages == ["htop", "xvfb"]
    assert settings.shared_memory_gib == 2
