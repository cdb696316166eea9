"""What an existing Log Analytics workspace receives: metrics from Azure, and boot logs.

Each machine sends its journal itself, by the Logs Ingestion API: Azure's agent would need an
association with each VM of a Flexible scale set, and a minute of every worker's boot.
https://learn.microsoft.com/azure/azure-monitor/logs/logs-ingestion-api-overview
"""

import pulumi
from pulumi_azure_native import monitor, operationalinsights

from infra.stack.naming import Naming
from infra.stack.subscription import provider_for

STREAM = "Custom-Journal"
COLUMNS = {
    "TimeGenerated": "datetime",
    "EventTime": "datetime",
    "Computer": "string",
    "HostName": "string",
    "Facility": "string",
    "SeverityLevel": "string",
    "ProcessName": "string",
    "ProcessID": "int",
    "SyslogMessage": "string",
}
"""Columns of the workspace's table Syslog, and their types:
https://learn.microsoft.com/azure/azure-monitor/reference/tables/syslog"""


class Diagnostics(pulumi.ComponentResource):
    """Sends metrics and journals to a workspace."""

    def __init__(self, naming: Naming, workspace_id: str) -> None:
        super().__init__(
            "volley:infra:Diagnostics", naming.name("diagnostics"), opts=naming.in_cluster
        )
        self._naming, self._workspace = naming, workspace_id
        *_, group, _, _, _, name = workspace_id.split("/")
        provider = provider_for(workspace_id, naming.name("logs-subscription"), parent=self)
        workspace = operationalinsights.get_workspace_output(
            resource_group_name=group,
            workspace_name=name,
            opts=pulumi.InvokeOutputOptions(parent=self, provider=provider),
        )
        # A rule must be in its workspace's region, which need not be the cluster's.
        there = {**naming.in_group, "location": workspace.location}
        endpoint = monitor.DataCollectionEndpoint(
            # Azure allows 44 characters.
            naming.name("log"),
            **there,
            data_collection_endpoint_name=naming.name("log"),
            network_acls=monitor.DataCollectionEndpointNetworkAclsArgs(
                public_network_access="Enabled"
            ),
            opts=naming.options(self),
        )
        rule = monitor.DataCollectionRule(
            naming.name("log"),
            **there,
            data_collection_rule_name=naming.name("log"),
            data_collection_endpoint_id=endpoint.id,
            stream_declarations={
                STREAM: monitor.StreamDeclarationArgs(
                    columns=[
                        monitor.ColumnDefinitionArgs(name=column, type=of)
                        for column, of in COLUMNS.items()
                    ]
                )
            },
            destinations=monitor.DataCollectionRuleDestinationsArgs(
                log_analytics=[
                    monitor.LogAnalyticsDestinationArgs(
                        name="workspace", workspace_resource_id=workspace_id
                    )
                ]
            ),
            data_flows=[
                monitor.DataFlowArgs(
                    streams=[STREAM],
                    destinations=["workspace"],
                    transform_kql="source",
                    output_stream="Microsoft-Syslog",
                )
            ],
            opts=naming.options(self),
        )
        self.rule_id: pulumi.Output[str] = rule.id
        self.journals_url = pulumi.Output.format(
            "{0}/dataCollectionRules/{1}/streams/" + STREAM + "?api-version=2023-01-01",
            endpoint.logs_ingestion.apply(lambda ingestion: ingestion.endpoint),
            rule.immutable_id,
        )
        """Where machines send their journals; with the role that `Identities` grants."""
        self.register_outputs({"rule": rule.id})

    def send_metrics(self, what: str, resource: pulumi.CustomResource) -> None:
        """Lets Azure send the platform metrics of a VM or a scale set to the workspace."""
        monitor.DiagnosticSetting(
            self._naming.name(f"{what}-metrics"),
            name=self._naming.name("metrics"),
            resource_uri=resource.id,
            workspace_id=self._workspace,
            metrics=[monitor.DiagnosticsMetricSettingsArgs(category="AllMetrics", enabled=True)],
            # A setting outlives its resource, and would be that of the next one with its name.
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
