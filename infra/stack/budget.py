"""Azure's own budget: sends mail when the monthly cost of the cluster's group nears `budget`.

The head's cost estimate stops the cluster; this budget counts what Azure bills, hours later.
https://learn.microsoft.com/azure/cost-management-billing/costs/tutorial-acm-create-budgets
"""

from datetime import UTC, datetime

import pulumi
from pulumi_azure_native import consumption

from infra.config.stack_settings import StackSettings
from infra.stack.naming import Naming

MAIL_AT_PERCENT = (80, 100)


class Budget(pulumi.ComponentResource):
    """A monthly budget of the cluster's resource group."""

    def __init__(self, naming: Naming, settings: StackSettings) -> None:
        super().__init__("volley:infra:Budget", naming.name("budget"), opts=naming.in_cluster)
        budget = consumption.Budget(
            naming.name("budget"),
            budget_name=naming.name("budget"),
            scope=naming.group_id,
            amount=settings.budget,
            category="Cost",
            time_grain="Monthly",
            # Azure requires the first day of a month; a past date must lie in the current one.
            time_period=consumption.BudgetTimePeriodArgs(
                start_date=datetime.now(UTC).strftime("%Y-%m-01T00:00:00Z")
            ),
            notifications={
                f"at-{percent}-percent": consumption.NotificationArgs(
                    enabled=True,
                    operator="GreaterThan",
                    threshold=percent,
                    threshold_type="Actual",
                    contact_emails=settings.contact_emails,
                )
                for percent in MAIL_AT_PERCENT
            },
            opts=naming.options(self, ignore_changes=["timePeriod"]),
        )
        self.register_outputs({"budget": budget.id})
