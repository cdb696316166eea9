"""The stand-in for management.azure.com over HTTP, or over TLS under its real name.

    python -m rehearsal.azure.management.management_service STATE_FILE FOLDER ADDRESS PORT

FOLDER has faults.json, server.pem and server.key.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from rehearsal import background_process
from rehearsal.addresses import MANAGEMENT_ADDRESS
from rehearsal.azure import certificates
from rehearsal.azure.http_server import Handler, Server
from rehearsal.azure.management.delayed_changes import make_due_changes
from rehearsal.azure.management.management_faults import FaultsFile
from rehearsal.azure.management.request_routing import Management
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.host_paths import ROOT

HOST = "management.azure.com"
FAULTS, PID = "faults.json", "service.pid"


def start(
    state_file: Path,
    folder: Path,
    ca: Path,
    address: str = MANAGEMENT_ADDRESS,
    port: int = 443,
    module: str = __name__,
) -> None:
    """Starts the service under its real name, unless it runs; returns when it answers.

    Args:
        folder: Holds the service's own files.
        ca: Signs its certificate; its key is beside it.
        module: Serves it, with or without real machines behind the resources.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificates.server_certificate(folder, [HOST], [], ca)
    background_process.start(
        [sys.executable, "-m", module, state_file, folder, address, str(port)],
        pid_file=folder / PID,
        log=folder / "service.log",
        address=address,
        port=port,
        environment={"PYTHONPATH": str(ROOT)},
    )


def stop(folder: Path) -> None:
    """Ends the service, if it runs; its files stay."""
    background_process.stop(folder / PID)


def main(azure_of: Callable[[Path], Azure], arguments: Sequence[str]) -> None:
    """Serves the Azure of a state file until it is ended; makes delayed changes meanwhile."""
    state_file, folder = Path(arguments[0]), Path(arguments[1])
    azure = azure_of(state_file)
    stand_in = Management(azure, FaultsFile(folder / FAULTS))
    with server(stand_in, arguments[2], int(arguments[3]), folder) as serving:
        due = (azure, threading.Event())
        threading.Thread(target=make_due_changes, args=due, daemon=True).start()
        serving.serve_forever()


@contextmanager
def server(
    management: Management, address: str, port: int, folder: Path | None = None
) -> Iterator[Server]:
    """Yields a server; it answers once `serve_forever` runs.

    It speaks TLS with the certificate in `folder`, or plain HTTP without a folder.
    """

    class Serving(_Handler):
        answers = management
        scheme = "https" if folder else "http"

    with Server((address, port), Serving) as made:
        if folder:
            made.use_tls(folder)
        yield made


class _Handler(Handler):
    answers: ClassVar[Management]
    scheme: ClassVar[str]
    wbufsize = -1
    """An answer is one packet: with two, the second would wait for an acknowledgement."""

    def respond(self, headers: Mapping[str, str], body: bytes) -> None:
        base = f"{self.scheme}://{headers.get('Host', '')}"
        answer = self.answers.answer(self.command, self.path, headers, body, base)
        if answer is None:
            self.close_connection = True
        else:
            self.send(answer)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Leaves out the autoscaler's requests, which come every few seconds."""
        if self.command != "GET" or code != 200:
            super().log_request(code, size)


if __name__ == "__main__":
    main(Azure, sys.argv[1:])
