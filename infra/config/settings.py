"""The stack's configuration, typed; all that is wrong with it in one error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env, is_config_secret
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from infra.config.check_access import check_settings
from infra.config.problem import Problem
from infra.config.vm_sizes import Machine, canonical_size, nearest


class StackSettings(BaseModel):
    """Every configuration key, here in snake case; Pulumi.yaml describes them.

    Pulumi knows no optional key: one that is not set is empty, or 0.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
    )

    # Who may come in
    admin_cidr: str = ""
    ssh_public_key: str = ""
    admin_username: str = Field("volley", pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    allow_public_ssh: bool = False
    # Machines
    location: str = "eastus"
    head_size: str = "Standard_NC4as_T4_v3"
    head_spot: bool = False
    worker_size: str = "Standard_D2as_v5"
    worker_spot: bool = True
    min_workers: int = Field(0, ge=0)
    max_workers: int = Field(4, ge=0, le=100)
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
    worker_settle_seconds: int = Field(90, ge=0, le=1800)
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
    def head(self) -> Machine:
        return Machine.named(self.head_size)

    @property
    def worker(self) -> Machine:
        return Machine.named(self.worker_size)

    @property
    def env_runners(self) -> int:
        """The articles' arithmetic, 6 + 8 - 1 = 13: every vCPU but one, unless it is set."""
        if self.num_env_runners:
            return self.num_env_runners
        return self.head.vcpus + self.max_workers * self.worker.vcpus - 1


class ConfigError(Exception):
    """Every problem with the configuration, each naming its key."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        lines = "\n".join(f"  {problem}" for problem in problems)
        count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"The stack's configuration has {count}; nothing was created.\n{lines}")


def read_settings(config: Mapping[str, str], root: Path) -> StackSettings:
    """Reads the project's keys as Pulumi gives them: text, or JSON of anything else.

    Args:
        root: What a path in the configuration is relative to.

    Raises:
        ConfigError: With all that is wrong.
    """
    fields = {field.alias or name: field for name, field in StackSettings.model_fields.items()}
    problems = [
        Problem(key, value, f"is no setting{nearest(key, fields)}")
        for key, value in config.items()
        if key not in fields
    ]
    values = {key: _parse(fields[key], value) for key, value in config.items() if key in fields}
    try:
        settings = StackSettings.model_validate(values)
    except ValidationError as error:
        wrong = {str(e["loc"][0]): e for e in error.errors()}
        problems += [
            Problem(key, _without_values(values[key], e), e["msg"]) for key, e in wrong.items()
        ]
        # What is right by itself can still be wrong together.
        settings = StackSettings.model_validate(
            {key: value for key, value in values.items() if key not in wrong}
        )
        problems += [p for p in check_settings(settings, root) if p.key not in wrong]
    else:
        problems += check_settings(settings, root)
    if problems:
        raise ConfigError(problems)
    return settings


def stack_config() -> dict[str, str]:
    """Returns the project's configuration as `pulumi up` hands it over, without its prefix.

    Raises:
        ConfigError: A value is kept as a secret, which no machine would do.
    """
    given = {**get_config_env(), **CONFIG.get()}
    prefix = f"{pulumi.get_project()}:"
    plain = "would be plain in the state and on the machines; if it is no secret, set it without "
    secrets = [key for key in given if key.startswith(prefix) and is_config_secret(key)]
    if secrets:
        raise ConfigError(
            [Problem(key.removeprefix(prefix), "(hidden)", f"{plain}--secret") for key in secrets]
        )
    return {
        key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)
    }


def _without_values(value: Any, error: ErrorDetails) -> Any:
    """Returns what of a wrong value is shown: of environment variables, the name alone."""
    _, *inner = error["loc"]
    return inner[0] if isinstance(value, dict) and inner else value


def _parse(field: FieldInfo, text: str) -> Any:
    """Returns what the text means; text that is no JSON stays as it is, for pydantic to refuse."""
    if field.annotation is str:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
