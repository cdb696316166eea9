"""Writes an experiment of an older RLlib as a file of today."""

from dataclasses import dataclass
from pathlib import Path

from payload.errors import UserError
from payload.experiment.file import read_file, to_yaml
from payload.experiment.machine_needs import PATHS
from payload.experiment.merge import merge
from payload.experiment.problems import FATAL
from payload.experiment.read import built, left_out_of


@dataclass(frozen=True)
class Converted:
    """An experiment's file, converted to today's names."""

    text: str
    notes: list[str]
    """A line for each key that is translated or ignored."""
    left_out: list[str]
    """A line for each key that is missing in the text, although it changes what is learned."""


def convert(path: Path, keep_paths: bool = True) -> Converted:
    """Reads a file of `rllib train` or of volley, and writes it under today's names.

    Keys without an equivalent become comments at the top of the text.

    Args:
        keep_paths: Whether folders stay relative to the file, or become absolute.

    Raises:
        UserError: The file cannot be read, or its algorithm or environment has no equivalent.
    """
    merged = merge(path)
    left_out = left_out_of(merged)
    if fatal := [problem.text for problem in left_out if problem.name in FATAL]:
        raise UserError(f"{path}: cannot be converted: {'; '.join(fatal)}")
    experiment = built(merged)
    if keep_paths:
        written = {key: value for key, value in read_file(path).items() if key in PATHS}
        experiment = experiment.model_copy(update=written)
    lines = list(dict.fromkeys(problem.text for problem in left_out))
    notes = list(dict.fromkeys(merged.notes))
    comments = [f"# Left out: {line}\n" for line in lines] + [f"# {note}\n" for note in notes]
    return Converted("".join(comments) + to_yaml(experiment), notes, lines)
