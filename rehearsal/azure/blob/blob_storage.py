"""Storage accounts with their containers and blobs, and who may use them.

All accounts answer at one address, under their real names. Machines must resolve these names and
trust the authority of the certificate.
"""

from __future__ import annotations

import json
import re
import secrets
import ssl
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from rehearsal import shared_file
from rehearsal.addresses import BLOB_ADDRESS
from rehearsal.azure import certificates
from rehearsal.azure.blob.blob_proxy import Access
from rehearsal.azure.blob.blob_service import PROGRAM, BlobService
from rehearsal.azure.metadata.managed_identity import access_token
from rehearsal.azure.metadata.metadata_state import NOBODY, Identity

AUDIENCE = "https://storage.azure.com"
API_VERSION = "2021-12-02"
"""Of the Blob service's REST API."""
CONTAINER = {"restype": "container"}
EXISTS, MISSING = 409, 404
REQUEST_S = 60


@dataclass(frozen=True)
class BlobStorage:
    """All accounts. Their state is in the folder, so that several processes can use it."""

    folder: Path
    address: str = BLOB_ADDRESS
    port: int = 443
    program: Path = PROGRAM

    @property
    def ca_certificate(self) -> Path:
        """The certificate that a machine must trust, in PEM; made at the first use."""
        with self._locked():
            return certificates.authority(self.folder)

    def grant(self, access: Access) -> None:
        """Replaces the permissions; at first nobody may do anything."""
        with self._locked():
            access.write(self.folder)

    def add_account(self, name: str) -> None:
        """Makes an account if it is missing; the service is down for a second.

        Raises:
            ValueError: Azure does not allow such a name.
            background_process.StartError: Azurite did not start.
        """
        if not re.fullmatch("[a-z0-9]{3,24}", name):
            raise ValueError(f"{name}: an account's name is 3 to 24 lowercase letters and digits")
        with self._locked():
            keys = self._keys()
            if name not in keys:
                self._stop()
                keys[name] = b64encode(secrets.token_bytes(64)).decode()
                shared_file.replace(self._key_file, json.dumps(keys))
            self._start()

    def remove_account(self, name: str) -> None:
        """Deletes an account if it exists, with all its blobs."""
        with self._locked():
            keys = self._keys()
            if name in keys:
                self._start()
                for container in self.containers(name):
                    self.delete_container(name, container)
                self._stop()
                del keys[name]
                shared_file.replace(self._key_file, json.dumps(keys))
            self._start()

    def answer_at(self, addresses: Collection[str]) -> None:
        """Serves the accounts at these addresses too, and no longer at others.

        Raises:
            background_process.StartError: This machine does not have such an address.
        """
        with self._locked():
            self._service.answer_at(addresses)

    def accounts(self) -> Sequence[str]:
        return tuple(self._keys())

    def stop(self) -> None:
        """Ends Azurite, if it runs; accounts and blobs stay."""
        if self.folder.exists():
            with self._locked():
                self._stop()

    def create_container(self, account: str, container: str) -> None:
        """Makes a container if it is missing."""
        self._ask("PUT", f"{account}/{container}", CONTAINER, expected=EXISTS)

    def delete_container(self, account: str, container: str) -> None:
        """Deletes a container if it exists, with all its blobs."""
        self._ask("DELETE", f"{account}/{container}", CONTAINER, expected=MISSING)

    def containers(self, account: str) -> Sequence[str]:
        """Returns the names of an account's containers."""
        return self._names(f"{account}/", "Container", {})

    def list(self, account: str, container: str, prefix: str = "") -> Sequence[str]:
        """Returns the names of the blobs that start with a prefix."""
        return self._names(f"{account}/{container}", "Blob", {**CONTAINER, "prefix": prefix})

    def read(self, account: str, container: str, blob: str) -> bytes:
        """Returns the content of a blob.

        Raises:
            FileNotFoundError: The blob does not exist.
        """
        content = self._ask("GET", f"{account}/{container}/{blob}", {}, expected=MISSING)
        if content is None:
            raise FileNotFoundError(f"no blob is called {account}/{container}/{blob}")
        return content

    def _names(self, path: str, kind: str, parameters: Mapping[str, str]) -> Sequence[str]:
        names: Sequence[str] = []
        marker = ""
        while True:
            page = self._ask("GET", path, {"comp": "list", "marker": marker, **parameters})
            tree = ElementTree.fromstring(page or b"")
            names = [*names, *(element.findtext("Name", "") for element in tree.iter(kind))]
            marker = tree.findtext("NextMarker", "")
            if not marker:
                return names

    def _ask(
        self, method: str, path: str, parameters: Mapping[str, str], expected: int | None = None
    ) -> bytes | None:
        """Sends a request to Azurite as Azure itself; returns None for the status `expected`."""
        token = access_token(AUDIENCE, NOBODY, Identity(NOBODY), int(time.time()))
        request = urllib.request.Request(
            f"{self._service.azurite_url}/{quote(path)}?{urlencode(parameters)}",
            headers={"Authorization": f"Bearer {token}", "x-ms-version": API_VERSION},
            method=method,
        )
        trust = ssl.create_default_context(cafile=certificates.authority(self.folder))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )
        try:
            with opener.open(request, timeout=REQUEST_S) as response:
                content: bytes = response.read()
        except urllib.error.HTTPError as error:
            with error:
                if error.code == expected:
                    return None
                raise
        return content

    def _start(self) -> None:
        """Starts the service unless it runs or no account exists."""
        if keys := self._keys():
            self._service.start(keys)

    def _stop(self) -> None:
        self._service.stop()

    @property
    def _service(self) -> BlobService:
        return BlobService(self.folder, self.address, self.port, self.program)

    @property
    def _key_file(self) -> Path:
        return self.folder / "accounts.json"

    def _keys(self) -> dict[str, str]:
        """Returns the accounts' keys by their names; only Azurite needs them."""
        file = self._key_file
        keys: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        return keys

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with shared_file.locked(self._key_file):
            yield
