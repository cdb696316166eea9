"""RLlib's callback of a training: every iteration becomes a report, and metrics in MLflow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback

from payload.run.env_runner_joining import tell_number
from payload.run.env_runner_losses import EnvRunnerLosses
from payload.run.progress import Progress
from payload.tracking.metrics import metrics
from payload.tracking.mlflow_run import MLflowRun
from payload.tracking.node_metrics import NodeMonitors
from payload.tracking.report import Report
from payload.tracking.train_result import train_result


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
        self._nodes: NodeMonitors | None = None
        self._losses = EnvRunnerLosses(print)
        self._last = time.perf_counter()
        self._dropped = 0
        self._has_evaluated = False
        """Since the last iteration; later results of RLlib repeat an evaluation's."""

    def attach(
        self, run: MLflowRun, progress: Progress, say: Callable[[str], None], nodes: bool = True
    ) -> None:
        """Sets where to log, and the progress that a resumed run continues from.

        Args:
            say: Shows a person a line.
            nodes: Log the nodes' metrics too.
        """
        self.run, self.progress = run, progress
        self._losses = EnvRunnerLosses(say)
        self._nodes = NodeMonitors() if nodes else None
        self._last = time.perf_counter()

    def on_env_runners_recreated(
        self,
        *,
        algorithm: Any,
        env_runner_group: Any,
        env_runner_indices: list[int],
        **kwargs: Any,
    ) -> None:
        if env_runner_group is algorithm.env_runner_group:
            tell_number(algorithm, env_runner_indices)
        self._losses.back(algorithm, env_runner_group, env_runner_indices)

    def on_evaluate_end(self, **kwargs: Any) -> None:
        self._has_evaluated = True

    def on_train_result(
        self, *, algorithm: Any, metrics_logger: Any = None, result: dict[str, Any], **kwargs: Any
    ) -> None:
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        alive = algorithm.env_runner_group.num_healthy_remote_workers()
        # The result itself has the mean of what this count was in the iteration.
        dropped = int(algorithm.learner_group.get_stats()["learner_group_ts_dropped_lifetime"])
        new = replace(train_result(result), env_steps_dropped=dropped - self._dropped)
        if not self._has_evaluated:
            new = replace(new, evaluation_returns=[], evaluation_lengths=[])
        self._has_evaluated, self._dropped = False, dropped
        self.report = self.progress.advance(new, seconds, alive)
        if self.run is None:
            return
        values = metrics(self.report)
        if self.report.env_steps_trained > 0:
            # To import MLflow, make its database and start an actor would delay the first update.
            self.run.start()
            if self._nodes is not None:
                values |= self._nodes.metrics()
        self.run.log_metrics(values, self.report.env_steps)


def callback_of(algorithm: Any) -> TrainingCallback:
    """Returns the driver's callback of an algorithm built with a TrainingCallback."""
    return next(c for c in algorithm.callbacks if isinstance(c, TrainingCallback))
