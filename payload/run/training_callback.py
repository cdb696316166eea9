"""RLlib's callback of a training: turns every iteration into a report and MLflow metrics."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME

from payload.environments.observation_filter import share_with_evaluation
from payload.run.env_runner_joining import rejoin
from payload.run.panel import Say
from payload.run.progress import Progress
from payload.tracking.metrics import metrics
from payload.tracking.mlflow_run import MLflowRun
from payload.tracking.node_metrics import NodeMonitors
from payload.tracking.report import Report
from payload.tracking.train_result import train_result

MOST_IN_A_ROW = 5
"""Times that an env runner may come back while no env runner samples anything."""
ANSWER_S = 5.0


class MetricLog(Protocol):
    """A place that gets the metrics of every iteration."""

    def log_metrics(self, values: dict[str, float], env_steps: int) -> None: ...


class TrainingCallback(RLlibCallback):
    """Turns each train result into a Report and logs it.

    RLlib makes one in the driver, where `attach` gives it its run, and one in every env
    runner, which does nothing.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self.report: Report | None = None
        """The last iteration's."""
        self.run: MLflowRun | None = None
        self._logs: Sequence[MetricLog] = ()
        self._nodes: NodeMonitors | None = None
        self._losses = EnvRunnerLosses(print)
        self._last = time.perf_counter()
        self._dropped = 0
        self._evaluation_since, self._evaluation_s = 0.0, 0.0
        self._has_evaluated = False
        """Since the last iteration: RLlib repeats an evaluation's results in later iterations."""

    def attach(
        self,
        run: MLflowRun,
        progress: Progress,
        say: Say,
        nodes: bool = True,
        logs: Sequence[MetricLog] = (),
    ) -> None:
        """Sets where to log, and the progress that a resumed run continues from.

        Args:
            nodes: Log the nodes' metrics too.
            logs: Log there too.
        """
        self.run, self.progress, self._logs = run, progress, logs
        self._losses = EnvRunnerLosses(say)
        self._nodes = NodeMonitors() if nodes else None
        self._last = time.perf_counter()

    def on_env_runners_recreated(
        self, *, algorithm: Any, env_runner_group: Any, env_runner_indices: list[int], **kwargs: Any
    ) -> None:
        if env_runner_group is algorithm.env_runner_group:
            rejoin(algorithm, env_runner_indices)
        self._losses.back(algorithm, env_runner_group, env_runner_indices)

    def on_evaluate_start(self, *, algorithm: Any, **kwargs: Any) -> None:
        self._evaluation_since = time.perf_counter()
        share_with_evaluation(algorithm)

    def on_evaluate_end(self, **kwargs: Any) -> None:
        self._evaluation_s += time.perf_counter() - self._evaluation_since
        self._has_evaluated = True

    def on_train_result(
        self, *, algorithm: Any, metrics_logger: Any = None, result: dict[str, Any], **kwargs: Any
    ) -> None:
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        alive = algorithm.env_runner_group.num_healthy_remote_workers()
        # The result itself has this count's mean over the iteration.
        dropped = int(algorithm.learner_group.get_stats()["learner_group_ts_dropped_lifetime"])
        new = replace(train_result(result), env_steps_dropped=dropped - self._dropped)
        if not self._has_evaluated:
            new = replace(new, evaluation_returns=[], evaluation_lengths=[])
        self._has_evaluated, self._dropped = False, dropped
        self.report = self.progress.advance(new, seconds, alive, self._evaluation_s)
        self._evaluation_s = 0.0
        if self.run is None:
            return
        values = metrics(self.report)
        if self.report.env_steps_trained > 0:
            # Not earlier: importing MLflow, making its database and starting an actor would delay
            # the first update.
            self.run.start()
            if self._nodes is not None:
                values |= self._nodes.metrics()
        for log in (self.run, *self._logs):
            log.log_metrics(values, self.report.env_steps)


def callback_of(algorithm: Any) -> TrainingCallback:
    """Returns the driver's callback of an algorithm built with a TrainingCallback."""
    return next(c for c in algorithm.callbacks if isinstance(c, TrainingCallback))


class EnvRunnersFailingError(Exception):
    """An env runner fails again and again, and nothing is sampled."""


class EnvRunnerLosses:
    """Counts the env runners of one run that were lost or failed and came back."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._said: Counter[str] = Counter()
        self._in_a_row: Counter[int] = Counter()
        self._env_steps = 0

    def back(self, algorithm: Any, env_runner_group: Any, indices: list[int]) -> None:
        """Notes which env runners RLlib has taken back into service.

        Raises:
            EnvRunnersFailingError: One of them came back MOST_IN_A_ROW times without a step.
        """
        path = (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)
        env_steps = int(algorithm.metrics.peek(path, default=0))
        if env_steps > self._env_steps:
            self._in_a_row.clear()
            self._env_steps = env_steps
        for index, reason in _reasons(env_runner_group, indices).items():
            self._in_a_row[index] += 1
            what, why = ("failed", f": {reason}") if reason else ("was lost", "")
            self._say_seldom(f"Env runner {index} {what} and is back{why}")
            if self._in_a_row[index] >= MOST_IN_A_ROW:
                raise EnvRunnersFailingError(
                    f"env runner {index} {what} {MOST_IN_A_ROW} times, and nothing was sampled "
                    f"meanwhile{why}"
                )

    def _say_seldom(self, line: str) -> None:
        """Prints a line the first, second, fourth, eighth ... time."""
        self._said[line] += 1
        times = self._said[line]
        if times & (times - 1) == 0:
            self._say(line if times == 1 else f"{line} ({times} times)")


def _reasons(env_runner_group: Any, indices: list[int]) -> dict[int, str | None]:
    """Asks each env runner for its last failure; None for a process that has had none."""
    answers = env_runner_group.foreach_env_runner(
        lambda env_runner: (env_runner.worker_index, env_runner.take_fault()),
        remote_worker_ids=indices,
        local_env_runner=False,
        timeout_seconds=ANSWER_S,
    )
    reasons: dict[int, str | None] = dict.fromkeys(indices)
    return reasons | dict(answers)
