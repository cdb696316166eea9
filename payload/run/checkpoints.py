"""Checkpoints of a run: written aside and renamed, the best and the last few kept."""

import hashlib
import json
import os
import pickle
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from payload.checkpoint_names import PREFIX, by_iteration
from payload.errors import TemporaryError, UserError, first_line
from payload.experiment.file import to_yaml
from payload.experiment.read import read_experiment
from payload.experiment.settings import Experiment
from payload.may_pass import may_pass
from payload.run.progress import Progress
from payload.run.trust import SIGNATURE, Signed

ALGORITHM = "algorithm"
"""RLlib's own checkpoint: `Algorithm.from_checkpoint` reads this folder."""
EXPERIMENT_FILE = "experiment.yaml"
PROGRESS_FILE = "progress.json"
WEIGHTS = "policy.npz"
OBSERVATION_FILTER = "observation_filter.npz"
CHECKSUMS = "SHA256SUMS"
"""Checksums of every other file, as `sha256sum --check` reads them."""
DAMAGED = "damaged-"
"""Begins the name of a checkpoint that a resume has found damaged."""
BEST = "best"


class DamagedError(Exception):
    """A checkpoint whose files are not as they were saved."""


@dataclass(frozen=True)
class Checkpoint:
    path: Path

    @property
    def algorithm(self) -> Path:
        return self.path / ALGORITHM

    @property
    def module(self) -> Path:
        """The policy alone: `RLModule.from_checkpoint` reads this folder."""
        return self.algorithm / "learner_group" / "learner" / "rl_module" / "default_policy"

    @property
    def experiment_file(self) -> Path:
        return self.path / EXPERIMENT_FILE

    def experiment(self) -> Experiment:
        return read_experiment(self.experiment_file).experiment

    def progress(self) -> Progress:
        return Progress.from_json(json.loads((self.path / PROGRESS_FILE).read_text()))

    def policy_spaces(self) -> str:
        """Returns what the policy sees and does, in words; unpickles what RLlib saved of it."""
        from payload.environments.space_entries import policy_spaces

        saved = pickle.loads((self.module / "class_and_ctor_args.pkl").read_bytes())
        _, arguments = saved["ctor_args_and_kwargs"]
        return policy_spaces(arguments["observation_space"], arguments["action_space"])

    @property
    def weights(self) -> Path:
        """The policy's weights without pickle; see policy_weights.py."""
        return self.path / WEIGHTS

    @property
    def observation_filter(self) -> Path:
        """What `observation_filter: MeanStdFilter` does to observations, without pickle."""
        return self.path / OBSERVATION_FILTER

    @property
    def signed(self) -> Signed:
        """The checksums stand for all files."""
        return Signed(self.path, (CHECKSUMS,))

    def verify(self) -> None:
        """Raises DamagedError unless every file is as it was saved, and no other file is there."""
        try:
            lines = (self.path / CHECKSUMS).read_text().splitlines()
            saved = [line.split("  ", 1) for line in lines]
            files = {str(path.relative_to(self.path)) for path in _files(self.path)}
            added = files - {name for _, name in saved} - {CHECKSUMS, SIGNATURE}
            damaged = [
                name
                for sha, name in saved
                if name not in files
                or not (self.path / name).is_file()
                or _sha(self.path / name) != sha
            ]
        except (OSError, ValueError) as error:
            raise DamagedError(f"{self.path}: {first_line(error)}") from None
        if added and lines:
            raise DamagedError(
                f"{self.path}: {', '.join(sorted(added))} is not in {CHECKSUMS}: it was added later"
            )
        if damaged or not lines:
            what = (
                f"checksum of {', '.join(damaged)} is wrong" if lines else f"{CHECKSUMS} is empty"
            )
            raise DamagedError(f"{self.path}: the checkpoint is damaged: {what}")

    def restore(self, algorithm: Any) -> None:
        """Restores the saved state of an algorithm and its learners, wherever they run.

        Raises:
            Exception: RLlib raises any type, for example for a checkpoint of another version.
        """
        algorithm.restore_from_path(self.algorithm.absolute())
        _raise_learners_error(algorithm)


