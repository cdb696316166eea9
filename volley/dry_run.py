"""`volley submit --dry-run`: what would travel, what stays behind, and what the cluster reads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from payload.experiment.script import Script
from payload.parcel import travels
from volley.submission import Submission
from volley.tables import show

SHOWN = 30
"""Files that are shown, the largest first; --json has all."""


@dataclass(frozen=True)
class DryRun:
    """What a submit would send."""

    submission: Submission
    experiment: str
    """The file that the cluster reads."""
    size: int
    """Bytes to send, with the payload."""
    files: dict[Path, int]
    """Bytes of the files that it names."""
    left: dict[Path, str]
    """What stays behind, and why."""

    @classmethod
    def of(cls, submission: Submission) -> "DryRun":
        travelling = travels(submission.read)
        paths = list(travelling.files.values())
        if isinstance(submission.read, Script):
            entry = Path(submission.read.entry_script)
            paths += [entry] * (entry not in paths)
        return cls(
            submission,
            submission.files().experiment.decode(),
            submission.archive().size,
            {path: path.stat().st_size for path in paths},
            travelling.left,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.submission.name,
            "bytes": self.size,
            "files": [{"path": str(path), "bytes": size} for path, size in self.files.items()],
            "left": [{"path": str(path), "why": why} for path, why in self.left.items()],
            "notes": self.submission.notes,
            "experiment": self.experiment,
        }

    def parts(self) -> list[RenderableType]:
        """Returns what people read."""
        title = f"{self.submission.name}: {self.size / 2**20:,.1f} MiB would be sent"
        table = Table("path", "bytes, or why it stays behind", title=None)
        largest = sorted(self.files.items(), key=lambda item: item[1], reverse=True)
        for path, size in largest[:SHOWN]:
            table.add_row(str(path), f"{size:,}")
        if len(largest) > SHOWN:
            table.add_row(f"and {len(largest) - SHOWN} smaller files", "")
        for path, why in self.left.items():
            table.add_row(str(path), f"stays: {why}")
        files = [table] if table.row_count else ["It names no files."]
        read = ["", "The cluster reads:", self.experiment.rstrip()]
        return [title, *files, *self.submission.notes, *read, ""]


def show_dry_run(submissions: Sequence[Submission], as_json: bool) -> int:
    """Shows what a submit would send; connects to nothing."""
    runs = [DryRun.of(submission) for submission in submissions]
    if as_json:
        described = [run.as_json() for run in runs]
        answer = described[0] if len(runs) == 1 else {"experiments": described}
        print(json.dumps(answer, indent=2))
        return 0
    show(False, {}, *(part for run in runs for part in run.parts()), "Nothing was sent.")
    return 0
