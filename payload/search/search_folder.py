"""Where a search keeps its files: results/runs/<name>/, with a run's folder for each trial."""

from dataclasses import dataclass
from pathlib import Path

from payload.errors import UserError
from payload.experiment.settings import Experiment
from payload.run.run_folder import RUNS, RunFolder, create_run_folder
from payload.run.trust import Signed
from payload.search.search_plan import Plan

PLAN = "search.json"


@dataclass(frozen=True)
class SearchFolder(RunFolder):
    """A search: its experiment, plan, log, table, picture, best experiment and MLflow run."""

    @property
    def plan_file(self) -> Path:
        return self.path / PLAN

    @property
    def signed(self) -> Signed:
        """What a resume reads besides the trials' checkpoints."""
        return Signed(self.path, (self.experiment_file.name, PLAN))

    @property
    def table_file(self) -> Path:
        """One line for each trial."""
        return self.path / "trials.csv"

    @property
    def picture(self) -> Path:
        """The learning curves of all trials."""
        return self.path / "trials.png"

    @property
    def best_file(self) -> Path:
        """The best setting as an experiment that `train` takes."""
        return self.path / "best.yaml"

    @property
    def stop_file(self) -> Path:
        """While it exists, trials write a checkpoint and do not train."""
        return self.path / ".stopping"

    @property
    def tune(self) -> Path:
        """Ray Tune's own files; nothing reads them."""
        return self.path / ".tune"

    def trial(self, name: str) -> RunFolder:
        return RunFolder(self.path / name)


def status_file(trial: RunFolder) -> Path:
    """Returns the file with the state of a trial, see RunStatus."""
    return trial.path / "status.json"


def is_search_folder(path: Path) -> bool:
    return SearchFolder(path).plan_file.is_file()


def create_search_folder(
    results: Path, experiment: Experiment, plan: Plan, name: str | None = None
) -> SearchFolder:
    """Makes a new search's folder, see create_run_folder."""
    prefix = "tune_" if plan.is_search else "seeds_"
    folder = SearchFolder(create_run_folder(results, experiment, prefix, name).path)
    plan.write(folder.plan_file)
    folder.signed.sign()
    return folder


def find_search_to_resume(results: Path, which: str) -> SearchFolder:
    """Returns the search to resume: the newest one, or the one at a path.

    Args:
        which: "latest", or a search's folder.

    Raises:
        UserError: There is none.
    """
    if which != "latest":
        folder = SearchFolder(Path(which))
        if not is_search_folder(folder.path):
            raise UserError(f"--resume {which}: no search, {PLAN} is missing in it")
        return folder
    plans = sorted((results / RUNS).glob(f"*/{PLAN}"), key=lambda plan: plan.stat().st_mtime)
    if not plans:
        raise UserError(f"--resume: nothing to resume, no search in {results / RUNS}")
    return SearchFolder(plans[-1].parent)
