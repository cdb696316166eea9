"""Tells RLlib's env runners what they need to know when their number changes."""

from typing import Any

import ray
from ray.rllib.core import (
    COMPONENT_ENV_TO_MODULE_CONNECTOR,
    COMPONENT_LEARNER,
    COMPONENT_MODULE_TO_ENV_CONNECTOR,
    COMPONENT_RL_MODULE,
)
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME


def join(algorithm: Any, actors: dict[int, Any]) -> None:
    """Adds responding env runners to RLlib's group, by their worker_index, without waiting."""
    state = ray.put(_state(algorithm))
    server = getattr(algorithm, "_env_runner_state_server", None)
    manager = algorithm.env_runner_group._worker_manager
    for index, actor in actors.items():
        actor.apply.remote(_begin, state=state, server=server)
        # RLlib's key of an env runner is its worker_index.
        manager._next_id = index
        manager.add_actors([actor])


def rejoin(algorithm: Any, indices: list[int]) -> None:
    """Brings env runners that Ray has restarted up to date.

    RLlib restores the state of the driver's env runner, which with IMPALA and APPO stays that of
    the run's start: initial weights, epsilon and seeds.
    """
    state = ray.put(_state(algorithm))

    def take(env_runner: Any) -> None:
        env_runner.set_state(ray.get(state))

    algorithm.env_runner_group.foreach_env_runner(
        take, local_env_runner=False, remote_worker_ids=indices, timeout_seconds=0.0
    )
    tell_number(algorithm, indices)


def tell_number(algorithm: Any, indices: list[int] | None = None) -> None:
    """Tells env runners their number; one that Ray has restarted knows only the first number.

    RLlib's env runners compute from it how much they sample, and how far training is.

    Args:
        indices: The env runners to tell; None for all.
    """
    config = algorithm.config
    numbers = {
        "num_env_runners": config.num_env_runners,
        # RLlib gives the remainder to the first env runners; here all of them round up.
        "rollout_fragment_length": config.get_rollout_fragment_length(worker_index=1),
    }

    def take(env_runner: Any) -> None:
        for name, value in numbers.items():
            setattr(env_runner.config, name, value)

    take(algorithm.env_runner)
    algorithm.env_runner_group.foreach_env_runner(
        take, local_env_runner=False, remote_worker_ids=indices, timeout_seconds=0.0
    )


def set_number(algorithm: Any, number: int) -> None:
    """Changes the number of env runners in RLlib's config, and tells all of them."""
    config = algorithm.config.copy(copy_frozen=False)
    config.num_env_runners = number
    config.freeze()
    # The group keeps its own config, with which Ray restarts the env runners made with it.
    algorithm.config = config
    tell_number(algorithm)


def _state(algorithm: Any) -> dict[str, Any]:
    """Returns the state of a new env runner, as in Algorithm.restore_env_runners."""
    state: dict[str, Any] = algorithm.learner_group.get_state(
        components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}", inference_only=True
    )[COMPONENT_LEARNER]
    connectors = [COMPONENT_ENV_TO_MODULE_CONNECTOR, COMPONENT_MODULE_TO_ENV_CONNECTOR]
    path = (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)
    return {
        **state,
        **algorithm.env_runner.get_state(components=connectors),
        NUM_ENV_STEPS_SAMPLED_LIFETIME: int(algorithm.metrics.peek(path, default=0)),
    }


def _begin(env_runner: Any, state: dict[str, Any], server: Any) -> None:
    env_runner.set_state(state)
    # For IMPALA and APPO: from here on the env runner pulls its weights itself.
    env_runner._env_runner_state_server = server
