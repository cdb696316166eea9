"""Storage accounts with their containers and blobs, and the processes that serve them.

Azurite answers on loopback; proxies in front of it check roles. All accounts answer at one address,
under their real names. Machines must resolve these names and trust the authority of the
certificate.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
import sys
import time
from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from azure.core.credentials import AccessToken
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.blob import BlobServiceClient

from rehearsal import background_process, shared_file
from rehearsal.addresses import BLOB_ADDRESS
from rehearsal.azure import certificates
from rehearsal.azure.blob import blob_faults, blob_proxy
from rehearsal.azure.blob.billing import BlobRequest
from rehearsal.azure.blob.blob_faults import BlobFaults, Mode
from rehearsal.azure.blob.blob_proxy import (
    ACCESS,
    HOST_SUFFIX,
    LOOPBACK,
    REQUESTS,
    Access,
)
from rehearsal.azure.metadata.managed_identity import TOKEN_S, access_token
from rehearsal.azure.metadata.metadata_state import NOBODY, Identity
from rehearsal.host_paths import AZURITE, NODE, ROOT

PROGRAM = AZURITE / "node_modules/azurite/dist/src/blob/main.js"
OPTIONS = ("--oauth", "basic", "--skipApiVersionCheck", "--disableTelemetry", "--silent")
AUDIENCE = "https://storage.azure.com"
KEYS, PORT, AZURITE_PID = "accounts.json", "azurite.port", "azurite.pid"
PAGE = 5000
"""Names in one answer: the service's own limit."""


