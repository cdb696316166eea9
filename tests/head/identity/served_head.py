"""A head with identity.service: its process, an Azure with a scale set, and a script that saves."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from infra.config.stack_settings import StackSettings
from infra.stack.head_software import cluster_settings
from tests.head.installed_head import InstalledHead
from tests.infra.declared_stack import REQUIRED
from tests.local_server import json_server
from tests.rehearsal.azure.resources.scale_set_cloud import SCALE_SET, Cloud, cloud

MAX_WORKERS = 2
SAVES = """\
#!/bin/sh
echo "$@" >> {calls}
echo one >&2; echo last >&2
exit $(cat {code} 2> /dev/null || echo 0)
"""


class ServedHead(InstalledHead):
    """The socket's folder is /run/volley-identity of this head."""

    def __init__(self, root: Path, azure: Cloud) -> None:
        super().__init__(root)
        self.azure = azure
        self.calls, self.code = root / "calls", root / "code"
        self.socket = root / "run/volley-identity/socket"
        self.socket.parent.mkdir()
        python = root / "opt/volley/venv/bin/python"
        python.write_text(SAVES.format(calls=self.calls, code=self.code))
        self.set(scaling="demand")

    def listens(self) -> bool:
        """Whether the service takes requests: its socket is there a moment earlier."""
        with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
            connection.connect(str(self.socket))
            return True
        return False

    def set(self, **values: Any) -> None:
        own = StackSettings.model_validate({**REQUIRED, "maxWorkers": MAX_WORKERS, **values})
        settings = replace(cluster_settings(own, SCALE_SET, "/head"), endpoint=self.azure.url)
        self.settings.write_text(settings.to_json())

    def request(self, name: str, **values: Any) -> dict[str, Any]:
        return self.send(json.dumps({"request": name, **values}).encode() + b"\n")

    def send(self, line: bytes) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        return answer

    def client(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs `head.identity`, as experiments.service and sleep do."""
        return subprocess.run(
            [sys.executable, "-m", "head.identity", *words],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@contextmanager
def served_head(root: Path) -> Iterator[ServedHead]:
    with ExitStack() as running:
        (root / "azure").mkdir()
        azure = running.enter_context(cloud(root / "azure"))
        granted = {"token_type": "Bearer", "expires_in": "86400", "resource": "r"}
        metadata = running.enter_context(
            json_server(lambda *_: (200, {**granted, "access_token": azure.token()}))
        )
        head = ServedHead(root, azure)
        environment = {
            **os.environ,
            **head.environment,
            "AZURE_CLIENT_ID": "client",
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": metadata,
        }
        command = [sys.executable, "-m", "head.identity.server"]
        service = running.enter_context(subprocess.Popen(command, env=environment, cwd="/"))
        running.callback(service.kill)
        while not head.listens():
            assert service.poll() is None
            time.sleep(0.05)
        yield head
