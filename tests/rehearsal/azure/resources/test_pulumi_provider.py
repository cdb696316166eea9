"""The engine's view of Azure, requested over gRPC as the engine does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from rehearsal.azure.azure_errors import AzureError, HalfMadeError
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.pulumi_provider import VERSION, Provider, Servicer, wrapped
from rehearsal.azure.resources.resource_kinds import Properties

TYPE = "azure-native:network:Subnet"
URN = f"urn:pulumi:dev::volley::volley:infra:Network${TYPE}::head"
INPUTS = {"resourceGroupName": "g", "virtualNetworkName": "v", "subnetName": "head"}


class Answering(Azure):
    """An Azure that answers every call with `answer` and records the calls."""

    def __init__(self, answer: Callable[[], Properties] = dict) -> None:
        super().__init__(Path("/nowhere"))
        self._answer = answer
        self.asked: list[tuple[Any, ...]] = []

    def create(self, *asked: Any) -> Properties:
        return self._keep("create", *asked)

    def update(self, *asked: Any) -> Properties:
        return self._keep("update", *asked)

    def _keep(self, *asked: Any) -> Properties:
        self.asked.append(asked)
        return self._answer()


def ask(azure: Azure, *questions: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    """Serves Azure on a port of its own and puts all questions at once."""

    async def serve_and_ask() -> list[Any]:
        grpc_server = grpc.aio.server()
        servicer = Servicer([], VERSION, Provider(azure), "")
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, grpc_server)
        port = grpc_server.add_insecure_port("127.0.0.1:0")
        await grpc_server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub = provider_pb2_grpc.ResourceProviderStub(channel)
                return await asyncio.gather(*(question(stub) for question in questions))
        finally:
            await grpc_server.stop(None)

    return asyncio.run(serve_and_ask())


def create(stub: Any) -> Any:
    return stub.Create(provider_pb2.CreateRequest(urn=URN, properties=struct(INPUTS)))


def update(stub: Any) -> Any:
    old = struct({**INPUTS, "addressPrefix": "10.42.0.0/24"})
    new = struct({**INPUTS, "addressPrefix": "10.42.1.0/24", "number": 2})
    return stub.Update(
        provider_pb2.UpdateRequest(id="/the/subnet", urn=URN, olds=old, news=new, old_inputs=old)
    )


def struct(values: Properties) -> Any:
    """Returns the values as the engine sends them, with its own fields."""
    return PropertyValue.marshal_map(wrapped({**values, "__defaults": []}))


def raising(error: Exception) -> Callable[[], Properties]:
    def answer() -> Properties:
        raise error

    return answer


def test_two_resources_are_made_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)

    def wait() -> Properties:
        both.wait()
        return {}

    first, second = ask(Answering(wait), create, create)
    assert first.id == second.id


def test_what_azure_adds_is_known_after_the_creation() -> None:
    (made,) = ask(Answering(lambda: {"addressPrefix": "10.42.0.0/24"}), create)
    assert dict(made.properties) == {**INPUTS, "addressPrefix": "10.42.0.0/24"}


def test_an_update_sees_whole_numbers_and_nothing_of_the_engine() -> None:
    azure = Answering()
    ask(azure, update)
    new = {**INPUTS, "addressPrefix": "10.42.1.0/24", "number": 2}
    assert azure.asked == [("update", "/the/subnet", new)]
    assert type(azure.asked[0][2]["number"]) is int


def test_a_change_is_compared_with_the_inputs_of_before() -> None:
    old = {**INPUTS, "addressPrefix": "10.42.0.0/24"}
    new = {**old, "virtualNetworkName": "other"}
    request = provider_pb2.DiffRequest(
        # The state differs from the declaration: Azure has added to it.
        id="/the/subnet",
        urn=URN,
        olds=struct({"name": "head"}),
        news=struct(new),
        old_inputs=struct(old),
    )
    (diff,) = ask(Answering(), lambda stub: stub.Diff(request))
    assert list(diff.diffs) == list(diff.replaces) == ["virtualNetworkName"]


def test_a_provider_of_another_subscription_makes_its_resources_there() -> None:
    async def configure_and_create(stub: Any) -> Any:
        args = struct({"subscriptionId": "other"})
        await stub.Configure(provider_pb2.ConfigureRequest(args=args))
        return await create(stub)

    (made,) = ask(Answering(), configure_and_create)
    assert made.id.startswith("/subscriptions/other/")


@pytest.mark.parametrize("question", [create, update])
def test_what_azure_refuses_is_told_in_its_words(question: Callable[[Any], Any]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        ask(Answering(raising(AzureError("no such size"))), question)
    assert raised.value.details() == "no such size"
    assert not raised.value.trailing_metadata()


@pytest.mark.parametrize("question", [create, update])
def test_what_is_half_made_is_known_to_the_engine(question: Callable[[Any], Any]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        ask(Answering(raising(HalfMadeError("did not come up", {"address": "1.2.3.4"}))), question)
    details = dict(raised.value.trailing_metadata())["grpc-status-details-bin"]
    failed = provider_pb2.ErrorResourceInitFailed()
    assert status_pb2.Status.FromString(details).details[0].Unpack(failed)
    assert failed.id.startswith("/")
    assert list(failed.reasons) == ["did not come up"]
    assert failed.properties["address"] == "1.2.3.4"
    assert failed.inputs["subnetName"] == "head"
