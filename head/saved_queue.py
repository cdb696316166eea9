"""The queue in the results account: what a laptop shows while the head is off.

queue.json has the experiments as `volley-head status` lists them, and experiments/NAME/output.log
what `volley-head logs` prints.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from azure.storage.blob import ContainerClient

from .below import FOLDER
from .command.status import of_experiments, stored
from .files import read_json, replace
from .queue.record import OUTPUT, SAVED_OUTPUTS, SAVED_QUEUE
from .queue.store import Store
from .run_files import opened
from .saved_database import text_of
from .saved_runs import SavedRuns

STATUS_KEYS = (
    *("state", "run", "reason", "env_steps", "steps_per_s", "episode_return", "seconds_left"),
    *("num_env_runners", "mlflow_run"),
)
"""What is saved of status.json, which an experiment's code may have written."""
MAX_TEXT = 500


class SavedOutputs(SavedRuns):
    """The output of each experiment; that of one which is removed on the head is kept."""

    prefix = SAVED_OUTPUTS

    def _entries(self) -> Iterator[tuple[Path, int]]:
        root = os.open(self._runs, FOLDER)
        try:
            for name in sorted(os.listdir(root)):
                try:
                    # A link is an experiment's own doing.
                    folder = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=root)
                except OSError:
                    continue
                try:
                    if not name.startswith(".") and _is_file(folder):
                        yield self._runs / name / OUTPUT, folder
                finally:
                    os.close(folder)
        finally:
            os.close(root)

    def _pruned(self) -> Iterator[Path]:
        return iter(())


def _is_file(folder: int) -> bool:
    try:
        with opened(OUTPUT, folder):
            return True
    except OSError:
        return False


def save_queue(store: Store, blobs: ContainerClient, state: Path, cost: Path) -> None:
    """Uploads the list of experiments if it has changed.

    Args:
        state: The file with the hash of what was saved last.
        cost: The file of head/sleep/spending.py.

    Raises:
        AzureError: It could not be uploaded.
    """
    records = store.records()
    experiments = of_experiments(store, records)
    for experiment in experiments:
        experiment["status"] = _plain(experiment["status"] or {}) or None
    content = {"experiments": experiments, "cost": read_json(cost), "stored": stored(records)}
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    if text_of(state) == digest:
        return
    blobs.upload_blob(SAVED_QUEUE, json.dumps({"time": time.time(), **content}), overwrite=True)
    replace(state, digest.encode())


def _plain(status: dict[str, Any]) -> dict[str, Any]:
    """Returns the known keys of a status, with numbers and short texts."""
    allowed = {key: status[key] for key in STATUS_KEYS if key in status}
    return {
        key: value[:MAX_TEXT] if isinstance(value, str) else value
        for key, value in allowed.items()
        if value is None or isinstance(value, (str, int, float))
    }
