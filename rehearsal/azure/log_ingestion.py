"""A stand-in for Azure's Logs Ingestion API: keeps the rows that an identity may send.

https://learn.microsoft.com/azure/azure-monitor/logs/logs-ingestion-api-overview

    python -m rehearsal.azure.log_ingestion STATE_FILE FOLDER ADDRESS PORT

FOLDER has server.pem and server.key.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from rehearsal.azure.azure_errors import RefusedError
from rehearsal.azure.http_server import Answer, Handler, Server
from rehearsal.azure.metadata.managed_identity import principal_of
from rehearsal.azure.resources.resource_kinds import Resource, Resources, all_of
from rehearsal.azure.resources.roles import SEND_LOGS, is_allowed, role_assignments
from rehearsal.azure.resources.state_file import StateFile

AUDIENCE = "https://monitor.azure.com"
MOST_BYTES = 2**20
ROWS = "rows.jsonl"
"""The file with all rows, a line each."""
PATH = re.compile("/dataCollectionRules/([^/]+)/streams/([^/]+)")


def ingest(resources: Resources, url: str, authorization: str, body: bytes) -> list[dict[str, Any]]:
    """Returns the rows of a request.

    Raises:
        RefusedError: Azure would not accept the request.
    """
    match = PATH.fullmatch(urlsplit(url).path)
    if match is None:
        raise RefusedError(404, "NotFound", f"The stand-in has no {url}.")
    principal = principal_of(authorization, AUDIENCE)
    rule_id, rule = _rule(resources, match[1])
    if not is_allowed(role_assignments(resources), principal, SEND_LOGS, rule_id, time.time()):
        raise RefusedError(403, "OperationFailed", "The authentication token has no access.")
    if len(body) > MOST_BYTES:
        raise RefusedError(413, "ContentLengthLimitExceeded", "The request exceeds 1 MB.")
    stream = rule.inputs["streamDeclarations"].get(match[2])
    if stream is None:
        raise RefusedError(400, "InvalidStream", f"Stream {match[2]} was not configured.")
    rows: list[dict[str, Any]] = json.loads(body)
    columns = {column["name"] for column in stream["columns"]}
    if not all(row.keys() == columns for row in rows):
        raise RefusedError(400, "InvalidData", f"Not the columns of {match[2]}.")
    return rows


def _rule(resources: Resources, immutable_id: str) -> tuple[str, Resource]:
    for resource_id, rule in all_of(resources, "DataCollectionRule").items():
        if rule.added["immutableId"] == immutable_id:
            return resource_id, rule
    raise RefusedError(404, "NotFound", f"Data collection rule {immutable_id} was not found.")


@contextmanager
def server(state_file: Path, folder: Path, address: str, port: int) -> Iterator[Server]:
    """Yields a server, which answers once `serve_forever` runs; with TLS if it has a certificate.

    It adds the rows to a file in the folder.
    """

    class Serving(_Handler):
        state, rows = StateFile(state_file), folder / ROWS

    with Server((address, port), Serving) as made:
        if (folder / "server.pem").exists():
            made.use_tls(folder)
        yield made


class _Handler(Handler):
    state: ClassVar[StateFile]
    rows: ClassVar[Path]

    def respond(self, headers: Mapping[str, str], body: bytes) -> None:
        try:
            resources = self.state.read().resources
            rows = ingest(resources, self.path, headers.get("Authorization", ""), body)
        except RefusedError as refusal:
            self.send(refusal.answer)
            return
        with self.rows.open("a") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in rows)
        self.send(Answer(204))


if __name__ == "__main__":
    with server(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])) as serving:
        serving.serve_forever()
