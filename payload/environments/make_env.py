"""Finds an environment by its id; makes one for a person to watch, or a vector for an env runner.

An id is "EnvId-v0" or "package:EnvId-v0", as in gymnasium.make.
"""

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv

from payload.environments import envpool_vector
from payload.environments.info_metrics import InfoMetrics, OwnInfo
from payload.environments.own_class import import_package
from payload.environments.policy_action import PolicyAction, PolicyActionVector
from payload.environments.policy_observation import PolicyObservation, PolicyObservationVector
from payload.environments.wrappers import wrapped
from payload.errors import UserError, nearest
from payload.experiment.wrappers import Wrapper

# pygame, which draws Gymnasium's classic environments, would greet on stdout and open the audio
# system, which leaves a folder in TMPDIR.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")


@dataclass(frozen=True)
class EnvironmentSettings:
    """What RLlib's `env_config` carries to an env runner, besides the id and how many there are."""

    kwargs: dict[str, Any]
    """Arguments of gymnasium.make."""
    step_timeout_s: float
    check_space: bool
    """Compare observations with their space."""
    info_metrics: Sequence[str] = ()
    """Numbers of `info` at an episode's end that are metrics."""
    wrappers: Sequence[Wrapper] = ()
    """Gymnasium's wrappers, or one's own, the first of which is next to the environment."""
    keeps_dict: bool = False
    """Whether the policy sees a Dict of observations as one, for a module of one's own."""
    reward_scale: float = 1.0
    """Factor of the rewards that the algorithm learns from."""
    observation_filter: bool = False
    """Whether the policy sees observations less their mean, divided by their deviation."""


def make_env(
    env_id: str,
    env_config: Mapping[str, Any],
    render_mode: str | None = None,
    wrappers: Sequence[Wrapper] = (),
    keeps_dict: bool = False,
) -> gymnasium.Env[Any, Any]:
    """Makes one environment, as the policy sees it and acts in it.

    Args:
        wrappers, keeps_dict: As EnvironmentSettings has them.

    Raises:
        UserError: It is not found, declares that it has no such render mode, or does not fit into
            its wrappers.
    """
    spec = find_spec(env_id)
    if render_mode is not None:
        metadata = getattr(creator_of(spec), "metadata", None)  # A function has none.
        if metadata is not None and render_mode not in metadata.get("render_modes", []):
            raise UserError(
                f'env: {env_id}: no video: the environment does not list "{render_mode}" in '
                'metadata["render_modes"]'
            )
        env_config = {**env_config, "render_mode": render_mode}
    env = wrapped(gymnasium.make(spec, **env_config), wrappers)
    return PolicyAction(PolicyObservation(env, keeps_dict))


def make_vector(
    env_id: str,
    env_config: Mapping[str, Any],
    num_envs: int,
    info_metrics: InfoMetrics | None = None,
    wrappers: Sequence[Wrapper] = (),
    keeps_dict: bool = False,
    num_threads: int = 1,
) -> VectorEnv[Any, Any, Any]:
    """Makes a vector of environments, which reset in the step after the end of an episode.

    Without wrappers it uses EnvPool if the id names it, or the package's own vector environment if
    that resets in this way.

    Args:
        wrappers, keeps_dict: As EnvironmentSettings has them.
        num_threads: Of EnvPool.
    """
    spec = find_spec(env_id)
    if env_id == f"{envpool_vector.PACKAGE}:{spec.id}" and not wrappers:
        pool = envpool_vector.EnvPoolVector(spec.id, num_envs, num_threads, env_config)
        return PolicyActionVector(PolicyObservationVector(pool, keeps_dict))
    if spec.vector_entry_point is not None and not (wrappers or spec.additional_wrappers):
        env = gymnasium.make_vec(
            spec, num_envs, vectorization_mode="vector_entry_point", **env_config
        )
        if env.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
            return PolicyActionVector(PolicyObservationVector(env, keeps_dict))
        env.close()
    named: Any = partial(wrapped, wrappers=wrappers)
    return gymnasium.make_vec(
        spec,
        num_envs,
        vectorization_mode="sync",
        wrappers=[
            named,
            partial(OwnInfo, metrics=info_metrics or InfoMetrics()),
            partial(PolicyObservation, keeps_dict=keeps_dict),
            PolicyAction,
        ],
        **env_config,
    )


def find_spec(env_id: str) -> EnvSpec:
    """Imports the package that an id names, if it names one; returns what is registered.

    Raises:
        UserError: The package does not exist or cannot be imported, or the id is not registered.
    """
    package, _, name = env_id.rpartition(":")
    before = set(gymnasium.registry)
    if package:
        import_package(f"env: {env_id}", package)
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error:
        own = sorted(set(gymnasium.registry) - before) or _registered_by(package)
        if package and not own:
            reason = f"{package} registers no environment; gymnasium.register does that"
        elif package:
            reason = f"{package} registers {', '.join(own)}{nearest(name, own)}"
        elif _exists(namespace := name.rpartition("/")[0]):
            reason = f"Gymnasium does not know it (did you mean {namespace}:{name}?)"
        else:
            reason = f"no such Gymnasium environment{nearest(name, gymnasium.registry)}"
        raise UserError(f"env: {env_id}: {reason}") from None


def creator_of(spec: EnvSpec) -> Any:
    """Returns the class or the function that makes the environment."""
    entry = spec.entry_point
    return load_env_creator(entry) if isinstance(entry, str) else entry


def _exists(package: str) -> bool:
    return package.isidentifier() and importlib.util.find_spec(package) is not None


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
