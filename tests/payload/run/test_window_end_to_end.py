"""An environment observed through an X window, with an X server for each env runner."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from payload.environments.machine_requirements import PACKAGES, install_packages
from payload.experiment.read import read_experiment
from payload.run.ray_folder import remove_dead_folders
from tests.local_ray import leave_local_ray
from tests.payload.command_line import (
    in_process,
    payload,
    run_folder,
    running,
    wait_for,
    wait_for_line,
    with_database,
)
from tests.project import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("xvfb-run") and shutil.which("xauth")),
        reason="xvfb-run is not installed (sudo apt-get install xvfb xauth)",
    ),
]

EXPERIMENT = ROOT / "experiments/room/room.yaml"
MARK = "VOLLEY_TEST_OF_WINDOWS"
"""Environment variable that marks every process of a training."""
STEPS = 2000
SHORT = (
    *("--config", '{"min_time_s_per_iteration": 0.5, "num_envs_per_env_runner": 2}'),
    *("--stop", f'{{"num_env_steps_sampled_lifetime": {STEPS}}}'),
)
ALL_GONE_S = 30.0
"""A starting worker would wait 40 s for its raylet; it should end at once."""
DRAW_AND_LOOK = """
import gymnasium
from Xlib.display import Display

env = gymnasium.make("room:Room-v0").unwrapped
before, _ = env.reset(seed=0)
other = Display()
window = other.create_resource_object("window", env._window.id)
window.fill_rectangle(window.create_gc(foreground=0x777777), 0, 0, 42, 42)
other.sync()
after, *_ = env.step(0)
print((before == 0x77).mean(), (after == 0x77).mean())
"""
DRIVER = f"""
import time
from pathlib import Path

import ray

from payload.environments.runtime_env import local_runtime_env
from payload.experiment.read import read_experiment
from payload.run.ray_cluster import connect
from payload.run.ray_folder import make_ray_folder

run_under = read_experiment(Path({str(EXPERIMENT)!r})).experiment.run_under
connect(None, local_runtime_env(run_under, make_ray_folder()))

@ray.remote
class GymnasiumEnvRunner:
    def starts(self):
        pass

env_runner = GymnasiumEnvRunner.remote()
ray.get(env_runner.starts.remote())
print("started", flush=True)
time.sleep(600)
"""
"""Starts Ray as a training does, without the slow imports."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, on a machine without a display."""
    monkeypatch.delenv("DISPLAY", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that the experiment installs, once for all tests."""
    return tmp_path_factory.mktemp("packages")


@dataclass(frozen=True)
class Marked:
    """The processes that have a mark in their environment."""

    mark: str

    def all(self) -> list[psutil.Process]:
        """Returns every marked process that runs, even one whose parent is gone."""
        alive = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                ended = process.status() == psutil.STATUS_ZOMBIE
                if not ended and process.environ().get(MARK) == self.mark:
                    alive.append(process)
        return alive

    def env_runners(self) -> dict[psutil.Process, list[psutil.Process]]:
        """Returns the env runners, each with the X servers beside it."""
        servers = {}
        for process in self.all():
            with suppress(psutil.Error):
                wrapper = process.parent()
                if process.name().startswith("ray::Gymnasium") and wrapper is not None:
                    beside = wrapper.children()
                    servers[process] = [each for each in beside if each.name() == "Xvfb"]
        return servers


@pytest.fixture
def marked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Marked]:
    """The processes that the test starts; they are killed at its end."""
    monkeypatch.setenv(MARK, str(folder))
    marked = Marked(str(folder))
    yield marked
    for process in marked.all():
        with suppress(psutil.Error):
            process.kill()


def test_the_observation_is_what_the_window_shows(folder: Path, packages: Path) -> None:
    experiment = read_experiment(EXPERIMENT).experiment
    installed = install_packages(experiment, packages)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{experiment.source_directory}:{installed}",
        "VOLLEY_INPUT_MAPS": experiment.inputs["maps"],
        **experiment.environment_variables,
    }
    command = ["xvfb-run", "-a", sys.executable, "-c", DRAW_AND_LOOK]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    before, after = map(float, done.stdout.split())
    # A step redraws two of the 49 cells; another program has drawn the rest of the window.
    assert before == 0
    assert after == pytest.approx(47 / 49, abs=1 / 49)


def test_without_run_under_the_refusal_names_it(folder: Path) -> None:
    lines = EXPERIMENT.read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("run_under"))
    shutil.copytree(EXPERIMENT.parent, folder / "room")
    (folder / "room/room.yaml").write_text(text)
    done = in_process(folder, "train", "room/room.yaml")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("payload: env: room:Room-v0: making it raises DisplayNameError")
    assert "run_under: xvfb-run -a" in done.stderr


@dataclass(frozen=True)
class Trained:
    """A finished training whose env runner was killed."""

    folder: Path
    output: str
    victim: psutil.Process
    replacements: dict[psutil.Process, list[psutil.Process]]
    """The env runners with their X servers, after the victim's X server had ended."""
    left: list[psutil.Process]
    """What ran when it was over."""


@pytest.fixture(scope="module")
def trained(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = with_database(tmp_path_factory.mktemp("trained"))
    (folder / "results" / PACKAGES).symlink_to(packages)
    marked = Marked(str(folder))
    before: dict[psutil.Process, list[psutil.Process]] = {}
    after: dict[psutil.Process, list[psutil.Process]] = {}

    def kill_the_env_runner(output: Path) -> None:
        wait_for_line(output, "Training started after")
        before.update(marked.env_runners())
        ((victim, (server,)),) = before.items()
        victim.kill()
        wait_for(lambda: not server.is_running())
        wait_for(lambda: any(marked.env_runners().values()))
        after.update(marked.env_runners())

    leave_local_ray()  # Its workers have no X servers.
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("DISPLAY", raising=False)
        environment.setenv(MARK, marked.mark)
        train = ("train", str(EXPERIMENT), *SHORT)
        done = in_process(folder, *train, meanwhile=kill_the_env_runner)
    (victim,) = before
    return Trained(folder, done.stdout + done.stderr, victim, after, marked.all())


def test_a_killed_env_runner_is_replaced_with_its_x_server(trained: Trained) -> None:
    assert trained.victim not in trained.replacements
    assert all(trained.replacements.values())


def test_it_trains_to_its_end(trained: Trained) -> None:
    words = f"FINISHED: limit of {STEPS:,} environment steps reached"
    assert words in trained.output, trained.output


def test_nothing_is_left_of_a_finished_training(trained: Trained) -> None:
    assert trained.left == []


def test_a_finished_training_is_recorded_in_a_window(trained: Trained) -> None:
    assert (run_folder(trained.folder) / "evaluation.mp4").exists()


def test_a_run_is_played_in_a_window(folder: Path, trained: Trained) -> None:
    run = str(run_folder(trained.folder))
    played = payload(folder, "evaluate", "--explore", "--episodes", "2", run)
    assert "over 2 episodes" in played.stdout, played.stderr


def test_nothing_is_left_after_sigkill_of_the_driver(folder: Path, marked: Marked) -> None:
    with running(folder, sys.executable, "-c", DRIVER) as driver:
        assert driver.stdout is not None
        line = driver.stdout.readline()
        assert line == "started\n", line + driver.stdout.read()
        assert any(marked.env_runners().values())
        driver.kill()
        wait_for(lambda: not marked.all(), ALL_GONE_S)
    remove_dead_folders()  # As the next start does.
