"""Every metric of a run, in one table: its name in RLlib's result, MLflow, progress.csv and `stop`.

A name is the path of the value in RLlib's result, joined by slashes, as in Tune and its loggers. To
make a value of RLlib's result a metric, add a row here and nothing else.
"""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean

from payload.experiment.settings import EPISODE_RETURN_MEAN, EVALUATION_RETURN_MEAN, INFO_MEAN
from payload.tracking.report import Report

ITERATION = "training_iteration"
TIME = "time_total_s"
STEPS = "num_env_steps_sampled_lifetime"
"""Environment steps sampled: the axis of every metric in MLflow."""
STEPS_TRAINED_PER_S = "learners/__all_modules__/num_env_steps_trained_lifetime_throughput"
EPISODES = "env_runners/num_episodes_lifetime"
EPISODE_RETURN_MIN = "env_runners/episode_return_min"
EPISODE_RETURN_MAX = "env_runners/episode_return_max"
RESTARTS = "fault_tolerance/num_remote_worker_restarts"
MODULE = "learners/default_policy/"


@dataclass(frozen=True)
class Metric:
    """One value that a run reports in every iteration."""

    name: str
    meaning: str
    of: Callable[[Report], float] | None = None
    """None: the value at its name in RLlib's result."""
    instead: str = ""
    """Its name in RLlib's own learner of another algorithm."""


METRICS = (
    Metric(ITERATION, "Iterations of the training loop", lambda r: r.iteration),
    Metric(TIME, "Seconds of training, including those before a resume", lambda r: r.time_total_s),
    Metric(STEPS, "Environment steps sampled", lambda r: r.env_steps),
    Metric(
        f"{STEPS}_throughput", "Environment steps sampled per second", lambda r: r.sampled_per_s
    ),
    Metric(EPISODE_RETURN_MEAN, "Mean return of the last 100 episodes", lambda r: r.return_mean),
    Metric(EPISODE_RETURN_MIN, "Smallest return of the last 100 episodes", lambda r: r.return_min),
    Metric(EPISODE_RETURN_MAX, "Largest return of the last 100 episodes", lambda r: r.return_max),
    Metric(
        "env_runners/episode_return_current",
        "Estimated return of an episode played by the current policy",
        lambda r: r.current_return,
    ),
    Metric(
        "env_runners/episode_len_mean",
        "Mean length of the last 100 episodes in environment steps",
        lambda r: r.length_mean,
    ),
    Metric(EPISODES, "Episodes finished", lambda r: r.episodes),
    Metric(
        EVALUATION_RETURN_MEAN,
        "Mean return of an evaluation's episodes",
        lambda r: r.evaluation_mean,
    ),
    Metric(
        "evaluation/env_runners/episode_return_min",
        "Smallest return of an evaluation's episodes",
        lambda r: min(r.evaluation_returns, default=math.nan),
    ),
    Metric(
        "evaluation/env_runners/episode_return_max",
        "Largest return of an evaluation's episodes",
        lambda r: max(r.evaluation_returns, default=math.nan),
    ),
    Metric(
        "evaluation/env_runners/episode_len_mean",
        "Mean length of an evaluation's episodes in environment steps",
        lambda r: fmean(r.evaluation_lengths) if r.evaluation_lengths else math.nan,
    ),
    Metric("fault_tolerance/num_healthy_workers", "Env runners alive", lambda r: r.env_runners),
    Metric(RESTARTS, "Env runners that were lost or failed and came back"),
    Metric(
        "learners/__all_modules__/num_env_steps_trained_lifetime",
        "Environment steps trained on",
        lambda r: r.env_steps_trained,
    ),
    Metric(
        STEPS_TRAINED_PER_S, "Environment steps trained on per second", lambda r: r.trained_per_s
    ),
    Metric(
        "learners/__all_modules__/num_env_steps_dropped_lifetime",
        "Environment steps dropped because the learners' queue was full",
        lambda r: r.env_steps_dropped,
    ),
    Metric(f"{MODULE}policy_loss", "Policy loss", instead=f"{MODULE}mean_pi_loss"),
    Metric(f"{MODULE}vf_loss", "Value loss", instead=f"{MODULE}mean_vf_loss"),
    Metric(f"{MODULE}vf_explained_var", "Share of the targets' variance that the values explain"),
    Metric(f"{MODULE}total_loss", "Loss"),
    Metric(f"{MODULE}qf_mean", "Mean value of the best action"),
    Metric(f"{MODULE}entropy", "Mean entropy of the policy"),
    Metric(f"{MODULE}mean_kl_loss", "Mean KL divergence from the env runner's policy"),
    Metric(f"{MODULE}curr_entropy_coeff", "Current entropy_coeff"),
    Metric(f"{MODULE}uniform_kl_coeff", "Current uniform_kl_coeff"),
    Metric(f"{MODULE}temperature", "Current temperature with which env runners sample"),
    Metric(f"{MODULE}default_optimizer_learning_rate", "Current lr"),
    Metric(
        f"{MODULE}gradients_default_optimizer_global_norm",
        "Global norm of the gradient before clipping",
    ),
    Metric(
        f"{MODULE}diff_num_grad_updates_vs_sampler_policy",
        "Policy lag: updates between the policy that sampled and the one that learns",
    ),
)


def metrics(report: Report) -> dict[str, float]:
    """Returns the metrics by their names, without those that are not known."""
    return {name: v for name, v in columns(report).items() if math.isfinite(v)}


def columns(report: Report) -> dict[str, float]:
    """Returns every metric, NaN while it is not known: a row of progress.csv.

    Behind those of METRICS are the ones of `info_metrics`.
    """
    own = {
        metric.name: float(
            metric.of(report) if metric.of else report.values.get(metric.name, math.nan)
        )
        for metric in METRICS
    }
    return own | {f"{INFO_MEAN}{name}": mean for name, mean in report.info.items()}


def read_rows(lines: Iterable[str]) -> Iterator[dict[str, float]]:
    """Yields each whole row of a progress.csv, with NaN for unknown values."""
    for row in csv.DictReader(lines):
        row.pop(None, None)  # type: ignore[call-overload]  # Of a row longer than the header.
        if None not in row.values():  # A power cut or a full disk may have cut the last row off.
            with suppress(ValueError):
                yield {name: float(value) for name, value in row.items()}


def curve(rows: Iterable[Mapping[str, float]], name: str) -> tuple[list[float], list[float]]:
    """Returns environment steps and values of a metric, of the rows that know it."""
    known = [(row[STEPS], row[name]) for row in rows if math.isfinite(row.get(name, math.nan))]
    return [steps for steps, _ in known], [value for _, value in known]
