"""What travels to a cluster: the payload, and the files that an experiment names, as tar files."""

import io
import re
import tarfile
import tokenize
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePosixPath

import payload
from payload.experiment import LEFT_OUT, Experiment, read_experiment, to_yaml

MAX_BYTES = 20 * 2**20
"""Packing this much takes seconds, and a run command has room for a small part of it."""
MAX_NAME = 40
SOURCE, INPUTS, REQUIREMENTS = "source", "inputs", "requirements.txt"
"""Names in the training's folder on the head."""
STAYS = (
    "payload/parcel.py",
    "payload/experiment/document.py",
    "payload/commands/run_script.py",
    "payload/script/",
)
"""Only a laptop uses these files and folders, so they are not sent."""


@dataclass(frozen=True)
class ExperimentFiles:
    """An experiment as it is sent to the head."""

    experiment: bytes
    """The experiment file; its paths are the head's."""
    archive: bytes
    """A tar file of what these paths name; empty if there are none."""


def experiment_name(path: Path) -> str:
    """Returns the name under which the head keeps an experiment: its file's, in a-z, 0-9 and -."""
    name = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    return name[:MAX_NAME].rstrip("-") or "experiment"


def experiment_files(path: Path) -> ExperimentFiles:
    """Reads an experiment file and what it names; the same content gives the same bytes.

    Raises:
        UserError: The experiment cannot be read.
        OSError: A folder or file that it names cannot be read.
    """
    experiment = read_experiment(path).experiment
    members = dict(_members(experiment))
    if not members:
        return ExperimentFiles(path.read_bytes(), b"")
    own = {
        "source_directory": experiment.source_directory and SOURCE,
        "pip_requirements_file": experiment.pip_requirements_file and REQUIREMENTS,
        "inputs": {name: f"{INPUTS}/{name}" for name in experiment.inputs},
    }
    given = {key: value for key, value in own.items() if key in experiment.model_fields_set}
    return ExperimentFiles(to_yaml(experiment.model_copy(update=given)).encode(), _archive(members))


def archive(files: Mapping[str, bytes], executable: Container[str] = ()) -> bytes:
    """Returns a tar file of these files, in their order: the same bytes for the same content.

    Args:
        files: Content by place in the archive.
        executable: Places of the files that may be executed.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755 if name in executable else 0o644
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def sizes(experiment: Experiment) -> dict[Path, int]:
    """Returns the bytes of each file to be sent, the largest first."""
    found = {path: path.stat().st_size for _, path in _members(experiment)}
    return dict(sorted(found.items(), key=lambda item: item[1], reverse=True))


def largest(found: dict[Path, int]) -> str:
    """Returns the three largest files, in words."""
    return ", ".join(f"{path} {size:,}" for path, size in list(found.items())[:3])


def _members(experiment: Experiment) -> Iterator[tuple[str, Path]]:
    """Yields each file with its place in the archive."""
    if experiment.source_directory is not None:
        yield from _below(Path(experiment.source_directory), SOURCE)
    for name, folder in experiment.inputs.items():
        yield from _below(Path(folder), f"{INPUTS}/{name}")
    if experiment.pip_requirements_file is not None:
        yield REQUIREMENTS, Path(experiment.pip_requirements_file)


def _below(folder: Path, place: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if path.is_file() and LEFT_OUT.isdisjoint(below.parts):
            yield str(PurePosixPath(place, *below.parts)), path


def _archive(members: dict[str, Path]) -> bytes:
    content = {name: path.read_bytes() for name, path in members.items()}
    return archive(content, {n for n, path in members.items() if path.stat().st_mode & 0o100})


def payload_archive() -> bytes:
    """Returns a tar file of the payload's modules; the same code gives the same bytes.

    It is unpacked on a machine, not installed.
    """
    package = Path(payload.__file__).parent
    paths = sorted(package.rglob("[!.]*.py"))
    modules = {path.relative_to(package.parent).as_posix(): path for path in paths}
    travelling = {name: path for name, path in modules.items() if not name.startswith(STAYS)}
    return archive(
        {name: without_words(path.read_text("utf-8")).encode() for name, path in travelling.items()}
    )


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
