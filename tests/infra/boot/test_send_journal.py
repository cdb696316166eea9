"""send_journal.py with journalctl's output, against the stand-in for the Logs Ingestion API."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import HTTPError

import pytest

from infra.boot.cloud_config import FILES, JOURNAL_UNITS, Role
from infra.boot.head_wheel import UNITS
from infra.stack.diagnostics import STREAM
from infra.stack.identity import LOGS_WRITER
from rehearsal.azure import log_ingestion
from rehearsal.azure.log_ingestion import AUDIENCE, MOST_BYTES, ROWS
from rehearsal.azure.metadata.managed_identity import access_token
from rehearsal.azure.metadata.metadata_state import Identity
from rehearsal.azure.resources import roles
from rehearsal.azure.resources.azure_stand_in import Azure
from tests.infra.boot.boot_scripts import load
from tests.infra.boot.machine_tree import ROLES
from tests.infra.declared_stack import WORKSPACE_ID, Declared, declare_stack

pytestmark = pytest.mark.slow

JOURNALCTL = """#!/usr/bin/env python3
import json, sys
after = [word.partition("=")[2] for word in sys.argv if word.startswith("--after-cursor=")]
for entry in json.load(open({journal!r}))[int(after[0]) + 1 if after else 0:]:
    print(json.dumps(entry))
"""
"""Prints the entries of a file: the cursor of each is its place there."""


@dataclass
class Head:
    """A head with a journal, and the workspace that receives it."""

    folder: Path
    send_journal: ModuleType

    def log(self, *entries: dict[str, Any]) -> None:
        written = self._journal()
        for entry in entries:
            at = str(int(time.time() * 1e6))
            cursor = {"__CURSOR": str(len(written)), "__REALTIME_TIMESTAMP": at}
            written.append({**cursor, "_HOSTNAME": "head", "_PID": "7", **entry})
        (self.folder / "journal").write_text(json.dumps(written))

    def send(self) -> None:
        self.send_journal.main(self.folder / "cursor", ["ray-*"])

    def received(self) -> list[dict[str, Any]]:
        file = self.folder / ROWS
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def _journal(self) -> list[dict[str, Any]]:
        file = self.folder / "journal"
        return list(json.loads(file.read_text())) if file.exists() else []


@pytest.fixture(scope="module")
def stack() -> Declared:
    return declare_stack(logAnalyticsWorkspaceId=WORKSPACE_ID)


@pytest.fixture
def head(stack: Declared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    monkeypatch.setattr(roles, "ROLE_DELAY_S", 0)
    azure, state = Azure(tmp_path / "azure.json"), tmp_path / "azure.json"
    with azure.state_file.changed() as changed:
        changed.resources.update(stack.azure)
    send_journal = load("send_journal")
    principal = stack.resource("UserAssignedIdentity", "head").added["principalId"]
    token = access_token(AUDIENCE, "client", Identity(principal), int(time.time()))
    monkeypatch.setattr(send_journal, "token", {AUDIENCE: token}.__getitem__)
    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(JOURNALCTL.format(journal=str(tmp_path / "journal")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    rule = stack.resource("DataCollectionRule").added["immutableId"]
    with log_ingestion.server(state, tmp_path, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        url = f"{address}/dataCollectionRules/{rule}/streams/{STREAM}?api-version=2023-01-01"
        monkeypatch.setenv("JOURNALS_URL", url)
        yield Head(tmp_path, send_journal)
        server.shutdown()


def test_an_entry_becomes_a_row_of_syslog(head: Head) -> None:
    head.log({"MESSAGE": "Started", "PRIORITY": "6", "SYSLOG_IDENTIFIER": "systemd"})
    head.send()
    (row,) = head.received()
    assert row["TimeGenerated"] == row["EventTime"]
    assert row["TimeGenerated"].endswith("+00:00")
    assert row | {"TimeGenerated": "", "EventTime": ""} == {
        "TimeGenerated": "",
        "EventTime": "",
        "Computer": "head",
        "HostName": "head",
        "Facility": "daemon",
        "SeverityLevel": "info",
        "ProcessName": "systemd",
        "ProcessID": 7,
        "SyslogMessage": "Started",
    }


@pytest.mark.parametrize(
    ("message", "arrives"), [([255, 65], "\ufffdA"), (None, ""), ("ü" * 40_000, "ü" * 30_000)]
)
def test_any_message_arrives(head: Head, message: object, arrives: str) -> None:
    head.log({"MESSAGE": message, "SYSLOG_FACILITY": "10"})
    head.send()
    (row,) = head.received()
    assert (row["SyslogMessage"], row["Facility"]) == (arrives, "10")


def test_every_entry_arrives_once_and_in_order(head: Head) -> None:
    head.log(*({"MESSAGE": str(number)} for number in range(3)))
    head.send()
    head.send()
    head.log({"MESSAGE": "3"})
    head.send()
    assert [row["SyslogMessage"] for row in head.received()] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("odd", [{"PRIORITY": "9"}, {"_PID": ["7", "8"]}, {"MESSAGE": ["a", "b"]}])
def test_an_entry_that_is_no_row_does_not_keep_the_others(head: Head, odd: Any) -> None:
    head.log({"MESSAGE": "before"}, odd, {"MESSAGE": "after"})
    head.send()
    head.log({"MESSAGE": "later"})
    head.send()
    assert [row["SyslogMessage"] for row in head.received()] == ["before", "after", "later"]


def test_a_long_journal_is_sent_in_requests_that_azure_accepts(head: Head) -> None:
    length, entries = 20_000, 2 * MOST_BYTES // 20_000
    head.log(*({"MESSAGE": "x" * length} for _ in range(entries)))
    head.send()
    assert len(head.received()) == entries


def test_what_azure_refuses_is_sent_by_the_next_call(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.log({"MESSAGE": "booted"})
    # A role has an effect minutes after its assignment.
    monkeypatch.setattr(roles, "ROLE_DELAY_S", 300)
    with pytest.raises(HTTPError, match="403"):
        head.send()
    assert head.received() == []
    monkeypatch.setattr(roles, "ROLE_DELAY_S", 0)
    head.send()
    assert [row["SyslogMessage"] for row in head.received()] == ["booted"]


def test_a_cursor_that_a_power_cut_has_emptied_sends_the_journal_again(head: Head) -> None:
    head.log({"MESSAGE": "booted"})
    (head.folder / "cursor").touch()
    head.send()
    assert [row["SyslogMessage"] for row in head.received()] == ["booted"]


def test_a_journal_that_cannot_be_read_is_an_error(head: Head) -> None:
    (head.folder / "journal").write_text("damaged")
    with pytest.raises(OSError, match="journalctl ended with exit code 1"):
        head.send()


@pytest.mark.parametrize("role", ROLES)
def test_the_units_exist_and_none_has_the_output_of_experiments(role: Role) -> None:
    tree = [path.name for folder in (FILES, UNITS) for path in folder.rglob("*.service")]
    assert set(JOURNAL_UNITS[role]) <= set(tree)
    assert not {unit for unit in JOURNAL_UNITS[role] if re.match("experiments|jupyter", unit)}


def test_an_identity_without_the_role_may_not_send(stack: Declared) -> None:
    rule = stack.resource("DataCollectionRule").id
    principal = stack.resource("UserAssignedIdentity", "mlflow").added["principalId"]
    assignments = roles.role_assignments(stack.azure)
    assert LOGS_WRITER in {assignment.role for assignment in assignments}
    now = time.time() + roles.ROLE_DELAY_S
    assert not roles.is_allowed(assignments, principal, roles.SEND_LOGS, rule, now)
