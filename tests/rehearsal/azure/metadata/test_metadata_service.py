from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rehearsal.azure.metadata import metadata_service, metadata_state
from rehearsal.azure.metadata.managed_identity import NOT_READY
from rehearsal.azure.metadata.metadata_state import Identity, Instance, ScheduledEvent, put_instance
from tests.free_port import free_port

pytestmark = pytest.mark.slow

HEAD = Instance(
    "head",
    "127.0.0.11",
    location="westeurope",
    vm_size="Standard_NC4as_T4_v3",
    resource_group="cluster",
    subnet="127.0.0.0/24",
    tags={"volley": "head", "owner": "me"},
    identities={"head-client": Identity("head-principal", "tenant", "/head-identity")},
)
WORKER = Instance(
    "worker_1",
    "127.0.0.21",
    location="westeurope",
    vm_size="Standard_D2as_v5",
    resource_group="cluster",
    priority="Spot",
    scale_set="workers",
    identities={"worker-client": Identity("worker-principal")},
)
OTHER_WORKER = replace(WORKER, name="worker_2", address="127.0.0.22")

INSTANCE = "/metadata/instance?api-version=2021-02-01"
COMPUTE = "/metadata/instance/compute?api-version=2021-02-01"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
TOKEN = "/metadata/identity/oauth2/token?api-version=2018-02-01"
STORAGE_TOKEN = f"{TOKEN}&resource=https://storage.azure.com"


class Service:
    """A running service with its state file."""

    def __init__(self, folder: Path) -> None:
        self.state_file = folder / "metadata.json"
        self.address = "127.0.0.2"
        self.port = free_port(self.address)

    def start(self) -> None:
        log = self.state_file.with_suffix(".log")
        metadata_service.start(self.state_file, log, self.address, self.port)

    def ask(
        self,
        url: str,
        caller: Instance = HEAD,
        headers: dict[str, str] | None = None,
        body: object = None,
    ) -> tuple[int, Any]:
        """Sends a request from a machine's address, as a POST if there is a `body`."""
        connection = http.client.HTTPConnection(
            self.address, self.port, timeout=10, source_address=(caller.address, 0)
        )
        method, data = ("GET", None) if body is None else ("POST", json.dumps(body))
        connection.request(method, url, data, {"Metadata": "true"} if headers is None else headers)
        with connection.getresponse() as response:
            text = response.read().decode()
            is_json = response.headers["Content-Type"].startswith("application/json")
            connection.close()
            return response.status, json.loads(text) if is_json else text

    def events(self, caller: Instance) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.ask(EVENTS, caller)[1]["Events"]
        return events

    def approve(self, event_id: str, caller: Instance) -> int:
        return self.ask(EVENTS, caller, body={"StartRequests": [{"EventId": event_id}]})[0]

    def acknowledged(self, event_id: str) -> bool:
        return metadata_state.acknowledged(self.state_file, event_id)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("cloud"))
    service.start()
    for instance in (HEAD, WORKER, OTHER_WORKER):
        put_instance(service.state_file, instance)
        for _ in NOT_READY:
            service.ask(STORAGE_TOKEN, instance)
    yield service
    metadata_service.stop(service.state_file)


@pytest.fixture
def cloud(running: Service) -> Service:
    """Three machines without scheduled events."""
    for name in metadata_state.read(running.state_file).instances:
        metadata_state.remove_instance(running.state_file, name)
    for instance in (HEAD, WORKER, OTHER_WORKER):
        put_instance(running.state_file, instance)
    return running


def preempt(cloud: Service, *names: str, in_s: float = 30) -> str:
    event = ScheduledEvent("Preempt", names, not_before=time.time() + in_s)
    return metadata_state.schedule(cloud.state_file, event)


def test_each_machine_is_told_what_it_is(cloud: Service) -> None:
    status, head = cloud.ask(INSTANCE, HEAD)
    assert status == 200
    assert head["compute"]["name"] == "head"
    assert head["compute"]["tagsList"][0] == {"name": "volley", "value": "head"}
    assert head["compute"]["tags"] == "volley:head;owner:me"
    assert head["network"]["interface"][0]["ipv4"] == {
        "ipAddress": [{"privateIpAddress": "127.0.0.11", "publicIpAddress": ""}],
        "subnet": [{"address": "127.0.0.0", "prefix": "24"}],
    }
    _, worker = cloud.ask(COMPUTE, WORKER)
    assert (worker["name"], worker["priority"]) == ("worker_1", "Spot")
    assert (worker["vmSize"], worker["vmScaleSetName"]) == ("Standard_D2as_v5", "workers")


