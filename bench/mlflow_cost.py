"""MLflow's share of training time: the callback, and the thread that delivers."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from bench.process import thread_cpu_s
from bench.trainer import SETTLE_S
from payload.run.progress import Progress
from payload.run.training_callback import TrainingCallback, callback_of
from payload.tracking.mlflow_run import MLflowRun, Tracking


class TimedMLflowMetrics(TrainingCallback):
    """The trainer's callback, timed."""

    seconds = 0.0
    """Time spent in on_train_result, while training waits."""

    def on_train_result(self, **kwargs: Any) -> None:
        started = time.perf_counter()
        super().on_train_result(**kwargs)
        self.seconds += time.perf_counter() - started


def callback_share(config: Any, seconds: float) -> float:
    """Trains with an embedded MLflow; returns its share of a core's time.

    The import of MLflow and the creation of its database happen once a run, before the measurement.
    """
    config.callbacks(TimedMLflowMetrics)
    algorithm = config.build_algo()
    callback = callback_of(algorithm)
    assert isinstance(callback, TimedMLflowMetrics)
    with tempfile.TemporaryDirectory(prefix="payload-bench-") as folder:
        results = Path(folder)
        run = MLflowRun(Tracking.embedded(results, "bench"))
        callback.attach(run, Progress(), print)
        _train_for(algorithm, SETTLE_S)
        started, before = time.perf_counter(), callback.seconds + thread_cpu_s("mlflow")
        _train_for(algorithm, seconds)
        taken = callback.seconds + thread_cpu_s("mlflow") - before
        share = taken / (time.perf_counter() - started)
        run.close("FINISHED")
    return share


def _train_for(algorithm: Any, seconds: float) -> None:
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        algorithm.train()
