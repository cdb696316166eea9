"""The stack's settings: `make docs` writes Pulumi.yaml and docs/configuration.md from them."""

import json
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator
from pydantic.alias_generators import to_camel

from infra.config.catalog import Catalog
from infra.config.vm_sizes import Machine, canonical_size


class StackSettings(BaseModel):
    """Every configuration key, here in snake case.

    Pulumi has no optional keys: a key that is not set is empty, or 0.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
        use_attribute_docstrings=True,
    )

    # Access
    admin_cidr: str = ""
    """Required. Addresses (CIDR) that may use SSH on the head, for example 203.0.113.7/32; several
    are separated by commas"""
    ssh_public_key: str = ""
    """Required. Your SSH public key, the line in ~/.ssh/id_ed25519.pub or id_rsa.pub; several are
    one per line"""
    admin_username: str = Field("volley", pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    """User name for SSH"""
    allow_public_ssh: bool = False
    """Allow an adminCidr larger than a /16 of the internet, for example 0.0.0.0/0"""
    # Machines
    location: str = "eastus"
    """Azure region of all resources"""
    zone: str = Field("", pattern=r"^[1-9]?$")
    """Availability zone of all machines and public addresses and of the NAT gateway, for example 1;
    set it before the first `pulumi up`. Azure chooses if it is empty"""
    check_quota: bool = True
    """Ask Azure for VM sizes, prices, the login's rights and the vCPU quota before anything is
    created, and name results accounts that no cluster uses"""
    head_size: str = "Standard_NC4as_T4_v3"
    """VM size of the head; on a size without a GPU, training uses the CPUs"""
    head_spot: bool = False
    """Use a Spot VM for the head. An evicted head is deallocated and keeps its disk; training
    continues when you start it"""
    worker_size: str = "Standard_D2as_v5"
    """VM size of the workers"""
    other_worker_sizes: list[str] = []
    """Up to four VM sizes that Azure uses, in this order, when it has no capacity for workerSize.
    They must have as many vCPUs and GPUs as workerSize, and the same kind of local disk"""
    worker_zones: list[Annotated[str, Field(pattern=r"^[1-9]$")]] = []
    """Availability zones over which Azure spreads the workers, using those that have capacity.
    If empty, `zone` applies. Set it before the first `pulumi up`"""
    worker_spot: bool = True
    """Use Spot VMs for the workers; training continues when a worker is evicted"""
    min_workers: int = Field(0, ge=0)
    """Number of workers that training waits for; idle workers are not deleted below this number"""
    max_workers: int = Field(4, ge=0, le=100)
    """Maximum number of workers, 0 to 100"""
    scaling: Literal["demand", "fixed", "cpu"] = "demand"
    """What decides the number of workers. `demand`: Ray's autoscaler on the head creates them when
    experiments need them. `fixed`: it always keeps maxWorkers. `cpu`: Azure scales by CPU load, for
    work that is not run by volley"""
    idle_minutes: int = Field(5, ge=1, le=1440)
    """With `demand`, a worker is deleted after being idle for this many minutes, down to
    minWorkers"""
    sleep_after_minutes: int = Field(30, ge=0, le=10_080)
    """The cluster goes to sleep after this many minutes in which no experiment was running or
    queued and nobody was logged in: the head saves the results, deletes the workers and deallocates
    itself. `volley start` wakes it. 0 disables sleep; with `cpu` the cluster never sleeps"""
    max_hours: int = Field(0, ge=0)
    """The cluster sleeps this many hours after its head has started, even if experiments are
    running: they write a checkpoint and continue after `volley start`. 0 disables the limit"""
    budget: int = Field(0, ge=0)
    """The cluster sleeps when its estimated cost has reached this many US dollars, even if
    experiments are running, but not in the first 15 minutes after a start. 0 disables the limit"""
    contact_emails: list[str] = []
    """Addresses to which Azure sends mail, up to a day late, when the cluster's resource group has
    cost 80 % and 100 % of `budget` in a month"""
    image: str = "microsoft-dsvm:ubuntu-hpc:2204:latest"
    """VM image, publisher:offer:sku:version, or the resource id of your own image"""
    security_updates: bool = True
    """The head installs updates of OpenSSH and OpenSSL once a day, while nothing trains; images
    from the marketplace do not update themselves"""
    trusted_launch: bool = False
    """Use Trusted Launch with a virtual TPM, for images that support it"""
    os_disk_gib: int = Field(128, ge=64, le=2048)
    """Size of each OS disk in GiB"""
    shared_memory_gib: int = Field(0, ge=0)
    """Size of Ray's object store and of /dev/shm on each machine in GiB, at most 80 % of the
    smaller machine's memory; 0 uses Ray's default, 30 %"""
    environment_variables: dict[str, str] = {}
    """Environment variables of Ray and the training on all machines. Not for secrets: everyone who
    can read the stack can read them"""
    pip_packages: list[str] = []
    """Python packages to install on all machines in addition to the lock"""
    apt_packages: list[str] = []
    """Ubuntu packages to install on all machines"""
    containers: bool = False
    """Prepare all machines to run experiments in container images"""
    container_registry_id: str = ""
    """Resource id of an Azure Container Registry from which the machines may pull images"""
    log_analytics_workspace_id: str = ""
    """Resource id of an existing Log Analytics workspace, which receives the metrics of head and
    workers, and the logs of each machine's boot and services; a change replaces the machines"""
    # Network
    public_ip: bool = True
    """Give the head a public address. Without one you reach it by a VPN, a jump host or Azure
    Bastion, whose private addresses adminCidr must admit"""
    vnet_cidr: str = "10.42.0.0/16"
    """Address range of the virtual network; set it before the first `pulumi up`"""
    head_subnet_cidr: str = "10.42.0.0/24"
    """Address range of the head's subnet; set it before the first `pulumi up`"""
    worker_subnet_cidr: str = "10.42.1.0/24"
    """Address range of the workers' subnet; set it before the first `pulumi up`"""
    head_subnet_id: str = ""
    """Resource id of an existing subnet for the head, in the stack's subscription and region, with
    the service endpoint Microsoft.Storage and its own outbound access (a NAT gateway, for example);
    set it before the first `pulumi up`"""
    worker_subnet_id: str = ""
    """Resource id of an existing subnet for the workers, in the stack's subscription and region,
    with the service endpoint Microsoft.Storage and its own outbound access (a NAT gateway, for
    example); set it before the first `pulumi up`"""
    # What a company gives
    resource_group: str = ""
    """Name of an existing resource group for the cluster, which `pulumi destroy` keeps; set it
    before the first `pulumi up`. The head may do anything with all machines in it"""
    results_resource_group: str = ""
    """Name of an existing resource group for the results account; set it before the first
    `pulumi up`"""
    head_identity_id: str = ""
    """Resource id of an existing user-assigned identity for the head, if you may not assign
    roles: the preview lists the roles that it needs"""
    mlflow_identity_id: str = ""
    """Resource id of an existing user-assigned identity for MLflow; requires headIdentityId"""
    workers_identity_id: str = ""
    """Resource id of an existing user-assigned identity for the workers; requires headIdentityId"""
    # Training
    experiment: str = "experiments/pong.yaml"
    """Experiment file to train, with run, env, config and stop"""
    num_env_runners: int = Field(0, ge=0)
    """Number of env runners, at most the vCPUs of the cluster minus one; 0 uses all of these"""
    cluster_coordination_timeout_seconds: int = Field(900, ge=60, le=4740)
    """Seconds that `pulumi up` waits for minWorkers to join, in addition to 10 minutes for boot and
    first learner update; Azure ends a run command after 90 minutes"""
    # Results
    keep_results: bool = True
    """Keep the results account on `pulumi destroy`; a change takes effect with the next
    `pulumi up`"""
    results_account_id: str = ""
    """Resource id of an existing results account, to continue with its results"""
    results_public_access: bool = True
    """Whether the results account has a public endpoint, which admits only the machines' subnets
    and adminCidr. If false, the machines use a private endpoint, and after `pulumi destroy` the
    account is reachable only from a network that has another one. Set it before the first
    `pulumi up`"""
    mlflow_tracking_uri: str = ""
    """URI of an existing MLflow tracking server; without one the head runs MLflow"""
    # Tags
    tags: dict[str, str] = {}
    """Tags of all resources, the results account included, besides `project` and `stack`"""

    _catalog: Catalog = PrivateAttr(default_factory=Catalog)

    @field_validator("head_size", "worker_size")
    @classmethod
    def _as_azure_spells_it(cls, size: str) -> str:
        return canonical_size(size)

    @field_validator("other_worker_sizes")
    @classmethod
    def _as_azure_spells_them(cls, sizes: list[str]) -> list[str]:
        return [canonical_size(size) for size in sizes]

    @property
    def admin_cidrs(self) -> list[str]:
        return [cidr.strip() for cidr in self.admin_cidr.split(",") if cidr.strip()]

    @property
    def ssh_public_keys(self) -> list[str]:
        return [key.strip() for key in self.ssh_public_key.splitlines() if key.strip()]

    @property
    def has_private_endpoint(self) -> bool:
        """Whether the machines reach the results account through a private endpoint."""
        return bool(self.results_account_id) or not self.results_public_access

    @property
    def has_autoscaler(self) -> bool:
        """Whether Ray's autoscaler on the head makes and deletes workers, and not Azure's."""
        return self.scaling != "cpu"

    @property
    def catalog(self) -> Catalog:
        """Sizes and prices; those of the dated files unless others were given."""
        return self._catalog

    def with_catalog(self, catalog: Catalog) -> "StackSettings":
        """Returns the settings with other sizes and prices, and their sizes as these spell them."""
        others = [canonical_size(size, catalog.sizes) for size in self.other_worker_sizes]
        sizes = {
            "head_size": canonical_size(self.head_size, catalog.sizes),
            "worker_size": canonical_size(self.worker_size, catalog.sizes),
            "other_worker_sizes": others,
        }
        settings = self.model_copy(update=sizes)
        settings._catalog = catalog
        return settings

    @property
    def head(self) -> Machine:
        return self.catalog.sizes[self.head_size]

    @property
    def worker(self) -> Machine:
        return self.catalog.sizes[self.worker_size]

    @property
    def worker_sizes(self) -> list[str]:
        """The workers' sizes, in the order in which Azure tries them."""
        return [self.worker_size, *self.other_worker_sizes]

    @property
    def has_ephemeral_worker_disks(self) -> bool:
        """Whether a worker's OS disk is on its local disk, which is free and created faster."""
        return self.worker.fits_os_disk(self.os_disk_gib)


@dataclass(frozen=True)
class Problem:
    """One problem, shown as a line."""

    key: str
    value: object
    """Shown, so never a secret."""
    allowed: str
    """What is wrong, and what is allowed."""

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.value)}: {self.allowed}"


def _shown(value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return str(value)  # YAML has types that JSON lacks, for example dates.