def test_a_route_leads_to_a_part_and_a_leaf_is_text(cloud: Service) -> None:
    api = "?api-version=2021-02-01"
    assert cloud.ask(f"/metadata/instance/network/interface/0{api}")[1]["ipv4"]
    assert cloud.ask(f"/metadata/instance/compute/vmSize{api}&format=text") == (200, HEAD.vm_size)
    assert cloud.ask(f"/metadata/instance/compute/vmSize{api}")[0] == 400
    assert cloud.ask(f"/metadata/instance{api}&format=text") == (200, "compute/\nnetwork/")
    for nothing in ("/metadata/instance/colour", "/metadata/instance/network/interface/1"):
        assert cloud.ask(f"{nothing}{api}")[0] == 404


def test_machines_that_come_and_go_are_known_at_once(cloud: Service) -> None:
    new = replace(WORKER, name="worker_3", address="127.0.0.23")
    assert cloud.ask(COMPUTE, new)[0] == 403
    put_instance(cloud.state_file, new)
    assert cloud.ask(COMPUTE, new)[1]["name"] == "worker_3"
    put_instance(cloud.state_file, replace(new, vm_size="Standard_D4as_v5"))
    assert cloud.ask(COMPUTE, new)[1]["vmSize"] == "Standard_D4as_v5"
    metadata_state.remove_instance(cloud.state_file, new.name)
    assert cloud.ask(COMPUTE, new)[0] == 403


@pytest.mark.parametrize(
    ("url", "headers", "error"),
    [
        (COMPUTE, {}, "Required metadata header not specified"),
        (EVENTS, {"Metadata": "True"}, "Required metadata header not specified"),
        (STORAGE_TOKEN, {}, "bad_request_102"),
        (COMPUTE, {"Metadata": "true", "x-forwarded-for": "1.2.3.4"}, "X-Forwarded-For"),
        ("/metadata/instance", {"Metadata": "true"}, "api-version is invalid or was not"),
        (COMPUTE.replace("2021", "1921"), {"Metadata": "true"}, "api-version is invalid"),
        (EVENTS.replace("07-01", "06-01"), {"Metadata": "true"}, "api-version is invalid"),
        (f"{COMPUTE}&api-version=2021-02-01", {"Metadata": "true"}, "Duplicate"),
    ],
)
def test_a_request_that_azure_would_not_look_at_is_refused(
    cloud: Service, url: str, headers: dict[str, str], error: str
) -> None:
    status, body = cloud.ask(url, headers=headers)
    assert status == 400
    assert error in body["error"]


def test_a_machine_that_has_booted_must_ask_again_for_its_first_token(cloud: Service) -> None:
    replacement = replace(WORKER, vm_id="another", address="127.0.0.23", name="worker_3")
    put_instance(cloud.state_file, replacement)
    answers = [cloud.ask(STORAGE_TOKEN, replacement)[0] for _ in range(4)]
    assert answers == [410, 429, 200, 200]


@pytest.mark.parametrize("which", ["", "&client_id=head-client", "&object_id=head-principal"])
def test_a_token_says_whom_it_is_for_and_how_long(cloud: Service, which: str) -> None:
    status, body = cloud.ask(STORAGE_TOKEN + which)
    assert status == 200
    assert (body["token_type"], body["resource"]) == ("Bearer", "https://storage.azure.com")
    claims = json.loads(base64.urlsafe_b64decode(body["access_token"].split(".")[1] + "=="))
    assert claims["aud"] == "https://storage.azure.com"
    assert (claims["appid"], claims["oid"], claims["tid"]) == (
        "head-client",
        "head-principal",
        "tenant",
    )
    assert claims["exp"] == int(body["expires_on"]) > time.time() + 3600


@pytest.mark.parametrize(
    ("url", "caller", "why"),
    [
        (f"{STORAGE_TOKEN}&client_id=worker-client", HEAD, "Identity not found"),
        (f"{STORAGE_TOKEN}&client_id=head-client", WORKER, "Identity not found"),
        (f"{STORAGE_TOKEN}&msi_res_id=/other", HEAD, "Identity not found"),
        (f"{TOKEN}&client_id=head-client", HEAD, "Required audience parameter not specified"),
    ],
)
def test_an_identity_of_another_machine_is_refused(
    cloud: Service, url: str, caller: Instance, why: str
) -> None:
    refusal = {"error": "invalid_request", "error_description": why}
    assert cloud.ask(url, caller) == (400, refusal)


