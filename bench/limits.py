"""Measures what the trainer is compared with, and what bounds it: learner, driver, MLflow.

Each part runs in a process of its own: `python -m bench.limits PART` with the
path of a JSON file to fill and a Limit's fields as JSON.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    ENV_RUNNER_RESULTS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
)

from bench.limited_link import ray_over_link
from bench.process import thread_cpu_s
from bench.trainer import SETTLE_S
from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.atari import AtariSettings, game_of, make_vector_env
from payload.experiment.batch_sizes import LAPTOP
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.settings import Experiment
from payload.impala.atari_env_runner import AtariEnvRunner
from payload.impala.learner_errors import LEARNER_THREADS
from payload.impala.policy_gradient_learners import VTraceLearner
from payload.impala.rollout_fragment import RolloutFragment
from payload.run.ray_cluster import available_cpus, connect
from payload.run.ray_folder import make_ray_folder, remove_ray_folder

WARM_UP_S = 1.0
NUM_ACTIONS = 6
"""Pong's; no part depends on which actions a synthetic fragment holds."""
SEED = 1


@dataclass(frozen=True)
class Limit:
    """What to measure, and for how long."""

    part: str
    """A key of PARTS."""
    env_runners: int = 1
    learning: bool = True
    seconds: float = 60.0
    num_envs: int | None = None
    """Games of an env runner; None: the default."""
    fragments: int = 1
    """Length of a rollout fragment, as a multiple of the default."""
    cpus: int = 1
    """CPUs of an env runner."""
    steps_per_s: float = 0.0
    """Steps that all env runners offer together; 0: as many as they can."""
    learners: int = 0
    """Learners in processes of their own."""
    receiving: bool = False
    """Whether a learner receives the fragments and does nothing with them."""
    link_mbit_per_s: float = 0.0
    """Rate of a network link between driver and env runners; 0: no such link."""
    node_resource: str = ""
    """The custom resource of the nodes for env runners, in a Ray cluster that runs already."""


class SyntheticEnvRunner(AtariEnvRunner):
    """Returns its first sample again and again: an env runner that costs nothing."""

    def _sample(self, **kwargs: Any) -> list[RolloutFragment]:
        if not hasattr(self, "_fragment"):
            (self._fragment,) = super()._sample(**{**kwargs, "random_actions": True})
        fragment = replace(self._fragment, weights_seq_no=self._weights_seq_no)
        self._count_steps(fragment)
        return [fragment]


class ReceivingLearner(VTraceLearner):
    """Gets every rollout fragment, from another node if need be: a learner that costs nothing."""

    def update(self, training_data: TrainingData, **kwargs: Any) -> Any:
        training_data.solve_refs()
        return {}


def paced(limit: Limit) -> type[SyntheticEnvRunner]:
    """Returns env runners that offer limit.steps_per_s together, or as much as they can."""
    if not limit.steps_per_s:
        return SyntheticEnvRunner
    pause = limit.env_runners * limit.fragments * LAPTOP.fragment_steps / limit.steps_per_s

    class PacedEnvRunner(SyntheticEnvRunner):
        _next_at = 0.0

        def _sample(self, **kwargs: Any) -> list[RolloutFragment]:
            sampled = super()._sample(**kwargs)
            now = time.perf_counter()
            # It makes up for its own delays, but not for the time that the driver let it wait.
            self._next_at = max(self._next_at + pause, now - pause)
            time.sleep(max(0.0, self._next_at - now))
            return sampled

    return PacedEnvRunner


def synthetic_fragment(num_steps: int, num_envs: int, game: AtariSettings) -> RolloutFragment:
    """Returns a fragment of noise, of the shape and types of a real one."""
    rng = np.random.default_rng(SEED)
    frames = (game.frame_stack + num_steps, num_envs, *game.image_shape)
    steps = (num_steps, num_envs)
    return RolloutFragment(
        frames=rng.integers(256, size=frames, dtype=np.uint8),
        first=np.zeros((num_steps + 1, num_envs), np.bool_),
        actions=rng.integers(NUM_ACTIONS, size=steps, dtype=np.uint8),
        action_logp=np.full(steps, -np.log(NUM_ACTIONS), np.float32),
        rewards=rng.integers(-1, 2, size=steps).astype(np.float32),
        terminated=np.zeros(steps, np.bool_),
        truncated=np.zeros(steps, np.bool_),
        weights_seq_no=0,
    )


