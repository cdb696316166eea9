"""The results account: a storage account that outlives the cluster, in its own resource group.

It keeps what is current. head/saved_database.py makes the copies that protect from a bad overwrite.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, collapse_addresses
from typing import Any

import pulumi
from pulumi_azure_native import Provider, network, resources, storage

from infra.config.check_access import is_private, is_wide
from infra.config.stack_settings import StackSettings
from infra.stack.naming import Naming
from infra.stack.network import Network
from infra.stack.subscription import provider_for

MAX_ACCOUNT_NAME = 24
SUFFIX = 8
"""Digits that Pulumi adds to a name."""
CONTAINER = "results"
ENVIRONMENTS = "environments"
"""The container of Python environments."""
COPIES = f"{CONTAINER}/database/"
"""Earlier states of MLflow's database: see head/saved_database.py."""
COPY_DAYS = 8
"""Age at which a copy is deleted if no head does it, which keeps a week."""
PROTECTED_DAYS = 7
"""Time in which a deleted container can be restored."""
ENVIRONMENT_DAYS = 90
"""Days without use after which a Python environment is deleted; a head creates it again."""


KEEPS_VERSIONS = (
    "The results account {account} keeps versions or soft-deleted blobs: Azure bills every state "
    "of the database and every checkpoint for days. Next: az storage account "
    "blob-service-properties update --resource-group {group} --account-name {account} "
    "--enable-versioning false --enable-delete-retention false"
)