def test_a_machine_with_two_identities_must_say_which(cloud: Service) -> None:
    both = {**HEAD.identities, **WORKER.identities}
    put_instance(cloud.state_file, replace(HEAD, identities=both))
    status, body = cloud.ask(STORAGE_TOKEN)
    assert status == 400
    assert body["error_description"].startswith("Multiple user assigned identities exist")
    assert cloud.ask(f"{STORAGE_TOKEN}&client_id=worker-client")[0] == 200


def test_an_event_is_told_to_its_machine_and_its_scale_set_alone(cloud: Service) -> None:
    event_id = preempt(cloud, "worker_1")
    (event,) = cloud.events(WORKER)
    assert event["EventId"] == event_id
    assert (event["EventType"], event["EventStatus"]) == ("Preempt", "Scheduled")
    assert event["Resources"] == ["worker_1"]
    assert event["NotBefore"].endswith(" GMT")
    assert cloud.events(OTHER_WORKER) == [event]
    assert cloud.events(HEAD) == []


def test_an_event_that_is_acknowledged_starts(cloud: Service) -> None:
    event_id = preempt(cloud, "worker_1")
    assert not cloud.acknowledged(event_id)
    assert cloud.approve(event_id, WORKER) == 200
    assert cloud.acknowledged(event_id)
    (event,) = cloud.events(WORKER)
    assert (event["EventStatus"], event["NotBefore"]) == ("Started", "")
    assert cloud.approve(event_id, WORKER) == 200


def test_an_event_starts_by_itself_and_disappears() -> None:
    event = ScheduledEvent("Preempt", ("worker_1",), not_before=100)
    gone = 100 + metadata_state.STARTED_S
    assert [event.status(now) for now in (99, 100, gone)] == ["Scheduled", "Started", None]


def test_an_acknowledgement_makes_an_event_start_sooner_and_never_later() -> None:
    event = ScheduledEvent("Preempt", ("worker_1",), not_before=100)
    assert replace(event, acknowledged=50).status(50 + metadata_state.STARTED_S) is None
    assert replace(event, acknowledged=105).status(104) == "Started"


def test_an_event_that_is_over_is_not_told_and_not_started(cloud: Service) -> None:
    event_id = preempt(cloud, "worker_1", in_s=-60)
    assert cloud.events(WORKER) == []
    assert cloud.approve(event_id, WORKER) == 400
    assert not cloud.acknowledged(event_id)


def test_a_machine_that_is_not_told_of_an_event_cannot_start_it(cloud: Service) -> None:
    event_id = preempt(cloud, "worker_1")
    assert cloud.approve(event_id, HEAD) == 400
    assert not cloud.acknowledged(event_id)


@pytest.mark.parametrize("body", [{}, [], {"StartRequests": [{}]}, {"StartRequests": 1}])
def test_a_malformed_start_request_is_refused(cloud: Service, body: object) -> None:
    assert cloud.ask(EVENTS, WORKER, body=body)[0] == 400


def test_events_go_with_the_last_of_their_machines(cloud: Service) -> None:
    preempt(cloud, "worker_1", "head")
    metadata_state.remove_instance(cloud.state_file, "worker_1")
    assert len(cloud.events(HEAD)) == 1
    metadata_state.remove_instance(cloud.state_file, "head")
    put_instance(cloud.state_file, HEAD)
    assert cloud.events(HEAD) == []


def test_the_incarnation_rises_when_the_events_change_and_only_then(cloud: Service) -> None:
    def incarnation() -> int:
        number: int = cloud.ask(EVENTS, WORKER)[1]["DocumentIncarnation"]
        return number

    first = incarnation()
    assert incarnation() == first
    event_id = preempt(cloud, "worker_2")
    assert [incarnation(), incarnation()] == [first + 1, first + 1]
    cloud.approve(event_id, OTHER_WORKER)
    assert incarnation() == first + 2


def test_acknowledgements_outlive_the_service(cloud: Service) -> None:
    event_id = preempt(cloud, "worker_1")
    cloud.approve(event_id, WORKER)
    metadata_service.stop(cloud.state_file)
    cloud.start()
    assert cloud.acknowledged(event_id)
    assert cloud.events(WORKER)[0]["EventStatus"] == "Started"


def test_changes_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "metadata.json"
    many = [replace(WORKER, name=f"w{i}", address=f"127.0.1.{i}") for i in range(40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda instance: put_instance(file, instance), many))
    assert metadata_state.read(file).instances == {instance.name: instance for instance in many}


def test_two_machines_cannot_have_one_address(tmp_path: Path) -> None:
    put_instance(tmp_path / "metadata.json", HEAD)
    with pytest.raises(ValueError, match=r"127.0.0.11 of thief is head's"):
        put_instance(tmp_path / "metadata.json", replace(HEAD, name="thief"))
