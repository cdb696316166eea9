"""A full disk keeps no head awake."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.head.sleep.sleeping_head import SleepingHead
from tests.payload.small_disk import small_disk

pytestmark = pytest.mark.slow


@pytest.fixture
def full(head: SleepingHead, tmp_path: Path) -> Iterator[SleepingHead]:
    """A head that can write nothing: neither the queue its view of Ray nor a save its snapshot."""
    head.experiment("pong", "TRAINING")
    head.queue_sees(age_s=300)
    (head.root / "unsaved").touch()
    files = shutil.copytree(head.home, tmp_path / "files")
    with small_disk(head.home):
        shutil.copytree(files, head.home, dirs_exist_ok=True)
        with suppress(OSError), (head.home / "log").open("wb", buffering=0) as log:
            while log.write(bytes(4096)):
                pass
        with pytest.raises(OSError, match="No space left"):
            (head.home / "other").write_text("text")
        yield head


def test_an_idle_head_sleeps_on_a_full_disk(full: SleepingHead) -> None:
    (full.home / "experiments/pong/state.json").unlink()
    (full.home / "other").unlink()
    full.run()
    assert not full.is_deallocated
    assert "sleeps without a save" in full.run_when_idle_for(31)
    assert full.is_deallocated


def test_a_head_that_is_asked_sleeps_on_a_full_disk(full: SleepingHead) -> None:
    assert full.ask("sleep", "--now") == {"sleeps": True, "now": True}
    full.run()
    assert full.is_deallocated


def test_a_limit_is_kept_on_a_full_disk(full: SleepingHead) -> None:
    settings = full.settings
    settings.write_text(settings.read_text().replace('"max_hours": 0', '"max_hours": 1'))
    full.run()
    assert full.is_deallocated
