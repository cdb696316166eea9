"""What was declared and made, on disk: each `pulumi up` is a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rehearsal import paths, shared_file
from rehearsal.plan import Record

FILE = paths.RUN / "resources.json"


def read_records(file: Path = FILE) -> dict[str, Record]:
    """Returns all resources that exist, by their ids, the oldest first."""
    if not file.exists():
        return {}
    return {key: Record(**value) for key, value in json.loads(file.read_text()).items()}


@contextmanager
def changing_records(file: Path = FILE) -> Iterator[dict[str, Record]]:
    """Lets one at a time change them; an exception leaves them as they were."""
    with shared_file.locked(file):
        records = read_records(file)
        yield records
        resources = {key: asdict(value) for key, value in records.items()}
        shared_file.replace(file, json.dumps(resources, indent=1))
