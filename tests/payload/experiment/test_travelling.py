"""Which files of a folder travel: links are followed, secrets and ignored files stay behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import payload.experiment.travelling
from payload.errors import UserError
from payload.experiment.travelling import travelling


def write(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return folder


def travels(folder: Path, git: bool = True) -> list[str]:
    return [str(place) for place in travelling(folder, git).files]


def left(folder: Path, git: bool = True) -> dict[str, str]:
    return {str(place): reason for place, reason in travelling(folder, git).left.items()}


def test_a_package_that_is_a_link_travels_under_both_names(tmp_path: Path) -> None:
    write(tmp_path, "new/maze/__init__.py", "new/maze/deep/map.txt")
    (tmp_path / "maze").symlink_to("new/maze")
    files = travelling(tmp_path).files
    assert list(map(str, files)) == [
        *("maze/__init__.py", "maze/deep/map.txt"),
        *("new/maze/__init__.py", "new/maze/deep/map.txt"),
    ]
    assert all(path.is_file() for path in files.values())


def test_what_its_user_may_not_read_is_refused_unless_it_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.py", "of-root/b.py")
    # Tests may run as root, who may read all.
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name != "of-root")
    with pytest.raises(UserError, match=r"/of-root: cannot be read, so it does not travel\. Next"):
        travelling(tmp_path)
    (tmp_path / ".volleyignore").write_text("of-root\n")
    assert travels(tmp_path) == [".volleyignore", "a.py"]


def test_a_link_to_a_folder_above_it_ends(tmp_path: Path) -> None:
    write(tmp_path, "maze/a.py")
    (tmp_path / "maze/again").symlink_to("..")
    assert travels(tmp_path) == ["maze/a.py"]
    assert left(tmp_path) == {"maze/again": "a link to a folder that contains it"}


def test_a_link_out_of_the_folder_is_refused_unless_it_stays_behind(tmp_path: Path) -> None:
    folder = write(tmp_path / "walk", "a.py")
    write(tmp_path, "common/b.py")
    (folder / "common").symlink_to("../common")
    with pytest.raises(UserError, match=r"walk/common is a link to .*/common, outside the folder"):
        travelling(folder)
    (folder / ".volleyignore").write_text("common\n")
    assert travels(folder) == [".volleyignore", "a.py"]
    (folder / ".volleyignore").unlink()
    assert [*map(str, travelling(folder, outside=True).files)] == ["a.py", "common/b.py"]


def test_secrets_caches_and_results_stay_behind_and_are_named(tmp_path: Path) -> None:
    write(tmp_path, "a.py", ".env", ".env.prod", "sub/.env", ".aws/credentials", "id_ed25519")
    write(tmp_path, "__pycache__/a.pyc", "results/runs/x", ".git/config", "venv/bin/python")
    assert travels(tmp_path) == ["a.py"]
    secret = dict.fromkeys((".env", ".env.prod", "sub/.env", ".aws", "id_ed25519"), "secrets")
    never = dict.fromkeys(("__pycache__", "results", ".git", "venv"), "never travels")
    assert left(tmp_path) == {
        **{name: f"may have {word}" for name, word in secret.items()},
        **never,
    }


def test_a_package_called_results_travels(tmp_path: Path) -> None:
    assert travels(write(tmp_path, "results/__init__.py")) == ["results/__init__.py"]


def test_pipes_and_sockets_stay_behind(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "lost").symlink_to("nowhere")
    assert travels(tmp_path) == ["a.py"]
    assert left(tmp_path) == {"pipe": "not a regular file", "lost": "a link to nothing"}


@pytest.mark.parametrize("has_pathspec", [True, False])
def test_own_rules_are_stronger_and_travel_so_that_the_head_does_the_same(
    tmp_path: Path, has_pathspec: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.so", "b.py", ".env", "notes.md")
    (tmp_path / ".gitignore").write_text("*.so\n")
    (tmp_path / ".volleyignore").write_text("!*.so\n!.env\n*.md\n")
    sent = travels(tmp_path)
    assert sent == [".env", ".volleyignore", "a.so", "b.py"]
    arrived = tmp_path / "head"
    for name in sent:
        (arrived / name).parent.mkdir(exist_ok=True)
        (arrived / name).write_bytes((tmp_path / name).read_bytes())
    if not has_pathspec:  # As the machines of a cluster.
        monkeypatch.setattr(payload.experiment.travelling, "find_spec", lambda _: None)
    assert travels(arrived) == sent


def test_gitignore_where_it_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload.experiment.travelling, "find_spec", lambda _: None)
    write(tmp_path, ".gitignore", "a.py")
    assert travels(tmp_path, git=False) == ["a.py"]
    with pytest.raises(UserError, match=r"\.gitignore: is read with pathspec\. Next: pip install"):
        travelling(tmp_path, git=True)


def test_gitignore_does_not_count_for_data(tmp_path: Path) -> None:
    write(tmp_path, "frames.npy", "other.txt")
    (tmp_path / ".gitignore").write_text("/frames.npy\n")  # As DVC writes it.
    assert travels(tmp_path, git=False) == ["frames.npy", "other.txt"]
    assert travels(tmp_path) == ["other.txt"]
    assert left(tmp_path) == {"frames.npy": "named in .gitignore"}


def test_a_folder_that_git_ignores_travels_where_it_is_named_itself(tmp_path: Path) -> None:
    write(tmp_path, ".git/config", "build/a.py")
    (tmp_path / ".gitignore").write_text("build/\n")
    assert travels(tmp_path / "build") == ["a.py"]


RULES = {
    ".gitignore": "*.log\n/data\nbuild/\n!keep.log\ndocs/**/*.tmp\n\\#odd\n",
    "walk/.gitignore": "# a comment\n*.bin\n!small.bin\nnested/deep/\n",
    "walk/nested/.gitignore": "!*.log\n",
}
FILES = (
    *("a.log", "keep.log", "data/x", "walk/data/x", "build/x", "walk/build/x", "walk/small.bin"),
    *("docs/a/b/c.tmp", "docs/c.tmp", "walk/large.bin", "walk/nested/b.log", "walk/nested/deep/x"),
    *("#odd", "walk/a.py", "walk/nested/e/f.log", "walk/b.log", "build.py"),
)


@pytest.mark.slow
@pytest.mark.parametrize("below", ["", "walk"])
def test_gits_own_answer_is_the_same(tmp_path: Path, below: str) -> None:
    write(tmp_path, *FILES)
    for name, text in RULES.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"],
        cwd=tmp_path / below,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    wanted = sorted(name.strip('"') for name in listed if not name.endswith(".gitignore"))
    assert sorted(travels(tmp_path / below)) == wanted
