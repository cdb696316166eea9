"""What travels to a cluster: the payload, and the files that an experiment names, as tar files."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import payload
from payload.archive import Archive
from payload.experiment import Experiment, MachineNeeds, UserError, read_experiment, script, to_yaml
from payload.experiment.travelling import travelling

MAX_BYTES = 20 * 2**20
"""Packing this much takes seconds, and a run command has room for a small part of it."""
MAX_NAME = 40
SOURCE, INPUTS = "source", "inputs"
REQUIREMENTS, CONDA = "requirements.txt", "environment.yml"
"""Names in the training's folder on the head."""
STAYS = (
    "payload/archive.py",
    "payload/parcel.py",
    "payload/commands/convert.py",
    "payload/experiment/convert.py",
    "payload/experiment/document.py",
)
"""Only a laptop uses these files, so they are not sent."""


@dataclass(frozen=True)
class ExperimentFiles:
    """An experiment as it is sent to the head."""

    experiment: bytes
    """The experiment file; its paths are the head's."""
    archive: Archive = field(default_factory=Archive)
    """What these paths name; empty if there are none."""


@dataclass(frozen=True)
class Travels:
    """What travels of the files and folders that an experiment or a script names."""

    files: dict[str, Path]
    """By the place in the archive."""
    left: dict[Path, str]
    """What stays behind, and why."""


def experiment_name(path: Path) -> str:
    """Returns the name under which the head keeps an experiment: its file's, in a-z, 0-9 and -."""
    name = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    return name[:MAX_NAME].rstrip("-") or "experiment"


def experiment_files(path: Path) -> ExperimentFiles:
    """Reads an experiment file and what it names; the same content gives the same bytes.

    Raises:
        UserError: The experiment cannot be read, or what it names does not travel.
        OSError: A folder or file that it names cannot be read.
    """
    files = files_of(read_experiment(path).experiment)
    return files if files.archive else ExperimentFiles(path.read_bytes())


def files_of(experiment: Experiment) -> ExperimentFiles:
    """Returns an experiment under today's names, and what it names, as `experiment_files`."""
    named = experiment.model_copy(update=_paths_on_the_head(experiment))
    return ExperimentFiles(to_yaml(named).encode(), Archive(travels(experiment).files))


def script_files(submitted: script.Script) -> ExperimentFiles:
    """Returns a script as it is sent: its file alone, or the whole of its source_directory.

    Raises:
        UserError: It imports a file that would stay behind.
    """
    entry = Path(submitted.entry_script)
    source = Path(submitted.source_directory or entry.parent)
    place = entry.relative_to(source).as_posix()
    if submitted.source_directory is None:
        _check_imports(entry)
    paths = {**_paths_on_the_head(submitted), "source_directory": SOURCE, "entry_script": place}
    members = {**travels(submitted).files, f"{SOURCE}/{place}": entry}
    text = script.to_yaml(submitted.model_copy(update=paths))
    return ExperimentFiles(text.encode(), Archive(members))


def sizes(needs: MachineNeeds) -> dict[Path, int]:
    """Returns the bytes of each file to be sent, the largest first."""
    by_path = {path: path.stat().st_size for path in travels(needs).files.values()}
    return dict(sorted(by_path.items(), key=lambda item: item[1], reverse=True))


def largest(found: dict[Path, int]) -> str:
    """Returns the three largest files, in words."""
    return ", ".join(f"{path} {size:,}" for path, size in list(found.items())[:3])


def travels(needs: MachineNeeds) -> Travels:
    """Returns what travels of the files and folders that it names, and what stays behind.

    Raises:
        UserError: A link leads out of a folder.
        OSError: A folder cannot be read.
    """
    files: dict[str, Path] = {}
    left: dict[Path, str] = {}
    folders = {f"{INPUTS}/{name}": folder for name, folder in needs.inputs.items()}
    if needs.source_directory is not None:
        folders = {SOURCE: needs.source_directory, **folders}
    for place, folder in folders.items():
        part = travelling(Path(folder), git=place == SOURCE)
        files |= {f"{place}/{below}": path for below, path in part.files.items()}
        left |= {Path(folder, below): reason for below, reason in part.left.items()}
    if needs.pip_requirements_file is not None:
        files[REQUIREMENTS] = Path(needs.pip_requirements_file)
    if needs.conda_dependencies_file is not None:
        files[CONDA] = Path(needs.conda_dependencies_file)
    return Travels(files, left)


def _paths_on_the_head(needs: MachineNeeds) -> dict[str, Any]:
    """Returns the keys that have paths, with the head's paths."""
    paths = {
        "source_directory": needs.source_directory and SOURCE,
        "pip_requirements_file": needs.pip_requirements_file and REQUIREMENTS,
        "conda_dependencies_file": needs.conda_dependencies_file and CONDA,
        "inputs": {name: f"{INPUTS}/{name}" for name in needs.inputs},
    }
    return {key: value for key, value in paths.items() if key in needs.model_fields_set}


def _check_imports(entry: Path) -> None:
    """Raises UserError if a script imports a module from its own folder."""
    try:
        tree = ast.parse(entry.read_bytes())
    except SyntaxError as error:
        raise UserError(f"{entry}:{error.lineno}: {error.msg}") from None
    except ValueError:
        raise UserError(f"{entry}: is not Python") from None
    for name in sorted(set(_imports(tree))):
        beside = entry.parent / name
        if name == entry.stem:
            raise UserError(f"{entry}: hides the module {name}, which it imports; rename it")
        if beside.with_suffix(".py").is_file() or any(beside.glob("*.py")):
            raise UserError(
                f"{entry}: imports {name}, which lies beside it and would stay behind. Next: add "
                f"--source-directory {entry.parent}"
            )


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yields the first part of each module's name, not of relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module.partition(".")[0]


def payload_archive() -> bytes:
    """Returns a tar file of the payload's modules; the same code gives the same bytes.

    It is unpacked on a machine, not installed.
    """
    package = Path(payload.__file__).parent
    paths = sorted(package.rglob("[!.]*.py"))
    places = {path.relative_to(package.parent).as_posix(): path for path in paths}
    modules = {name: path for name, path in places.items() if name not in STAYS}
    return Archive(
        {name: without_words(path.read_text("utf-8")).encode() for name, path in modules.items()}
    ).content()


@cache
def without_words(source: str) -> str:
    """Returns Python without comments and docstrings, every statement on the line where it was."""
    lines = source.splitlines()
    begins = True
    for token, after in pairwise(tokenize.generate_tokens(io.StringIO(source).readline)):
        (first, column), (last, _) = token.start, token.end
        if token.type == tokenize.COMMENT:
            lines[first - 1] = lines[first - 1][:column].rstrip()
        elif token.type == tokenize.STRING and begins and after.type == tokenize.NEWLINE:
            # A class may consist of its docstring.
            lines[first - 1 : last] = [" " * column + '""', *[""] * (last - first)]
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            begins = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    return "\n".join(lines) + "\n"
