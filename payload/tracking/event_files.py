"""A run's metrics as TensorBoard event files, in the run's folder."""

from collections.abc import Iterable
from pathlib import Path


class EventFiles:
    """Writes metrics under MLflow's names, on the axis of environment steps.

    Each start of a run adds a file. TensorBoard shows a run that continues from a checkpoint as one
    curve: it drops what an earlier start wrote after that checkpoint.
    """

    def __init__(
        self,
        folder: Path,
        recorded: Iterable[tuple[int, dict[str, float]]] = (),
        first_step: int = 0,
    ) -> None:
        """
        Args:
            recorded: Environment steps and metrics of each iteration up to the checkpoint. They are
                written if the folder has no event files yet.
            first_step: Environment steps after the checkpoint.
        """
        from torch.utils.tensorboard import SummaryWriter

        new = not any(folder.glob("*.tfevents.*"))
        self._writer = SummaryWriter(str(folder), purge_step=first_step)
        self._first_step = 0
        for env_steps, values in recorded if new else []:
            self.log_metrics(values, env_steps)
        self._first_step = first_step

    def log_metrics(self, values: dict[str, float], env_steps: int) -> None:
        """Writes the values of an iteration to disk, unless its steps have some already.

        Raises:
            OSError: The disk is full.
        """
        if env_steps < self._first_step:  # Nothing was sampled since the checkpoint.
            return
        for name, value in values.items():
            self._writer.add_scalar(name, value, env_steps)
        self._writer.flush()
