"""Puts the wrappers that an experiment names around an environment."""

import inspect
from collections.abc import Iterable
from typing import Any

import gymnasium
import gymnasium.wrappers

from payload.environments.missing_packages import remedy
from payload.environments.own_class import own_class
from payload.errors import UserError, nearest, raised
from payload.experiment.wrappers import Wrapper, named


def wrapped(env: gymnasium.Env[Any, Any], wrappers: Iterable[Wrapper]) -> gymnasium.Env[Any, Any]:
    """Returns an environment in its wrappers, the first of which is next to it.

    Raises:
        UserError: One cannot be found, or does not take the arguments or the environment.
    """
    for wrapper in wrappers:
        name, given = named(wrapper)
        if ":" in name:
            make: Any = own_class("config.wrappers", name, gymnasium.Wrapper)
            arguments = given
        else:
            make = getattr(gymnasium.wrappers, name)
            # A file has lists where Gymnasium wants tuples.
            arguments = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
        _check_arguments(name, make, arguments)
        try:
            env = make(env, **arguments)
        except Exception as error:  # Some check nothing, and fail anywhere.
            raise UserError(f"config.wrappers.{name}: {raised(error)}{remedy(error)}") from error
    return env


def _check_arguments(name: str, make: Any, arguments: dict[str, Any]) -> None:
    parameters = list(inspect.signature(make).parameters.values())[1:]
    allowed = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    required = [p.name for p in parameters if p.default is p.empty and p.name in allowed]
    if missing := [each for each in required if each not in arguments]:
        raise UserError(f"config.wrappers.{name}: needs {', '.join(missing)}")
    for argument in arguments:
        if len(allowed) == len(parameters) and argument not in allowed:
            raise UserError(
                f"config.wrappers.{name}: no argument {argument}{nearest(argument, allowed)}; "
                f"allowed: {', '.join(allowed) or 'none'}"
            )
