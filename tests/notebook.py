"""Runs a notebook of examples/ from beginning to end, with a kernel of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.project import ROOT

EXAMPLES = ROOT / "examples"
CELL_S = 300


class Executed:
    """A notebook after its last cell."""

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str]) -> None:
        """Runs the notebook; raises CellExecutionError if a cell raises.

        Args:
            folder: The kernel's, and that of its own files.
        """
        self.cells = nbformat.read(EXAMPLES / name, as_version=4)
        own = {"IPYTHONDIR": f"{folder}/ipython", "JUPYTER_RUNTIME_DIR": f"{folder}/runtime"}
        client = NotebookClient(
            self.cells,
            timeout=CELL_S,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute(env={**environment, **own})

    def outputs(self, source: str) -> dict[str, Any]:
        """Returns what the cell with this source shows, by type."""
        (cell,) = [cell for cell in self.cells.cells if source in cell.source]
        return dict(_by_type(cell.outputs))


def _by_type(outputs: list[Any]) -> Iterator[tuple[str, Any]]:
    for output in outputs:
        if output.output_type == "stream":
            yield output.name, output.text
        else:
            yield from output.data.items()
