"""send_journal.py CURSOR UNIT...: sends the journal of some units to JOURNALS_URL.

It sends what follows the entry that the file CURSOR names, then changes the file: the next call
repeats what has failed. The rows are those of the table Syslog of Azure's Log Analytics.
https://learn.microsoft.com/azure/azure-monitor/logs/logs-ingestion-api-overview
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from http.client import HTTPException
from pathlib import Path
from typing import Any

from machine_token import REQUEST_S, token

AUDIENCE = "https://monitor.azure.com"
MOST_BYTES = 900_000
"""Of a request: Azure accepts 1 MB."""
MOST_CHARACTERS = 30_000
"""Of a message: Azure truncates one that has more than 64 kB."""
LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
FACILITIES = ("kern", "user", "mail", "daemon", "auth", "syslog")

Entry = dict[str, Any]
"""Fields of an entry of the journal, man systemd.journal-fields."""


def main(cursor: Path, units: list[str]) -> None:
    last_sent = cursor.read_text() if cursor.exists() else ""
    after = [f"--after-cursor={last_sent}"] if last_sent else []
    chosen = [f"--unit={unit}" for unit in units]
    command = ["journalctl", "--output=json", "--quiet", "--all", *after, *chosen]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as journal:
        assert journal.stdout is not None, "it is a pipe"
        for rows, last in requests(map(json.loads, journal.stdout)):
            send(rows)
            aside = cursor.with_suffix(".new")
            aside.write_text(last)
            aside.replace(cursor)
    if journal.returncode:
        raise OSError(f"journalctl ended with exit code {journal.returncode}")


def requests(entries: Iterable[Entry]) -> Iterator[tuple[bytes, str]]:
    """Yields JSON arrays of rows that Azure accepts, each with the cursor of its last entry."""
    rows: list[str] = []
    last = ""
    for entry in entries:
        try:
            text = json.dumps(row(entry))
        except (LookupError, TypeError, ValueError):
            continue  # A field is missing, or is there twice: the entries after it must arrive.
        if rows and sum(map(len, rows)) + len(rows) + len(text) > MOST_BYTES:
            yield f"[{','.join(rows)}]".encode(), last
            rows = []
        rows.append(text)
        last = entry["__CURSOR"]
    if rows:
        yield f"[{','.join(rows)}]".encode(), last


def row(entry: Entry) -> dict[str, Any]:
    """Returns an entry as a row of the table Syslog."""
    at = datetime.fromtimestamp(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, timezone.utc).isoformat()
    message = entry.get("MESSAGE") or ""
    if isinstance(message, list):  # Bytes that are not UTF-8.
        message = bytes(message).decode(errors="replace")
    facility = int(entry.get("SYSLOG_FACILITY", FACILITIES.index("daemon")))
    return {
        "TimeGenerated": at,
        "EventTime": at,
        "Computer": entry.get("_HOSTNAME", ""),
        "HostName": entry.get("_HOSTNAME", ""),
        "Facility": FACILITIES[facility] if facility < len(FACILITIES) else str(facility),
        "SeverityLevel": LEVELS[int(entry.get("PRIORITY", LEVELS.index("info")))],
        "ProcessName": entry.get("SYSLOG_IDENTIFIER", ""),
        "ProcessID": int(entry.get("_PID", 0)),
        "SyslogMessage": message[:MOST_CHARACTERS],
    }


def send(rows: bytes) -> None:
    """Sends rows.

    Raises:
        OSError, HTTPException, ValueError, LookupError: Azure refuses, or does not answer.
    """
    headers = {"Authorization": f"Bearer {token(AUDIENCE)}", "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["JOURNALS_URL"], rows, headers)
    with urllib.request.urlopen(request, timeout=REQUEST_S):
        pass


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2:])
    except (OSError, HTTPException, ValueError, LookupError) as error:
        # A role has an effect after minutes: the timer tries again.
        sys.exit(f"the journal was not sent: {error}")
