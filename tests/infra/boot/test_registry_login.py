"""registry_login.py against a server that answers as a registry does."""

from __future__ import annotations

import base64
import io
import json
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from head import machine_token
from tests.infra.boot.boot_scripts import load

REGISTRY = "images.azurecr.io"


class Azure:
    """The answers of the metadata service and of the registry; it keeps the requests."""

    def __init__(self) -> None:
        self.asked: list[urllib.request.Request] = []

    def open(self, request: urllib.request.Request, timeout: float) -> io.BytesIO:
        assert timeout > 0
        self.asked.append(request)
        key = "access_token" if request.data is None else "refresh_token"
        return io.BytesIO(json.dumps({key: f"a {key}"}).encode())


def test_the_identity_becomes_a_login_that_skopeo_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINER_REGISTRY", REGISTRY)
    monkeypatch.setenv("AZURE_CLIENT_ID", "client")
    azure, registry_login = Azure(), load("registry_login")
    for asking in (registry_login, machine_token):
        monkeypatch.setattr(asking, "NO_PROXY", azure)
    registry_login.main(tmp_path / "auth.json")
    metadata, exchange = azure.asked
    assert "resource=https%3A%2F%2Fmanagement.azure.com%2F&client_id=client" in metadata.full_url
    assert exchange.full_url == f"https://{REGISTRY}/oauth2/exchange"
    assert isinstance(exchange.data, bytes)
    assert urllib.parse.parse_qs(exchange.data.decode()) == {
        "grant_type": ["access_token"],
        "service": [REGISTRY],
        "access_token": ["a access_token"],
    }
    auth = json.loads((tmp_path / "auth.json").read_text())["auths"][REGISTRY]["auth"]
    user, _, login = base64.b64decode(auth).decode().partition(":")
    assert (user.strip("0-"), login) == ("", "a refresh_token")
