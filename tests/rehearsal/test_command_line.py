"""`python -m rehearsal`: the scenario that it runs, and the file for its outcomes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from rehearsal import __main__ as command_line
from rehearsal.__main__ import SCENARIOS, main
from rehearsal.host_paths import ROOT

Call = tuple[object, Path]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Records the scenarios that would run, without running them."""
    scenarios: list[Call] = []

    def rehearse(_: object, scenario: object, file: Path) -> int:
        scenarios.append((scenario, file))
        return 0

    monkeypatch.setattr(command_line, "rehearse", rehearse)
    for name in ("problems", "set_up", "_driver"):
        monkeypatch.setattr(command_line, name, lambda *_: None)
    monkeypatch.setattr(command_line, "rehearsal_lock", nullcontext)
    return scenarios


@pytest.mark.parametrize(
    ("arguments", "scenario", "file"),
    [
        ([], "life", "results/rehearsal.json"),
        (["life"], "life", "results/rehearsal.json"),
        (["stacks"], "stacks", "results/rehearsal-stacks.json"),
        (["stacks", "--json", "/tmp/acts.json"], "stacks", "/tmp/acts.json"),
    ],
)
def test_a_scenario_runs_and_writes_to_its_file(
    calls: list[Call], arguments: list[str], scenario: str, file: str
) -> None:
    assert main(["run", *arguments]) == 0
    assert calls == [(SCENARIOS[scenario][0], ROOT / file)]


def test_an_unknown_scenario_is_refused_with_the_nearest_name(
    calls: list[Call], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["run", "stack"])
    assert refused.value.code == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.endswith(
        "'stack': must be life or stacks or elastic or queue (did you mean stacks?)"
    )
    assert calls == []
