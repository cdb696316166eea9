"""The prerequisites of head and workers, and the environment that their customData carries."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.boot.cloud_config import MachineEnvironment, Role, cloud_config
from infra.config.stack_settings import StackSettings
from infra.ports import MLFLOW, head_flags, worker_flags
from infra.stack.identity import Identities, Identity
from infra.stack.naming import Naming
from infra.stack.network import Network
from infra.stack.results_account import CONTAINER, ENVIRONMENTS, ResultsAccount


@dataclass(frozen=True)
class Prerequisites:
    """What must exist before a machine boots; passed to the head and to the workers."""

    naming: Naming
    settings: StackSettings
    network: Network
    results: ResultsAccount
    identities: Identities
    grants: list[pulumi.Resource]
    """Role assignments: a machine depends on them."""
    journals_url: pulumi.Output[str]
    """Where machines send their journals; empty without a Log Analytics workspace."""


@dataclass(frozen=True)
class Known:
    """Values that are known only while the stack is created."""

    head_ip: str
    account: str
    account_address: str
    token_container: str
    client_id: str
    """Client id of the machine's own identity."""
    mlflow_client_id: str
    journals_url: str


LONGEST = Known(
    "255.255.255.255", "a" * 24, "255.255.255.255", "c" * 63, "i" * 36, "m" * 36, "u" * 250
)
"""The longest values that Azure can return."""


def check_custom_data(settings: StackSettings) -> None:
    """Raises CustomDataTooLargeError before any resource is created."""
    for environment in (head_environment, worker_environment):
        cloud_config(environment(settings, LONGEST))


def custom_data(
    environment: Callable[[StackSettings, Known], MachineEnvironment],
    prerequisites: Prerequisites,
    identity: Identity,
    head_ip: pulumi.Output[str],
) -> pulumi.Output[str]:
    """Returns a role's cloud-config in base64, as Azure expects it."""
    encoded: pulumi.Output[str] = pulumi.Output.all(
        head_ip=head_ip,
        account=prerequisites.results.account_name,
        account_address=prerequisites.results.address,
        token_container=prerequisites.results.token_container,
        client_id=identity.client_id,
        mlflow_client_id=prerequisites.identities.mlflow.client_id,
        journals_url=prerequisites.journals_url,
    ).apply(
        lambda known: base64.b64encode(
            cloud_config(environment(prerequisites.settings, Known(**known))).encode()
        ).decode()
    )
    return encoded


def head_environment(settings: StackSettings, known: Known) -> MachineEnvironment:
    """Returns the head's environment, for training and, unless a tracking server exists, MLflow."""
    return _environment(
        "head",
        settings,
        known,
        head_flags(known.head_ip),
        mlflow_tracking_uri=settings.mlflow_tracking_uri or f"http://127.0.0.1:{MLFLOW}",
        mlflow_elsewhere=bool(settings.mlflow_tracking_uri),
        mlflow_client_id=known.mlflow_client_id,
    )


def worker_environment(settings: StackSettings, known: Known) -> MachineEnvironment:
    """Returns the environment of a worker, which joins the head's Ray cluster."""
    return _environment(
        "worker",
        settings,
        known,
        worker_flags(known.head_ip),
        mlflow_tracking_uri=settings.mlflow_tracking_uri,
        mlflow_client_id="",
    )


def _environment(
    role: Role, settings: StackSettings, known: Known, ray_start_flags: list[str], **own: Any
) -> MachineEnvironment:
    return MachineEnvironment(
        role=role,
        ray_start_flags=[*ray_start_flags, *_object_store_flags(settings)],
        results_account=known.account,
        results_address=known.account_address,
        results_container=CONTAINER,
        token_container=known.token_container,
        environment_container=ENVIRONMENTS,
        identity_client_id=known.client_id,
        environment_variables=settings.environment_variables,
        pip_packages=settings.pip_packages,
        apt_packages=settings.apt_packages,
        containers=settings.containers or bool(settings.container_registry_id),
        container_registry=_registry(settings.container_registry_id),
        gpus=(settings.head if role == "head" else settings.worker).gpus,
        shared_memory_gib=settings.shared_memory_gib,
        journals_url=known.journals_url if settings.log_analytics_workspace_id else "",
        **own,
    )


def _registry(resource_id: str) -> str:
    """Returns the address of an Azure Container Registry."""
    name = resource_id.rpartition("/")[2].lower()
    return f"{name}.azurecr.io" if name else ""


def _object_store_flags(settings: StackSettings) -> list[str]:
    """Returns flags for Ray's object store in shared memory; Ray's default is 30 % of memory."""
    if not settings.shared_memory_gib:
        return []
    return [f"--object-store-memory={settings.shared_memory_gib * 2**30}"]
