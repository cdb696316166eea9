"""Each environment of a run has a seed of its own."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from payload.environments.environment_seeds import environment_seeds


@given(
    seed=st.integers(0, 2**40),
    env_runners=st.integers(1, 100),
    num_envs=st.integers(1, 100),
)
def test_no_two_environments_of_a_run_have_the_same_seed(
    seed: int, env_runners: int, num_envs: int
) -> None:
    # 0 is the driver's own env runner.
    seeds = [environment_seeds(seed, index, num_envs) for index in range(env_runners + 1)]
    assert len(np.unique(seeds)) == (env_runners + 1) * num_envs


def test_environments_of_runs_with_neighbouring_seeds_have_others() -> None:
    one, other = ([environment_seeds(seed, index, 32) for index in range(14)] for seed in (0, 1))
    assert np.intersect1d(one, other).size == 0


@given(seed=st.integers(0, 2**40))
def test_the_emulator_takes_every_seed_of_an_environment(seed: int) -> None:
    seeds = environment_seeds(seed, 13, 32)
    assert (seeds >= 0).all()
    assert (seeds < 2**31).all()


def test_an_environments_seed_is_always_the_same() -> None:
    np.testing.assert_array_equal(environment_seeds(5, 2, 32), environment_seeds(5, 2, 32))


def test_another_start_has_other_seeds() -> None:
    starts = [environment_seeds(5, 2, 32, *start) for start in ((), (0, 1), (0, 2), (3200, 1))]
    assert len(np.unique(starts)) == 4 * 32
