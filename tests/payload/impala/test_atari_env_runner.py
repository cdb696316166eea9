"""The env runner against the plain emulator, and the emulator against Gymnasium's wrappers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED, NUM_EPISODES, WEIGHTS_SEQ_NO

from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.atari import AtariSettings, game_of, make_vector_env
from payload.environments.checked_vector import EPISODE_LENGTHS, EPISODE_RETURNS
from payload.environments.environment_seeds import environment_seeds
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment
from payload.experiment.settings import Experiment
from payload.impala.atari_env_runner import (
    RETURN_SO_FAR_MAX,
    RETURN_SO_FAR_MIN,
    REWARDS_SAMPLED,
    AtariEnvRunner,
)
from payload.impala.rollout_fragment import RolloutFragment
from tests.payload.impala.stacks import stacks_of

pytestmark = pytest.mark.slow

BREAKOUT, PONG, SPACE_INVADERS = (
    f"{name}NoFrameskip-v4" for name in ("Breakout", "Pong", "SpaceInvaders")
)
NUM_ACTIONS = {BREAKOUT: 4, PONG: 6, SPACE_INVADERS: 6}
SEED = 5
NUM_ENVS = 2
STEPS = 20

UInt8s = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Episodes = list[tuple[float, int]]
"""Return and length of each episode."""


def experiment_of(env_id: str = BREAKOUT, **config: Any) -> Experiment:
    sizes = {"num_envs_per_env_runner": NUM_ENVS, "rollout_fragment_length": STEPS, "seed": SEED}
    return read_experiment({"env": env_id, "config": {**sizes, **config}}).experiment


def rllib_config(experiment: Experiment) -> AlgorithmConfig:
    return algorithm_config(experiment, with_defaults(experiment, atari=True, num_env_runners=2))


def game(experiment: Experiment) -> AtariSettings:
    settings = game_of(experiment)
    assert settings is not None
    return settings


def plain_env(experiment: Experiment) -> tuple[AtariVectorEnv, npt.NDArray[np.int64]]:
    """Returns the emulator that the first remote env runner steps, and its initial seeds."""
    return make_vector_env(game(experiment), NUM_ENVS), environment_seeds(SEED, 1, NUM_ENVS, 0, 1)


class Runners:
    """The first remote env runners of experiments, built in this process."""

    def __init__(self) -> None:
        self._all: list[AtariEnvRunner] = []
        self._kept: dict[str, AtariEnvRunner] = {}

    def new(self, env_id: str = BREAKOUT, **config: Any) -> AtariEnvRunner:
        rllib = rllib_config(experiment_of(env_id, **config))
        self._all.append(AtariEnvRunner(config=rllib, worker_index=1))
        return self._all[-1]

    def of(self, env_id: str = BREAKOUT, **config: Any) -> AtariEnvRunner:
        """Returns a shared env runner, reset: loading the games takes long."""
        key = repr((env_id, config))
        if key not in self._kept:
            self._kept[key] = self.new(env_id, **config)
        runner = self._kept[key]
        runner._needs_initial_reset = True
        reported(runner)
        return runner

    def stop(self) -> None:
        for runner in self._all:
            runner.stop()


@pytest.fixture(scope="module")
def runners() -> Iterator[Runners]:
    runners = Runners()
    yield runners
    runners.stop()


@pytest.fixture
def runner(runners: Runners) -> AtariEnvRunner:
    """Plays Breakout."""
    return runners.of()


@pytest.fixture
def short_runner(runners: Runners) -> AtariEnvRunner:
    """Plays Breakout in episodes of 25 steps."""
    return runners.of(env_config={"max_episode_frames": 100})


def reported(runner: AtariEnvRunner) -> Episodes:
    """Returns the episodes in the runner's metrics, in the order in which they ended."""
    metrics = runner.get_metrics()
    if EPISODE_RETURNS not in metrics:
        return []
    returns = metrics[EPISODE_RETURNS].peek(compile=False)
    lengths = metrics[EPISODE_LENGTHS].peek(compile=False)
    return list(zip(returns, lengths, strict=True))


# The same actions, in an env runner and in the plain environment


