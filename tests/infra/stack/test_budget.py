"""Azure's own budget of the cluster's group."""

from __future__ import annotations

import re

import pytest

from tests.infra.declared_stack import declare_stack

pytestmark = pytest.mark.slow


def test_azure_mails_when_the_months_cost_nears_the_budget() -> None:
    stack = declare_stack(budget="50", contactEmails='["lab@example.com"]')
    budget = stack.one("Budget")
    group = stack.one("VirtualMachine")["resourceGroupName"]
    assert budget["scope"].endswith(f"/resourceGroups/{group}")
    assert budget["amount"] == 50
    assert re.fullmatch(r"\d{4}-\d\d-01T00:00:00Z", budget["timePeriod"]["startDate"])
    notifications = budget["notifications"].values()
    assert sorted(mail["threshold"] for mail in notifications) == [80, 100]
    assert all(mail["contactEmails"] == ["lab@example.com"] for mail in notifications)


def test_without_addresses_there_is_no_budget_in_azure() -> None:
    assert declare_stack(budget="50").all("Budget") == []
