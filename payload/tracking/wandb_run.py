"""A run's metrics at Weights & Biases, sent by a thread that training never waits for."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from payload.errors import first_line
from payload.experiment.settings import Experiment
from payload.tracking.mlflow_run import Status, Tracking

CLOSE_TIMEOUT_S = 60.0
"""How long the end of a run waits until everything is sent."""


class WandbRun:
    """Sends metrics under MLflow's names; the step is environment steps.

    A failure is a line, and the training continues without it. A resumed run continues its curve:
    steps that it trains again since its checkpoint are not sent again.
    """

    def __init__(
        self,
        experiment: Experiment,
        tracking: Tracking,
        folder: Path,
        config: dict[str, Any],
        say: Callable[[str], None],
    ) -> None:
        """
        Args:
            tracking: Its MLflow run, whose name and key are those of this one too.
            folder: Where wandb keeps its files.
        """
        parent = tracking.parent_file
        self._arguments = {
            "project": experiment.wandb,
            "name": tracking.run_name,
            "id": tracking.key,
            "group": None if parent is None else parent.parent.name,
            "notes": experiment.notes,
            "tags": [f"{key}={value}" for key, value in experiment.tags.items()],
            "config": config,
            "dir": str(folder),
            "resume": "allow",
        }
        self._say = say
        self._points: SimpleQueue[tuple[dict[str, float], int] | Status] = SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="wandb", daemon=True)
        self._thread.start()

    def log_metrics(self, values: dict[str, float], env_steps: int) -> None:
        if self._thread.is_alive():
            self._points.put((values, env_steps))

    def close(self, status: Status) -> None:
        """Sends what is left and the status; waits CLOSE_TIMEOUT_S at most."""
        self._points.put(status)
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            self._say(f"W&B has not received everything after {CLOSE_TIMEOUT_S:g} s")

    def _send(self) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        try:
            import wandb

            settings = wandb.Settings(console="off", silent=True, disable_git=True, save_code=False)
            run = wandb.init(**self._arguments, settings=settings)
            while isinstance(point := self._points.get(), tuple):
                values, env_steps = point
                if env_steps >= run.step:
                    run.log(values, step=env_steps)
            run.summary["status"] = point
            run.finish(exit_code=int(point == "FAILED"))
        except Exception as error:  # Whatever it raises, training continues.
            self._say(f"W&B: {first_line(error)}; the training continues without it")
