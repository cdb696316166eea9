"""Event files as TensorBoard itself reads them."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Returns steps and values of each metric of the run in a folder."""
    run = EventAccumulator(str(folder))
    run.Reload()
    return {
        name: [(point.step, point.value) for point in run.Scalars(name)]
        for name in run.Tags()["scalars"]
    }
