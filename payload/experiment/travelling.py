"""Which files of a folder travel to other machines: one rule for a laptop, a cluster and the head.

Links within the folder are followed. What stays behind: caches and results, what may have secrets,
and of a source_directory what .gitignore names. A file .volleyignore in .gitignore's format is
stronger than all of that: `!name` in it lets something travel. It travels too, and tells a machine
of a cluster, which has no pathspec, that everything beside it was chosen before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from payload.errors import UserError

LEFT_OUT = frozenset(
    {"__pycache__", ".git", ".venv", "venv"}
    | {"results", ".packages", ".inputs"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Names of files and folders that stay behind."""
MAY_BE_PACKAGES = {"results", "venv"}
"""These travel if they have an __init__.py."""
SECRETS = (
    *(".env", ".env.*", ".envrc", ".netrc", ".pypirc", ".git-credentials"),
    *(".ssh", ".aws", ".azure", ".gnupg", ".kube", "id_rsa", "id_ecdsa", "id_ed25519"),
)
"""Patterns of names that passwords, tokens and keys have."""
GIT, OWN = ".gitignore", ".volleyignore"
Rule = Callable[[str], bool | None]
"""Whether a path below a folder is ignored; None if nothing is said of it. Folders end with /."""


@dataclass
class Travelling:
    """The files of one folder."""

    files: dict[PurePosixPath, Path] = field(default_factory=dict)
    """Those that travel, in their order, by their place below the folder."""
    left: dict[PurePosixPath, str] = field(default_factory=dict)
    """Files and folders that stay behind, and why."""


def travelling(folder: Path, git: bool = False, outside: bool = False) -> Travelling:
    """Returns what travels of a folder.

    Args:
        git: Whether .gitignore counts: for code, not for data, which git seldom has.
        outside: Whether links out of the folder are followed: to a copy on the same machine.

    Raises:
        UserError: A link leads out of the folder: what it names would travel, keys for example. Or
            this user may not read a file.
        OSError: A folder cannot be read.
    """
    root = folder.resolve()
    result, rules = Travelling(), Rules(root, git)
    for path, reason in _entries(folder, None if outside else root, rules, [root]):
        place = PurePosixPath(path.relative_to(folder))
        if reason:
            result.left[place] = reason
        else:
            result.files[place] = path
    result.files = dict(sorted(result.files.items()))
    return result


def _entries(
    folder: Path, root: Path | None, rules: Rules, above: list[Path]
) -> Iterator[tuple[Path, str]]:
    """Yields each file with "", and with the reason what stays behind.

    Args:
        root: What no link may lead out of; None for any link.
        above: The folder and those that contain it, without links.
    """
    rules.enter(above[-1])
    for path in sorted(folder.iterdir()):
        # Rules are for names in this folder, not for what a link leads to.
        if reason := rules.reason(above[-1] / path.name):
            yield path, reason
            continue
        real = path.resolve()
        if path.name == GIT:
            continue
        if path.is_symlink() and not path.exists():
            yield path, "a link to nothing"
        elif root is not None and not real.is_relative_to(root):
            raise UserError(
                f"{path} is a link to {real}, outside the folder, so it does not travel. Next: "
                f"copy it into the folder, remove the link, or name it in {folder / OWN}"
            )
        elif not os.access(path, os.R_OK):
            raise UserError(
                f"{path}: cannot be read, so it does not travel. Next: change its permissions, or "
                f"name it in {folder / OWN}"
            )
        elif real in above:
            yield path, "a link to a folder that contains it"
        elif path.is_dir():
            yield from _entries(path, root, rules, [*above, real])
        else:
            yield path, "" if path.is_file() else "not a regular file"


class Rules:
    """What stays behind, by its name or by the files of rules in its folder and in those above."""

    def __init__(self, root: Path, git: bool) -> None:
        """
        Args:
            root: The folder that travels; .gitignore of its repository counts as well.
            git: Whether .gitignore counts.
        """
        self._own: dict[Path, Rule] = {}
        self._git: dict[Path, Rule] = {}
        self._names = {OWN: self._own, **({GIT: self._git} if git else {})}
        for folder in _repository(root) if git else []:
            _read(folder / GIT, self._git)
        # Somebody who names an ignored folder means it.
        if _ignores(self._git, root, is_folder=True):
            self._git.clear()

    def enter(self, folder: Path) -> None:
        """Reads the rules of a folder, whose contents follow."""
        for name, rules in self._names.items():
            _read(folder / name, rules)

    def reason(self, path: Path) -> str:
        """Returns why a file or a folder stays behind, "" if it does not."""
        is_folder = path.is_dir()
        if (own := _ignores(self._own, path, is_folder)) is not None:
            return f"named in {OWN}" if own else ""
        name = path.name
        is_package = name in MAY_BE_PACKAGES and (path / "__init__.py").is_file()
        if name in LEFT_OUT and not is_package:
            return "never travels"
        if any(fnmatch(name, pattern) for pattern in SECRETS):
            return "may have secrets"
        return f"named in {GIT}" if _ignores(self._git, path, is_folder) else ""


def _read(file: Path, rules: dict[Path, Rule]) -> None:
    """Adds a file of rules, if it is there."""
    if not file.is_file():
        return
    if find_spec("pathspec") is None:
        if file.name == GIT:
            raise UserError(f"{file}: is read with pathspec. Next: pip install pathspec")
        rules[file.parent] = lambda _: False
        return
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(file.read_text("utf-8", "replace").splitlines())
    except ValueError as error:
        raise UserError(f"{file}: {error}") from None
    rules[file.parent] = lambda path: spec.check_file(path).include


def _ignores(rules: dict[Path, Rule], path: Path, is_folder: bool) -> bool | None:
    """Returns whether the innermost rule for a path ignores it; None without a rule for it."""
    for folder in path.parents:
        if folder in rules:
            below = path.relative_to(folder).as_posix()
            verdict = rules[folder](f"{below}/" if is_folder else below)
            if verdict is not None:
                return verdict
    return None


def _repository(root: Path) -> list[Path]:
    """Returns the folders above `root` up to that of its git repository; none without one."""
    above = list(root.parents)
    if (root / ".git").exists():
        return []
    count = next((i for i, folder in enumerate(above) if (folder / ".git").exists()), -1)
    return above[: count + 1]
