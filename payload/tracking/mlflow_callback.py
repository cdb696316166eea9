"""The MLflow callback: every iteration's metrics on the axis of environment steps."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback

from payload.run.progress import Progress, Report
from payload.tracking.metrics import metrics
from payload.tracking.mlflow_run import MLflowRun
from payload.tracking.node_metrics import NodeMonitors
from payload.tracking.train_result import train_result


class MLflowMetrics(RLlibCallback):
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
        self._last = time.perf_counter()
        self._dropped = 0

    def attach(self, run: MLflowRun, progress: Progress) -> None:
        """Sets where to log, and the progress that a resumed run continues from."""
        self.run, self.progress = run, progress
        self._nodes = NodeMonitors()
        self._last = time.perf_counter()

    def on_train_result(
        self, *, algorithm: Any, metrics_logger: Any = None, result: dict[str, Any], **kwargs: Any
    ) -> None:
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        alive = algorithm.env_runner_group.num_healthy_remote_workers()
        # The result itself has the mean of what this count was in the iteration.
        dropped = int(algorithm.learner_group.get_stats()["learner_group_ts_dropped_lifetime"])
        new = replace(train_result(result), env_steps_dropped=dropped - self._dropped)
        self._dropped = dropped
        self.report = self.progress.advance(new, seconds, alive)
        if self.run is None or self._nodes is None:
            return
        values = metrics(self.report)
        if self.report.env_steps_trained > 0:
            # To import MLflow, make its database and start an actor would delay the first update.
            self.run.start()
            values |= self._nodes.metrics()
        self.run.log_metrics(values, self.report.env_steps)


def callback_of(algorithm: Any) -> MLflowMetrics:
    """Returns the driver's callback of an algorithm built with MLflowMetrics."""
    return next(c for c in algorithm.callbacks if isinstance(c, MLflowMetrics))
