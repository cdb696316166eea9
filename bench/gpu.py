"""`bench --gpu`: checks that a learner computes the same on a GPU as on a CPU; measures its speed.

It needs a machine with a GPU and nothing installed but volley. `--device cpu` tries the check
without a GPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ray
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from rich.console import Console

from bench.benchmark import fresh_logs
from bench.intervals import Interval
from bench.limits import rate, spaces_of, start_ray, synthetic_fragment
from bench.process import MeasurementError
from bench.table import (
    Bar,
    Comparison,
    Figure,
    comparison_table,
    figure_table,
    machine,
    over_rounds,
    write_json,
)
from bench.trainer import measure_throughput
from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.atari import game_of
from payload.errors import UserError
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.settings import Experiment
from payload.impala.learner import FragmentLearner
from payload.impala.rollout_fragment import RolloutFragment
from payload.run.ray_folder import remove_ray_folder

Device = Literal["cuda", "cpu"]
TRAIN_BATCH = 1024
"""Environment steps of an update."""
MINIBATCHES = (128, TRAIN_BATCH)
GRADIENT_BAR = Bar(1e-3, "at most")
"""Norm of the gradients' difference over the CPU gradient's; float32 sums depend on their order."""
WAITS_BAR = Bar(1, "at most")
"""An update reads its metrics once, at its end."""
SEED = 1


@dataclass(frozen=True)
class Built:
    """A learner that updates from one rollout fragment of noise."""

    learner: FragmentLearner
    fragment: RolloutFragment

    def update(self, _: int = 0) -> int:
        """Makes an update as RLlib's learner thread does; returns its environment steps."""
        timesteps = {NUM_ENV_STEPS_SAMPLED_LIFETIME: 0}
        # Of episodes, RLlib's GPU loader thread would have moved the batch to the device.
        batch = self.learner._make_batch_if_necessary(TrainingData(episodes=[self.fragment]))
        Learner.update(self.learner, batch=batch, timesteps=timesteps)
        return len(self.fragment)

    def gradient(self) -> torch.Tensor:
        """Returns the gradient of the last gradient step with respect to all weights."""
        module = self.learner.module[DEFAULT_MODULE_ID].unwrapped()
        return torch.cat([weight.grad.flatten().cpu() for weight in module.parameters()])


