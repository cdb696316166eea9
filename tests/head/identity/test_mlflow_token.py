"""azure-identity, as MLflow's server and the restore of its database use it, gets their tokens."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from urllib.error import HTTPError

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

from head.identity import mlflow_token

pytestmark = pytest.mark.slow

SCOPE = f"{mlflow_token.STORAGE}/.default"


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[HTTPError]]:
    """What the metadata service answers before its token, which has the client's id."""
    before: list[HTTPError] = []

    def metadata(_: str, **query: str) -> bytes:
        if before:
            raise before.pop()
        end = int(time.time()) + 86400
        token = {"access_token": query["client_id"], "expires_in": "86400", "expires_on": str(end)}
        return json.dumps({**token, "token_type": "Bearer", "resource": query["resource"]}).encode()

    monkeypatch.setattr(mlflow_token, "metadata", metadata)
    monkeypatch.setenv("MLFLOW_CLIENT_ID", "mlflows")
    monkeypatch.setenv("AZURE_CLIENT_ID", "heads")
    with ThreadingHTTPServer(("127.0.0.1", 0), mlflow_token.Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", address)
        yield before
        server.shutdown()


@pytest.mark.usefixtures("refusals")
def test_azures_sdk_gets_the_token_of_mlflows_identity_whichever_it_names() -> None:
    for credential in (ManagedIdentityCredential(client_id="heads"), DefaultAzureCredential()):
        assert credential.get_token(SCOPE).token == "mlflows"


@pytest.mark.usefixtures("refusals")
def test_it_gets_none_for_azures_management() -> None:
    credential = ManagedIdentityCredential(client_id="mlflows")
    with pytest.raises(ClientAuthenticationError):
        credential.get_token("https://management.azure.com/.default")


def test_a_token_that_is_late_after_a_boot_is_waited_for(refusals: list[HTTPError]) -> None:
    refusals.append(HTTPError("", 429, "Too many requests", {}, None))  # type: ignore[arg-type]
    assert ManagedIdentityCredential(client_id="heads").get_token(SCOPE).token == "mlflows"
