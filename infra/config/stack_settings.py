"""The stack's configuration, typed."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from infra.config.vm_sizes import Machine, canonical_size


class StackSettings(BaseModel):
    """Every configuration key, here in snake case; Pulumi.yaml describes them.

    Pulumi has no optional keys: a key that is not set is empty, or 0.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
    )

    # Access
    admin_cidr: str = ""
    ssh_public_key: str = ""
    admin_username: str = Field("volley", pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    allow_public_ssh: bool = False
    # Machines
    location: str = "eastus"
    check_quota: bool = True
    head_size: str = "Standard_NC4as_T4_v3"
    head_spot: bool = False
    worker_size: str = "Standard_D2as_v5"
    worker_spot: bool = True
    min_workers: int = Field(0, ge=0)
    max_workers: int = Field(4, ge=0, le=100)
    scaling: Literal["demand", "fixed", "cpu"] = "demand"
    idle_minutes: int = Field(5, ge=1, le=1440)
    sleep_after_minutes: int = Field(30, ge=0, le=10_080)
    max_hours: int = Field(0, ge=0)
    budget: int = Field(0, ge=0)
    image: str = "microsoft-dsvm:ubuntu-hpc:2204:latest"
    trusted_launch: bool = False
    os_disk_gib: int = Field(128, ge=64, le=2048)
    shared_memory_gib: int = Field(0, ge=0)
    environment_variables: dict[str, str] = {}
    pip_packages: list[str] = []
    apt_packages: list[str] = []
    # Network
    vnet_cidr: str = "10.42.0.0/16"
    head_subnet_cidr: str = "10.42.0.0/24"
    worker_subnet_cidr: str = "10.42.1.0/24"
    head_subnet_id: str = ""
    worker_subnet_id: str = ""
    # Training
    experiment: str = "experiments/pong.yaml"
    num_env_runners: int = Field(0, ge=0)
    cluster_coordination_timeout_seconds: int = Field(900, ge=60, le=5400)
    # Results
    keep_results: bool = True
    results_account_id: str = ""
    mlflow_tracking_uri: str = ""
    # Tags
    owner: str = ""
    cost_centre: str = ""

    @field_validator("head_size", "worker_size")
    @classmethod
    def _as_azure_spells_it(cls, size: str) -> str:
        return canonical_size(size)

    @property
    def has_autoscaler(self) -> bool:
        """Whether Ray's autoscaler on the head makes and deletes workers, and not Azure's."""
        return self.scaling != "cpu"

    @property
    def head(self) -> Machine:
        return Machine.named(self.head_size)

    @property
    def worker(self) -> Machine:
        return Machine.named(self.worker_size)
