from __future__ import annotations

import http.client
import json
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError, ServiceRequestError

from infra.stack.identity import BLOB_DATA_CONTRIBUTOR
from rehearsal.azure.blob import blob_storage
from rehearsal.azure.blob.blob_proxy import Access
from rehearsal.azure.blob.blob_storage import PROGRAM, BlobStorage
from rehearsal.azure.metadata.managed_identity import access_token
from rehearsal.azure.metadata.metadata_state import Identity
from rehearsal.azure.resources.roles import RoleAssignment
from rehearsal.background_process import StartError
from tests.free_port import EVERY_ADDRESS, free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PROGRAM.exists(), reason=f"Azurite is not installed: {PROGRAM} is missing"
    ),
]


def make(folder: Path) -> BlobStorage:
    """Returns storage in which one principal has full access to every account."""
    storage = BlobStorage(folder, "127.0.0.3", free_port(EVERY_ADDRESS))
    accounts = dict.fromkeys(("results", "first", "second", "kept", "removed"), "/accounts")
    all_ = RoleAssignment("principal", BLOB_DATA_CONTRIBUTOR, "/accounts", 0)
    storage.grant(Access(accounts, (all_,)))
    return storage


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlobStorage]:
    """Storage with the account `results`, for tests that do not change it."""
    storage = make(tmp_path_factory.mktemp("storage") / "blobs")
    storage.add_account("results")
    yield storage
    storage.stop()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[BlobStorage]:
    storage = make(tmp_path / "blobs")
    yield storage
    storage.stop()


def connect(storage: BlobStorage, account: str) -> http.client.HTTPConnection:
    """Connects as a machine does: by the account's real name, trusting only the CA."""
    name = f"{account}.blob.core.windows.net"
    trust = ssl.create_default_context(cafile=storage.ca_certificate)
    plain = socket.create_connection((storage.address, storage.port), timeout=10)
    connection = http.client.HTTPConnection(name)
    try:
        connection.sock = trust.wrap_socket(plain, server_hostname=name)
    except ssl.SSLError:
        plain.close()
        raise
    return connection


