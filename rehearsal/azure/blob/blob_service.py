"""The processes of the Blob service: Azurite on loopback, and proxies that check roles."""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from rehearsal import background_process
from rehearsal.azure import certificates
from rehearsal.azure.blob import blob_proxy
from rehearsal.azure.blob.blob_proxy import HOST_SUFFIX, LOOPBACK
from rehearsal.paths import AZURITE, NODE, ROOT

PROGRAM = AZURITE / "node_modules/azurite/dist/src/blob/main.js"
OPTIONS = ("--oauth", "basic", "--skipApiVersionCheck", "--disableTelemetry", "--silent")


@dataclass(frozen=True)
class BlobService:
    """The processes, with certificates of a throw-away authority; all state is in the folder."""

    folder: Path
    address: str
    port: int
    program: Path

    @property
    def azurite_url(self) -> str:
        """Azurite's own address, where no role is needed."""
        return f"https://{LOOPBACK}:{self._port_file.read_text()}"

    def start(self, keys: Mapping[str, str]) -> None:
        """Starts the processes that do not run.

        Args:
            keys: Of the accounts, by their names.

        Raises:
            background_process.StartError: One of them did not start.
        """
        if not background_process.alive(self._azurite):
            self._start_azurite(keys)
        self._start_proxy(self.address)

    def answer_at(self, addresses: Collection[str]) -> None:
        """Starts a proxy at each of these addresses; ends those elsewhere, except at its own.

        Raises:
            background_process.StartError: One of them did not start.
        """
        kept = {self._proxy(address) for address in (self.address, *addresses)}
        for proxy in self._proxies() - kept:
            background_process.stop(proxy)
        for address in addresses:
            self._start_proxy(address)

    def stop(self) -> None:
        """Ends the processes; accounts and blobs stay."""
        for proxy in self._proxies():
            background_process.stop(proxy)
        background_process.stop(self._azurite)

    def _start_proxy(self, address: str) -> None:
        where = (address, str(self.port), self._port_file.read_text())
        background_process.start(
            [sys.executable, "-m", blob_proxy.__name__, self.folder, *where],
            pid_file=self._proxy(address),
            log=self.folder / "proxy.log",
            address=address,
            port=self.port,
            environment={"PYTHONPATH": str(ROOT)},
        )

    def _start_azurite(self, keys: Mapping[str, str]) -> None:
        names = [f"{name}{HOST_SUFFIX}" for name in keys]
        addresses = [self.address, LOOPBACK]
        certificate, key = certificates.server_certificate(self.folder, names, addresses)
        with socket.create_server((LOOPBACK, 0)) as free:
            port = str(free.getsockname()[1])
        self._port_file.write_text(port)
        files = ("--location", self.folder / "data", "--cert", certificate, "--key", key)
        where = ("--blobHost", LOOPBACK, "--blobPort", port)
        background_process.start(
            [NODE, self.program, *OPTIONS, *where, *files],
            pid_file=self._azurite,
            log=self.folder / "azurite.log",
            address=LOOPBACK,
            port=int(port),
            environment={
                "AZURITE_ACCOUNTS": ";".join(":".join(account) for account in keys.items())
            },
        )

    @property
    def _azurite(self) -> Path:
        return self.folder / "azurite.pid"

    @property
    def _port_file(self) -> Path:
        return self.folder / "azurite.port"

    def _proxy(self, address: str) -> Path:
        return self.folder / f"proxy-{address}.pid"

    def _proxies(self) -> set[Path]:
        return set(self.folder.glob("proxy-*.pid"))
