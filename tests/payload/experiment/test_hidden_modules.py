"""A user's file that hides a module which Ray or torch needs is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from payload.experiment.hidden_modules import OURS, hidden_modules


@pytest.mark.parametrize("file", ["queue.py", "ray.py", "html/__init__.py", "numpy/__init__.py"])
def test_a_file_with_the_name_of_a_needed_module_is_named(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    (line,) = hidden_modules(tmp_path)
    name = file.partition("/")[0]
    assert line.startswith(f"{tmp_path / name} would be imported instead of the module ")


@pytest.mark.parametrize("file", ["walks.py", "test.py", "queue.txt", "html/page.py"])
def test_other_files_hide_nothing(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    assert not list(hidden_modules(tmp_path))


def test_the_repository_hides_nothing() -> None:
    assert not list(hidden_modules(OURS.parent))
