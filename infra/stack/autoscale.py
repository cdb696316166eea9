"""Azure's own autoscale of the workers: their lease from the head, or rules for their CPU load.

The lease: workers must not outlive a head that was evicted, stopped or lost. Azure allows no worker
unless the head keeps adding a profile that ends hours later: head/sleep/lease.py.

The rules are for work that is not run by volley. They see CPU load and not Ray: Azure may delete a
worker that has an idle env runner.
https://learn.microsoft.com/azure/azure-monitor/autoscale/autoscale-understanding-settings
"""

from collections.abc import Sequence

import pulumi
from pulumi_azure_native import monitor

from infra.config.stack_settings import StackSettings
from infra.stack.naming import Naming
from infra.stack.workers import Workers

GROW_ABOVE_PERCENT, GROW_AFTER = 80.0, "PT10M"
SHRINK_BELOW_PERCENT, SHRINK_AFTER = 20.0, "PT30M"
"""Mean CPU of all workers, and for how long; the values of Azure's template for Ray."""


class Autoscale(pulumi.ComponentResource):
    """The one autoscale setting that a scale set can have."""

    def __init__(
        self,
        naming: Naming,
        settings: StackSettings,
        workers: Workers,
        after: Sequence[pulumi.Resource],
    ) -> None:
        super().__init__("volley:infra:Autoscale", naming.name("autoscale"), opts=naming.in_cluster)
        scale_set, leased = workers.scale_set.id, settings.has_autoscaler
        self.setting = monitor.AutoscaleSetting(
            naming.name("autoscale"),
            **naming.in_group,
            autoscale_setting_name=naming.name("autoscale"),
            # Without it Azure returns another name, and each `up` would change it.
            name=naming.name("autoscale"),
            # The head enables its lease, before it asks for workers.
            enabled=not leased,
            target_resource_uri=scale_set,
            profiles=[_nobody() if leased else _by_load(settings, scale_set)],
            opts=naming.options(
                self,
                depends_on=[workers.scale_set, *after],
                ignore_changes=["enabled", "profiles"] if leased else [],
            ),
        )
        self.register_outputs({"setting": self.setting.id})


def _nobody() -> monitor.AutoscaleProfileArgs:
    none = monitor.ScaleCapacityArgs(minimum="0", maximum="0", default="0")
    return monitor.AutoscaleProfileArgs(name="without a head", capacity=none, rules=[])


def _by_load(
    settings: StackSettings, scale_set: pulumi.Output[str]
) -> monitor.AutoscaleProfileArgs:
    """Adds a worker after 10 minutes above 80 % CPU, removes one after 30 minutes below 20 %."""
    # Without a worker, no CPU can be measured, and Azure would never add one.
    least = str(min(max(1, settings.min_workers), settings.max_workers))
    return monitor.AutoscaleProfileArgs(
        name="cpu",
        capacity=monitor.ScaleCapacityArgs(
            minimum=least, maximum=str(settings.max_workers), default=least
        ),
        rules=[
            _rule(scale_set, "GreaterThan", GROW_ABOVE_PERCENT, GROW_AFTER, "Increase"),
            _rule(scale_set, "LessThan", SHRINK_BELOW_PERCENT, SHRINK_AFTER, "Decrease"),
        ],
    )


def _rule(
    scale_set: pulumi.Output[str], operator: str, percent: float, window: str, direction: str
) -> monitor.ScaleRuleArgs:
    trigger = monitor.MetricTriggerArgs(
        metric_name="Percentage CPU",
        metric_resource_uri=scale_set,
        operator=operator,
        threshold=percent,
        statistic="Average",
        time_aggregation="Average",
        time_grain="PT1M",
        time_window=window,
    )
    action = monitor.ScaleActionArgs(
        # The next change waits until the metric includes this one.
        direction=direction,
        type="ChangeCount",
        value="1",
        cooldown=window,
    )
    return monitor.ScaleRuleArgs(metric_trigger=trigger, scale_action=action)
