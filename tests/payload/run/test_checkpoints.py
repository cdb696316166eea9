"""Checkpoints are complete or absent; the best and the newest are kept."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from payload.errors import UserError
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.settings import Experiment, Stop
from payload.run.checkpoints import (
    Checkpoint,
    CheckpointStore,
    DamagedError,
    find_checkpoint,
    restore_newest,
)
from payload.run.progress import Progress
from payload.tracking.report import MEAN_OVER
from tests.payload.conftest import FileAlgorithm

Save = Callable[..., Checkpoint]


class FailingAlgorithm:
    """An algorithm that writes half a checkpoint, then raises the given error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def save_to_path(self, path: Path) -> None:
        path.mkdir()
        (path / "weights").write_bytes(b"lea")
        raise self.error


class FullDiskAlgorithm:
    """An algorithm that writes its weights to a device that is always full."""

    def save_to_path(self, path: Path) -> None:
        path.mkdir()
        (path / "weights").symlink_to("/dev/full")
        (path / "weights").write_bytes(b"learned")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def store(folder: Path) -> CheckpointStore:
    return CheckpointStore(folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Saving


def test_a_checkpoint_is_named_after_its_iteration(folder: Path, save_checkpoint: Save) -> None:
    assert save_checkpoint(folder, 7).path == folder / "checkpoint_000007"


def test_a_checkpoint_holds_what_the_algorithm_wrote(folder: Path, save_checkpoint: Save) -> None:
    assert (save_checkpoint(folder).algorithm / "weights").read_bytes() == b"learned"


def test_a_checkpoint_holds_the_experiment(
    store: CheckpointStore, algorithm: FileAlgorithm
) -> None:
    experiment = Experiment(
        run="APPO",
        env="CartPole-v1",
        config=ImpalaSettings(lr=1e-5),
        stop=Stop(training_iteration=1),
    )
    assert store.save(algorithm, experiment, Progress()).experiment() == experiment


def test_a_checkpoint_holds_the_progress(store: CheckpointStore, algorithm: FileAlgorithm) -> None:
    progress = Progress(iteration=3, env_steps=300, first_return=1.0, best_return=2.5)
    assert store.save(algorithm, Experiment(), progress).progress() == progress


def test_a_save_leaves_nothing_aside(folder: Path, save_checkpoint: Save) -> None:
    save_checkpoint(folder, 1)
    assert names(folder) == ["checkpoint_000001"]


def test_a_second_save_of_an_iteration_replaces_the_first(
    folder: Path, save_checkpoint: Save
) -> None:
    save_checkpoint(folder, 1, env="CartPole-v1")
    save_checkpoint(folder, 1, env="Acrobot-v1")
    assert Checkpoint(folder / "checkpoint_000001").experiment().env == "Acrobot-v1"


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
@pytest.mark.parametrize("iteration", [1, 2], ids=["same iteration", "next iteration"])
def test_a_failed_save_leaves_earlier_checkpoints_as_they_were(
    folder: Path, save_checkpoint: Save, error: BaseException, iteration: int
) -> None:
    save_checkpoint(folder, 1)
    before = contents(folder)
    with pytest.raises(type(error)):
        CheckpointStore(folder).save(
            FailingAlgorithm(error), Experiment(), Progress(iteration=iteration)
        )
    assert contents(folder) == before


def test_a_failed_save_leaves_nothing_aside(folder: Path, store: CheckpointStore) -> None:
    with pytest.raises(RuntimeError):
        store.save(FailingAlgorithm(RuntimeError()), Experiment(), Progress())
    assert names(folder) == []


def test_a_full_disk_is_told_as_it_is(store: CheckpointStore) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        store.save(FullDiskAlgorithm(), Experiment(), Progress())


def test_a_full_disk_leaves_nothing_aside(folder: Path, store: CheckpointStore) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        store.save(FullDiskAlgorithm(), Experiment(), Progress())
    assert names(folder) == []


def test_what_a_killed_save_left_does_not_stop_the_next_one(
    folder: Path, save_checkpoint: Save
) -> None:
    # In a container, the process that continues often has the same PID as the killed one.
    (folder / f".checkpoint_000001.{os.getpid()}" / "algorithm").mkdir(parents=True)
    save_checkpoint(folder, 1)
    assert names(folder) == ["checkpoint_000001"]


# Damage


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["algorithm/weights", "experiment.yaml", "progress.json", "SHA256SUMS"]
)
def test_a_flipped_byte_is_noticed(folder: Path, save_checkpoint: Save, name: str) -> None:
    checkpoint = save_checkpoint(folder)
    flip_a_byte(checkpoint.path / name)
    with pytest.raises(DamagedError):
        checkpoint.verify()


