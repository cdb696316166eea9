"""JupyterLab's server, while units/jupyter.service runs."""

from typing import Any

from .files import read_json
from .paths import JUPYTER_RUNTIME


def jupyter_server() -> dict[str, Any]:
    """Returns what the server has written when it began to listen: pid, port and token.

    It is empty while none runs. Only ray and root can read the folder.
    """
    return next(map(read_json, JUPYTER_RUNTIME.glob("jpserver-*.json")), {})
