"""What an MLflow server answers to a browser that knows it by another name."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection


def status_for(port: int, host: str) -> int:
    """Returns the status of the answer to a request with this Host header."""
    path = "/api/2.0/mlflow/experiments/get-by-name?experiment_name=Default"
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as server:
        server.request("GET", path, headers={"Host": host})
        return server.getresponse().status