@dataclass(frozen=True)
class BlobStorage:
    """All accounts. Their state is in the folder, so that several processes can use it.

    Methods that start a process raise background_process.StartError if that fails.
    """

    folder: Path
    address: str = BLOB_ADDRESS
    port: int = 443

    # Accounts

    @property
    def ca_certificate(self) -> Path:
        """The certificate that a machine must trust, in PEM; made at the first use."""
        with self._locked():
            return certificates.authority(self.folder)

    def grant(self, access: Access) -> None:
        """Replaces the permissions; at first nobody may do anything."""
        with self._locked():
            shared_file.write(self.folder / ACCESS, access)

    def fail(self, mode: Mode) -> None:
        """Lets all requests fail from now on; `ok` ends it."""
        with shared_file.changed(self.folder / blob_faults.FILE, BlobFaults) as faults:
            faults.mode = mode

    def add_account(self, name: str) -> None:
        """Makes an account if it is missing; the service is down for a second."""
        if not re.fullmatch("[a-z0-9]{3,24}", name):
            raise ValueError(f"{name}: an account's name is 3 to 24 lowercase letters and digits")
        with self._locked():
            keys = self._keys()
            if name not in keys:
                self._stop()
                keys[name] = b64encode(secrets.token_bytes(64)).decode()
                shared_file.replace(self.folder / KEYS, json.dumps(keys))
            self._start(keys)

    def remove_account(self, name: str) -> None:
        """Deletes an account if it exists, with all its blobs."""
        with self._locked():
            keys = self._keys()
            if name in keys:
                self._start(keys)
                for container in self.containers(name):
                    self.delete_container(name, container)
                self._stop()
                del keys[name]
                shared_file.replace(self.folder / KEYS, json.dumps(keys))
            self._start(keys)

    def accounts(self) -> Sequence[str]:
        return tuple(self._keys())

    # Containers and blobs

    def create_container(self, account: str, container: str) -> None:
        with self._client(account) as client, suppress(ResourceExistsError):
            client.create_container(container)

    def delete_container(self, account: str, container: str) -> None:
        """Deletes a container if it exists, with all its blobs."""
        with self._client(account) as client, suppress(ResourceNotFoundError):
            client.delete_container(container)

    def containers(self, account: str) -> Sequence[str]:
        with self._client(account) as client:
            return [container.name for container in client.list_containers()]

    def list(self, account: str, container: str, prefix: str = "") -> Sequence[str]:
        """Returns the names of the blobs that start with a prefix."""
        with self._client(account) as client:
            blobs = client.get_container_client(container)
            return [*blobs.list_blob_names(name_starts_with=prefix, results_per_page=PAGE)]

    def read(self, account: str, container: str, blob: str) -> bytes:
        """Returns the content of a blob.

        Raises:
            FileNotFoundError: The blob does not exist.
        """
        try:
            with self._client(account) as client:
                content: bytes = client.get_blob_client(container, blob).download_blob().readall()
        except ResourceNotFoundError:
            raise FileNotFoundError(f"no blob is called {account}/{container}/{blob}") from None
        return content

    def requests(self, account: str) -> Iterator[BlobRequest]:
        """Yields the requests through the proxies that have changed the account's blobs."""
        file = self.folder / REQUESTS
        for line in file.read_text().splitlines() if file.exists() else ():
            request = json.loads(line)
            if request.pop("host").partition(".")[0] == account:
                yield BlobRequest(**request)

    def _client(self, account: str) -> BlobServiceClient:
        """Returns a client of Azurite itself, where no role is needed."""
        return BlobServiceClient(
            f"https://{LOOPBACK}:{(self.folder / PORT).read_text()}/{account}",
            credential=_Nobody(),
            connection_verify=str(certificates.authority(self.folder)),
            use_env_settings=False,
            retry_total=0,
        )

    # Processes

    def answer_at(self, addresses: Collection[str]) -> None:
        """Serves the accounts at these addresses too, and no longer at others."""
        with self._locked():
            kept = {self._proxy(address) for address in (self.address, *addresses)}
            for proxy in self._proxies() - kept:
                background_process.stop(proxy)
            for address in addresses:
                self._start_proxy(address)

    def stop(self) -> None:
        """Ends the processes, if they run; accounts and blobs stay."""
        if self.folder.exists():
            with self._locked():
                self._stop()

    def _stop(self) -> None:
        for proxy in self._proxies():
            background_process.stop(proxy)
        background_process.stop(self.folder / AZURITE_PID)

    def _start(self, keys: dict[str, str]) -> None:
        """Starts the processes that do not run; none is needed without an account."""
        if not keys:
            return
        if not background_process.alive(self.folder / AZURITE_PID):
            self._start_azurite(keys)
        self._start_proxy(self.address)

    def _start_proxy(self, address: str) -> None:
        where = (address, str(self.port), (self.folder / PORT).read_text())
        background_process.start(
            [sys.executable, "-m", blob_proxy.__name__, self.folder, *where],
            pid_file=self._proxy(address),
            log=self.folder / "proxy.log",
            address=address,
            port=self.port,
            environment={"PYTHONPATH": str(ROOT)},
        )

    def _start_azurite(self, keys: dict[str, str]) -> None:
        names = [f"{name}{HOST_SUFFIX}" for name in keys]
        addresses = [self.address, LOOPBACK]
        certificate, key = certificates.server_certificate(self.folder, names, addresses)
        with socket.create_server((LOOPBACK, 0)) as free:
            port = str(free.getsockname()[1])
        (self.folder / PORT).write_text(port)
        files = ("--location", self.folder / "data", "--cert", certificate, "--key", key)
        where = ("--blobHost", LOOPBACK, "--blobPort", port)
        background_process.start(
            [NODE, PROGRAM, *OPTIONS, *where, *files],
            pid_file=self.folder / AZURITE_PID,
            log=self.folder / "azurite.log",
            address=LOOPBACK,
            port=int(port),
            environment={
                "AZURITE_ACCOUNTS": ";".join(":".join(account) for account in keys.items())
            },
        )

    # Files

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with shared_file.locked(self.folder / KEYS):
            yield

    def _keys(self) -> dict[str, str]:
        """Returns the accounts' keys by their names; only Azurite needs them."""
        file = self.folder / KEYS
        keys: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        return keys

    def _proxy(self, address: str) -> Path:
        return self.folder / f"proxy-{address}.pid"

    def _proxies(self) -> set[Path]:
        return set(self.folder.glob("proxy-*.pid"))


class _Nobody:
    """The client's credential: Azurite checks a token's audience and age only."""

    def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        now = int(time.time())
        token = access_token(AUDIENCE, NOBODY, Identity(NOBODY), now)
        return AccessToken(token, now + TOKEN_S)
