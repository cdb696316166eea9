"""Makes environments: one for a person to watch, or a vector for an env runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv

from payload.environments.policy_observation import PolicyObservation, PolicyObservationVector
from payload.environments.registry import find_spec
from payload.errors import UserError


@dataclass(frozen=True)
class EnvironmentSettings:
    """What an env runner has to know of its environments, besides the id and how many there are."""

    kwargs: dict[str, Any]
    """Arguments of gymnasium.make."""
    step_timeout_s: float
    check_space: bool
    """Compare observations with their space."""

    def env_config(self) -> dict[str, Any]:
        """These settings as RLlib's `env_config`."""
        return asdict(self)


def make_env(
    env_id: str, env_config: Mapping[str, Any], render_mode: str | None = None
) -> gymnasium.Env[Any, Any]:
    """Makes one environment, as the policy sees it.

    Raises:
        UserError: It is not found, or says itself that it has no such render mode.
    """
    spec = find_spec(env_id)
    if render_mode is not None:
        entry = spec.entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
        metadata = getattr(creator, "metadata", None)  # A function has none.
        if metadata is not None and render_mode not in metadata.get("render_modes", []):
            raise UserError(
                f'env: {env_id}: no video: the environment does not list "{render_mode}" in '
                'metadata["render_modes"]'
            )
        env_config = {**env_config, "render_mode": render_mode}
    return PolicyObservation(gymnasium.make(spec, **env_config))


def make_vector(
    env_id: str, env_config: Mapping[str, Any], num_envs: int
) -> VectorEnv[Any, Any, Any]:
    """Makes environments that are stepped in one call, and reset in the step after their end.

    The package's own vector environment is taken, where it has one that resets in this way.
    """
    spec = find_spec(env_id)
    if spec.vector_entry_point is not None:
        env = gymnasium.make_vec(
            spec, num_envs, vectorization_mode="vector_entry_point", **env_config
        )
        if env.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
            return PolicyObservationVector(env)
        env.close()
    return gymnasium.make_vec(
        spec, num_envs, vectorization_mode="sync", wrappers=[PolicyObservation], **env_config
    )
