"""ASHA on environment steps (Li et al. 2020, arXiv 1810.05934; ray.tune's ASHAScheduler)."""

import math
import warnings
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import ASHAScheduler

from payload.experiment.settings import Stop
from payload.search.search_folder import SearchFolder
from payload.tracking.metrics import STEPS

REDUCTION_FACTOR = 3
"""At each rung the best third continues."""
RUNGS = 3
"""With a limit of environment steps: rungs at 1/27, 1/9 and 1/3 of it."""
FIRST_RUNG = 100_000
"""Environment steps of the first rung without such a limit."""
NO_END = 10**12


class ResumableASHA(ASHAScheduler):  # type: ignore[misc]
    """ASHA that knows what the trials reported before a resume, which Tune does not save."""

    def __init__(self, folder: SearchFolder, stop: Stop, metric: str, over: Iterable[str]) -> None:
        """
        Args:
            over: Names of trials that do not run again; later trials are compared to them.
        """
        end = stop.num_env_steps_sampled_lifetime
        super().__init__(
            time_attr=STEPS,
            metric=metric,
            mode="max",
            max_t=end or NO_END,
            grace_period=max(1, end // REDUCTION_FACTOR**RUNGS) if end else FIRST_RUNG,
            reduction_factor=REDUCTION_FACTOR,
        )
        self._folder = folder
        for name in over:
            self.on_trial_add(None, SimpleNamespace(trial_id=name, config={"name": name}))

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_add(tune_controller, trial)
        for row in self._folder.trial(trial.config["name"]).progress_rows():
            # NaN while no episode has finished: ASHA leaves out a report without the metric.
            values = {name: value for name, value in row.items() if not math.isnan(value)}
            self.on_trial_result(tune_controller, trial, values)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Compares a report at the highest rung that it has passed, and never at lower ones.

        Tune would compare the trial's next reports at those: returns of later steps.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
            decision: str = super().on_trial_result(tune_controller, trial, result)
        if STEPS in result and self._metric in result:
            for milestone, recorded in self._trial_info[trial.trial_id]._rungs:
                if milestone <= result[STEPS]:
                    recorded.setdefault(trial.trial_id, math.nan)  # Tune leaves NaN out.
        return decision
