"""What the disk has before anything relies on it: a power cut leaves the old content or the new."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from head.files import open_file, read_json, replace_json
from head.queue.record import Record
from head.queue.store import Store


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was synced and renamed, in order."""
    done: list[str] = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def synced(handle: int) -> None:
        fsync(handle)
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")

    def renamed(old: str | Path, new: str | Path) -> None:
        rename(old, new)
        done.append(f"name {Path(new).name}")

    def replaced(old: str | Path, new: str | Path) -> None:
        replace(old, new)
        done.append(f"name {Path(new).name}")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(os, "replace", replaced)
    return done


def test_a_file_is_on_the_disk_before_it_has_its_name_and_then_the_name_is(
    tmp_path: Path, order: list[str]
) -> None:
    replace_json(tmp_path / "state.json", {"state": "FINISHED"})
    content, name, folder = order
    assert content.startswith("sync .state.json.")
    assert (name, folder) == ("name state.json", f"sync {tmp_path.name}")


def test_an_experiment_is_on_the_disk_before_it_is_in_the_queue(
    tmp_path: Path, order: list[str]
) -> None:
    store = Store(tmp_path / "experiments")
    content = store.root / ".incoming-a"
    (content / "payload").mkdir(parents=True)
    (content / "experiment.yaml").write_text("{}")
    (content / "payload/__init__.py").write_text("")
    store.submit(Record("a", key="a-key"), content, False)
    placed = order.index("name a")
    for name in ("experiment.yaml", "__init__.py", "payload", ".incoming-a"):
        assert order.index(f"sync {name}") < placed
    assert order[placed + 1] == "sync experiments"


def test_a_pipe_is_not_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "status.json")
    assert read_json(tmp_path / "status.json") == {}
    with pytest.raises(OSError, match="not a regular file"):
        open_file(tmp_path / "status.json")