@pytest.mark.parametrize("name", ["algorithm/weights", "SHA256SUMS"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: os.truncate(path, 0)])
def test_a_file_that_is_gone_or_empty_is_noticed(
    folder: Path, save_checkpoint: Save, name: str, damage: Callable[[Path], None]
) -> None:
    checkpoint = save_checkpoint(folder)
    damage(checkpoint.path / name)
    with pytest.raises(DamagedError):
        checkpoint.verify()


def test_the_file_that_is_damaged_is_named(folder: Path, save_checkpoint: Save) -> None:
    checkpoint = save_checkpoint(folder)
    flip_a_byte(checkpoint.path / "algorithm" / "weights")
    with pytest.raises(DamagedError, match=r"checkpoint_000001: .* checksum of algorithm/weights"):
        checkpoint.verify()


def test_the_newest_whole_checkpoint_is_found(folder: Path, save_checkpoint: Save) -> None:
    whole, damaged = save_checkpoint(folder, 1), save_checkpoint(folder, 2)
    whole.verify()
    flip_a_byte(damaged.path / "progress.json")
    assert CheckpointStore(folder).newest_whole() == whole


# Keeping


def test_prune_keeps_the_newest(folder: Path, save_checkpoint: Save) -> None:
    for iteration in (1, 2, 3, 10):
        save_checkpoint(folder, iteration)
    CheckpointStore(folder, keep=2).prune()
    assert names(folder) == ["checkpoint_000003", "checkpoint_000010"]


def test_prune_keeps_the_newest_after_a_million_iterations(
    folder: Path, save_checkpoint: Save
) -> None:
    for iteration in (999_980, 999_990, 1_000_000, 1_000_010):
        save_checkpoint(folder, iteration)
    CheckpointStore(folder, keep=2).prune()
    assert names(folder) == ["checkpoint_1000000", "checkpoint_1000010"]


def test_prune_keeps_the_best(folder: Path, save_checkpoint: Save) -> None:
    store = CheckpointStore(folder, keep=1)
    store.mark_if_best(save_checkpoint(folder, 1))
    save_checkpoint(folder, 2)
    save_checkpoint(folder, 3)
    store.prune()
    assert names(folder) == ["best", "checkpoint_000001", "checkpoint_000003"]


