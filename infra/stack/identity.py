"""Managed identities of head, MLflow and workers, and their roles."""

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization, managedidentity

from infra.config.stack_settings import StackSettings
from infra.stack.naming import Naming
from infra.stack.results_account import ResultsAccount

BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
BLOB_DATA_READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
VM_CONTRIBUTOR = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"
IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
AUTOSCALE_WRITER = "3afb7f49-54cb-416e-8c09-6dc049efa503"
LOGS_WRITER = "3913510d-42f4-4e42-8a64-420c390055eb"
PLACES = {
    "results": "the container results of the results account",
    "token": "the container of Ray's token in the results account",
    "environments": "the container environments of the results account",
    "machines": "the cluster's resource group",
    "workers-identity": "the identity workersIdentityId",
    "worker-subnet": "the subnet workerSubnetId",
    "image": "the image",
    "lease": "the cluster's autoscale setting",
    "registry": "the registry containerRegistryId",
    "logs": "the cluster's data collection rule",
}
"""What a role is for, by the end of its assignment's name."""
ROLE_NAMES = {
    BLOB_DATA_CONTRIBUTOR: "Storage Blob Data Contributor",
    BLOB_DATA_READER: "Storage Blob Data Reader",
    VM_CONTRIBUTOR: "Virtual Machine Contributor",
    IDENTITY_OPERATOR: "Managed Identity Operator",
    READER: "Reader",
    ACR_PULL: "AcrPull",
    AUTOSCALE_WRITER: "Azure AI Inference Deployment Operator",
    LOGS_WRITER: "Monitoring Metrics Publisher",
}
"""Built-in roles: a custom role would need the right to define roles in the subscription.

Azure AI Inference Deployment Operator is the narrowest that may write an autoscale setting,
Monitoring Metrics Publisher the one that sends logs:
https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/ai-machine-learning
https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/monitor
"""


@dataclass(frozen=True)
class Identity:
    """A user-assigned identity."""

    id: pulumi.Output[str]
    client_id: pulumi.Output[str]
    principal_id: pulumi.Output[str]
    key: str = ""
    """The setting that names it, if it exists: somebody else gives it its roles."""


