"""volley from Python: `train` on this machine, `Cluster` on Azure. `volley.cli` is the command.

Operating a cluster needs neither Ray nor torch, and a login at Azure only to start the head.
Nothing of this package travels to the cluster.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from payload.errors import UserError
    from volley.cluster import Cluster
    from volley.local_run import train
    from volley.run import Run

__all__ = ["Cluster", "Run", "UserError", "train"]
MODULES = {
    "Cluster": "volley.cluster",
    "Run": "volley.run",
    "UserError": "payload.errors",
    "train": "volley.local_run",
}
"""Imported when they are first used: the command starts without pydantic and YAML."""


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(MODULES[name]), name)