@dataclass(frozen=True)
class PlainPlay:
    """S steps of the plain environment; time comes first everywhere."""

    observations: UInt8s
    """[S + 1, N, K, H, W]."""
    lives: npt.NDArray[np.int64]
    """[S + 1, N]."""
    rewards: Floats
    terminated: Bools
    truncated: Bools

    @property
    def ended(self) -> Bools:
        return self.terminated | self.truncated

    @property
    def lost_life(self) -> Bools:
        """The steps after which the game continues with one life less."""
        fewer: Bools = self.lives[1:] < self.lives[:-1]
        return fewer & ~self.ended

    def episodes(self) -> list[tuple[int, float, int]]:
        """Returns each finished episode's environment, return and length, in order of ends."""
        starts = np.zeros(self.rewards.shape[1], np.int64)
        episodes = []
        for time, env in zip(*np.nonzero(self.ended), strict=True):
            rewards = self.rewards[starts[env] : time + 1, env]
            episodes.append((int(env), float(rewards.sum()), len(rewards)))
            starts[env] = time + 1
        return episodes


def play_plainly(experiment: Experiment, actions: npt.NDArray[np.int64]) -> PlainPlay:
    env, seed = plain_env(experiment)
    observation, info = env.reset(seed=seed)
    observations, lives = [observation.copy()], [info["lives"].copy()]
    steps = []
    for action in actions:
        observation, *step, info = env.step(action)
        observations.append(observation.copy())
        lives.append(info["lives"].copy())
        steps.append([values.copy() for values in step])
    env.close()
    rewards, terminated, truncated = (np.stack(values) for values in zip(*steps, strict=True))
    return PlainPlay(np.stack(observations), np.stack(lives), rewards, terminated, truncated)


class Played(NamedTuple):
    """An env runner's fragments and episodes, and the same play in the plain environment."""

    fragments: list[RolloutFragment]
    reported: Episodes
    plain: PlainPlay

    def joined(self, name: str) -> npt.NDArray[Any]:
        """Returns the fragments' arrays of this name, concatenated."""
        return np.concatenate([getattr(fragment, name) for fragment in self.fragments])


PLAYS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "games end": (BREAKOUT, 20, {}),
    "games are cut": (BREAKOUT, 6, {"env_config": {"max_episode_frames": 200}}),
    "points are lost": (PONG, 8, {"env_config": {"max_episode_frames": 402}}),
    "lives do not count": (BREAKOUT, 6, {"end_return_at_lost_life": False}),
}
"""Environment, number of fragments, settings."""


@cache
def played(name: str) -> Played:
    env_id, num_fragments, config = PLAYS[name]
    experiment = experiment_of(env_id, **config)
    runner = AtariEnvRunner(config=rllib_config(experiment), worker_index=1)
    fragments = [runner.sample()[0] for _ in range(num_fragments)]
    actions = np.concatenate([fragment.actions for fragment in fragments]).astype(np.int64)
    result = Played(fragments, reported(runner), play_plainly(experiment, actions))
    runner.stop()
    return result


@pytest.fixture(params=PLAYS)
def play(request: pytest.FixtureRequest) -> Played:
    return played(request.param)


@pytest.fixture
def breakout() -> Played:
    """A play in which lives are lost and games end."""
    return played("games end")


@pytest.fixture
def cut_breakout() -> Played:
    """A play in which lives are lost and episodes are truncated."""
    return played("games are cut")


def test_observations_are_the_plain_environments(play: Played) -> None:
    for number, fragment in enumerate(play.fragments):
        start = number * STEPS
        expected = play.plain.observations[start : start + STEPS + 1].swapaxes(0, 1)
        np.testing.assert_array_equal(stacks_of(fragment), expected)


def test_rewards_are_the_plain_environments(play: Played) -> None:
    np.testing.assert_array_equal(play.joined("rewards"), play.plain.rewards)


def test_episodes_begin_where_the_plain_environments_do(play: Played) -> None:
    firsts = np.concatenate([fragment.first[1:] for fragment in play.fragments])
    np.testing.assert_array_equal(firsts, play.plain.ended)


def test_the_first_observation_of_all_begins_an_episode(play: Played) -> None:
    assert play.fragments[0].first[0].all()


def test_a_fragment_begins_where_the_one_before_ended(play: Played) -> None:
    for before, after in zip(play.fragments, play.fragments[1:], strict=False):
        np.testing.assert_array_equal(after.first[0], before.first[-1])


def test_truncations_are_the_plain_environments(play: Played) -> None:
    np.testing.assert_array_equal(play.joined("truncated"), play.plain.truncated)


def test_reported_episodes_are_the_plain_environments(play: Played) -> None:
    assert play.reported == [(total, length) for _, total, length in play.plain.episodes()]


