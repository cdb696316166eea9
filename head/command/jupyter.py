"""`volley-head jupyter`: the port and the token of JupyterLab's server."""

from typing import Any

from ..jupyter_server import jupyter_server
from ..queue.store import check_awake


def jupyter(*_: object) -> dict[str, Any]:
    """Returns None for port and token if no server runs, or it does not answer yet.

    Raises:
        RefusedError: The cluster is going to sleep.
    """
    check_awake()
    server = jupyter_server()
    return {key: server.get(key) for key in ("port", "token")}