def test_prune_keeps_the_best_in_a_folder_given_relatively(
    tmp_path: Path, save_checkpoint: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = CheckpointStore(Path("checkpoints"), keep=1)
    store.mark_if_best(save_checkpoint(store.folder, 1))
    save_checkpoint(store.folder, 2)
    store.prune()
    assert names(store.folder) == ["best", "checkpoint_000001", "checkpoint_000002"]


def test_prune_keeps_the_best_in_a_folder_behind_a_link(
    tmp_path: Path, save_checkpoint: Save
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    store = CheckpointStore(tmp_path / "link", keep=1)
    store.mark_if_best(save_checkpoint(store.folder, 1))
    save_checkpoint(store.folder, 2)
    store.prune()
    assert names(store.folder) == ["best", "checkpoint_000001", "checkpoint_000002"]


def test_prune_removes_what_a_killed_save_left(folder: Path, store: CheckpointStore) -> None:
    (folder / ".checkpoint_000004.1" / "algorithm").mkdir(parents=True)
    (folder / ".best.1").symlink_to("checkpoint_000004")
    store.prune()
    assert names(folder) == []


def test_the_newest_checkpoint_comes_first(
    folder: Path, store: CheckpointStore, save_checkpoint: Save
) -> None:
    saved = [save_checkpoint(folder, iteration) for iteration in (9, 10, 2)]
    assert store.newest_first() == [saved[1], saved[0], saved[2]]


def test_a_run_without_checkpoints_has_no_newest(store: CheckpointStore) -> None:
    assert store.newest_first() == []


# The best


def test_a_run_without_a_marked_checkpoint_has_no_best(store: CheckpointStore) -> None:
    assert store.best() is None


@pytest.fixture
def save_at(store: CheckpointStore, algorithm: FileAlgorithm) -> Callable[..., bool]:
    """Saves a checkpoint with a mean return; returns whether it is now the best."""

    def save(iteration: int, mean: float, episodes: int = MEAN_OVER, best: float = 0.0) -> bool:
        returns = deque([mean] * episodes, maxlen=MEAN_OVER)
        progress = Progress(iteration=iteration, returns=returns, best_return=best)
        return store.mark_if_best(store.save(algorithm, Experiment(), progress))

    return save


def test_the_best_is_the_checkpoint_with_the_highest_mean_when_it_was_saved(
    folder: Path, store: CheckpointStore, save_at: Callable[..., bool]
) -> None:
    assert [save_at(1, mean=10.0), save_at(2, mean=12.0), save_at(3, mean=11.0)] == [
        True,
        True,
        False,
    ]
    assert store.best() == Checkpoint(folder / "checkpoint_000002")


def test_a_mean_that_was_higher_between_two_saves_makes_no_best(
    folder: Path, store: CheckpointStore, save_at: Callable[..., bool]
) -> None:
    save_at(1, mean=10.0)
    assert not save_at(2, mean=9.0, best=15.0)
    assert store.best() == Checkpoint(folder / "checkpoint_000001")


def test_a_damaged_checkpoint_is_not_the_best(folder: Path, save_at: Callable[..., bool]) -> None:
    save_at(1, mean=10.0)
    (folder / "checkpoint_000001/progress.json").write_text("{")
    assert save_at(2, mean=9.0)


def test_a_resume_sets_a_damaged_checkpoint_aside(
    folder: Path,
    store: CheckpointStore,
    algorithm: FileAlgorithm,
    save_at: Callable[..., bool],
) -> None:
    save_at(1, mean=10.0)
    said: list[str] = []
    for _ in range(2):  # The second time there is one aside already.
        save_at(2, mean=10.0)
        (folder / "checkpoint_000002/progress.json").write_text("{")
        progress = restore_newest(algorithm, store.newest_first(), said.append)
        assert progress.iteration == 1
    assert said[0] == "checkpoint_000002 cannot be read; trying the one before"
    assert names(folder) == ["best", "checkpoint_000001", "damaged-checkpoint_000002"]
    assert store.best() is None


def test_of_equal_means_the_newest_is_the_best(save_at: Callable[..., bool]) -> None:
    save_at(1, mean=10.0)
    assert save_at(2, mean=10.0)


def test_before_100_episodes_the_newest_is_the_best(save_at: Callable[..., bool]) -> None:
    save_at(1, mean=10.0, episodes=99)
    assert save_at(2, mean=-20.0, episodes=99)


def test_a_mean_of_100_episodes_is_better_than_one_of_fewer(save_at: Callable[..., bool]) -> None:
    save_at(1, mean=-20.0)
    assert not save_at(2, mean=10.0, episodes=99)


def test_the_link_to_the_best_survives_a_move_of_the_run(
    tmp_path: Path, folder: Path, store: CheckpointStore, save_checkpoint: Save
) -> None:
    store.mark_if_best(save_checkpoint(folder, 1))
    moved = folder.rename(tmp_path / "moved")
    assert CheckpointStore(moved).best() == Checkpoint(moved / "checkpoint_000001")


# Finding


def test_a_checkpoints_folder_means_itself(folder: Path, save_checkpoint: Save) -> None:
    checkpoint = save_checkpoint(folder, 1)
    assert find_checkpoint(checkpoint.path) == checkpoint


@pytest.mark.parametrize("below", ["run", "run/checkpoints", "run/checkpoints/best"])
def test_a_runs_folder_means_its_best_checkpoint(
    tmp_path: Path, save_checkpoint: Save, below: str
) -> None:
    folder = tmp_path / "run" / "checkpoints"
    best = save_checkpoint(folder, 1)
    CheckpointStore(folder).mark_if_best(best)
    save_checkpoint(folder, 2)
    assert find_checkpoint(tmp_path / below) == best


def test_a_run_without_a_best_checkpoint_means_its_newest(
    tmp_path: Path, save_checkpoint: Save
) -> None:
    save_checkpoint(tmp_path / "checkpoints", 1)
    newest = save_checkpoint(tmp_path / "checkpoints", 2)
    assert find_checkpoint(tmp_path) == newest


def test_a_run_whose_best_checkpoint_is_gone_means_its_newest(
    tmp_path: Path, save_checkpoint: Save
) -> None:
    folder = tmp_path / "checkpoints"
    newest = save_checkpoint(folder, 1)
    (folder / "best").symlink_to("checkpoint_000009")
    assert find_checkpoint(tmp_path) == newest


@pytest.mark.parametrize("name", ["missing", "empty", "file"])
def test_a_path_without_a_checkpoint_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    path = tmp_path / name
    with pytest.raises(UserError, match=f"^{path}: no checkpoint "):
        find_checkpoint(path)


def test_with_evaluation_the_best_is_the_one_whose_evaluation_was_best(
    store: CheckpointStore, algorithm: FileAlgorithm
) -> None:
    experiment = Experiment(config=ImpalaSettings(evaluation_interval=2))
    returns = [-math.inf, 3.0, -math.inf, 8.0, -math.inf, 5.0, 8.0]
    marked = [
        store.mark_if_best(
            store.save(algorithm, experiment, Progress(iteration=at, evaluation_return=value))
        )
        for at, value in enumerate(returns)
    ]
    assert marked == [True, True, False, True, False, False, True]
