"""Azure's instance metadata service, which identifies a machine by its source address.

https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service
https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token

    python -m rehearsal.azure.metadata.metadata_service STATE_FILE ADDRESS PORT
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from rehearsal import background_process
from rehearsal.addresses import METADATA_ADDRESS
from rehearsal.azure.http_server import Answer, Handler, Server
from rehearsal.azure.metadata import managed_identity, metadata_documents, metadata_state
from rehearsal.azure.metadata.metadata_documents import Query
from rehearsal.azure.metadata.metadata_state import Instance, State
from rehearsal.host_paths import ROOT

METADATA = "/metadata"


def start(state_file: Path, log: Path, address: str = METADATA_ADDRESS, port: int = 80) -> None:
    """Starts the service, unless it runs; returns when it answers."""
    background_process.start(
        [sys.executable, "-m", __name__, state_file, address, str(port)],
        pid_file=state_file.with_suffix(".pid"),
        log=log,
        address=address,
        port=port,
        environment={"PYTHONPATH": str(ROOT)},
    )


def stop(state_file: Path) -> None:
    """Ends the service, if it runs; the state stays."""
    background_process.stop(state_file.with_suffix(".pid"))


def serve(state_file: Path, address: str, port: int) -> None:
    _Handler.service = Service(state_file)
    with Server((address, port), _Handler) as server:
        server.serve_forever()


@dataclass
class Service:
    """Answers each request from the current state file."""

    state_file: Path
    incarnations: dict[str, tuple[int, list[Any]]] = field(default_factory=dict)
    """By machine: how often its events have changed, and the last events that it saw."""
    not_ready: dict[str, list[Answer]] = field(default_factory=dict)
    """By vmId: the refusals that a machine still gets before its first token."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(
        self, method: str, url: str, caller: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        path, query = urlsplit(url).path.rstrip("/"), parse_qs(urlsplit(url).query)
        refusal = metadata_documents.refusal(path, query, headers)
        if refusal is not None:
            return refusal
        parameters = {key: values[0] for key, values in query.items()}
        with self.lock:
            state = metadata_state.read(self.state_file)
            callers = [
                instance for instance in state.instances.values() if instance.address == caller
            ]
            if not callers:
                return Answer(403, {"error": f"{caller} does not belong to a machine"})
            return self._route(method, path, parameters, state, callers[0], body)

    def _route(
        self, method: str, path: str, query: Query, state: State, instance: Instance, body: bytes
    ) -> Answer:
        if path == f"{METADATA}/scheduledevents" and method == "POST":
            return self._start(state, instance, body)
        if method != "GET":
            return Answer(405, {"error": "Method not allowed"})
        if path == f"{METADATA}/scheduledevents":
            return Answer(200, self._events(state, instance))
        if path == f"{METADATA}/identity/oauth2/token":
            return self._token(instance, query)
        if path.split("/")[:3] == ["", "metadata", "instance"]:
            document = metadata_documents.instance(instance)
            return metadata_documents.part(document, path.split("/")[3:], query)
        return metadata_documents.NOT_FOUND

    def _token(self, instance: Instance, query: Query) -> Answer:
        first = self.not_ready.setdefault(instance.vm_id, list(managed_identity.NOT_READY))
        return first.pop(0) if first else managed_identity.token(instance, query, int(time.time()))

    def _events(self, state: State, instance: Instance) -> dict[str, Any]:
        events = metadata_documents.events(state, instance, time.time())
        incarnation, last_events = self.incarnations.get(instance.name, (0, None))
        if events != last_events:
            incarnation += 1
            self.incarnations[instance.name] = (incarnation, events)
        return {"DocumentIncarnation": incarnation, "Events": events}

    def _start(self, state: State, instance: Instance, body: bytes) -> Answer:
        event_ids = {event["EventId"] for event in self._events(state, instance)["Events"]}
        try:
            requested = {request["EventId"] for request in json.loads(body)["StartRequests"]}
        except (ValueError, KeyError, TypeError):
            return Answer(400, {"error": "Bad request. The payload is malformed"})
        if not requested <= event_ids:
            return Answer(
                400, {"error": f"Bad request. Unknown events: {sorted(requested - event_ids)}"}
            )
        metadata_state.acknowledge(self.state_file, requested)
        print(f"{instance.name} starts {', '.join(sorted(requested))}", flush=True)
        return Answer(200, {})


class _Handler(Handler):
    service: ClassVar[Service]

    def respond(self, headers: Mapping[str, str], body: bytes) -> None:
        caller = self.client_address[0]
        self.send(self.service.answer(self.command, self.path, caller, headers, body))

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Leaves out the machines' polls, one a second."""
        if code != 200 or not self.path.startswith(f"{METADATA}/scheduledevents"):
            super().log_request(code, size)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
