"""What volley-head reads from `systemctl show`: its output on a head with systemd 252."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from head.command.services import STEADY_S, Trouble, _troubles, troubles

NOW = 10_000.0


def block(unit: str, state: str, restarts: int, active_s: float | None = None) -> str:
    """Returns a unit's properties; `active_s` is for how long it has been active."""
    since = 0 if active_s is None else int((NOW - active_s) * 1e6)
    return (
        f"NRestarts={restarts}\nId={unit}.service\nActiveState={state}\n"
        f"ActiveEnterTimestampMonotonic={since}\n"
    )


def of(*blocks: str) -> list[Trouble]:
    return list(_troubles("\n".join(blocks), NOW))


def test_a_service_that_never_comes_up_is_told_with_its_restarts() -> None:
    assert of(block("ray-head", "active", 0, 60), block("mlflow", "activating", 6)) == [
        Trouble("mlflow", 6)
    ]


def test_a_service_that_comes_up_and_ends_is_told() -> None:
    assert of(block("mlflow", "active", 40, active_s=5)) == [Trouble("mlflow", 40)]


def test_a_service_that_has_failed_for_good_is_told() -> None:
    assert of(block("sync-results", "failed", 0)) == [Trouble("sync-results", 0)]


def test_a_service_that_was_restarted_once_is_not_told() -> None:
    assert not of(block("mlflow", "activating", 1), block("experiments", "active", 2, 5))


def test_a_service_that_is_steady_again_is_not_told() -> None:
    assert not of(block("mlflow", "active", 40, active_s=STEADY_S + 1))


def test_a_service_that_is_not_wanted_is_not_told() -> None:
    assert not of(block("mlflow", "inactive", 0))


@pytest.mark.slow
def test_a_systemd_that_does_not_answer_leaves_the_status_without_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl = tmp_path / "systemctl"
    systemctl.write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2; exit 1\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert troubles() == []
