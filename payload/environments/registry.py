"""Finds an environment by its id, "EnvId-v0" or "package:EnvId-v0", as gymnasium.make does."""

from __future__ import annotations

import importlib
import pkgutil

import gymnasium
from gymnasium.envs.registration import EnvSpec

from payload.errors import UserError, nearest, raised


def find_spec(env_id: str) -> EnvSpec:
    """Imports the package that an id names, if it names one; returns what is registered.

    Raises:
        UserError: The package does not exist or cannot be imported, or the id is not registered.
    """
    package, _, name = env_id.rpartition(":")
    before = set(gymnasium.registry)
    if package:
        _import(env_id, package)
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error:
        own = sorted(set(gymnasium.registry) - before) or _registered_by(package)
        if package and not own:
            reason = f"{package} registers no environment; gymnasium.register does that"
        elif package:
            reason = f"{package} registers {', '.join(own)}{nearest(name, own)}"
        else:
            reason = f"no such Gymnasium environment{nearest(name, gymnasium.registry)}"
        raise UserError(f"env: {env_id}: {reason}") from None


def _import(env_id: str, package: str) -> None:
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{package}.".startswith(f"{error.name}."):
            raise _import_failed(env_id, package, error) from None
        here = nearest(package, [module.name for module in pkgutil.iter_modules()])
        raise UserError(
            f"env: {env_id}: cannot import {error.name}{here}. Set source_directory to the "
            "folder that contains it, or add its PyPI package to pip_packages"
        ) from None
    except Exception as error:  # A package's own code may raise anything.
        raise _import_failed(env_id, package, error) from None


def _import_failed(env_id: str, package: str, error: Exception) -> UserError:
    return UserError(f"env: {env_id}: {package} cannot be imported: {raised(error)}")


def _registered_by(package: str) -> list[str]:
    """Returns the ids whose entry point is in a package, which an earlier import registered."""
    env_ids = []
    for env_id, spec in gymnasium.registry.items():
        entry = spec.entry_point
        module = (
            entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
        )
        if package and f"{module}.".startswith(f"{package}."):
            env_ids.append(env_id)
    return sorted(env_ids)
