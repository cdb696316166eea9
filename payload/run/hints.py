"""Lines about a run that trains but shows less than it could; each is said once."""

from collections.abc import Sequence
from typing import Any

from payload.errors import nearest
from payload.run.panel import Say
from payload.run.progress import Progress
from payload.run.training_callback import ANSWER_S
from payload.tracking.report import MEAN_OVER, Report

NO_EPISODE_S = 60.0
"""Seconds of training after which the lack of a finished episode is said."""


class Hints:
    def __init__(self, info_metrics: Sequence[str], say: Say) -> None:
        self._info_metrics, self._say = info_metrics, say
        self._said_no_episode = self._said_no_info = False

    def after(self, algorithm: Any, report: Report, progress: Progress) -> None:
        """Looks at an iteration."""
        if not (report.episodes or self._said_no_episode) and report.time_total_s > NO_EPISODE_S:
            self._said_no_episode = True
            self._say(
                f"No episode has ended after {report.time_total_s:.0f} s of training, so there is "
                "no return yet; config.env_config.max_episode_steps ends long ones"
            )
        missing = [name for name in self._info_metrics if name not in progress.info]
        if missing and not self._said_no_info and report.episodes >= MEAN_OVER:
            self._said_no_info = True
            known = _numbers_in_info(algorithm)
            self._say(
                f"config.info_metrics: {', '.join(missing)}: not in info at the end of any of "
                f"{report.episodes} episodes, which had {', '.join(known) or 'no numbers'}"
                f"{nearest(missing[0], known)}"
            )


def _numbers_in_info(algorithm: Any) -> list[str]:
    answers = algorithm.env_runner_group.foreach_env_runner(
        lambda env_runner: env_runner.numbers_in_info(), timeout_seconds=ANSWER_S
    )
    return sorted(set().union(*answers))