def measure_stock(limit: Limit) -> dict[str, float]:
    """Measures RLlib's own IMPALA with the settings of RLlib's own Pong example."""
    from bench.stock import stock_config

    start_ray(limit.env_runners)
    return throughput(stock_config(limit.env_runners).build_algo(), limit, SETTLE_S)


def measure_stock_vector(limit: Limit) -> dict[str, float]:
    """Measures stock RLlib with the emulator's vector environment."""
    from bench.stock import vector_config

    start_ray(limit.env_runners)
    return throughput(vector_config(limit.env_runners).build_algo(), limit, SETTLE_S)


def measure_emulator(limit: Limit) -> dict[str, float]:
    """Measures AtariVectorEnv alone: random actions, a thread on every core."""
    cores = available_cpus()
    experiment = Experiment()
    game = game_of(experiment)
    assert game is not None
    num_envs = cores * experiment.config.num_envs_per_env_runner
    env = make_vector_env(game, num_envs, num_threads=cores)
    env.reset(seed=SEED)
    actions = np.random.default_rng(SEED).integers(NUM_ACTIONS, size=(1000, num_envs))

    def step(count: int) -> int:
        env.step(actions[count % len(actions)])
        return num_envs

    return {"steps_per_s": rate(step, limit.seconds)}


def measure_fragment(limit: Limit) -> dict[str, float]:
    """Measures the size of a rollout fragment of random play on its way to the learner."""
    config, _ = trainer_config(limit)
    env_runner = AtariEnvRunner(config=config, worker_index=1)
    fragment: RolloutFragment = env_runner.sample(random_actions=True)[0]
    return {"bytes_per_step": len(pickle.dumps(fragment, pickle.HIGHEST_PROTOCOL)) / len(fragment)}


def measure_learner(limit: Limit) -> dict[str, float]:
    """Feeds one local learner fragments through its connector, as the driver does."""
    start_ray(1)
    config, settings = trainer_config(limit)
    game = game_of(Experiment(config=settings))
    assert game is not None
    fragment = synthetic_fragment(
        settings.rollout_fragment_length, settings.num_envs_per_env_runner, game
    )
    learner = config.build_learner(spaces=spaces_of(game))

    def update(count: int) -> int:
        steps = count * len(fragment)
        learner.update(
            training_data=TrainingData(episodes=[fragment]),
            timesteps={
                NUM_ENV_STEPS_SAMPLED_LIFETIME: steps,
                NUM_ENV_STEPS_TRAINED_LIFETIME: steps,
            },
            return_state=True,
            num_epochs=config.num_epochs,
            minibatch_size=config.minibatch_size,
            shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
        )
        return len(fragment)

    return {"samples_per_s": rate(update, limit.seconds)}


def measure_driver(limit: Limit) -> dict[str, float]:
    """Measures the throughput of IMPALA's loop in the driver when sampling costs nothing."""
    config, _ = trainer_config(limit)
    with ExitStack() as stack:
        if limit.node_resource:
            # Its other nodes may have a payload without the benchmark.
            root = Path(__file__).parents[1]
            connect("auto", {"py_modules": [str(root / name) for name in ("payload", "bench")]})
            config.env_runners(custom_resources_per_env_runner={limit.node_resource: 0.01})
        elif limit.link_mbit_per_s:
            # One CPU more than env runners: RLlib has an actor that serves the weights.
            stack.enter_context(ray_over_link(limit.link_mbit_per_s, limit.env_runners + 1))
        else:
            start_ray(limit.env_runners)
        config.env_runners(env_runner_cls=paced(limit))
        if limit.receiving:
            config.learners(learner_class=ReceivingLearner)
        else:
            # Env runners put fragments into their node's object store: nothing gets them there.
            config.debugging(_skip_learners=not limit.learning)
        return throughput(config.build_algo(), limit)


def measure_callback(limit: Limit) -> dict[str, float]:
    """Measures how much time MLflow takes, in iterations as long as a run's."""
    from bench.mlflow_cost import callback_share

    start_ray(1)
    config, _ = trainer_config(limit)
    config.env_runners(env_runner_cls=SyntheticEnvRunner)
    config.reporting(min_time_s_per_iteration=ImpalaSettings().min_time_s_per_iteration)
    return {"percent": 100 * callback_share(config, limit.seconds)}


