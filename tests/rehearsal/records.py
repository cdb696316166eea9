"""What was declared and made, on disk: each `pulumi up` is a process of its own."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.rehearsal import place
from tests.rehearsal.plan import Record

FILE = place.RUN / "resources.json"


def read_records(file: Path = FILE) -> dict[str, Record]:
    """Returns all resources that exist, by their ids, the oldest first."""
    if not file.exists():
        return {}
    return {key: Record(**value) for key, value in json.loads(file.read_text()).items()}


@contextmanager
def changing_records(file: Path = FILE) -> Iterator[dict[str, Record]]:
    """Lets one at a time change them; an exception leaves them as they were."""
    with open(file.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        records = read_records(file)
        yield records
        aside = file.with_suffix(".new")
        aside.write_text(
            json.dumps({key: asdict(value) for key, value in records.items()}, indent=1)
        )
        aside.replace(file)
