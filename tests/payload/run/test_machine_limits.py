"""What a machine sets for every process does not keep Ray from starting."""

from __future__ import annotations

import getpass
import os
import resource

import pytest

from payload.errors import UserError
from payload.run.machine_limits import lift_machine_limits


def test_variables_that_make_warnings_errors_are_not_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    lift_machine_limits()
    assert "PYTHONWARNINGS" not in os.environ


def test_a_user_id_without_a_name_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    lift_machine_limits()
    assert getpass.getuser() == "54321"


def test_a_limit_for_files_is_raised_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    monkeypatch.setattr("resource.setrlimit", lambda _, limit: limits.append(limit))
    lift_machine_limits()
    assert limits == [(resource.RLIM_INFINITY, resource.RLIM_INFINITY)]


def test_a_limit_for_files_that_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 2**20))
    with pytest.raises(UserError, match=r"^ulimit -f: a file may have 1,024 KiB"):
        lift_machine_limits()
