"""A run as a Python program or a notebook sees it, on this machine or on a cluster."""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from payload.errors import UserError
from volley.errors import LostError, need, not_installed, refused
from volley.run_html import run_html
from volley.sleeping_head import AsleepError

if TYPE_CHECKING:
    import pandas

    from payload.experiment import Experiment
    from payload.run.run_status import RunStatus

EXPERIMENT_FILE, PROGRESS_FILE = "experiment.yaml", "progress.csv"
"""Files in the run's folder."""
WATCH_S = 2.0
WATCH_SHARE = 0.1
"""Of its time `watch` spends at most this share on reading: a long run has a long progress.csv."""


class Run(ABC):
    """One training, or one script. In a notebook it shows itself: state, return and curve."""

    poll_s: float
    """Seconds between two looks at the state while `wait` waits."""
    _watching: threading.Thread | None = None
    _ended: threading.Event
    """Tells `watch` that the run is over."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the run's folder, or that of the experiment on the cluster."""

    @property
    @abstractmethod
    def status(self) -> RunStatus:
        """State, reason and figures, as of now."""

    @abstractmethod
    def is_over(self) -> bool:
        """Whether it has ended, in any way."""

    @abstractmethod
    def logs(self, follow: bool = False, lines: int = 100) -> None:
        """Prints the last lines of its output; with `follow` also new ones, until the end."""

    @abstractmethod
    def stop(self) -> RunStatus:
        """Stops it after a checkpoint; does nothing to a run that is over."""

    @abstractmethod
    def pull(self, to: str | Path | None = None) -> Path:
        """Returns the folder of its results on this machine; downloads a cluster's new files."""

    @abstractmethod
    def checkpoints(self) -> Sequence[PurePath]:
        """Returns the paths of its checkpoints, the newest first; a cluster's are on the head."""

    @abstractmethod
    def _files(self, status: RunStatus, *names: str) -> dict[str, str]:
        """Returns the text of files in the run's folder, without those that do not exist."""

    def wait(self) -> RunStatus:
        """Waits until the run is over.

        Raises:
            UserError: It has failed.
        """
        while not self._is_known_to_be_over():
            time.sleep(self.poll_s)
        if self._watching is not None:
            self._ended.set()
            self._watching.join()
        status = self.status
        if status.state == "FAILED":
            raise self._failure(status)
        return status

    def _is_known_to_be_over(self) -> bool:
        """Whether it has ended; False while the network is away, which may come back."""
        try:
            return self.is_over()
        except AsleepError:
            raise
        except LostError:
            return False

    def metrics(self) -> pandas.DataFrame:
        """Returns every metric after each iteration, by environment steps; NaN where unknown.

        The columns have the names of docs/algorithm.md.
        """
        need("pandas")
        import pandas

        from payload.tracking.metrics import METRICS, STEPS

        columns = [metric.name for metric in METRICS]
        rows = _rows(self._files(self.status, PROGRESS_FILE))
        return pandas.DataFrame(rows, columns=columns).astype({STEPS: int}).set_index(STEPS)

    def plot(self) -> Any:
        """Returns the learning curve as a matplotlib Figure.

        Raises:
            UserError: There is none yet, or matplotlib is not installed.
        """
        need("matplotlib")
        files = self._files(self.status, EXPERIMENT_FILE, PROGRESS_FILE)
        if PROGRESS_FILE not in files:
            raise UserError(f"{self.name}: no iteration is over, so there is no curve yet")
        return _curve(_experiment(files), _rows(files))

    def watch(self) -> None:
        """Shows the run below this cell of a notebook, and keeps that current until it is over.

        It returns at once: other cells can run meanwhile.

        Raises:
            UserError: This is not a notebook.
        """
        ipython = sys.modules.get("IPython")
        if ipython is None or ipython.get_ipython() is None:
            raise refused("watch() needs a notebook", "logs(follow=True)")
        from IPython.display import display

        shown = display(self, display_id=True)
        self._ended = threading.Event()
        self._watching = threading.Thread(target=self._keep_current, args=(shown,), daemon=True)
        self._watching.start()

    def _keep_current(self, shown: Any) -> None:
        over = False
        while not over:
            begun = time.monotonic()
            with suppress(UserError):  # The page shows why the head does not answer.
                over = self._ended.is_set() or self.is_over()
            shown.update(self)
            if not over:
                self._ended.wait(max(WATCH_S, (time.monotonic() - begun) / WATCH_SHARE))

    def _failure(self, status: RunStatus) -> UserError:
        return refused(f"{self.name}: FAILED: {status.reason}".rstrip("."), "run.logs()")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _repr_html_(self) -> str:
        """Returns the run as a notebook shows it: state, return against its goal, curve."""
        try:
            return self._page()
        except UserError as error:  # The head does not answer, for example.
            return run_html(self.name, note=str(error))

    def _page(self) -> str:
        status = self.status
        files = self._files(status, EXPERIMENT_FILE, PROGRESS_FILE)
        if EXPERIMENT_FILE not in files:
            return run_html(self.name, status)
        experiment, rows = _experiment(files), _rows(files)
        goal = experiment.stop.episode_return_mean
        if find_spec("matplotlib") is None:
            note = str(not_installed("matplotlib", "payload"))
            return run_html(self.name, status, goal, note=note)
        curve = _png(_curve(experiment, rows)) if rows else None
        return run_html(self.name, status, goal, curve)


def _experiment(files: Mapping[str, str]) -> Experiment:
    from payload.experiment import read_experiment
    from payload.experiment.file import read_mapping

    return read_experiment(read_mapping(files[EXPERIMENT_FILE])).experiment


def _rows(files: Mapping[str, str]) -> list[dict[str, float]]:
    from payload.tracking.metrics import read_rows

    # The last line may be half written.
    lines, _, _ = files.get(PROGRESS_FILE, "").rpartition("\n")
    return list(read_rows(lines.splitlines()))


def _curve(experiment: Experiment, rows: Sequence[Mapping[str, float]]) -> Any:
    from payload.tracking.learning_curve import learning_curve

    title = f"{experiment.run} on {experiment.env}"
    figure = learning_curve(rows, title, experiment.stop.episode_return_mean)
    # A notebook shows a figure by itself only after pyplot has been imported.
    figure._repr_png_ = partial(_png, figure)
    return figure


def _png(figure: Any) -> bytes:
    picture = BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()