def upload(
    storage: BlobStorage, account: str, path: str, content: bytes, token: str | None = None
) -> int:
    """Uploads a blob as a machine does; returns the HTTP status."""
    if token is None:
        identity = Identity("principal")
        token = access_token("https://storage.azure.com/", "client", identity, int(time.time()))
    headers = {
        "Authorization": f"Bearer {token}",
        "x-ms-blob-type": "BlockBlob",
        "x-ms-version": "2026-02-06",
    }
    connection = connect(storage, account)
    connection.request("PUT", f"/{path}", content, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_what_a_machine_uploads_to_the_accounts_real_name_is_read(results: BlobStorage) -> None:
    results.create_container("results", "runs")
    assert upload(results, "results", "runs/a/mlflow.db", b"metrics") == 201
    assert upload(results, "results", "runs/b/mlflow.db", b"others") == 201

    assert results.read("results", "runs", "a/mlflow.db") == b"metrics"
    assert results.list("results", "runs") == ["a/mlflow.db", "b/mlflow.db"]
    assert results.list("results", "runs", "a/") == ["a/mlflow.db"]
    assert "runs" in results.containers("results")
    with pytest.raises(FileNotFoundError, match="results/runs/c"):
        results.read("results", "runs", "c")


def test_what_is_there_is_not_made_again_and_what_is_gone_stays_gone(results: BlobStorage) -> None:
    results.create_container("results", "twice")
    assert upload(results, "results", "twice/a", b"kept") == 201
    results.add_account("results")
    results.create_container("results", "twice")
    assert results.read("results", "twice", "a") == b"kept"
    for _ in range(2):
        results.delete_container("results", "twice")
        assert "twice" not in results.containers("results")


def test_busy_accounts_refuse_requests_and_lost_answers_are_executed(storage: BlobStorage) -> None:
    storage.add_account("results")
    storage.create_container("results", "runs")
    storage.fail("busy")
    assert upload(storage, "results", "runs/a", b"refused") == 503
    storage.fail("lost")
    with pytest.raises(http.client.RemoteDisconnected):
        upload(storage, "results", "runs/b", b"executed")
    storage.fail("ok")
    assert upload(storage, "results", "runs/c", b"answered") == 201
    assert storage.list("results", "runs") == ["b", "c"]


def test_all_pages_of_a_long_list_are_read(
    results: BlobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.create_container("results", "many")
    for number in range(5):
        upload(results, "results", f"many/{number}", b"")
    monkeypatch.setattr(blob_storage, "PAGE", 2)
    assert results.list("results", "many") == ["0", "1", "2", "3", "4"]


def test_accounts_are_added_and_removed_beside_another(storage: BlobStorage) -> None:
    storage.add_account("kept")
    storage.create_container("kept", "runs")
    upload(storage, "kept", "runs/a", b"kept")
    # A machine's connection stays open meanwhile.
    open_connection = connect(storage, "kept")
    open_connection.request("GET", "/")
    open_connection.getresponse().read()
    storage.add_account("removed")
    first, second = json.loads((storage.folder / "accounts.json").read_text()).values()
    assert first != second
    open_connection.close()
    ends = (storage.folder / "azurite.log").read_text().count("successfully closed")
    assert ends == 1, "Azurite was killed before it had written all"

    assert storage.read("kept", "runs", "a") == b"kept"
    assert upload(storage, "kept", "runs/b", b"") == 201
    storage.create_container("removed", "runs")
    assert upload(storage, "removed", "runs/a", b"other") == 201

    storage.remove_account("removed")
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(storage, "removed")
    with pytest.raises(HttpResponseError):
        storage.containers("removed")
    assert storage.read("kept", "runs", "a") == b"kept"

    storage.add_account("removed")
    assert storage.containers("removed") == []


def test_the_last_account_takes_azurite_away(storage: BlobStorage) -> None:
    storage.add_account("results")
    storage.remove_account("results")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((storage.address, storage.port))


def test_other_addresses_are_answered_and_another_process_continues(storage: BlobStorage) -> None:
    storage.add_account("results")
    storage.create_container("results", "runs")
    elsewhere = BlobStorage(storage.folder, "127.0.0.4", storage.port)
    storage.answer_at([elsewhere.address])
    assert upload(elsewhere, "results", "runs/a", b"kept") == 201
    assert storage.read("results", "runs", "a") == b"kept"

    other = BlobStorage(storage.folder, storage.address, storage.port)
    other.add_account("results")
    assert other.read("results", "runs", "a") == b"kept"
    other.stop()
    with pytest.raises(ServiceRequestError):
        storage.read("results", "runs", "a")
    # This restarts all of it: blobs outlive a stop, and the other address answers again.
    storage.add_account("results")
    assert storage.read("results", "runs", "a") == b"kept"
    storage.answer_at([elsewhere.address])
    assert upload(elsewhere, "results", "runs/b", b"") == 201

    storage.answer_at([])
    with pytest.raises(ConnectionRefusedError):
        connect(elsewhere, "results")
    assert upload(storage, "results", "runs/c", b"") == 201


def test_without_a_token_for_storage_that_is_valid_now_there_is_nothing(
    results: BlobStorage,
) -> None:
    results.create_container("results", "guarded")

    def status(audience: str, hours: int) -> int:
        now = int(time.time()) - hours * 3600
        token = access_token(audience, "client", Identity("principal"), now)
        return upload(results, "results", "guarded/a", b"", token)

    assert upload(results, "results", "guarded/a", b"", token="") in {401, 403}
    assert status("https://vault.azure.net", 0) in {401, 403}
    assert status("https://storage.azure.com", 25) in {401, 403}
    assert results.list("results", "guarded") == []
    assert status("https://storage.azure.com", 0) == 201


def test_keys_are_for_the_rehearsal_alone(results: BlobStorage) -> None:
    file = results.folder / "accounts.json"
    for secret in (file, results.folder / "ca.key", results.folder / "server.key"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    (key,) = json.loads(file.read_text()).values()
    pid = (results.folder / "azurite.pid").read_text().split()[0]
    assert key not in (results.folder / "azurite.log").read_text()
    assert key not in Path(f"/proc/{pid}/cmdline").read_text()


def test_stopping_what_never_was_makes_nothing(tmp_path: Path) -> None:
    BlobStorage(tmp_path / "blobs").stop()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ab", "Results", "with-dash", "a" * 25, "a;b:c"])
def test_a_name_that_azure_has_not_is_refused(storage: BlobStorage, name: str) -> None:
    with pytest.raises(ValueError, match="3 to 24 lowercase letters and digits"):
        storage.add_account(name)


def test_an_address_that_is_not_there_is_named(storage: BlobStorage) -> None:
    nowhere = BlobStorage(storage.folder, "192.0.2.1", storage.port)
    with pytest.raises(
        StartError, match=r"(?s)192\.0\.2\.1.*ended.*Cannot assign requested address"
    ):
        nowhere.add_account("results")
