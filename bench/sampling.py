"""`bench --sampling`: volley's env runner on any environment, beside RLlib's own.

Both sample with PPO's policy in this process, in turns. Speed is per second of CPU time, of which
both use one core: other work on the machine slows them less than by the clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from rich.console import Console

from bench.intervals import median_interval
from bench.table import Bar, Comparison, Figure, machine, over_rounds, write_comparison
from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.gymnasium_env_runner import GymnasiumEnvRunner
from payload.environments.make_env import find_spec
from payload.errors import first_line
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment

ENVS = 32
"""Environments of each env runner."""
STEPS = 2048
"""Environment steps of one call of sample()."""
HIDDENS = [256, 256]
SEED = 1
BAR = Bar(5.0, "at least")
"""Ratio to RLlib's own env runner."""


def bench_sampling(env_ids: Sequence[str], seconds: float, rounds: int, results: Path) -> int:
    """Measures; prints and writes bench_sampling.json. Returns 1 if an environment failed.

    Raises:
        UserError: An environment is not registered.
    """
    for env_id in env_ids:
        find_spec(env_id)
    results.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    console = Console(soft_wrap=True, highlight=False)
    about = machine()
    figures: list[Figure] = []
    compared: list[Comparison] = []
    problems: dict[str, str] = {}
    for env_id in env_ids:
        console.print(f"Measuring {env_id} ...")
        try:
            ours, rllibs = zip(*_measure(env_id, seconds, rounds), strict=True)
        except Exception as error:  # An environment may raise anything.
            problems[env_id] = first_line(error)
            console.print(f"{env_id} failed: {problems[env_id]}", style="red", markup=False)
            continue
        for name, speeds in (("volley", ours), ("RLlib", rllibs)):
            figures += [
                Figure(f"{env_id} {name}", speed, "steps/CPU s", f"{env_id}, {name}", turn)
                for turn, speed in enumerate(speeds, 1)
            ]
        ratio = median_interval([one / other for one, other in zip(ours, rllibs, strict=True)])
        compared.append(Comparison(env_id, f"{env_id}, volley / RLlib", ratio, BAR))
    path = results / "bench_sampling.json"
    measured = over_rounds(figures)
    write_comparison(path, measured, compared, problems, console, **about, seconds=seconds)
    return 1 if problems else 0


def _measure(env_id: str, seconds: float, rounds: int) -> Iterator[tuple[float, float]]:
    """Yields the speeds of volley's env runner and of RLlib's, round by round."""
    env_runners = _volleys(env_id), _rllibs(env_id)
    for env_runner in env_runners:
        env_runner.sample(num_timesteps=STEPS)  # The first call makes the environments.
    for _ in range(rounds):
        ours, rllibs = (_speed(env_runner, seconds) for env_runner in env_runners)
        yield ours, rllibs
    for env_runner in env_runners:
        env_runner.stop()


def _speed(env_runner: SingleAgentEnvRunner, seconds: float) -> float:
    end, started = time.monotonic() + seconds, time.process_time()
    steps = 0
    while time.monotonic() < end:
        steps += sum(map(len, env_runner.sample(num_timesteps=STEPS)))
        env_runner.get_metrics()  # As after each sample of a training.
    return steps / (time.process_time() - started)


def _volleys(env_id: str) -> SingleAgentEnvRunner:
    config = {"num_envs_per_env_runner": ENVS, "fcnet_hiddens": HIDDENS, "seed": SEED}
    values = {"run": "PPO", "env": env_id, "config": config}
    experiment = read_experiment(values).experiment
    settings = with_defaults(experiment, atari=False, num_env_runners=0)
    return GymnasiumEnvRunner(config=algorithm_config(experiment, settings), worker_index=0)


def _rllibs(env_id: str) -> SingleAgentEnvRunner:
    config = PPOConfig().environment(env_id).env_runners(num_envs_per_env_runner=ENVS)
    model: Any = {"fcnet_hiddens": HIDDENS}
    config.rl_module(model_config=model).debugging(seed=SEED)
    # That of the driver, number 0, makes no environments.
    return SingleAgentEnvRunner(config=config, worker_index=1)
