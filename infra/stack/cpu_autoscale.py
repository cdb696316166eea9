"""Azure's own autoscale rules for the workers, for work that is not run by volley.

They see CPU load and not Ray: Azure may delete a worker that has an idle env runner.
https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-autoscale-overview
"""

import pulumi
from pulumi_azure_native import monitor

from infra.config.stack_settings import StackSettings
from infra.stack.naming import Naming
from infra.stack.workers import Workers

GROW_ABOVE_PERCENT, GROW_AFTER = 80.0, "PT10M"
SHRINK_BELOW_PERCENT, SHRINK_AFTER = 20.0, "PT30M"
"""Mean CPU of all workers, and for how long; the values of Azure's template for Ray."""


class CpuAutoscale(pulumi.ComponentResource):
    """Adds a worker after 10 minutes above 80 % CPU, removes one after 30 minutes below 20 %."""

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
            # Without it Azure returns another name, and each `up` would change it.
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
        # The next change waits until the metric includes this one.
        direction=direction,
        type="ChangeCount",
        value="1",
        cooldown=window,
    )
    return monitor.ScaleRuleArgs(metric_trigger=trigger, scale_action=action)
