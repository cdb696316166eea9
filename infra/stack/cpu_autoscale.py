"""The rules by which Azure itself scales the workers, for whoever runs other work than volley's.

They see the workers' CPUs and nothing of Ray: a worker with an idle env runner may be deleted.
https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-autoscale-overview
"""

from __future__ import annotations

import pulumi
from pulumi_azure_native import monitor

from infra.config.stack_settings import StackSettings
from infra.stack.naming import Naming
from infra.stack.workers import Workers

GROW_ABOVE_PERCENT, GROW_AFTER = 80.0, "PT10M"
SHRINK_BELOW_PERCENT, SHRINK_AFTER = 20.0, "PT30M"
"""Of the mean CPU of all workers, over so long: those of Azure's template for Ray."""


class CpuAutoscale(pulumi.ComponentResource):
    """One worker more above 80 % for 10 minutes, one less below 20 % for 30 minutes."""

    def __init__(self, naming: Naming, settings: StackSettings, workers: Workers) -> None:
        super().__init__("volley:infra:CpuAutoscale", naming.name("cpu-rules"))
        scale_set = workers.scale_set.id
        # Without a worker there is no CPU to measure, and Azure would never add one.
        least = str(min(max(1, settings.min_workers), settings.max_workers))
        capacity = monitor.ScaleCapacityArgs(
            minimum=least, maximum=str(settings.max_workers), default=least
        )
        profile = monitor.AutoscaleProfileArgs(
            name="cpu",
            capacity=capacity,
            rules=[
                _rule(scale_set, "GreaterThan", GROW_ABOVE_PERCENT, GROW_AFTER, "Increase"),
                _rule(scale_set, "LessThan", SHRINK_BELOW_PERCENT, SHRINK_AFTER, "Decrease"),
            ],
        )
        self.setting = monitor.AutoscaleSetting(
            naming.name("cpu-rules"),
            **naming.in_group,
            autoscale_setting_name=naming.name("cpu-rules"),
            # Without it Azure shows another name, and each `up` would change it.
            name=naming.name("cpu-rules"),
            enabled=True,
            target_resource_uri=scale_set,
            profiles=[profile],
            opts=naming.options(self, depends_on=[workers.scale_set]),
        )
        self.register_outputs({"setting": self.setting.id})


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
        # The next change waits until the metric knows of this one.
        direction=direction,
        type="ChangeCount",
        value="1",
        cooldown=window,
    )
    return monitor.ScaleRuleArgs(metric_trigger=trigger, scale_action=action)