class ResultsAccount(pulumi.ComponentResource):
    """The results account: containers for the results, Python environments and Ray's token.

    With keepResults, `pulumi destroy` leaves the account with the first two in Azure, and a later
    stack uses them by resultsAccountId. The token's container is deleted with the cluster.
    """

    account_name: pulumi.Output[str]
    account_id: pulumi.Output[str]
    container_id: pulumi.Output[str]
    environments_id: pulumi.Output[str]
    """Resource id of the container of Python environments."""
    token_container: pulumi.Output[str]
    token_container_id: pulumi.Output[str]
    address: pulumi.Output[str]
    """IP address of the private endpoint; empty if machines use the account's public name."""

    def __init__(self, naming: Naming, settings: StackSettings, net: Network) -> None:
        super().__init__("volley:infra:Results", naming.name("results"), opts=naming.in_cluster)
        self._naming = naming
        self._provider: Provider | None = None
        """Provider for the account's subscription, if that is not the stack's."""
        self._kept = pulumi.ResourceOptions(parent=self, retain_on_delete=settings.keep_results)
        if settings.results_account_id:
            self._use(settings.results_account_id, net)
        else:
            self._make(settings, net)
        self._make_token_container()
        self.register_outputs({"account": self.account_name})

    def _use(self, account_id: str, net: Network) -> None:
        _, _, _, _, group, _, _, _, account = account_id.split("/")
        name = self._naming.name("results-subscription")
        self._provider = provider_for(account_id, name, parent=self)
        warn_of_versions(group, account, pulumi.InvokeOptions(provider=self._provider))
        self._group: pulumi.Input[str] = group
        self.account_id = pulumi.Output.from_input(account_id)
        self.account_name = pulumi.Output.from_input(account)
        containers = f"{account_id}/blobServices/default/containers"
        self.container_id = pulumi.Output.from_input(f"{containers}/{CONTAINER}")
        self.environments_id = pulumi.Output.from_input(f"{containers}/{ENVIRONMENTS}")
        self.address = self._private_endpoint(account_id, net)

    def _private_endpoint(self, account_id: pulumi.Input[str], net: Network) -> pulumi.Output[str]:
        """Connects the network to an account whose firewall does not allow it."""
        endpoint = network.PrivateEndpoint(
            self._naming.name("results-endpoint"),
            **self._naming.in_group,
            private_endpoint_name=self._naming.name("results-endpoint"),
            subnet=network.SubnetArgs(id=net.head_subnet),
            private_link_service_connections=[
                network.PrivateLinkServiceConnectionArgs(
                    name="results", private_link_service_id=account_id, group_ids=["blob"]
                )
            ],
            opts=self._naming.options(self),
        )
        address: pulumi.Output[str] = endpoint.custom_dns_configs.apply(_first_address)
        return address

    def _make(self, settings: StackSettings, net: Network) -> None:
        public = settings.results_public_access
        self._group = settings.results_resource_group or self._made_group()
        account = storage.StorageAccount(
            _account_name(self._naming.prefix),
            resource_group_name=self._group,
            **self._naming.tagged,
            kind="StorageV2",
            # Three copies in one data centre. checkov wants copies in other regions
            # (CKV_AZURE_206), at twice the price: a run can be repeated.
            sku=storage.SkuArgs(name="Standard_LRS"),
            access_tier="Hot",
            allow_blob_public_access=False,
            allow_cross_tenant_replication=False,
            allow_shared_key_access=False,
            enable_https_traffic_only=True,
            default_to_o_auth_authentication=True,
            is_local_user_enabled=False,
            minimum_tls_version="TLS1_2",
            encryption=storage.EncryptionArgs(
                key_source="Microsoft.Storage",
                require_infrastructure_encryption=True,
                services=storage.EncryptionServicesArgs(
                    blob=storage.EncryptionServiceArgs(enabled=True, key_type="Account")
                ),
            ),
            public_network_access=None if public else storage.PublicNetworkAccess.DISABLED,
            network_rule_set=storage.NetworkRuleSetArgs(
                default_action=storage.DefaultAction.DENY,
                # Without it the firewall may block Azure's own lifecycle rules:
                # https://learn.microsoft.com/azure/storage/blobs/lifecycle-management-policy-configure
                bypass="AzureServices",
                virtual_network_rules=[
                    storage.VirtualNetworkRuleArgs(
                        virtual_network_resource_id=subnet, action="Allow"
                    )
                    for subnet in (net.head_subnet, net.worker_subnet)
                    if public
                ],
                # The administrator reads the results after the cluster is gone.
                ip_rules=_ip_rules(settings.admin_cidrs) if public else [],
            ),
            opts=pulumi.ResourceOptions.merge(
                self._kept,
                # Azure changes it with time; after a refresh `up` would take it away.
                pulumi.ResourceOptions(
                    ignore_changes=["networkRuleSet.virtualNetworkRules[*].state"]
                ),
            ),
        )
        self.account_id, self.account_name = account.id, account.name
        self.address = (
            pulumi.Output.from_input("") if public else self._private_endpoint(account.id, net)
        )
        self.container_id = self._container(CONTAINER, self._kept).id
        self.environments_id = self._container(ENVIRONMENTS, self._kept).id
        declare_retention(self._naming, account, self._group, self._kept)

    def _made_group(self) -> pulumi.Output[str]:
        group = resources.ResourceGroup(
            self._naming.name("results"), **self._naming.tagged, opts=self._kept
        )
        name: pulumi.Output[str] = group.name
        return name

    def _make_token_container(self) -> None:
        options = pulumi.ResourceOptions(parent=self, provider=self._provider)
        # Not "token": Azure refuses the name of a deleted container for 30 s, and the name of a
        # group that the stack makes is new for each `pulumi up` after a `pulumi destroy`.
        own = self._naming.group if self._naming.made else self._naming.prefix
        name = pulumi.Output.concat("token-", own)
        container = self._container("token", options, name)
        self.token_container, self.token_container_id = container.name, container.id

    def _container(
        self, what: str, options: pulumi.ResourceOptions, name: pulumi.Input[str] = ""
    ) -> storage.BlobContainer:
        return storage.BlobContainer(
            self._naming.name(what),
            container_name=name or what,
            resource_group_name=self._group,
            account_name=self.account_name,
            public_access="None",
            opts=options,
        )


def _account_name(prefix: str) -> str:
    """Returns a name of lower-case letters and digits, with room for Pulumi's suffix."""
    plain = "".join(letter for letter in prefix.lower() if letter.isalnum())
    return plain[: MAX_ACCOUNT_NAME - SUFFIX]


def _ip_rules(cidrs: Iterable[str]) -> list[storage.IPRuleArgs]:
    """Returns the firewall's rules for adminCidr; a wide one opens SSH, but not the results.

    A storage firewall accepts single addresses and networks down to /30, but no private ones.
    """
    addresses: list[str] = []
    for admin in collapse_addresses(map(IPv4Network, cidrs)):
        if not (is_wide(admin) or is_private(admin)):
            addresses += map(str, admin if admin.prefixlen > 30 else [admin])
    return [storage.IPRuleArgs(i_p_address_or_range=address) for address in addresses]