PARTS: dict[str, Callable[[Limit], dict[str, float]]] = {
    "stock": measure_stock,
    "stock_vector": measure_stock_vector,
    "emulator": measure_emulator,
    "fragment": measure_fragment,
    "learner": measure_learner,
    "driver": measure_driver,
    "callback": measure_callback,
}
"""Those of bench-scale are in scale_limits.py."""


def start_ray(cpus: int) -> None:
    """Starts Ray on this machine, unless this process has one."""
    if ray.is_initialized():
        return
    # There may be more env runners than CPUs: this measures the driver's cost, not speed.
    ray.init(
        address="local",
        num_cpus=max(cpus, available_cpus()),
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=str(make_ray_folder()),
    )


def trainer_config(limit: Limit) -> tuple[Any, ImpalaSettings]:
    """Returns the trainer's default config with the changes of a measurement."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    config: dict[str, Any] = {
        "num_env_runners": limit.env_runners,
        "num_cpus_per_env_runner": limit.cpus,
        "num_learners": limit.learners,
        "min_time_s_per_iteration": 1.0,
    }
    if limit.num_envs is not None or limit.fragments > 1:
        games = limit.num_envs or LAPTOP.num_envs_per_env_runner
        config["num_envs_per_env_runner"] = games
        config["rollout_fragment_length"] = limit.fragments * LAPTOP.fragment_steps // games
    experiment = Experiment.model_validate({"config": config})
    settings = with_defaults(experiment, atari=True, num_env_runners=limit.env_runners)
    assert isinstance(settings, ImpalaSettings)
    return algorithm_config(experiment, settings), settings


def spaces_of(game: AtariSettings) -> dict[str, Any]:
    env = make_vector_env(game, 1)
    return {DEFAULT_MODULE_ID: (env.single_observation_space, env.single_action_space)}


def rate(act: Callable[[int], int], seconds: float) -> float:
    """Calls `act` with 0, 1, 2, ... for a while; returns the sum of its results per second."""
    count = done = 0
    started = time.perf_counter()
    warm = False
    while True:
        done += act(count)
        count += 1
        elapsed = time.perf_counter() - started
        if not warm and elapsed >= WARM_UP_S:
            warm, done, started = True, 0, time.perf_counter()
        elif warm and elapsed >= seconds:
            return done / elapsed


def throughput(algorithm: Any, limit: Limit, settle_s: float = 0.0) -> dict[str, float]:
    """Trains for `limit.seconds`, starting `settle_s` after the first learner update.

    Steps are environment steps sampled, as the driver counts them; the driver's CPU time leaves out
    its learner thread.
    """
    begun: tuple[float, int, float] | None = None
    first_update = math.inf
    sampled = 0
    while True:
        result = algorithm.train()
        sampled = _count(
            result, ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME, otherwise=sampled
        )
        trained = _count(
            result, LEARNER_RESULTS, ALL_MODULES, NUM_ENV_STEPS_TRAINED_LIFETIME, otherwise=0
        )
        driver_cpu_s = time.process_time() - sum(map(thread_cpu_s, LEARNER_THREADS))
        now = (time.perf_counter(), sampled, driver_cpu_s)
        if begun is None:
            if (trained if limit.learning else sampled) > 0:
                first_update = min(first_update, now[0])
            if now[0] >= first_update + settle_s:
                begun = now
        elif now[0] - begun[0] >= limit.seconds:
            seconds, steps, cpu_s = (new - old for new, old in zip(now, begun, strict=True))
            cpu_us = cpu_s / steps * 1e9
            return {"steps_per_s": steps / seconds, "driver_us_per_1000_steps": cpu_us}


def _count(result: dict[str, Any], *keys: str, otherwise: int) -> int:
    value: Any = result
    for key in keys:
        value = value.get(key, {})
    # A metric that was not logged in this iteration is missing, or NaN.
    return otherwise if value == {} or math.isnan(value) else int(value)


def main() -> None:
    """Measures one part; writes its figures as JSON."""
    limit = Limit(**json.loads(sys.argv[2]))
    failed = False
    try:
        from bench.scale_limits import SCALE_PARTS

        figures = (PARTS | SCALE_PARTS)[limit.part](limit)
        Path(sys.argv[1]).write_text(json.dumps(figures))
    except Exception:
        traceback.print_exc()
        failed = True
    # Learner threads, and env runners in the middle of a sample, are not worth waiting for.
    ray.shutdown()
    remove_ray_folder()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(failed)


if __name__ == "__main__":
    # Under the module's own name: Ray ships the classes of __main__ by value.
    from bench.limits import main as main_of_module

    main_of_module()
