"""Inputs are read-only copies, and the user's own folder does not change."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from payload.environments.inputs import input_variables, remove_copies
from payload.environments.runtime_env import INPUTS, set_input_variables
from payload.errors import UserError

NOBODY = 65534


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of an ordinary user, who runs the test: root ignores the mode bits."""
    # The user may not be able to enter root's own; it is left and entered as root.
    monkeypatch.chdir("/")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        if os.geteuid() != 0:
            yield folder
        else:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
            try:
                yield folder
            finally:
                os.seteuid(0)


@pytest.fixture
def maps(folder: Path) -> Path:
    """A folder that the user can write to."""
    maps = folder / "maps"
    (maps / "more").mkdir(parents=True)
    (maps / "goal.txt").write_text("7")
    (maps / "more/walls.txt").write_text("#")
    return maps


def copy_of(maps: Path) -> Path:
    return Path(input_variables({"maps": str(maps)}, maps.parent / "copies")["VOLLEY_INPUT_MAPS"])


def test_a_copy_has_the_same_files(maps: Path) -> None:
    copy = copy_of(maps)
    assert (copy / "goal.txt").read_text() == "7"
    assert (copy / "more/walls.txt").read_text() == "#"
    assert (copy / "goal.txt").stat().st_mtime_ns == (maps / "goal.txt").stat().st_mtime_ns


def test_no_file_or_folder_of_a_copy_has_a_write_bit(maps: Path) -> None:
    copy = copy_of(maps)
    assert len(list(copy.rglob("*"))) == 3
    assert [path for path in (copy, *copy.rglob("*")) if path.stat().st_mode & 0o222] == []


@pytest.mark.parametrize(
    "change",
    [
        lambda copy: (copy / "goal.txt").write_text("8"),
        lambda copy: (copy / "goal.txt").unlink(),
        lambda copy: (copy / "new.txt").touch(),
        lambda copy: (copy / "more/new").mkdir(),
        lambda copy: (copy / "goal.txt").rename(copy / "more/goal.txt"),
        shutil.rmtree,
    ],
    ids=["write", "remove", "add a file", "add a folder", "rename", "remove all"],
)
def test_an_ordinary_user_cannot_change_a_copy(maps: Path, change: Callable[[Path], None]) -> None:
    with pytest.raises(PermissionError):
        change(copy_of(maps))


def test_the_users_folder_stays_as_it_is(maps: Path) -> None:
    before = {path: path.stat() for path in (maps, *maps.rglob("*"))}
    copy_of(maps)
    (maps / "goal.txt").open("a").close()
    assert {path: path.stat().st_mode for path in (maps, *maps.rglob("*"))} == {
        path: stat.st_mode for path, stat in before.items()
    }


def test_a_link_becomes_a_copy_of_the_file(maps: Path) -> None:
    (maps.parent / "large.bin").write_text("large")
    (maps / "link.bin").symlink_to(maps.parent / "large.bin")
    copy = copy_of(maps) / "link.bin"
    assert (copy.is_symlink(), copy.read_text()) == (False, "large")


def test_the_same_files_are_copied_once(maps: Path) -> None:
    first = copy_of(maps)
    inode = first.stat().st_ino
    assert copy_of(maps) == first
    assert first.stat().st_ino == inode


def test_changed_files_have_a_copy_of_their_own(maps: Path) -> None:
    before = copy_of(maps)
    (maps / "goal.txt").write_text("10")
    assert (copy_of(maps) / "goal.txt").read_text() == "10"
    assert (before / "goal.txt").read_text() == "7"


def test_two_runs_at_once_have_one_copy(maps: Path) -> None:
    for number in range(300):
        (maps / f"{number}.txt").write_text("0")
    with ThreadPoolExecutor(4) as pool:
        copies = set(pool.map(copy_of, [maps] * 8))
    (copy,) = copies
    assert len(list(copy.iterdir())) == 302


def test_what_a_killed_run_has_left_is_replaced(maps: Path) -> None:
    copy = copy_of(maps)
    half = copy.with_name(f".{copy.name}")
    remove_copies(half)
    copy.rename(half)
    (half / "more/walls.txt").chmod(0o600)
    (half / "more").chmod(0o700)
    (half / "more/walls.txt").unlink()
    assert (copy_of(maps) / "more/walls.txt").exists()
    assert not half.exists()


def test_a_file_that_cannot_be_copied_is_named_and_nothing_is_left(maps: Path) -> None:
    (maps / "private").touch(0)
    with pytest.raises(UserError, match=rf"^{maps}/private cannot be copied: Permission denied"):
        copy_of(maps)
    assert list((maps.parent / "copies").glob("[!.]*")) == []


def test_a_place_without_permission_is_named(maps: Path) -> None:
    maps.parent.chmod(0o500)
    place = maps.parent / "copies"
    with pytest.raises(UserError, match=rf"^{maps} cannot be copied to {place}: Permission denied"):
        copy_of(maps)
    maps.parent.chmod(0o700)


@pytest.fixture
def unpacked(maps: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Unpacks a working directory as Ray does, and makes this process a worker in it."""

    def unpacked(name: str) -> Path:
        package = maps.parent / "runtime_resources/working_dir_files" / name
        shutil.copytree(maps, package / INPUTS / "maps")
        monkeypatch.chdir(package)
        monkeypatch.setenv("VOLLEY_INPUT_MAPS", "before")
        set_input_variables()
        return package

    return unpacked


def test_a_worker_of_ray_has_a_copy_too(unpacked: Callable[[str], Path]) -> None:
    unpacked("_ray_pkg_1")
    copy = Path(os.environ["VOLLEY_INPUT_MAPS"])
    assert (copy / "goal.txt").read_text() == "7"
    with pytest.raises(PermissionError):
        (copy / "goal.txt").write_text("8")


def test_ray_can_remove_a_working_directory(unpacked: Callable[[str], Path]) -> None:
    package = unpacked("_ray_pkg_1")
    shutil.rmtree(package)
    assert not package.exists()


def test_copies_of_a_removed_working_directory_are_removed(
    unpacked: Callable[[str], Path],
) -> None:
    package = unpacked("_ray_pkg_1")
    old = Path(os.environ["VOLLEY_INPUT_MAPS"])
    shutil.rmtree(package)
    unpacked("_ray_pkg_2")
    assert not old.exists()
    assert Path(os.environ["VOLLEY_INPUT_MAPS"]).exists()
