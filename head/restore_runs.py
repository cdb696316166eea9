"""head.restore_runs KEY: downloads runs of an experiment that disk.py has removed from the head.

`volley pull` starts it, by units/restore-runs@.service.
"""

import os
import sys

from azure.core.exceptions import AzureError
from azure.storage.blob import ContainerClient

from .blob import container
from .disk import LEAST, free, free_bytes
from .results import restore_runs


def bring_back(blobs: ContainerClient, key: str) -> str:
    """Returns why the runs cannot be downloaded, or ""."""
    try:
        size = sum(blob.size for blob in blobs.list_blobs(name_starts_with=f"runs/{key}/"))
        if free_bytes() - size < LEAST:
            return f"{free()}, and the runs have {size / 2**30:.1f} GiB"
        restore_runs(blobs, key)
    except (AzureError, OSError) as error:
        return str(error).partition("\n")[0]
    return ""


def main(key: str) -> int:
    reason = bring_back(container(os.environ["RESULTS_CONTAINER"]), key)
    if reason:
        print(f"{key} cannot be restored: {reason}", file=sys.stderr)
    return int(bool(reason))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
