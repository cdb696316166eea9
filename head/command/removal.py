"""`volley-head rm`: removes an experiment that is over, with its runs, from the head's disk."""

from argparse import Namespace
from functools import partial
from typing import Any

from ..disk import remove_runs
from ..files import files_of_runs
from ..marks import is_saved
from ..paths import RUNS
from ..queue.store import Store
from .secrets import remove_secrets


def rm(store: Store, options: Namespace) -> dict[str, Any]:
    """Removes it, or with --look only returns what that would remove; Blob keeps what it has.

    Raises:
        RefusedError: It is not over.
    """
    record = store.ended(options.name)
    runs = RUNS / record.key
    has_runs = runs.parent == RUNS and runs.is_dir()
    files = list(files_of_runs(runs)) if has_runs else []
    answer = {
        "name": record.name,
        "state": record.state,
        "bytes": sum(path.lstat().st_size for path in files),
        "unsaved": sum(not is_saved(path) for path in files),
    }
    if not options.look:
        store.remove(record.name, partial(remove_secrets, record.name))
        if has_runs:
            remove_runs(runs, store)
    return answer
