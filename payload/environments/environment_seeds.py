"""The seeds of a run's environments: different in each of its env runners and starts."""

from typing import Any

import numpy as np
import numpy.typing as npt


def environment_seeds(
    seed: int, env_runner: int, num_envs: int, *start: int
) -> npt.NDArray[np.int64]:
    """Returns the seeds of an env runner's environments, [N] in [0, 2**31).

    RLlib gives env runner k the seed + k, and a vector gives its environment i that + i: many
    environments of a run, and of runs with consecutive seeds, would be the same.

    Args:
        start: What differs between the starts of an env runner: after a fault, or a resume, its
            environments must not repeat what they have played.
    """
    first = np.random.SeedSequence([seed, *start]).generate_state(1).astype(np.int64)
    return (first + env_runner * num_envs + np.arange(num_envs)) % 2**31


def seeds_at_start(env_runner: Any) -> npt.NDArray[np.int64] | None:
    """Returns the seeds, [N], of an env runner's next reset; None if the run has no seed.

    All evaluations start alike.
    """
    config = env_runner.config
    if config.seed is None:
        return None
    start = env_runner.num_env_steps_sampled_lifetime, env_runner.times_made
    return environment_seeds(
        config.seed,
        env_runner.worker_index or 0,
        env_runner.num_envs,
        *(() if config.in_evaluation else start),
    )