def test_games_end_in_the_play_that_is_to_show_it(breakout: Played) -> None:
    assert breakout.plain.terminated.sum() >= NUM_ENVS


def test_games_are_cut_in_the_play_that_is_to_show_it(cut_breakout: Played) -> None:
    assert cut_breakout.plain.truncated.sum() >= NUM_ENVS


def test_the_end_of_a_game_ends_the_return(breakout: Played) -> None:
    assert breakout.joined("terminated")[breakout.plain.terminated].all()


def test_a_lost_life_ends_the_return(breakout: Played) -> None:
    assert breakout.plain.lost_life.any()
    assert breakout.joined("terminated")[breakout.plain.lost_life].all()


def test_only_games_and_lives_end_a_return(cut_breakout: Played) -> None:
    ends = cut_breakout.plain.terminated | cut_breakout.plain.lost_life
    assert not cut_breakout.joined("terminated")[~ends].any()


def test_a_lost_life_begins_no_episode(breakout: Played) -> None:
    firsts = np.concatenate([fragment.first[1:] for fragment in breakout.fragments])
    assert not firsts[breakout.plain.lost_life].any()


def test_a_lost_life_ends_no_return_where_lives_do_not_count() -> None:
    play = played("lives do not count")
    assert play.plain.lost_life.any()
    np.testing.assert_array_equal(play.joined("terminated"), play.plain.terminated)


# Sampling


def test_an_episode_is_reported_once(short_runner: AtariEnvRunner) -> None:
    short_runner.sample(num_timesteps=26 * NUM_ENVS)
    assert reported(short_runner)
    assert not reported(short_runner)


def test_every_step_is_counted(runner: AtariEnvRunner) -> None:
    steps = sum(len(runner.sample()[0]) for _ in range(3))
    assert runner.get_metrics()[NUM_ENV_STEPS_SAMPLED].peek() == steps == 3 * STEPS * NUM_ENVS


def test_the_rewards_of_every_step_are_counted(runners: Runners) -> None:
    runner = runners.new()
    rewards = sum(runner.sample(num_timesteps=60 * NUM_ENVS)[0].rewards.sum() for _ in range(3))
    assert rewards != 0
    assert runner.get_metrics()[REWARDS_SAMPLED].peek() == rewards


def test_the_returns_so_far_are_of_the_games_in_progress(runners: Runners) -> None:
    runner = runners.new()
    (fragment,) = runner.sample(num_timesteps=400 * NUM_ENVS)
    so_far = [
        fragment.rewards[np.append(0, np.flatnonzero(first))[-1] :, env].sum()
        for env, first in enumerate(fragment.first.T)
    ]
    assert fragment.first[1:].any()
    assert max(so_far) > 0
    metrics = runner.get_metrics()
    names = (RETURN_SO_FAR_MIN, RETURN_SO_FAR_MAX)
    assert [metrics[name].peek() for name in names] == [min(so_far), max(so_far)]


def test_a_given_number_of_steps_is_sampled(runner: AtariEnvRunner) -> None:
    (fragment,) = runner.sample(num_timesteps=7 * NUM_ENVS)
    assert len(fragment) == 7 * NUM_ENVS


@pytest.mark.parametrize("episodes", [1, NUM_ENVS, 2 * NUM_ENVS + 1])
def test_a_given_number_of_episodes_is_reported(
    short_runner: AtariEnvRunner, episodes: int
) -> None:
    short_runner.sample(num_episodes=episodes)
    assert len(reported(short_runner)) == episodes


def test_the_number_of_episodes_is_a_metric(short_runner: AtariEnvRunner) -> None:
    short_runner.sample(num_episodes=3)
    assert short_runner.get_metrics()[NUM_EPISODES].peek() == 3


def test_each_environment_plays_its_share_of_the_episodes(runners: Runners) -> None:
    runner = runners.new()
    np.random.seed(14)
    runner.sample(num_episodes=3, random_actions=True)
    np.random.seed(14)
    actions = np.stack(
        [np.random.randint(NUM_ACTIONS[BREAKOUT], size=NUM_ENVS) for _ in range(400)]
    )
    games = play_plainly(experiment_of(), actions).episodes()
    # The third game to end is the second of an environment whose share is one.
    assert [env for env, _, _ in games[:4]] == [1, 0, 1, 0]
    assert reported(runner) == [(total, length) for _, total, length in [*games[:2], games[3]]]


