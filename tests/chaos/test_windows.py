"""Training in X windows, to its goal or stopped with all its processes; a closed terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from payload.environments.machine_requirements import PACKAGES
from tests.payload.command_line import learning, mlflow_run, payload, run_folder
from tests.payload.run.test_window_end_to_end import EXPERIMENT, MARK, Marked

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

TRAIN = [sys.executable, "-m", "payload", "train", str(EXPERIMENT)]
LONG = ["--stop", '{"time_total_s": 600}']


@contextmanager
def training(
    folder: Path, packages: Path, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], Marked]]:
    """Trains the experiment in its own process group; yields after the first update."""
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
        marked = Marked(str(folder))
        try:
            assert process.stdout is not None
            next(line for line in process.stdout if line.startswith("Training started after"))
            yield process, marked
        finally:
            process.kill()
            for left in marked.all():
                with suppress(psutil.Error):
                    left.kill()


def test_a_training_that_sees_windows_learns(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with training(tmp_path, tmp_path_factory.mktemp("packages")) as (process, _):
        output, _ = process.communicate(timeout=400)
        assert re.search(r"FINISHED: .*0\.35", output), output
    played = payload(tmp_path, "evaluate", "--explore", str(run_folder(tmp_path)))
    mean = re.search(r"return ([-\d.]+) \+-", played.stdout)
    assert mean is not None, played.stdout + played.stderr
    assert float(mean[1]) > 0


def test_sigterm_to_the_process_group_leaves_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with training(tmp_path, tmp_path_factory.mktemp("packages"), *LONG) as (process, marked):
        assert any(marked.env_runners().values())
        os.killpg(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        assert "KILLED: stopped by SIGTERM" in output
        assert marked.all() == []


def test_a_terminal_that_is_closed_ends_the_run_in_order(tmp_path: Path) -> None:
    with learning(tmp_path) as process:
        os.killpg(process.pid, signal.SIGHUP)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGHUP, output
    assert list((run_folder(tmp_path) / "checkpoints").glob("checkpoint_*")), output
    assert mlflow_run(tmp_path).info.status == "KILLED", output
