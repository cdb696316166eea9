"""A missing or damaged file of one experiment becomes its reason; the others continue."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from ray.job_submission import JobStatus

from head.queue.journal import MOST_BYTES, JournalCopy
from head.queue.record import read_record
from head.queue.store import RefusedError, Store
from tests.head.queue.played_queue import Played
from tests.payload.small_disk import MEBIBYTE, small_disk

pytestmark = pytest.mark.slow


def gone(path: Path) -> None:
    path.unlink()


def all_but_the_record_gone(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != "state.json":
            path.unlink()


def replaced_by_a_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def replaced_by_a_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no output": lambda folder: gone(folder / "output.log"),
    "a pipe for the output": lambda folder: replaced_by_a_pipe(folder / "output.log"),
    "a folder for the output": lambda folder: replaced_by_a_folder(folder / "output.log"),
    "a list for the status": lambda folder: (folder / "status.json").write_text("[1]"),
    "a pipe for the status": lambda folder: replaced_by_a_pipe(folder / "status.json"),
    "a folder for the status": lambda folder: replaced_by_a_folder(folder / "status.json"),
    "a folder for the share": lambda folder: replaced_by_a_folder(folder / "env_runners"),
    "nothing but the record": all_but_the_record_gone,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_an_experiment_whose_files_are_damaged_ends_and_the_others_train(
    played: Played, damage: Callable[[Path], object]
) -> None:
    for name in ("a", "b"):
        played.submit(name)
    played.step()
    damage(played.store.folder("a"))
    played.step()
    played.cluster.cpus = 8  # Everybody's share changes.
    played.step()
    assert played.ends("a", JobStatus.FAILED, 2).state == "FAILED"
    assert played.store.get("a").reason
    assert (played.store.folder("b") / "env_runners").read_text() == "7"
    assert played.ends("b", JobStatus.SUCCEEDED).state == "FINISHED"


RECORDS = {
    "no JSON": "{",
    "no text": b"\xff\xfe",
    "a list": "[1]",
    "a number": "7",
    "deep": "[" * 100_000,
    "another state": {"state": "FLYING"},
    "a wrong order": {"order": "first"},
    "wrong failures": {"failures": ["now"]},
    "wrong needs": {"needs": [1]},
    "no key": {"key": None},
}


@pytest.mark.parametrize("content", RECORDS.values(), ids=RECORDS.keys())
def test_an_experiment_whose_record_is_damaged_has_failed_and_the_others_train(
    played: Played, content: str | bytes | dict[str, object]
) -> None:
    for name in ("a", "b"):
        played.submit(name)
    played.step()
    path = played.store.folder("a") / "state.json"
    if isinstance(content, dict):
        content = json.dumps({**json.loads(path.read_text()), **content})
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    written = path.read_bytes()
    played.step()
    record = played.store.get("a")
    assert record.state == "FAILED"
    assert record.reason.startswith("state.json cannot be read")
    assert played.ends("b", JobStatus.SUCCEEDED).state == "FINISHED"
    # Its runs are not known any more; a person may still look at the file.
    with pytest.raises(RefusedError, match=r"state\.json cannot be read"):
        played.store.resume("a")
    assert played.store.stop("a").state == "FAILED"
    assert path.read_bytes() == written
    played.submit("a")
    assert played.store.get("a").state == "QUEUED"


def test_an_experiment_whose_record_is_gone_has_failed_and_its_job_is_stopped(
    played: Played,
) -> None:
    played.submit("a")
    played.step()
    job = played.store.get("a").job
    (played.store.folder("a") / "state.json").unlink()
    played.step()
    assert [(r.state, r.reason) for r in played.store.records()] == [
        ("FAILED", "state.json is missing")
    ]
    assert played.cluster.stopped == [job]


def test_needs_that_this_queue_does_not_know_are_told_and_the_others_train(played: Played) -> None:
    played.submit("a", needs={"quantum_learners": 1})
    played.submit("b")
    played.step()
    record = played.store.get("a")
    assert (record.state, played.store.get("b").state) == ("QUEUED", "STARTING")
    assert record.reason.startswith("the queue fails: TypeError: ")
    assert "quantum_learners" in record.reason
    played.store.change(record, needs={})
    played.step()
    assert (played.store.get("a").state, played.store.get("a").reason) == ("STARTING", "")


def test_a_record_belongs_to_its_folder(played: Played) -> None:
    played.submit("a")
    (played.store.root / "copy").mkdir()
    text = (played.store.folder("a") / "state.json").read_text()
    (played.store.root / "copy/state.json").write_text(text)
    copied = read_record(played.store.root / "copy")
    assert copied is not None
    assert copied.name == "copy"


# A full disk


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    """A queue whose files are on a file system of 32 MiB."""
    with small_disk(tmp_path) as disk:
        played = Played(disk, monkeypatch)
        yield played
        played.end()


@contextmanager
def full(played: Played) -> Iterator[None]:
    """Takes all the space inside."""
    filler = played.store.root.parent / "somebody's video.mp4"
    with filler.open("wb", buffering=0) as file:
        for size in (MEBIBYTE, 4096, 1):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
    try:
        yield
    finally:
        filler.unlink()


def test_an_end_that_finds_no_space_is_written_once_there_is_some(small: Played) -> None:
    small.submit("a")
    small.submit("b")
    small.step()
    with full(small):
        for name in ("a", "b"):
            small.cluster.becomes(small.store.get(name).job, JobStatus.SUCCEEDED)
        with pytest.raises(OSError, match="No space"):  # Its view of Ray; the loop continues.
            small.step()
        assert {record.state for record in small.store.records()} == {"STARTING"}
    small.step()
    assert {record.state for record in small.store.records()} == {"FINISHED"}


def test_a_start_that_was_refused_while_the_disk_was_full_is_not_forgotten(small: Played) -> None:
    small.cluster.start_code = 2
    small.submit("a")
    small.step()
    with full(small), pytest.raises(OSError, match="No space"):
        small.step()
    small.step()
    assert small.store.get("a").state == "FAILED"
    assert small.cluster.started == [("a", 1)]


# The output in the journal


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    return tmp_path / "a/output.log"


def test_a_line_without_end_does_not_stop_the_copy(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = JournalCopy(Store(output.parents[1]))
    output.write_bytes(b"x" * (MOST_BYTES + 7) + b"\nthe next line\n")
    copy.copy()
    copy.copy()
    assert capsys.readouterr().out.splitlines()[-1] == "a: the next line"


def test_an_output_that_is_replaced_is_copied_from_its_start(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output.write_text("before the queue\n")
    copy = JournalCopy(Store(output.parents[1]))
    other = output.with_name("other")
    other.write_text("first of the other\nsecond\n")
    other.replace(output)
    copy.copy()
    assert capsys.readouterr().out == "a: first of the other\na: second\n"
