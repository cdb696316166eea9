"""Builds RLlib's algorithm; if its first env runner does not start, says why."""

import traceback
from typing import Any

import ray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from payload.environments.missing_packages import remedy
from payload.errors import TemporaryError, UserError, raised
from payload.may_pass import may_pass

STARTS_AFTER = "num_steps_sampled_before_learning_starts"
"""RLlib's setting of the algorithms with a replay buffer."""


def build_algorithm(config: AlgorithmConfig) -> Any:
    """Builds the algorithm of a config.

    Raises:
        UserError: The environments of an env runner cannot be made.
        TemporaryError: The machine lacks something for them, or has lost the env runner.
    """
    try:
        return config.build_algo()
    except IndexError as error:
        # EnvRunnerGroup asks the first env runner for its spaces, drops the error that is the
        # answer, and takes the first of no answers.
        if traceback.extract_tb(error.__traceback__)[-1].name != "get_spaces":
            raise
    raise _why_no_env_runner(config)


def delay_learning(algorithm: Any, env_steps: int) -> None:
    """Lets a resumed algorithm sample before it learns, as a new one does.

    Its replay buffer is empty again, and RLlib compares all steps of the run with the setting:
    DQN would learn from a single transition.

    Args:
        env_steps: Environment steps of the run so far.
    """
    if hasattr(algorithm.config, STARTS_AFTER):
        config = algorithm.config.copy(copy_frozen=False)
        setattr(config, STARTS_AFTER, getattr(config, STARTS_AFTER) + env_steps)
        config.freeze()
        algorithm.config = config


def _why_no_env_runner(config: AlgorithmConfig) -> UserError | TemporaryError:
    failure = _try_in_a_process(config)
    if failure is None:
        return TemporaryError("the first env runner was lost while it started")
    if isinstance(failure, UserError) and config.num_envs_per_env_runner > 1:
        single = config.copy(copy_frozen=False).env_runners(num_envs_per_env_runner=1)
        if _try_in_a_process(single) is None:
            return UserError(
                f"{failure}. A single copy starts: config.num_envs_per_env_runner: 1 gives each "
                "env runner one, config.env_config.worker_index: 0 also its number"
            )
    return failure


def _try_in_a_process(config: AlgorithmConfig) -> UserError | TemporaryError | None:
    # Without CPUs, which other env runners may hold; in a process that ends afterwards, because a
    # failed environment may keep a port.
    trial = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(_try)
    answer: UserError | TemporaryError | None = ray.get(trial.remote(config))
    return answer


def _try(config: AlgorithmConfig) -> UserError | TemporaryError | None:
    """Makes an env runner; returns why that fails, or None."""
    assert config.env_runner_cls is not None
    try:
        config.env_runner_cls(config=config, worker_index=1).stop()
    except Exception as error:  # The environment's own code may raise anything.
        kind = TemporaryError if may_pass(error) else UserError
        return kind(
            f"env: {config.env}: an env runner cannot start: {raised(error)}{remedy(error)}"
        )
    return None