class Identities(pulumi.ComponentResource):
    """User-assigned identities: for the head, for its MLflow server, and for all workers."""

    def __init__(self, naming: Naming, settings: StackSettings) -> None:
        super().__init__(
            "volley:infra:Identities", naming.name("identities"), opts=naming.in_cluster
        )
        self._naming = naming
        self.head = self._identity("head", "headIdentityId", settings.head_identity_id)
        self.mlflow = self._identity("mlflow", "mlflowIdentityId", settings.mlflow_identity_id)
        self.workers = self._identity("workers", "workersIdentityId", settings.workers_identity_id)
        self.register_outputs(
            {"head": self.head.id, "mlflow": self.mlflow.id, "workers": self.workers.id}
        )

    def grant(self, results: ResultsAccount) -> list[pulumi.Resource]:
        """Assigns the roles on the results account; returns them: machines depend on them."""
        head, workers = self.head, self.workers
        return [
            *self._role(
                "head-results",
                head,
                scope=results.container_id,
                role=BLOB_DATA_CONTRIBUTOR,
                reason="Writes checkpoints and snapshots of MLflow's database",
            ),
            *self._role(
                "mlflow-results",
                self.mlflow,
                scope=results.container_id,
                role=BLOB_DATA_CONTRIBUTOR,
                reason="Reads its database once and writes artifacts; MLflow has no other role",
            ),
            *self._role(
                "head-token",
                head,
                scope=results.token_container_id,
                role=BLOB_DATA_CONTRIBUTOR,
                reason="Writes Ray's token at first boot",
            ),
            *self._role(
                "workers-token",
                workers,
                scope=results.token_container_id,
                role=BLOB_DATA_READER,
                reason="Reads Ray's token",
            ),
            *self._role(
                "head-environments",
                head,
                scope=results.environments_id,
                role=BLOB_DATA_CONTRIBUTOR,
                reason="Stores the Python environment for other machines",
            ),
            *self._role(
                "workers-environments",
                workers,
                scope=results.environments_id,
                role=BLOB_DATA_READER,
                reason="Reads the Python environment",
            ),
        ]

    def grant_scaling(self, settings: StackSettings) -> list[pulumi.Resource]:
        """Lets the head change the scale set; returns the assignments.

        A scale set in Flexible orchestration makes virtual machines, and a role on the scale set
        alone does not allow that:
        https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-orchestration-modes
        """
        head, workers = self.head, self.workers
        assignments = [
            *self._role(
                "head-machines",
                head,
                scope=self._naming.group_id,
                role=VM_CONTRIBUTOR,
                reason="Creates and deletes workers: root on all machines of this group, no others",
            ),
            *self._role(
                "head-workers-identity",
                head,
                scope=workers.id,
                role=IDENTITY_OPERATOR,
                reason="Gives new workers their identity",
            ),
        ]
        if settings.image.startswith("/"):
            assignments += self._role(
                "head-image",
                head,
                scope=pulumi.Output.from_input(settings.image.partition("/versions/")[0]),
                role=READER,
                reason="Makes new workers of this image",
            )
        if settings.worker_subnet_id:
            subnet = pulumi.Output.from_input(settings.worker_subnet_id)
            assignments += self._role(
                "head-worker-subnet",
                head,
                scope=subnet,
                role=VM_CONTRIBUTOR,
                reason="Joins new workers to this subnet; the role allows nothing else there",
            )
        return assignments

    def grant_lease(self, autoscale: pulumi.Output[str]) -> None:
        """Lets the head renew the workers' lease; needs the autoscale setting's resource id."""
        self._role(
            "head-lease",
            self.head,
            scope=autoscale,
            role=AUTOSCALE_WRITER,
            reason="Renews the workers' lease: writes this autoscale setting and nothing else",
        )

    def grant_pulling(self, registry_id: str) -> list[pulumi.Resource]:
        """Lets all machines pull from a container registry; returns the assignments."""
        scope = pulumi.Output.from_input(registry_id)
        return self._on_all_machines("registry", scope, ACR_PULL, "Pulls the images of experiments")

    def grant_logging(self, rule_id: pulumi.Output[str]) -> list[pulumi.Resource]:
        """Lets all machines send logs by a data collection rule; returns the assignments."""
        return self._on_all_machines("logs", rule_id, LOGS_WRITER, "Sends the machine's journal")

    def _on_all_machines(
        self, what: str, scope: pulumi.Output[str], role: str, reason: str
    ) -> list[pulumi.Resource]:
        return [
            assignment
            for name, identity in (("head", self.head), ("workers", self.workers))
            for assignment in self._role(
                f"{name}-{what}", identity, scope=scope, role=role, reason=reason
            )
        ]

    def _identity(self, what: str, key: str, existing: str) -> Identity:
        if existing:
            *_, group, _, _, _, name = existing.split("/")
            identity = managedidentity.get_user_assigned_identity_output(
                resource_group_name=group,
                resource_name=name,
                opts=pulumi.InvokeOutputOptions(parent=self),
            )
            return Identity(
                identity.id,
                identity.client_id,
                identity.principal_id,
                key,
            )
        made = managedidentity.UserAssignedIdentity(
            self._naming.name(what),
            **self._naming.in_group,
            resource_name_=self._naming.name(what),
            opts=self._naming.options(self),
        )
        return Identity(made.id, made.client_id, made.principal_id)

    def _role(
        self, what: str, identity: Identity, scope: pulumi.Output[str], role: str, reason: str
    ) -> list[pulumi.Resource]:
        """Assigns a role and returns the assignment; tells the role of an identity that exists."""
        if identity.key:
            place = what.partition("-")[2]
            pulumi.log.info(f"{identity.key} needs {ROLE_NAMES[role]} on {PLACES[place]}. {reason}")
            return []
        assignment = authorization.RoleAssignment(
            self._naming.name(what),
            scope=scope,
            principal_id=identity.principal_id,
            # Without the type, Azure would look up an identity that is not replicated yet.
            principal_type="ServicePrincipal",
            role_definition_id=scope.apply(lambda where: _definition(role, where)),
            description=reason,
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        return [assignment]


def _definition(role: str, scope: str) -> str:
    """Returns a role's id in the subscription of its scope."""
    subscription = scope.split("/")[2]
    definitions = "providers/Microsoft.Authorization/roleDefinitions"
    return f"/subscriptions/{subscription}/{definitions}/{role}"
