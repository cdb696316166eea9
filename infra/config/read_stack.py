"""Reads the stack's configuration; one error lists every problem."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env, is_config_secret
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from infra.config.catalog import Catalog
from infra.config.check_access import check_access
from infra.config.check_experiment import check_experiment, with_needs
from infra.config.check_machines import check_machines
from infra.config.check_network import check_network
from infra.config.check_tags import check_tags
from infra.config.stack_settings import Problem, StackSettings
from payload.experiment import nearest

SECRET = (
    "would be stored in plain text on the machines; secrets are not supported, "
    "set a plain value without --secret"
)
AskAzure = Callable[[StackSettings], Catalog]
"""Returns the sizes and prices of a stack's location: infra/config/ask_azure.py."""
NOW_TAGS = {"owner": "owner", "costCentre": "cost-centre"}
"""Keys that only set a tag, before there was `tags`."""


class ConfigError(pulumi.RunError):
    """Every problem of the configuration, with its key."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        lines = "\n".join(f"  {problem}" for problem in problems)
        count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"The stack's configuration has {count}; nothing was created.\n{lines}")


def read_settings(
    config: Mapping[str, str], root: Path, ask: AskAzure | None = None
) -> StackSettings:
    """Reads the project's keys as Pulumi gives them: text, or JSON for other types.

    Args:
        root: Folder to which paths in the configuration are relative.
        ask: Gives the sizes and prices. Default: those of the dated files.

    Raises:
        ConfigError: Lists every problem.
    """
    fields = {field.alias or name: field for name, field in StackSettings.model_fields.items()}
    problems = [
        Problem(key, value, _unknown(key, fields))
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
        # Values that are valid one by one can still contradict each other.
        settings = StackSettings.model_validate(
            {key: value for key, value in values.items() if key not in wrong}
        )
        settings = _with_catalog(settings, ask)
        problems += [p for p in check_settings(settings, root) if p.key not in wrong]
    else:
        settings = with_needs(_with_catalog(settings, ask), root)
        problems += check_settings(settings, root)
    if problems:
        raise ConfigError(problems)
    return settings


def checked(settings: StackSettings, root: Path, ask: AskAzure) -> StackSettings:
    """Returns settings with what the experiment needs on every machine added.

    Args:
        ask: Gives the sizes and prices, unless the settings have been given some.

    Raises:
        ConfigError: Lists every problem.
    """
    settings = with_needs(_with_catalog(settings, ask), root)
    if problems := list(check_settings(settings, root)):
        raise ConfigError(problems)
    return settings


def stack_config() -> dict[str, str]:
    """Returns the project's configuration as Pulumi passes it, without the project's prefix.

    Raises:
        ConfigError: A value is set as a secret.
    """
    given = {**get_config_env(), **CONFIG.get()}
    prefix = f"{pulumi.get_project()}:"
    secrets = [key for key in given if key.startswith(prefix) and is_config_secret(key)]
    if secrets:
        raise ConfigError(
            [Problem(key.removeprefix(prefix), "(hidden)", SECRET) for key in secrets]
        )
    return {
        key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)
    }


def check_settings(settings: StackSettings, root: Path) -> Iterator[Problem]:
    """Yields every problem of settings whose types are right."""
    yield from check_access(settings)
    yield from check_machines(settings)
    yield from check_network(settings)
    yield from check_tags(settings)
    yield from check_experiment(settings, root)


def _with_catalog(settings: StackSettings, ask: AskAzure | None) -> StackSettings:
    if ask is None or settings.catalog.asked:
        return settings
    return settings.with_catalog(ask(settings))


def _unknown(key: str, keys: Iterable[str]) -> str:
    if key in NOW_TAGS:
        return f"is a tag now. Next: pulumi config set --path tags.{NOW_TAGS[key]} VALUE"
    return f"is not a setting{nearest(key, keys)}"


def _without_values(value: Any, error: ErrorDetails) -> Any:
    """Returns the part of a wrong value that may be shown: only an environment variable's name."""
    _, *inner = error["loc"]
    return inner[0] if isinstance(value, dict) and inner else value


def _parse(field: FieldInfo, text: str) -> Any:
    """Returns the parsed value; text that is not JSON stays text, and pydantic refuses it."""
    if field.annotation is str:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
