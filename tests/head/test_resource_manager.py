"""The client of Azure Resource Manager gives its token to nobody else, and says what failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from head import resource_manager
from head.resource_manager import MachineToken, ResourceManager, ResourceManagerError

pytestmark = pytest.mark.slow


class Credential:
    def get_token(self, *_: str) -> MachineToken:
        return MachineToken("token")


class Servers:
    """Servers of this machine, each with one answer; they keep the tokens that they get."""

    def __init__(self, running: ExitStack) -> None:
        self._running = running
        self.tokens: list[str | None] = []

    def answering(self, status: int, body: bytes = b"", **headers: str) -> str:
        tokens = self.tokens

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                tokens.append(self.headers["Authorization"])
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = self._running.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        Thread(target=server.serve_forever, daemon=True).start()
        self._running.callback(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setattr(resource_manager, "sleep", lambda _: None)
    with ExitStack() as running:
        yield Servers(running)


def test_a_redirect_takes_the_token_to_no_other_server(servers: Servers) -> None:
    other = servers.answering(200, b"{}")
    azure = ResourceManager(Credential(), servers.answering(302, Location=f"{other}/"))
    with pytest.raises(ResourceManagerError, match="302 Found"):
        azure.get("/path", {})
    assert servers.tokens == ["Bearer token"]


def test_a_page_that_is_not_json_is_not_an_answer_of_azure(servers: Servers) -> None:
    azure = ResourceManager(Credential(), servers.answering(200, b"<html>login</html>"))
    with pytest.raises(ResourceManagerError, match="no answer from Azure") as raised:
        azure.get("/path", {})
    assert raised.value.status == resource_manager.NO_ANSWER
    assert len(servers.tokens) == 1 + resource_manager.RETRIES
