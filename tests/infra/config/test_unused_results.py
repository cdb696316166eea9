"""`make up` names the results accounts that Azure bills and no cluster uses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from email.message import Message
from typing import Any

import pulumi
import pytest
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks

from infra.config import quota
from infra.config.unused_results import tell_unused_results, unused_accounts
from tests.local_server import json_server

SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000000"
GB = 2**30


def group(name: str, stack: str = "dev", project: str = "volley") -> dict[str, Any]:
    return {"name": name, "tags": {"project": project, "stack": stack}}


def account(
    home: str, *reached_from: str, stack: str = "dev", project: str = "volley"
) -> dict[str, Any]:
    """Returns an account in a group, which subnets of other groups reach."""
    subnet = "providers/Microsoft.Network/virtualNetworks/v/subnets/s"
    rules = [{"id": f"{SUBSCRIPTION}/resourceGroups/{name}/{subnet}"} for name in reached_from]
    return {
        "id": f"{SUBSCRIPTION}/resourceGroups/{home}/providers/Microsoft.Storage/"
        f"storageAccounts/{home.replace('-', '')}",
        "tags": {"project": project, "stack": stack},
        "properties": {"networkAcls": {"virtualNetworkRules": rules}},
    }


def endpoint(of: str) -> dict[str, Any]:
    path = f"{SUBSCRIPTION}/resourceGroups/{of}/providers/Microsoft.Network/privateEndpoints/e"
    return {"properties": {"privateEndpoint": {"id": path}}}


CLUSTER, RESULTS = "volley-dev11111111", "volley-dev-results22222222"
HOME = group(RESULTS)


def unused(*accounts: dict[str, Any], groups: list[dict[str, Any]], own: str = "") -> list[str]:
    found = unused_accounts(accounts, [HOME, *groups], "volley", own)
    return [one["id"].split("/")[4] for one in found]


def test_an_account_of_an_existing_cluster_is_used() -> None:
    assert not unused(account(RESULTS, CLUSTER), groups=[group(CLUSTER.upper())])


def test_an_account_whose_cluster_is_gone_is_not() -> None:
    assert unused(account(RESULTS, CLUSTER), groups=[]) == [RESULTS]


def test_a_new_cluster_of_the_stack_does_not_use_the_old_ones_account() -> None:
    new = account("volley-dev-results33333333", "volley-dev44444444")
    groups = [group("volley-dev44444444"), group("volley-dev-results33333333")]
    assert unused(account(RESULTS, CLUSTER), new, groups=groups) == [RESULTS]


def test_an_account_that_a_private_endpoint_reaches_is_used() -> None:
    continued = account(RESULTS, CLUSTER)
    continued["properties"]["privateEndpointConnections"] = [endpoint("volley-dev44444444")]
    assert not unused(continued, groups=[group("volley-dev44444444")])


def test_an_account_of_the_configuration_is_used_before_the_first_up() -> None:
    continued = account(RESULTS, CLUSTER)
    assert not unused(continued, groups=[], own=continued["id"].upper())


def test_in_existing_subnets_an_account_is_used_while_its_stack_exists() -> None:
    shared = account(RESULTS, "network-of-the-company")
    assert not unused(shared, groups=[group(CLUSTER)])
    assert unused(shared, groups=[group("volley-prod11111111", "prod")]) == [RESULTS]


def test_accounts_of_other_projects_are_not_looked_at() -> None:
    assert not unused(account("other", project="other"), groups=[])


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lines.append)
    monkeypatch.setattr(pulumi.log, "info", lines.append)
    return lines


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What Azure Resource Manager lists, by the part of the path; it may be changed."""
    lists: dict[str, Any] = {
        "storageAccounts?": [account(RESULTS, CLUSTER)],
        "resourcegroups?": [HOME],
        "metrics?": [{"timeseries": [{"data": [{"average": 3 * GB}, {"average": 12 * GB}, {}]}]}],
    }

    def answer(url: str, _: Message) -> tuple[int, Any]:
        for part, value in lists.items():
            if part in url:
                return (200, {"value": value}) if value is not None else (403, {})
        raise AssertionError(url)

    with json_server(answer) as address:
        monkeypatch.setattr(quota, "MANAGEMENT", address)
        yield lists


def tell() -> None:
    class Answers(Mocks):
        def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
            raise AssertionError(args.name)

        def call(self, args: MockCallArgs) -> Any:
            return {"token": "t", "subscriptionId": SUBSCRIPTION.rpartition("/")[2]}

    async def program() -> None:
        pulumi.runtime.set_mocks(Answers())
        tell_unused_results("volley", "")

    asyncio.run(program())


@pytest.mark.slow
def test_an_unused_account_is_named_with_its_newest_size_and_its_price(
    served: dict[str, Any], said: list[str]
) -> None:
    tell()
    (text,) = said
    assert "volleydevresults22222222: 12.0 GB, about 0.25 dollars a month" in text
    served["resourcegroups?"] = [HOME, group(CLUSTER)]
    tell()
    assert said == [text]


@pytest.mark.slow
def test_a_size_that_azure_does_not_show_is_unknown(
    served: dict[str, Any], said: list[str]
) -> None:
    served["metrics?"] = None
    tell()
    assert "volleydevresults22222222: size unknown (HTTP Error 403" in said[0]


@pytest.mark.slow
def test_a_login_that_must_not_list_accounts_is_told_and_not_stopped(
    served: dict[str, Any], said: list[str]
) -> None:
    served["storageAccounts?"] = None
    tell()
    assert said == [
        "Results accounts without a cluster were not looked for: HTTP Error 403: Forbidden"
    ]
