"""An environment that is seen through an X window, under an X server for each env runner."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from payload.environments.machine_requirements import PACKAGES, install_packages
from payload.experiment.read import read_experiment
from payload.run.ray_folder import remove_dead_folders
from tests.payload.command_line import in_process, payload, run_folder, wait_for
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
"""A variable by which all processes of a training are known."""
TRAIN = [sys.executable, "-m", "payload", "train", str(EXPERIMENT)]
SHORT = [
    *("--config", '{"min_time_s_per_iteration": 0.5}'),
    *("--stop", '{"num_env_steps_sampled_lifetime": 8000}'),
]
LONG = ["--stop", '{"time_total_s": 600}']
ALL_GONE_S = 30.0
"""A worker that was starting would wait 40 s for its raylet; it is to end at once."""
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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, on a machine without a display."""
    monkeypatch.delenv("DISPLAY", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the experiment installs, once for all tests."""
    return tmp_path_factory.mktemp("packages")


@dataclass(frozen=True)
class Windowed:
    """A training whose env runners have X servers."""

    process: subprocess.Popen[str]
    mark: str

    def all(self) -> list[psutil.Process]:
        """Every process of it that runs, whoever its parent is now."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                ended = process.status() == psutil.STATUS_ZOMBIE
                if not ended and process.environ().get(MARK) == self.mark:
                    found.append(process)
        return found

    def env_runners(self) -> dict[psutil.Process, list[psutil.Process]]:
        """The env runners, each with the X servers beside it."""
        found = {}
        for process in self.all():
            with suppress(psutil.Error):
                wrapper = process.parent()
                if process.name().startswith("ray::Gymnasium") and wrapper is not None:
                    beside = wrapper.children()
                    found[process] = [one for one in beside if one.name() == "Xvfb"]
        return found


@contextmanager
def training(folder: Path, packages: Path, *arguments: str) -> Iterator[Windowed]:
    """Trains the experiment in a process group of its own; yields after the first update."""
    (folder / "results").mkdir()
    (folder / "results" / PACKAGES).symlink_to(packages)
    with subprocess.Popen(
        [*TRAIN, *arguments],
        cwd=folder,
        env={**os.environ, MARK: str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        windowed = Windowed(process, str(folder))
        try:
            assert process.stdout is not None
            said = list(_lines_until(process.stdout, "Training started after"))
            assert "Training started after" in said[-1], "".join(said)
            yield windowed
        finally:
            process.kill()
            for left in windowed.all():
                with suppress(psutil.Error):
                    left.kill()


def _lines_until(output: Iterator[str], start: str) -> Iterator[str]:
    for line in output:
        yield line
        if line.startswith(start):
            return


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
    # A step draws two of the 49 cells over what another program has drawn into the window.
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


def test_it_trains_and_a_killed_env_runner_is_replaced_with_its_x_server(
    folder: Path, packages: Path
) -> None:
    with training(folder, packages, *SHORT) as windowed:
        ((victim, (server,)),) = windowed.env_runners().items()
        victim.kill()
        wait_for(lambda: not server.is_running())
        wait_for(lambda: any(windowed.env_runners().values()))
        assert victim not in windowed.env_runners()
        output, _ = windowed.process.communicate(timeout=240)
        assert "FINISHED: limit of 8,000 environment steps reached" in output, output
        assert windowed.all() == []
    assert (run_folder(folder) / "evaluation.mp4").exists()
    played = payload(folder, "evaluate", "--explore", "--episodes", "2", str(run_folder(folder)))
    assert "over 2 episodes" in played.stdout, played.stderr


def test_nothing_is_left_after_sigkill_of_the_driver(folder: Path, packages: Path) -> None:
    with training(folder, packages, *LONG) as windowed:
        assert any(windowed.env_runners().values())
        windowed.process.kill()
        wait_for(lambda: not windowed.all(), ALL_GONE_S)
    remove_dead_folders()  # As the next start does.