def bench_gpu(device: Device, seconds: float, rounds: int, results: Path) -> int:
    """Checks and measures; prints and writes bench_gpu.json. Returns 1 if a check failed.

    Raises:
        UserError: torch finds no GPU.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "--gpu: torch finds no GPU on this machine; nvidia-smi shows whether the driver does. "
            "Next: volley bench --gpu --device cpu, which tries the check without a GPU"
        )
    console = Console(soft_wrap=True, highlight=False)
    log = fresh_logs(results / "bench-gpu-logs") / "training.log"
    about = {**machine(), "device": _name_of(device)}
    console.print(f"Comparing the gradient on {_name_of(device)} with that on a CPU ...")
    with _ray():
        checks = list(_checks(device))
        figures = list(_learner_figures(device, seconds, rounds, console))
    console.print("Training Pong ...")
    try:
        config = {"num_learners": 1, "num_gpus_per_learner": 1} if device == "cuda" else {}
        trained = measure_throughput(config, seconds, log).steps_per_s
        figures.append(Figure("training", trained, "steps/s", "training on Pong"))
    except MeasurementError as error:
        console.print(f"training failed: {error}", style="red", markup=False)
        return 1
    finally:
        measured = over_rounds(figures)
        path = results / "bench_gpu.json"
        write_json(
            path,
            {
                **about,
                "checks": {check.name: check.to_json() for check in checks},
                "figures": {name: figure.to_json() for name, figure in measured.items()},
            },
        )
        console.print(comparison_table(checks))
        console.print(figure_table(measured.values()))
        console.print(f"Written to {path}; log in {log}")
    return 0 if all(check.met for check in checks) else 1


def _checks(device: Device) -> Iterator[Comparison]:
    difference = Interval.point(gradient_difference(device))
    what = "difference between the gradients, as a share of their norm"
    yield Comparison("gradient", what, difference, GRADIENT_BAR)
    if device == "cuda":
        waits = Interval.point(host_waits(device))
        yield Comparison("waits", "waits of the host for the GPU in an update", waits, WAITS_BAR)


def built(device: Device, minibatch: int, **more: Any) -> Built:
    """Builds IMPALA's learner with more settings; equal minibatches give equal weights."""
    config: dict[str, Any] = {
        "num_env_runners": 1,
        "num_gpus_per_learner": float(device == "cuda"),
        "minibatch_size": minibatch,
        "train_batch_size_per_learner": TRAIN_BATCH,
        "seed": SEED,
        **more,
    }
    experiment = Experiment.model_validate({"config": config})
    game, settings = game_of(experiment), with_defaults(experiment, atari=True, num_env_runners=1)
    assert game is not None
    assert isinstance(settings, ImpalaSettings)
    torch.manual_seed(SEED)
    learner = algorithm_config(experiment, settings).build_learner(spaces=spaces_of(game))
    games = settings.num_envs_per_env_runner
    return Built(learner, synthetic_fragment(TRAIN_BATCH // games, games, game))


def gradient_difference(device: Device) -> float:
    """Returns the distance of a device's gradient from the CPU's, relative to the latter's norm."""
    with _full_precision():
        gradients = []
        for target in ("cpu", device):
            learner = built(target, TRAIN_BATCH, grad_clip=None)
            learner.update()
            gradients.append(learner.gradient())
    expected, computed = gradients
    return float((computed - expected).norm() / expected.norm())


def host_waits(device: Device) -> int:
    """Returns how often the host waits for the GPU in an update whose batch is already there."""
    learner = built(device, MINIBATCHES[0])
    learner.update()  # The first update also allocates memory.
    update = learner.learner._update
    all_warnings: list[warnings.WarningMessage] = []

    def watched_update(*args: Any, **kwargs: Any) -> Any:
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as new_warnings:
                warnings.simplefilter("always")
                result = update(*args, **kwargs)
            all_warnings.extend(new_warnings)
            return result
        finally:
            torch.cuda.set_sync_debug_mode("default")

    learner.learner._update = watched_update  # type: ignore[method-assign]
    learner.update()
    return sum("synchronizing" in str(warning.message) for warning in all_warnings)


def _learner_figures(
    device: Device, seconds: float, rounds: int, console: Console
) -> Iterator[Figure]:
    """Measures the learner alone, alternating between minibatch sizes and precisions."""
    learners = {size: built(device, size) for size in MINIBATCHES}
    for turn in range(1, rounds + 1):
        console.print(f"Measuring the learner, round {turn} ...")
        for size, learner in learners.items():
            for name, precision in PRECISIONS.items():
                with precision(device):
                    value = rate(learner.update, seconds)
                what = f"learner, minibatches of {size:,}, {name}"
                yield Figure(f"learner_{size}_{name}", value, "steps/s", what, turn)


def _bfloat16(device: Device) -> AbstractContextManager[Any]:
    autocast: AbstractContextManager[Any] = torch.autocast(device, torch.bfloat16)
    return autocast


PRECISIONS: dict[str, Callable[[Device], AbstractContextManager[Any]]] = {
    "float32": nullcontext,
    "bfloat16": _bfloat16,
}


@contextmanager
def _full_precision() -> Iterator[None]:
    """Keeps a GPU's convolutions from rounding to TF32, torch's default."""
    default = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = default


@contextmanager
def _ray() -> Iterator[None]:
    start_ray(1)
    try:
        yield
    finally:
        ray.shutdown()
        remove_ray_folder()


def _name_of(device: Device) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "the CPU"
