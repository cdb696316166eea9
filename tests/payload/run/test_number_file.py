"""The file into which another process writes the number of env runners."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from payload.run.env_runner_number import NumberFile

Read = Callable[[], int | None]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "env_runners"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def read(file: Path, said: list[str]) -> Read:
    return NumberFile(file, said.append).read


@pytest.mark.parametrize(
    ("text", "number"), [("3", 3), (" 12\n", 12), ("0", 1), ("-2", 1)], ids=repr
)
def test_a_number_is_at_least_one(file: Path, read: Read, text: str, number: int) -> None:
    file.write_text(text)
    assert read() == number


def test_a_changed_file_is_read(file: Path, read: Read) -> None:
    file.write_text("3")
    read()
    other = file.with_suffix(".new")
    other.write_text("4")
    other.replace(file)
    assert read() == 4


def test_an_unchanged_file_is_not_read(
    file: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("3")
    read()
    monkeypatch.setattr(Path, "read_text", lambda *_: pytest.fail("it was read"))
    assert read() == 3


def test_there_is_no_number_before_there_is_a_file(read: Read) -> None:
    assert read() is None


@pytest.mark.parametrize("text", ["", "three", "2.5", "1 2"], ids=repr)
def test_a_file_without_a_number_leaves_it_as_it_was(file: Path, read: Read, text: str) -> None:
    file.write_text("3")
    read()
    file.write_text(text)
    assert read() == 3


def test_a_file_that_is_gone_leaves_the_number_as_it_was(file: Path, read: Read) -> None:
    file.write_text("3")
    read()
    file.unlink()
    assert read() == 3


def test_bytes_that_are_not_text_leave_the_number_as_it_was(file: Path, read: Read) -> None:
    file.write_bytes(b"\xff\xfe")
    assert read() is None


def test_a_missing_file_is_said_once(file: Path, read: Read, said: list[str]) -> None:
    for _ in range(3):
        read()
    assert said == [
        f"--env-runners {file}: No such file or directory; the env runners stay as they are"
    ]


def test_a_file_without_a_number_is_said_once(file: Path, read: Read, said: list[str]) -> None:
    file.write_text("3")
    read()
    file.write_text("three\n")
    for _ in range(3):
        read()
    assert said == [f"--env-runners {file}: 'three' is not an integer; the env runners stay at 3"]


def test_a_file_that_is_gone_once_more_is_said_once_more(
    file: Path, read: Read, said: list[str]
) -> None:
    read()
    file.write_text("3")
    read()
    file.unlink()
    read()
    assert len(said) == 2