def _first_address(configs: Any) -> str:
    (first, *_) = configs
    addresses = first["ip_addresses"] if isinstance(first, dict) else first.ip_addresses
    return str(addresses[0])


def warn_of_versions(group: str, account: str, options: pulumi.InvokeOptions) -> None:
    """Warns of an existing account whose cost would grow with the square of the training time."""
    try:
        service = storage.get_blob_service_properties(
            account_name=account,
            blob_services_name="default",
            resource_group_name=group,
            opts=options,
        )
    except Exception as error:  # The check needs a right that `up` itself does not need.
        pulumi.log.warn(f"Whether {account} keeps versions was not checked: {error}")
        return
    soft_delete = service.delete_retention_policy
    if service.is_versioning_enabled or (soft_delete and soft_delete.enabled):
        pulumi.log.warn(KEEPS_VERSIONS.format(group=group, account=account))


def declare_retention(
    naming: Naming,
    account: storage.StorageAccount,
    group: pulumi.Input[str],
    options: pulumi.ResourceOptions,
) -> None:
    """Declares what Azure keeps of what is deleted or replaced, and for how long.

    Neither versions nor soft-deleted blobs: both are settings of the whole account, and both keep
    each checkpoint that a training rotates away and each state of the database, at full price.
    Without versions, soft delete keeps what is replaced, too:
    https://learn.microsoft.com/azure/storage/blobs/soft-delete-blob-overview
    """
    where = {"resource_group_name": group, "account_name": account.name}
    # Every account has both: Azure deletes them with the account, and not before.
    options = pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(deleted_with=account))
    storage.BlobServiceProperties(
        naming.name("blob-service"),
        **where,
        blob_services_name="default",
        is_versioning_enabled=False,
        delete_retention_policy=storage.DeleteRetentionPolicyArgs(enabled=False),
        container_delete_retention_policy=storage.DeleteRetentionPolicyArgs(
            enabled=True, days=PROTECTED_DAYS
        ),
        last_access_time_tracking_policy=storage.LastAccessTimeTrackingPolicyArgs(
            enable=True,
            # Azure adds these; they have no other value.
            name="AccessTimeTracking",
            tracking_granularity_in_days=1,
            blob_type=["blockBlob"],
        ),
        opts=options,
    )
    unused = storage.DateAfterModificationArgs(
        days_after_last_access_time_greater_than=ENVIRONMENT_DAYS
    )
    old = storage.DateAfterModificationArgs(days_after_modification_greater_than=COPY_DAYS)
    storage.ManagementPolicy(
        naming.name("lifecycle"),
        **where,
        management_policy_name="default",
        policy=storage.ManagementPolicySchemaArgs(
            rules=[
                _deleted("old-copies", COPIES, old),
                _deleted("unused-environments", f"{ENVIRONMENTS}/", unused),
                _without_versions(),
            ]
        ),
        opts=options,
    )


def _deleted(
    name: str, prefix: str, when: storage.DateAfterModificationArgs
) -> storage.ManagementPolicyRuleArgs:
    """Returns a lifecycle rule that deletes blobs."""
    blob = storage.ManagementPolicyBaseBlobArgs(delete=when)
    return _lifecycle(name, [prefix], storage.ManagementPolicyActionArgs(base_blob=blob))


def _without_versions() -> storage.ManagementPolicyRuleArgs:
    """Returns a lifecycle rule that deletes versions: those of an earlier volley, or of a policy of
    the subscription that turns them on. A blob that has some would never be deleted.
    """
    delete = storage.DateAfterCreationArgs(days_after_creation_greater_than=PROTECTED_DAYS)
    version = storage.ManagementPolicyVersionArgs(delete=delete)
    prefixes = [f"{CONTAINER}/", f"{ENVIRONMENTS}/"]
    return _lifecycle("versions", prefixes, storage.ManagementPolicyActionArgs(version=version))


def _lifecycle(
    name: str, prefixes: list[str], actions: storage.ManagementPolicyActionArgs
) -> storage.ManagementPolicyRuleArgs:
    return storage.ManagementPolicyRuleArgs(
        name=name,
        type="Lifecycle",
        enabled=True,
        definition=storage.ManagementPolicyDefinitionArgs(
            filters=storage.ManagementPolicyFilterArgs(
                blob_types=["blockBlob", "appendBlob"], prefix_match=prefixes
            ),
            actions=actions,
        ),
    )
