"""Environments that EnvPool steps in C++: `env: envpool:HalfCheetah-v5`.

EnvPool is not one of volley's packages: `pip_packages: [envpool]` installs it.
https://envpool.readthedocs.io/en/latest/content/python_interface.html
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

PACKAGE = "envpool"


class EnvPoolVector(VectorEnv[Any, Any, Any]):
    """N environments of one task, which reset in the step after the end of an episode."""

    def __init__(
        self, task: str, num_envs: int, num_threads: int, env_config: Mapping[str, Any]
    ) -> None:
        """
        Args:
            env_config: Arguments of envpool.make.
        """
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._arguments = {**env_config, "num_envs": num_envs, "num_threads": num_threads}
        self._task = task
        self._pool = self._make(None)
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._all = np.ones(num_envs, np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all environments; a seed makes them again, since EnvPool takes it only then."""
        if seed is not None:
            self._pool = self._make(seed)
        observations, infos = self._pool.reset()
        return observations, self._numbers(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self._pool.step(actions)
        return observations, rewards, terminated, truncated, self._numbers(infos)

    def _make(self, seed: int | None) -> Any:
        envpool = import_module(PACKAGE)
        if seed is None:  # EnvPool's own default is the same in every process.
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        return envpool.make(self._task, env_type="gymnasium", seed=seed % 2**31, **self._arguments)

    def _numbers(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the numbers of each environment with a mask, as Gymnasium's vectors have them."""
        numbers: dict[str, Any] = {}
        for name, values in infos.items():
            if isinstance(values, np.ndarray) and values.shape == (self.num_envs,):
                numbers |= {name: values, f"_{name}": self._all}
        return numbers
