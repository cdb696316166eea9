"""How long the results account keeps deleted and replaced blobs, and Python environments."""

import pulumi
from pulumi_azure_native import resources, storage

from infra.stack.naming import Naming

CONTAINER = "results"
ENVIRONMENTS = "environments"
"""The container of Python environments."""
PROTECTED_DAYS = 7
"""Time in which a deleted or replaced blob can be restored."""
ENVIRONMENT_DAYS = 90
"""Age at which a Python environment is deleted; the next head creates it again."""


def declare_retention(
    naming: Naming,
    account: storage.StorageAccount,
    group: resources.ResourceGroup,
    options: pulumi.ResourceOptions,
) -> None:
    """Keeps deleted and replaced blobs for some days, and then deletes them.

    MLflow's database cannot be reproduced; files of runs are replaced all the time.
    """
    where = {"resource_group_name": group.name, "account_name": account.name}
    # Every account has both: Azure deletes them with the account, and not before.
    options = pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(deleted_with=account))
    storage.BlobServiceProperties(
        naming.name("blob-service"),
        **where,
        blob_services_name="default",
        is_versioning_enabled=True,
        delete_retention_policy=storage.DeleteRetentionPolicyArgs(
            enabled=True, days=PROTECTED_DAYS
        ),
        opts=options,
    )
    storage.ManagementPolicy(
        naming.name("lifecycle"),
        **where,
        management_policy_name="default",
        policy=storage.ManagementPolicySchemaArgs(
            rules=[
                _old_versions("old-versions", f"{CONTAINER}/", PROTECTED_DAYS),
                _old_versions("old-versions-of-runs", f"{CONTAINER}/runs/", 1),
                _old_blobs("old-environments", f"{ENVIRONMENTS}/", ENVIRONMENT_DAYS),
            ]
        ),
        opts=options,
    )


def _old_versions(name: str, prefix: str, days: int) -> storage.ManagementPolicyRuleArgs:
    """Returns a lifecycle rule that deletes replaced blobs after some days."""
    delete = storage.DateAfterCreationArgs(days_after_creation_greater_than=days)
    version = storage.ManagementPolicyVersionArgs(delete=delete)
    return _lifecycle(name, prefix, storage.ManagementPolicyActionArgs(version=version))


def _old_blobs(name: str, prefix: str, days: int) -> storage.ManagementPolicyRuleArgs:
    """Returns a lifecycle rule that deletes blobs some days after they were written."""
    delete = storage.DateAfterModificationArgs(days_after_modification_greater_than=days)
    blob = storage.ManagementPolicyBaseBlobArgs(delete=delete)
    return _lifecycle(name, prefix, storage.ManagementPolicyActionArgs(base_blob=blob))


def _lifecycle(
    name: str, prefix: str, actions: storage.ManagementPolicyActionArgs
) -> storage.ManagementPolicyRuleArgs:
    return storage.ManagementPolicyRuleArgs(
        name=name,
        type="Lifecycle",
        enabled=True,
        definition=storage.ManagementPolicyDefinitionArgs(
            filters=storage.ManagementPolicyFilterArgs(
                blob_types=["blockBlob"], prefix_match=[prefix]
            ),
            actions=actions,
        ),
    )
