from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rehearsal.azure.metadata import metadata_service
from rehearsal.azure.metadata.metadata_state import Identity, Instance, put_instance
from rehearsal.azure.resources import roles
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION
from tests.free_port import free_port
from tests.head.sleep.sleeping_head import SleepingHead
from tests.rehearsal.azure.resources.scale_set_cloud import HEADS, cloud

MakeHead = Callable[..., SleepingHead]


@pytest.fixture(scope="session")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The rehearsal's metadata service, which issues the head's tokens, and its state."""
    folder = tmp_path_factory.mktemp("metadata")
    address, port = "127.0.0.1", free_port()
    state_file = folder / "metadata.json"
    head = Instance(
        "head",
        address,
        "eastus",
        "Standard_D4as_v5",
        "g",
        identities={"head-client": Identity(HEADS)},
        subscription_id=SUBSCRIPTION,
    )
    put_instance(state_file, head)
    metadata_service.start(state_file, folder / "metadata.log", address, port)
    yield f"http://{address}:{port}", state_file
    metadata_service.stop(state_file)


@pytest.fixture
def identity(metadata: tuple[str, Path]) -> str:
    return metadata[0]


@pytest.fixture
def make_head(tmp_path: Path, identity: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeHead]:
    """Makes a head with some workers."""
    monkeypatch.setattr(roles, "ROLE_DELAY_S", 0)
    with ExitStack() as running:

        def make(workers: int = 0) -> SleepingHead:
            (tmp_path / "azure").mkdir()
            azure = running.enter_context(cloud(tmp_path / "azure", workers))
            azure.management.machines.operation_s = 0.5
            (tmp_path / "head").mkdir()
            return SleepingHead(tmp_path / "head", azure, identity)

        yield make


@pytest.fixture
def head(make_head: MakeHead) -> SleepingHead:
    return make_head()
