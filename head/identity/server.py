"""head.identity.server: does for Ray's user what needs the machine's identity, from a closed list.

identity.service runs it as the user `identity`, with the system's Python: an experiment's code can
change neither. The folder of its socket lets in root and the group of `ray`. A request is a line of
JSON, and so is the answer, but for a restore's: an archive.
"""

from __future__ import annotations

import json
import os
import re
import socket
import socketserver
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from ..cluster_settings import read_settings
from ..paths import PYTHON, SOCKET
from ..resource_manager import ResourceManagerError, for_machine
from . import mlflow_token
from .workers import Workers

Json = dict[str, Any]

LONGEST = 2**17
"""Bytes of a request: the names of 1000 workers."""
PATIENCE_S = 30
"""For a request, and for whoever does not read an archive."""
KEY = re.compile(r"[a-z0-9][a-z0-9-]*")
"""Of an experiment's runs: head.queue.plan.key_of."""
RESULTS = (str(PYTHON), "-m", "head.results")


class RequestError(Exception):
    """A request that is not in the list."""


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str) -> None:
        self.growth, self.saving = threading.Lock(), threading.Lock()
        """Held while Azure is asked for workers, and while results are saved."""
        self.workers: Workers | None = None
        super().__init__(address, Handler)


class Handler(socketserver.StreamRequestHandler):
    server: Server
    timeout = PATIENCE_S

    def handle(self) -> None:
        try:
            request = json.loads(self.rfile.readline(LONGEST))
            answer = self._answer(str(request.pop("request")), request)
        except ResourceManagerError as error:
            answer = {"refusal": vars(error)}
        except (RequestError, OSError) as error:
            answer = {"error": str(error)}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            answer = {"error": f"not a request: {error}"}
        if answer is not None:
            with suppress(OSError):  # Whoever asked is gone.
                self.wfile.write(json.dumps(answer, default=asdict).encode() + b"\n")

    def _answer(self, name: str, values: Json) -> Json | None:
        requests: dict[str, Callable[..., Json | None]] = {
            "machines": lambda: self._ask(Workers.machines),
            "grow": lambda wanted, growing: self._ask(Workers.grow, wanted, growing),
            "delete": lambda names: self._ask(Workers.delete, names),
            "operation": lambda url: self._ask(Workers.operation, url),
            "save": self._save,
            "restore": self._restore,
        }
        if name not in requests:
            raise RequestError(f"{name} is not one of {', '.join(requests)}")
        return requests[name](**values)

    def _ask(self, request: Callable[..., Any], *values: Any) -> Json:
        with self.server.growth:
            settings = read_settings()
            if settings is None or settings.scaling == "cpu":
                raise RequestError("this head does not scale the workers")
            if self.server.workers is None:
                self.server.workers = Workers(for_machine(settings.endpoint), settings.scale_set)
            return {"answer": request(self.server.workers, *values)}

    def _save(self) -> Json:
        with self.server.saving:
            saved = subprocess.run([*RESULTS, "save"], stderr=subprocess.PIPE, check=False)
        os.write(sys.stderr.fileno(), saved.stderr)
        last = saved.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return {"answer": {"code": saved.returncode, "last": last}}

    def _restore(self, key: str) -> None:
        """Answers with an archive of an experiment's runs: head.results export."""
        if not KEY.fullmatch(key):
            raise RequestError(f"{key!r} is not the key of an experiment")
        self.request.setblocking(True)
        limit = struct.pack("ll", PATIENCE_S, 0)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        subprocess.run([*RESULTS, "export", key], stdout=self.request, check=False)


def main() -> int:
    if os.environ.get("MLFLOW_CLIENT_ID"):
        mlflow_token.start()
    SOCKET.unlink(missing_ok=True)
    with Server(str(SOCKET)) as server:
        SOCKET.chmod(0o660)
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
