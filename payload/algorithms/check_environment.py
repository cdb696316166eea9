"""Checks before the start that the algorithm can learn the environment on this machine."""

import psutil

from payload.environments.probe import EnvironmentFacts
from payload.errors import UserError
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.fragment_settings import FragmentSettings
from payload.experiment.ppo_dqn_sac_settings import ReplaySettings
from payload.experiment.settings import Experiment
from payload.experiment.settings_of_every_algorithm import EpsilonGreedySettings

FREE = 0.8
"""Share of the free memory that a replay buffer or a train batch may take."""
COPIES = 2
"""Of a train batch: the env runners' episodes, and the learner's batch."""
PPO_TRAIN_BATCH = 4000
"""RLlib's default."""
BYTES_BESIDE = 200
"""Size of a step in RLlib's replay buffer without its observation: action, reward, priority."""


def facts_of_game(experiment: Experiment) -> EnvironmentFacts:
    """Returns the facts of an Atari game, without playing it."""
    settings = experiment.config
    size = settings.image_size**2 * settings.frame_stack
    return EnvironmentFacts(size, discrete=True, image=True, atari=True)


def check_algorithm(experiment: Experiment, facts: EnvironmentFacts) -> None:
    """Raises UserError if the algorithm cannot learn the environment on this machine."""
    if experiment.run == "PQN" and not facts.atari:
        raise UserError(
            f"run: PQN learns only Atari games, not {experiment.env}; allowed: "
            f"{'DQN, ' if facts.discrete else ''}IMPALA, APPO, PPO"
        )
    if experiment.run == "DQN" and not facts.discrete:
        raise UserError(
            f"run: DQN needs discrete actions; {experiment.env} has {facts.actions}; "
            f"allowed: IMPALA, APPO, PPO{'' if facts.composed else ', SAC'}"
        )
    if experiment.run == "SAC" and facts.composed:
        raise UserError(
            f"run: SAC needs Discrete or Box actions; {experiment.env} has {facts.actions}; "
            "allowed: IMPALA, APPO, PPO"
        )
    if experiment.run == "SAC" and not facts.bounded:
        raise UserError(
            f"run: SAC needs actions with two bounds; {experiment.env} has {facts.actions}; "
            "allowed: IMPALA, APPO, PPO; or give the action space's Box finite bounds"
        )
    settings = experiment.config
    if isinstance(settings, EpsilonGreedySettings) and settings.epsilon and not facts.discrete:
        raise UserError(
            f"config.epsilon: needs discrete actions; {experiment.env} has "
            f"{facts.actions}, for which {experiment.run} samples from its policy"
        )
    if facts.atari:
        _check_game(experiment)
    _check_own(experiment, facts)
    evaluates = settings.evaluation_interval is not None
    if evaluates and experiment.run_under and not settings.evaluation_num_env_runners:
        raise UserError(
            "config.evaluation_num_env_runners: must be at least 1 with run_under, because the "
            "driver has no display"
        )
    _check_memory(experiment, facts)


GAMES = {
    "wrappers": "image_size, frame_stack and env_config set its preprocessing",
    "reward_scale": "clip_rewards is its scale of rewards",
}
"""Settings that no Atari game has, and what stands for them."""


def _check_game(experiment: Experiment) -> None:
    """Raises UserError for a setting that an Atari game does not have."""
    settings = experiment.config
    for name, instead in GAMES.items():
        if getattr(settings, name) != type(settings).model_fields[name].default:
            raise UserError(f"config.{name}: {experiment.env} is an Atari game: {instead}")
    if not isinstance(settings, FragmentSettings):
        return
    own = f"{experiment.run} has a network of its own for Atari games"
    if settings.module is not None:
        raise UserError(f"config.module: {own}; allowed: run PPO or DQN, or another environment")


def _check_own(experiment: Experiment, facts: EnvironmentFacts) -> None:
    """Raises UserError where a filter or a module of one's own does not fit."""
    settings = experiment.config
    chosen = f"config.observation_filter: {settings.observation_filter}"
    if settings.observation_filter != "NoFilter" and facts.keeps_dict:
        raise UserError(
            f"{chosen} is for one vector, and config.module sees the Dict of {experiment.env}; "
            "leave one of the two out"
        )
    if settings.observation_filter != "NoFilter" and facts.image:
        raise UserError(
            f"{chosen} is for vectors, and {experiment.env} shows images, which the network "
            "scales; leave it out"
        )
    explores = isinstance(settings, EpsilonGreedySettings) and settings.epsilon is not None
    if settings.module is not None and explores and experiment.run != "DQN":
        raise UserError(
            "config.epsilon: config.module does its own exploration, in _forward_exploration; "
            "leave epsilon or module out"
        )


def _check_memory(experiment: Experiment, facts: EnvironmentFacts) -> None:
    """Raises UserError if observations that are kept at the same time need more than is free."""
    settings = with_defaults(experiment, facts.atari)
    if isinstance(settings, ReplaySettings):
        key, steps = "replay_buffer_capacity", settings.replay_buffer_capacity
        each = facts.observation_bytes + BYTES_BESIDE
    elif facts.atari:
        return
    else:
        key = "train_batch_size_per_learner"
        steps = settings.train_batch_size_per_learner or PPO_TRAIN_BATCH
        each = facts.observation_bytes * COPIES
    room = int(psutil.virtual_memory().available * FREE / max(1, each))
    if steps > room:
        part = f" ({facts.largest})" if facts.largest else ""
        raise UserError(
            f"config.{key}: {steps} steps of {each:,} bytes are {steps * each / 2**30:,.1f} GB, "
            f"more than this machine has free{part}; at most {room} fit"
        )
