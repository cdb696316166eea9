"""What bounds a training on many machines, each part measured by itself on this one."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import ray
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
)

from payload.bench.limits import (
    Limit,
    rate,
    spaces_of,
    start_ray,
    synthetic_fragment,
    throughput,
    trainer_config,
)
from payload.experiment.settings import Experiment
from payload.impala.atari import AtariSettings, game_of
from payload.impala.env_runner import AtariEnvRunner
from payload.impala.learner_group import PatientLearnerGroup
from payload.impala.rollout_fragment import RolloutFragment

TIMESTEPS = {NUM_ENV_STEPS_SAMPLED_LIFETIME: 0, NUM_ENV_STEPS_TRAINED_LIFETIME: 0}
FRAGMENTS = 8
"""Different ones, that a learner is fed in turn."""


def measure_env_runner(limit: Limit) -> dict[str, float]:
    """Measures one env runner by itself: emulator, inference and the making of its fragments."""
    config, settings = trainer_config(limit)
    env_runner = AtariEnvRunner(config=config, worker_index=1)

    def sample(_: int) -> int:
        (fragment,) = env_runner.sample()
        pickle.dumps(fragment, pickle.HIGHEST_PROTOCOL)
        return settings.fragment_steps

    return {"steps_per_s": rate(sample, limit.seconds)}


def measure_sampling(limit: Limit) -> dict[str, float]:
    """Measures env runners that play, without a learner."""
    start_ray(limit.env_runners * limit.cpus)
    config, _ = trainer_config(limit)
    config.debugging(_skip_learners=True)
    return asdict(throughput(config.build_algo(), limit))


def measure_learners(limit: Limit) -> dict[str, float]:
    """Feeds learners in processes of their own with recorded fragments, as the driver does."""
    start_ray(limit.learners)
    config, _ = trainer_config(limit)
    fragments = [ray.put([fragment]) for fragment in _recorded(config)]
    learners = config.build_learner_group(spaces=spaces_of(_game()))
    learners.__class__ = PatientLearnerGroup
    sent = 0

    def update(_: int) -> int:
        nonlocal sent
        share = [fragments[(sent + n) % FRAGMENTS] for n in range(limit.learners)]
        sent += limit.learners
        results = learners.update(
            training_data=TrainingData(episodes_refs=share),
            async_update=True,
            timesteps=TIMESTEPS,
            num_epochs=config.num_epochs,
            minibatch_size=config.minibatch_size,
            shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
        )
        return sum(_trained(result) for result in results)

    return {"samples_per_s": rate(update, limit.seconds)}


def measure_gradient_step(limit: Limit) -> dict[str, float]:
    """Measures what the host does for one gradient step, on a minibatch that computes nothing."""
    start_ray(1)
    config, _ = trainer_config(limit)
    learner = config.build_learner(spaces=spaces_of(_game()))
    learner.config.rollout_fragment_length = 2
    columns = learner._learner_connector(
        episodes=[synthetic_fragment(2, 1, _game())], batch={}, rl_module=learner.module
    )

    def step(_: int) -> int:
        learner._make_gradient_step(columns)
        return 1

    return {"us": 1e6 / rate(step, limit.seconds)}


def measure_weights(limit: Limit) -> dict[str, float]:
    """Weighs the policy's weights as they travel to an env runner."""
    config, _ = trainer_config(limit)
    env_runner = AtariEnvRunner(config=config, worker_index=1)
    weights = env_runner.module.get_state(inference_only=True)
    return {"bytes": float(len(pickle.dumps(weights, pickle.HIGHEST_PROTOCOL)))}


SCALE_PARTS: dict[str, Callable[[Limit], dict[str, float]]] = {
    "env runner": measure_env_runner,
    "sampling": measure_sampling,
    "learners": measure_learners,
    "gradient step": measure_gradient_step,
    "weights": measure_weights,
}


def _recorded(config: Any) -> list[RolloutFragment]:
    env_runner = AtariEnvRunner(config=config, worker_index=1)
    return [env_runner.sample(random_actions=True)[0] for _ in range(FRAGMENTS)]


def _game() -> AtariSettings:
    game = game_of(Experiment())
    assert game is not None
    return game


def _trained(result: Any) -> int:
    steps = result.get(ALL_MODULES, {}).get(NUM_ENV_STEPS_TRAINED, 0)
    return int(steps.peek() if hasattr(steps, "peek") else steps)