def test_sampling_continues_with_new_episodes_after_whole_ones(
    short_runner: AtariEnvRunner,
) -> None:
    short_runner.sample(num_episodes=1)
    assert short_runner.sample()[0].first[0].all()


def test_a_forced_reset_begins_new_episodes(runner: AtariEnvRunner) -> None:
    runner.sample()
    (fragment,) = runner.sample(num_timesteps=STEPS * NUM_ENVS, force_reset=True)
    assert fragment.first[0].all()


def test_the_same_seed_gives_the_same_frames(runners: Runners) -> None:
    one, other = (runners.new().sample()[0] for _ in range(2))
    np.testing.assert_array_equal(one.frames, other.frames)


def test_a_fragment_carries_the_version_of_its_weights(runner: AtariEnvRunner) -> None:
    runner.set_state({**runner.get_state(), WEIGHTS_SEQ_NO: 7})
    assert runner.sample()[0].weights_seq_no == 7


def test_the_drivers_env_runner_loads_the_games_when_it_first_samples(
    runner: AtariEnvRunner,
) -> None:
    assert runner.env is not None
    spaces = (runner.env.single_observation_space, runner.env.single_action_space)
    drivers = AtariEnvRunner(
        config=rllib_config(experiment_of()),
        worker_index=0,
        spaces={INPUT_ENV_SINGLE_SPACES: spaces, DEFAULT_MODULE_ID: spaces},
    )
    assert drivers.env is None
    assert len(drivers.sample()[0]) == STEPS * NUM_ENVS


# Acting


@pytest.fixture(scope="module")
def opinionated(runners: Runners) -> AtariEnvRunner:
    """A runner whose policy distinguishes actions and observations; a new one barely does."""
    runner = runners.new(PONG)
    with torch.no_grad():
        runner.module.policy.weight.mul_(1000.0)
    return runner


@torch.inference_mode()
def logits_of(runner: AtariEnvRunner, observations: UInt8s) -> torch.Tensor:
    batch = {Columns.OBS: torch.from_numpy(np.ascontiguousarray(observations))}
    return runner.module.forward_inference(batch)[Columns.ACTION_DIST_INPUTS]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_action_logp_is_of_the_policy_at_its_temperature(
    opinionated: AtariEnvRunner, temperature: float
) -> None:
    opinionated.module.temperature.fill_(temperature)
    (fragment,) = opinionated.sample()
    for t, observations in enumerate(stacks_of(fragment).swapaxes(0, 1)[:-1]):
        logits = logits_of(opinionated, observations) / temperature
        logp = torch.log_softmax(logits, -1).numpy()
        expected = logp[range(NUM_ENVS), fragment.actions[t]]
        np.testing.assert_allclose(fragment.action_logp[t], expected, atol=1e-5)


def test_without_exploration_actions_are_the_likeliest(opinionated: AtariEnvRunner) -> None:
    opinionated.module.temperature.fill_(1.0)
    (fragment,) = opinionated.sample(explore=False)
    for t, observations in enumerate(stacks_of(fragment).swapaxes(0, 1)[:-1]):
        expected = logits_of(opinionated, observations).argmax(-1).numpy()
        np.testing.assert_array_equal(fragment.actions[t], expected)


def test_exploration_draws_actions_by_their_probability(runners: Runners) -> None:
    runner = runners.new()
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    with torch.no_grad():
        runner.module.policy.weight.zero_()
        runner.module.policy.bias.copy_(torch.from_numpy(np.log(probabilities)))
    draws = 300 * NUM_ENVS
    (fragment,) = runner.sample(num_timesteps=draws)
    frequencies = np.bincount(fragment.actions.ravel(), minlength=4) / draws
    deviations = np.sqrt(probabilities * (1 - probabilities) / draws)
    assert (np.abs(frequencies - probabilities) < 4 * deviations).all()


def test_random_actions_are_equally_likely(runner: AtariEnvRunner) -> None:
    (fragment,) = runner.sample(random_actions=True)
    np.testing.assert_allclose(fragment.action_logp, -np.log(4), rtol=1e-6)


# The emulator's preprocessing


@dataclass(frozen=True)
class Frames:
    """Everything an environment showed, including the last observations of its episodes."""

    observations: UInt8s
    rewards: list[float]
    ends: list[tuple[bool, bool]]
    """Terminated and truncated, after each step."""


