"""The notebooks are short and clean, and the local one runs from beginning to end.

tests/head/queue/test_queue.py runs the other one.
"""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest

from tests.notebook import EXAMPLES, Executed
from tests.payload.command_line import run_folder, with_database

NOTEBOOKS = ["cluster.ipynb", "local.ipynb"]


def test_there_are_no_other_notebooks() -> None:
    assert sorted(path.name for path in EXAMPLES.rglob("*.ipynb")) == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_has_five_to_eight_cells_without_outputs(name: str) -> None:
    cells = nbformat.read(EXAMPLES / name, as_version=4).cells
    assert 5 <= len(cells) <= 8
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [(cell.outputs, cell.execution_count) for cell in code] == [([], None)] * len(code)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Executed, Path]:
    """The local notebook after its last cell, and its run's folder."""
    folder = with_database(tmp_path_factory.mktemp("notebook"))
    return Executed("local.ipynb", folder, os.environ), run_folder(folder)


@pytest.mark.slow
def test_a_watched_run_shows_its_end_and_its_curve(executed: tuple[Executed, Path]) -> None:
    notebook, folder = executed
    page = notebook.outputs("run.watch()")["text/html"]
    assert f"<b>{folder.name}</b>" in page
    assert "FINISHED" in page
    assert "<th>return</th><th>goal</th>" in page
    assert '<img alt="learning curve" width="640" src="data:image/png;base64,iVBOR' in page


@pytest.mark.slow
def test_a_notebook_shows_metrics_curve_checkpoints_and_log(
    executed: tuple[Executed, Path],
) -> None:
    notebook, folder = executed
    assert "state='FINISHED'" in notebook.outputs("run.wait()")["text/plain"]
    metrics = notebook.outputs("run.metrics()")["text/html"]
    assert "<th>env_runners/episode_return_mean</th>" in metrics
    assert "<th>num_env_steps_sampled_lifetime</th>" in metrics
    assert notebook.outputs("run.plot()")["image/png"].startswith("iVBOR")
    assert f"{folder}/checkpoints/checkpoint_0" in notebook.outputs("checkpoints")["text/plain"]
    assert "\nFINISHED: " in notebook.outputs("run.logs")["stdout"]


@pytest.mark.slow
def test_the_log_has_lines_and_no_live_panel(executed: tuple[Executed, Path]) -> None:
    """A notebook sets FORCE_COLOR, with which rich would write a terminal's codes."""
    assert "\x1b" not in executed[0].outputs("run.logs")["stdout"]
