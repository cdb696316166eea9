"""Measures what bounds a training on many machines: each part by itself, on this one."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from ray.rllib.core import DEFAULT_MODULE_ID

from bench import limits
from bench.limits import Limit
from payload.environments.atari import AtariSettings, game_of
from payload.experiment.settings import Experiment
from payload.impala.atari_env_runner import AtariEnvRunner
from payload.impala.rollout_fragment import RolloutFragment

FRAGMENTS = 8
"""Number of different fragments that a learner gets in turn."""
WARM_UP_UPDATES = 8


def measure_env_runner(limit: Limit) -> dict[str, float]:
    """Measures one env runner by itself: emulator, inference and the making of its fragments."""
    config, settings = limits.trainer_config(limit)
    env_runner = AtariEnvRunner(config=config, worker_index=1)

    def sample(_: int) -> int:
        (fragment,) = env_runner.sample()
        pickle.dumps(fragment, pickle.HIGHEST_PROTOCOL)
        return settings.fragment_steps

    return {"steps_per_s": limits.rate(sample, limit.seconds)}


def measure_sampling(limit: Limit) -> dict[str, float]:
    """Measures env runners that play, without a learner."""
    limits.start_ray(limit.env_runners * limit.cpus)
    config, _ = limits.trainer_config(limit)
    config.debugging(_skip_learners=True)
    return limits.throughput(config.build_algo(), limit)


def measure_learners(limit: Limit) -> dict[str, float]:
    """Lets learners in processes of their own train on recorded fragments.

    They receive nothing meanwhile: the driver's part is measured by itself. Batch sizes are those
    for limit.env_runners. All make the same number of gradient steps, which they average.
    """
    limits.start_ray(limit.learners)
    config, settings = limits.trainer_config(limit)
    assert settings.train_batch_size_per_learner is not None
    learners = config.build_learner_group(spaces=limits.spaces_of(_game()))
    train = partial(
        _train,
        recorded=ray.put(_recorded(config)),
        fragments=settings.train_batch_size_per_learner // settings.fragment_steps,
    )

    def slowest(updates: int) -> float:
        results = learners.foreach_learner(partial(train, updates=updates))
        return max(float(result.get()) for result in results)

    slowest(WARM_UP_UPDATES)
    updates = math.ceil(limit.seconds * WARM_UP_UPDATES / slowest(WARM_UP_UPDATES))
    steps = limit.learners * settings.train_batch_size_per_learner * updates
    return {"samples_per_s": steps / slowest(updates)}


def measure_object_store(limit: Limit) -> dict[str, float]:
    """Measures one process that puts fragments into the object store and gets them from it."""
    limits.start_ray(1)
    config, settings = limits.trainer_config(limit)
    (fragment, *_) = _recorded(config)

    def move(_: int) -> int:
        ray.get(ray.put([fragment]))
        return settings.fragment_steps

    return {"steps_per_s": limits.rate(move, limit.seconds)}


def measure_gradient_step(limit: Limit) -> dict[str, float]:
    """Measures what the host does for one gradient step, on a minibatch that computes nothing."""
    limits.start_ray(1)
    config, _ = limits.trainer_config(limit)
    learner = config.build_learner(spaces=limits.spaces_of(_game()))
    learner.config.rollout_fragment_length = 2
    columns = learner._learner_connector(
        episodes=[limits.synthetic_fragment(2, 1, _game())], batch={}, rl_module=learner.module
    )

    def step(_: int) -> int:
        learner._make_gradient_step(columns[DEFAULT_MODULE_ID])
        return 1

    return {"us": 1e6 / limits.rate(step, limit.seconds)}


def measure_weights(limit: Limit) -> dict[str, float]:
    """Measures the size of the policy's weights as they travel to an env runner."""
    config, _ = limits.trainer_config(limit)
    env_runner = AtariEnvRunner(config=config, worker_index=1)
    weights = env_runner.module.get_state(inference_only=True)
    return {"bytes": float(len(pickle.dumps(weights, pickle.HIGHEST_PROTOCOL)))}


SCALE_PARTS: dict[str, Callable[[Limit], dict[str, float]]] = {
    "env runner": measure_env_runner,
    "sampling": measure_sampling,
    "learners": measure_learners,
    "object store": measure_object_store,
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


def _train(learner: Any, recorded: Any, fragments: int, updates: int) -> float:
    """Trains a learner on that many fragments in each update; returns the seconds."""
    played: list[RolloutFragment] = ray.get(recorded)
    started = time.perf_counter()
    for update in range(updates):
        batch = learner._learner_connector(
            episodes=[played[(update + n) % FRAGMENTS] for n in range(fragments)],
            batch={},
            rl_module=learner.module,
        )
        learner._update(batch)
    return time.perf_counter() - started
