"""Before creating anything, `up` compares the vCPU quota with what the machines need."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from email.message import Message
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks

from infra.config import quota
from infra.config.quota import QuotaError, Usage, check_quota, needed_vcpus, too_small
from infra.config.stack_settings import StackSettings
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION, all_of
from rehearsal.azure.resources.virtual_machines import usages
from rehearsal.drivers.in_process import InProcess
from tests.infra.declared_stack import REQUIRED
from tests.infra.up import engine_stack
from tests.infra.up.engine_stack import Stack, needs_pulumi
from tests.local_server import json_server

T4, DAS = "Standard NCASv3_T4 Family", "standardDASv5Family"
ENOUGH = {T4: 4, DAS: 100, "cores": 100, "lowPriorityCores": 8}
PREFIX = "volley-dev"
OWNER = [{"actions": ["*"], "notActions": []}]
"""What a login may do, at any scope."""
Serve = Callable[[Azure, int], str]

stack = engine_stack.stack


@pytest.fixture
def azure(tmp_path: Path) -> Azure:
    """An Azure with enough quota for four workers."""
    found = Azure(tmp_path / "quota.json")
    found.quota = ENOUGH
    return found


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a stand-in for Azure Resource Manager that lists groups and quotas, two per page."""

    def start(azure: Azure, status: int) -> str:
        def answer(url: str, headers: Message) -> tuple[int, Any]:
            assert headers["Authorization"] == "Bearer of nobody"
            path, _, page = url.partition("&page=")
            first = int(page or 0)
            listed = lists(azure).get(path.removeprefix(f"/subscriptions/{SUBSCRIPTION}"), OWNER)
            body: dict[str, Any] = {"value": listed[first : first + 2]}
            if first + 2 < len(listed):
                body["nextLink"] = f"{quota.MANAGEMENT}{path}&page={first + 2}"
            return status, body

        address = servers.enter_context(json_server(answer))
        monkeypatch.setattr(quota, "MANAGEMENT", address)
        return address

    with ExitStack() as servers:
        yield start


def lists(azure: Azure) -> dict[str, list[dict[str, Any]]]:
    """Returns the lists that it serves, by path."""
    groups = all_of(azure.resources(), "ResourceGroup").values()
    return {
        quota.USAGES.format("eastus"): usages(azure.resources(), azure.quota)["value"],
        quota.GROUPS: [{"name": group.inputs["resourceGroupName"]} for group in groups],
    }


@pytest.fixture
def check(azure: Azure) -> Callable[[], None]:
    """Checks the default stack, with four workers."""

    class Answers(Mocks):
        def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
            raise AssertionError(args.name)

        def call(self, args: MockCallArgs) -> Any:
            return azure.invoke(args.token, dict(args.args))

    async def program() -> None:
        pulumi.runtime.set_mocks(Answers())
        check_quota(StackSettings(), PREFIX)

    return lambda: asyncio.run(program())


@pytest.mark.slow
def test_a_quota_that_is_enough_is_silent(
    azure: Azure, serve: Serve, check: Callable[[], None]
) -> None:
    serve(azure, 200)
    check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "line"),
    [
        ({T4: 0}, f"{T4}: 4 vCPUs are needed, 0 are free (limit 0, 0 in use)"),
        ({"lowPriorityCores": 3}, "lowPriorityCores: 8 vCPUs are needed, 3 are free"),
    ],
)
def test_a_quota_that_is_too_small_is_named(
    azure: Azure,
    serve: Serve,
    check: Callable[[], None],
    limits: Mapping[str, int],
    line: str,
) -> None:
    azure.quota = {**ENOUGH, **limits}
    serve(azure, 200)
    with pytest.raises(QuotaError, match=re.escape(line)):
        check()


@pytest.mark.slow
def test_the_machines_of_a_stack_that_exists_are_not_counted_twice(
    azure: Azure, serve: Serve, check: Callable[[], None]
) -> None:
    azure.quota = {T4: 0}
    for name in ("other", f"{PREFIX}-results12345678", f"{PREFIX}12345678"):
        azure.create("azure-native:resources:ResourceGroup", name, {"resourceGroupName": name})
    serve(azure, 200)
    check()


@pytest.mark.slow
def test_a_login_that_must_not_read_the_quota_is_warned_and_not_stopped(
    azure: Azure, serve: Serve, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", warnings.append)
    azure.quota = {T4: 0}
    serve(azure, 403)
    check()
    assert warnings == ["The quota for vCPUs was not checked: HTTP Error 403: Forbidden"]


@pytest.mark.slow
@needs_pulumi
def test_the_engine_shows_a_quota_that_is_too_small_and_makes_nothing(
    stack: Stack, serve: Serve, azure: Azure
) -> None:
    azure.quota = {T4: 0}
    stack.edit("infra/config/quota.py", quota.MANAGEMENT, serve(azure, 200))
    stack.config("checkQuota", "true")
    done = stack.up()
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert f"{T4}: 4 vCPUs are needed, 0 are free" in said
    assert "Traceback" not in said
    assert not stack.azure()


def test_without_the_check_azure_refuses_the_head_after_the_network_exists(azure: Azure) -> None:
    azure.quota = {**ENOUGH, T4: 3}
    assert f"{T4} Cores quota" in InProcess(azure).up(REQUIRED).error
    assert all_of(azure.resources(), "Subnet")


@pytest.mark.parametrize("spot_machines", [0, None])
def test_neither_a_shortage_nor_the_quota_of_workers_fails_up(
    azure: Azure, spot_machines: int | None
) -> None:
    azure.quota, azure.spot_machines = {**ENOUGH, "lowPriorityCores": 0}, spot_machines
    assert not InProcess(azure).up({**REQUIRED, "maxWorkers": "4"}).error


def test_spot_machines_need_no_quota_of_their_family() -> None:
    settings = StackSettings(max_workers=3, worker_size="Standard_D4as_v5", worker_spot=True)
    assert needed_vcpus(settings) == {T4: 4, "cores": 4, "lowPriorityCores": 12}


def test_head_and_workers_of_one_family_are_added() -> None:
    settings = StackSettings(
        head_size="Standard_D4as_v5", worker_size="Standard_D2as_v5", worker_spot=False
    )
    assert needed_vcpus(settings) == {DAS: 12, "cores": 12}


def test_a_family_is_found_whatever_its_case_and_spaces() -> None:
    assert list(too_small({T4: 4}, [Usage("standardNCASv3_T4Family", 0, 3)]))


def test_a_quota_that_azure_does_not_list_is_not_checked() -> None:
    assert not list(too_small({"unknownFamily": 4}, []))
