"""Typical stacks, and the files with which their machines boot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from infra.boot.cloud_config import Role
from tests.infra.boot.machine_tree import ROLES, machine, write_tree
from tests.infra.declared_stack import (
    DISTANT_ACCOUNT,
    EXISTING_ACCOUNT,
    EXISTING_SUBNETS,
    Declared,
    declare_stack,
)

STACKS: dict[str, dict[str, str]] = {
    "dev": {},
    "article": {
        "headSize": "Standard_NC4as_T4_v3",
        "workerSize": "Standard_D2as_v5",
        "minWorkers": "4",
        "maxWorkers": "4",
        "workerSpot": "true",
        "experiment": "experiments/pong-gpu.yaml",
    },
    "azure scales": {"scaling": "cpu"},
    "all workers at any time": {"scaling": "fixed", "maxWorkers": "3"},
    "cpu only": {"headSize": "Standard_D4as_v5", "maxWorkers": "2"},
    "gpu workers, ephemeral": {"workerSize": "Standard_NC4as_T4_v3", "workerSpot": "false"},
    "nvme in one zone": {
        "headSize": "Standard_D4as_v6",
        "workerSize": "Standard_D4ads_v6",
        "zone": "2",
    },
    "several worker sizes": {
        "workerSize": "Standard_D2as_v5",
        "otherWorkerSizes": '["Standard_D2s_v5"]',
        "workerZones": '["1", "3"]',
    },
    "head alone": {"maxWorkers": "0", "headSpot": "true"},
    "existing vnet": EXISTING_SUBNETS,
    "no public address": {**EXISTING_SUBNETS, "publicIp": "false", "adminCidr": "172.16.9.0/24"},
    "existing results": EXISTING_ACCOUNT,
    "results of another subscription": DISTANT_ACCOUNT,
    "results not kept": {"keepResults": "false"},
    "everything set": {
        "trustedLaunch": "true",
        "sharedMemoryGib": "2",
        "environmentVariables": '{"MY_MODE": "a \\"quoted\\" value", "N": 3}',
        "pipPackages": '["einops", "wandb==0.19.1"]',
        "aptPackages": '["htop"]',
        "containerRegistryId": "/subscriptions/s/resourceGroups/g/providers"
        "/Microsoft.ContainerRegistry/registries/Images",
        "mlflowTrackingUri": "https://mlflow.example.com",
        "numEnvRunners": "7",
        "budget": "100",
        "contactEmails": '["lab@example.com"]',
        "tags": '{"owner": "me", "cost-centre": 42}',
        "image": f"{'/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute'}"
        "/galleries/mine/images/volley/versions/1.0.0",
    },
}


def declared(stack: str) -> Declared:
    """Returns a stack of STACKS, each declared once for all tests."""
    return declare_stack(**STACKS[stack])


@pytest.fixture(params=STACKS)
def any_stack(request: pytest.FixtureRequest) -> Declared:
    return declared(request.param)


@pytest.fixture
def stack() -> Callable[[str], Declared]:
    return declared


@pytest.fixture(params=ROLES)
def role(request: pytest.FixtureRequest) -> Role:
    return cast("Role", request.param)


@pytest.fixture
def tree(role: Role, tmp_path: Path) -> Path:
    """A machine's files as cloud-init writes them, below a folder."""
    return write_tree(machine(role, shared_memory_gib=2, containers=True), tmp_path)
