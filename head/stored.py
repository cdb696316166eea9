"""The bytes that the results account bills: stored.json, counted by a save once an hour.

Azure bills replaced and soft-deleted blobs like current ones, until its rules delete them.
"""

import os
import time
from collections import Counter
from dataclasses import asdict, dataclass

from azure.core.exceptions import AzureError
from azure.storage.blob import ContainerClient

from .blob import container
from .files import read_json, replace_json
from .paths import STORED

EVERY_S = 3600.0


@dataclass(frozen=True)
class Stored:
    """The content of stored.json, in bytes."""

    everything: int
    """MLflow's database and artifacts and the machines' Python environment, too."""
    runs: dict[str, int]
    """By the key of an experiment."""
    time: float
    """When it was counted, in seconds since the epoch."""


def count_if_due() -> None:
    """Counts once an hour; keeps the last count where Azure does not answer."""
    if 0 <= time.time() - read_json(STORED).get("time", 0) < EVERY_S:
        return
    try:
        results = count(container(os.environ["RESULTS_CONTAINER"]))
        environments = count(container(os.environ["ENVIRONMENT_CONTAINER"]))
    except AzureError as error:
        print(
            f"the results account was not counted: {str(error).partition(chr(10))[0]}", flush=True
        )
        return
    runs = {name.removeprefix("runs/"): size for name, size in results.items() if "/" in name}
    everything = results.total() + environments.total()
    replace_json(STORED, asdict(Stored(everything, runs, time.time())))


def count(blobs: ContainerClient) -> Counter[str]:
    """Returns the bytes by folder: "runs/KEY" of an experiment, "" of everything else."""
    sizes: Counter[str] = Counter()
    for blob in blobs.list_blobs(include=["deleted", "versions"]):
        folder, _, rest = blob.name.partition("/")
        key, slash, _ = rest.partition("/")
        sizes[f"runs/{key}" if folder == "runs" and slash else ""] += blob.size
    return sizes