class CheckpointStore:
    """The checkpoints of one run, `folder`/checkpoint_<iteration>, and a link to the best."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        """
        Args:
            keep: How many of the newest to keep, besides the best.
        """
        self.folder = folder
        self.keep = keep

    def save(self, algorithm: Any, experiment: Experiment, progress: Progress) -> Checkpoint:
        """Writes a checkpoint; a crash at any moment leaves those of other iterations intact.

        Raises:
            OSError: It cannot be written (no space left); what was written is removed.
        """
        final = self.folder / f"{PREFIX}{progress.iteration:06d}"
        aside = self.folder / f".{final.name}.{os.getpid()}"
        shutil.rmtree(aside, ignore_errors=True)
        try:
            aside.mkdir(parents=True)
            algorithm.save_to_path((aside / ALGORITHM).absolute())
            _raise_learners_error(algorithm)
            _write_weights(Checkpoint(aside), experiment)
            if experiment.config.observation_filter != "NoFilter":
                _write_filter(Checkpoint(aside), algorithm)
            (aside / EXPERIMENT_FILE).write_text(to_yaml(experiment))
            (aside / PROGRESS_FILE).write_text(json.dumps(progress.to_json(), indent=1))
            _write_checksums(aside)
            Checkpoint(aside).signed.sign()
            _sync(aside)
            if final.exists():
                shutil.rmtree(final)
            aside.rename(final)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        return Checkpoint(final)

    def mark_if_best(self, checkpoint: Checkpoint) -> bool:
        """Points the link `best` at a checkpoint just saved, if it is the best; returns whether.

        The best had the highest mean return of 100 episodes when it was saved; a higher mean
        between two saves was of other weights. With an evaluation_interval it had the highest mean
        return in the evaluation right before it was saved. Of equal ones, and without such a mean,
        the newest is the best.
        """
        best = self.best()
        if best is not None:
            try:
                best.verify()
            except DamagedError:
                best = None
        by_evaluation = checkpoint.experiment().config.evaluation_interval is not None

        def score(of: Checkpoint) -> float:
            progress = of.progress()
            return progress.evaluation_return if by_evaluation else progress.full_mean

        if best is not None and score(checkpoint) < score(best):
            return False
        aside = self.folder / f".{BEST}.{os.getpid()}"
        aside.symlink_to(checkpoint.path.name)
        aside.replace(self.folder / BEST)
        return True

    def best(self) -> Checkpoint | None:
        link = self.folder / BEST
        return Checkpoint(link.resolve()) if link.exists() else None

    def newest_first(self) -> list[Checkpoint]:
        folders = sorted(self.folder.glob(f"{PREFIX}*"), key=by_iteration, reverse=True)
        return [Checkpoint(path) for path in folders]

    def newest_whole(self) -> Checkpoint | None:
        """Returns the newest checkpoint whose files are as they were saved."""
        for checkpoint in self.newest_first():
            with suppress(DamagedError):
                checkpoint.verify()
                return checkpoint
        return None

    def why(self, error: Exception) -> str:
        """Returns why a run failed, and what is left of it, in a line."""
        if not isinstance(error, OSError):
            return first_line(error)
        newest = self.newest_first()
        intact = f"; {newest[0].path} is intact" if newest else ""
        # Errors of Arrow, or from another process, name no file.
        reason = f"{error.strerror}: {error.filename}" if error.filename else first_line(error)
        return reason + intact

    def prune(self) -> None:
        """Removes all but the newest `keep` and the best, and leftovers of crashes."""
        best = self.best()
        for checkpoint in self.newest_first()[self.keep :]:
            if best is None or checkpoint.path.resolve() != best.path:
                shutil.rmtree(checkpoint.path)
        for aside in self.folder.glob(f".{PREFIX}*"):
            shutil.rmtree(aside)
        for link in self.folder.glob(f".{BEST}.*"):
            link.unlink()


def find_checkpoint(path: Path) -> Checkpoint:
    """Returns the checkpoint that `path` means: itself, or the best of the run in `path`.

    Raises:
        UserError: There is none.
    """
    for candidate in (path, path / "checkpoints" / BEST, path / BEST):
        if (candidate / ALGORITHM).is_dir() and (candidate / EXPERIMENT_FILE).is_file():
            return Checkpoint(candidate.resolve())
    newest = CheckpointStore(path / "checkpoints").newest_first()
    if newest:
        return newest[0]
    raise UserError(f"{path}: no checkpoint (a folder with {ALGORITHM}/ and {EXPERIMENT_FILE})")


def whole_checkpoint(path: Path) -> Checkpoint:
    """Returns the checkpoint that `path` means, see `find_checkpoint`, if its files are intact.

    Raises:
        UserError: There is none, or it is damaged.
    """
    checkpoint = find_checkpoint(path)
    try:
        checkpoint.verify()
    except DamagedError as error:
        raise UserError(f"{error}; give another checkpoint") from None
    return checkpoint


def restore_newest(
    algorithm: Any, newest_first: Sequence[Checkpoint], say: Callable[[str], None]
) -> Progress:
    """Restores an algorithm from the first checkpoint that can be read; returns its progress.

    Args:
        newest_first: Empty for an algorithm that starts from the beginning.
        say: Shows a person a line.

    Raises:
        UserError: None of them can be read.
        TemporaryError: Ray or the disk keeps one that is whole from being read.
    """
    from ray.exceptions import ActorDiedError, ActorUnavailableError

    damaged = []
    for checkpoint in newest_first:
        try:
            checkpoint.verify()
            progress = checkpoint.progress()
            checkpoint.restore(algorithm)
        except Exception as error:  # Of many types; an earlier checkpoint may be whole.
            traceback.print_exc()
            if may_pass(error) or isinstance(error, ActorDiedError | ActorUnavailableError):
                raise TemporaryError(f"{checkpoint.path}: {first_line(error)}") from None
            say(f"{checkpoint.path.name} cannot be read; trying the one before")
            if isinstance(error, DamagedError):
                damaged.append(checkpoint.path)
        else:
            for path in damaged:  # It would count as newer than what this run saves next.
                aside = path.with_name(f"{DAMAGED}{path.name}")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
            say(f"Resumed from {checkpoint.path} at {progress.env_steps:,} environment steps")
            return progress
    if newest_first:
        folder = newest_first[0].path.parent
        raise UserError(f"--resume: no checkpoint in {folder} can be read")
    return Progress()


def _raise_learners_error(algorithm: Any) -> None:
    """Raises the error of a learner in another process, which RLlib ignores."""
    for result in algorithm.learner_group.foreach_learner(lambda each: each.checkpoint_error):
        error = result.get()
        if error is not None:
            raise error


def _write_weights(checkpoint: Checkpoint, experiment: Experiment) -> None:
    from payload.run.policy_weights import has_own_network, write_weights  # Imports torch.

    state = checkpoint.module / "module_state.pkl"
    if state.is_file() and has_own_network(experiment):
        write_weights(state, checkpoint.weights)


def _write_filter(checkpoint: Checkpoint, algorithm: Any) -> None:
    from payload.environments.observation_filter import statistics_of  # Imports RLlib.

    statistics = statistics_of(algorithm)
    assert statistics is not None
    statistics.total.filter.write(checkpoint.observation_filter)


def _write_checksums(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = (f"{_sha(path)}  {path.relative_to(folder)}\n" for path in files)
    (folder / CHECKSUMS).write_text("".join(lines))


def _files(folder: Path) -> Iterator[Path]:
    """Yields files, and links to folders, which no algorithm writes."""
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (Path(parent, name) for name in [*names, *links])


def _sha(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    """Waits until all below a folder is on disk, so that the rename cannot overtake it."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
