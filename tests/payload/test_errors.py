"""The one line that reports an error."""

from __future__ import annotations

import errno

import pytest
from ray.exceptions import RayTaskError

from payload.errors import TemporaryError, UserError, first_line
from payload.may_pass import may_pass


def test_an_error_is_its_type_and_the_first_line_of_its_text() -> None:
    assert first_line(RuntimeError("CUDA error: out of memory\nCompile with ...")) == (
        "RuntimeError: CUDA error: out of memory"
    )


URLS = {
    "https://me:p@ss@mlflow.example:443/a": "https://***@mlflow.example:443/a",
    "https://token@mlflow.example": "https://***@mlflow.example",
    "postgresql://me:p/w@host:5432/db": "postgresql://***@host:5432/db",
    "mysql+pymysql://me:pw@host/db": "mysql+pymysql://***@host/db",
    "postgresql://host/db?user=me&password=pw&sslmode=require": (
        "postgresql://host/db?user=me&password=***&sslmode=require"
    ),
    "sqlite:////var/a@b.db": "sqlite:////var/a@b.db",
    "git+https://git@github.com/me/maze": "git+https://git@github.com/me/maze",
}


@pytest.mark.parametrize(("url", "shown"), URLS.items())
def test_no_error_shows_the_password_of_a_url(url: str, shown: str) -> None:
    for error in (UserError(f"--tracking-uri {url}: x"), TemporaryError(f"{url} is away")):
        assert shown in str(error)
    assert first_line(ConnectionError(f"request to {url} failed")) == (
        f"ConnectionError: request to {shown} failed"
    )


def test_what_a_person_can_mend_is_its_text_alone() -> None:
    assert first_line(UserError("env: Walk-v0: it draws no pictures")) == (
        "env: Walk-v0: it draws no pictures"
    )


def test_an_error_from_another_process_is_what_was_raised_there() -> None:
    there = RayTaskError("update", "Traceback ...", RuntimeError("no GPU"))
    assert first_line(there.as_instanceof_cause()) == "RuntimeError: no GPU"


def test_an_error_without_text_is_what_caused_it() -> None:
    error = RuntimeError()
    error.__cause__ = ValueError("the simulator has crashed")
    assert first_line(error) == "ValueError: the simulator has crashed"


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (FULL, True),
        (RayTaskError("save", "Traceback ...", FULL).as_instanceof_cause(), True),
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (FileNotFoundError(errno.ENOENT, "No such file"), False),
        (BrokenPipeError(errno.EPIPE, "of a simulator that has crashed"), False),
        (ValueError("shape"), False),
    ],
)
def test_what_the_machine_or_its_network_lacks_may_pass(error: Exception, passes: bool) -> None:
    assert may_pass(error) == passes
