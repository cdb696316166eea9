"""How a run's checkpoints are named: the standard library only, for whoever lists them."""

from pathlib import PurePath

PREFIX = "checkpoint_"


def by_iteration(checkpoint: PurePath) -> tuple[int, str]:
    """Orders folders of checkpoints; from a million iterations on they have longer names."""
    return len(checkpoint.name), checkpoint.name