def frames_of_the_emulator(settings: AtariSettings, actions: list[int]) -> Frames:
    env = make_vector_env(settings, 1)
    observation, _ = env.reset(seed=0)
    observations, rewards, ends = [observation[0].copy()], [], []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(np.array([action]))
        if terminated[0] or truncated[0]:
            observations.append(info["final_obs"][0].copy())
        observations.append(observation[0].copy())
        rewards.append(float(reward[0]))
        ends.append((bool(terminated[0]), bool(truncated[0])))
    env.close()
    return Frames(np.stack(observations), rewards, ends)


def frames_of_gymnasium(env_id: str, settings: AtariSettings, actions: list[int]) -> Frames:
    height, width = settings.image_shape
    env: gymnasium.Env[Any, Any] = gymnasium.make(
        env_id, frameskip=1, max_num_frames_per_episode=settings.max_episode_frames
    )
    env = AtariPreprocessing(env, noop_max=0, frame_skip=4, screen_size=(width, height))
    env = FrameStackObservation(env, settings.frame_stack, padding_type="zero")
    observation, _ = env.reset(seed=0)
    observations, rewards, ends = [observation.copy()], [], []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(observation.copy())
        rewards.append(float(reward))
        ends.append((terminated, truncated))
        if terminated or truncated:
            observation, _ = env.reset()
            observations.append(observation.copy())
    env.close()
    return Frames(np.stack(observations), rewards, ends)


class Parity(NamedTuple):
    """One game without no-ops under the same random actions."""

    emulator: Frames
    gymnasium: Frames


PARITIES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "Pong": (PONG, 200, {}),
    "Breakout": (BREAKOUT, 300, {}),
    "Space Invaders": (SPACE_INVADERS, 200, {}),
    "Breakout, cut": (BREAKOUT, 100, {"max_episode_frames": 101}),
    "Breakout, narrower": (BREAKOUT, 100, {"image_width": 40}),
    "Breakout, larger": (BREAKOUT, 100, {"image_size": 84, "frame_stack": 2}),
}
"""Environment, steps, overrides of AtariSettings."""


@cache
def compared(name: str) -> Parity:
    env_id, steps, overrides = PARITIES[name]
    # The emulator draws its no-ops below noop_max, so 1 means none.
    settings = game(experiment_of(env_id, env_config={"noop_max": 1, **overrides}))
    actions = np.random.default_rng(0).integers(NUM_ACTIONS[env_id], size=steps).tolist()
    return Parity(
        frames_of_the_emulator(settings, actions), frames_of_gymnasium(env_id, settings, actions)
    )


@pytest.fixture(params=PARITIES)
def parity(request: pytest.FixtureRequest) -> Parity:
    return compared(request.param)


def test_the_emulator_shows_gymnasiums_frames(parity: Parity) -> None:
    np.testing.assert_array_equal(parity.emulator.observations, parity.gymnasium.observations)


def test_the_emulator_gives_gymnasiums_rewards(parity: Parity) -> None:
    assert parity.emulator.rewards == parity.gymnasium.rewards


def test_the_emulator_ends_episodes_where_gymnasium_does(parity: Parity) -> None:
    assert parity.emulator.ends == parity.gymnasium.ends


def test_rewards_larger_than_one_are_compared() -> None:
    """Space Invaders pays 5 to 30 points: clipping would show."""
    assert max(compared("Space Invaders").gymnasium.rewards) > 1.0


@pytest.mark.parametrize("name", ["Breakout", "Breakout, cut"])
def test_episodes_end_in_the_plays_that_are_compared(name: str) -> None:
    assert any(terminated or truncated for terminated, truncated in compared(name).gymnasium.ends)


def test_a_games_screen_shows_the_same_play() -> None:
    config = {"repeat_action_probability": 0.25, "frame_skip": 3, "max_episode_frames": 700}
    settings = game(experiment_of(env_config=config))
    envs = [make_vector_env(settings, 1, screen=screen) for screen in (False, True)]
    for env in envs:
        env.reset(seed=SEED)
    ends = 0
    for action in np.random.default_rng(0).integers(NUM_ACTIONS[BREAKOUT], size=(600, 1)):
        (_, *one, _), (picture, *other, _) = (env.step(action) for env in envs)
        np.testing.assert_array_equal(one, other)
        ends += sum(one[1] | one[2])
    assert ends > 1
    assert picture.shape == (1, 1, 210, 160, 3)
