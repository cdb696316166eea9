"""The second figure of `volley bench --learn`: games that one policy plays to their end.

Papers on DQN state such a mean. The mean of the last 100 training episodes is not of one policy but
of all that played them, and lags behind the newest.
"""

from __future__ import annotations

from dataclasses import dataclass

from payload.run.checkpoints import CheckpointStore

AT_CURRENT_RETURN = 15.0
"""The first checkpoint with this current return plays."""
NUM_GAMES = 100


@dataclass(frozen=True)
class PlayedGames:
    env_steps: int
    """Environment steps of training after which the policy was saved."""
    return_mean: float


def play_games(checkpoints: CheckpointStore, seed: int) -> PlayedGames | None:
    """Plays NUM_GAMES with the likeliest actions of a run's first good policy; None without one.

    Args:
        checkpoints: Of the run; all that were saved must still be there.
        seed: Of the games' starts.
    """
    from payload.run.evaluate import evaluate  # Imports torch.

    for checkpoint in reversed(checkpoints.newest_first()):
        progress = checkpoint.progress()
        if progress.best_current_return >= AT_CURRENT_RETURN:
            return PlayedGames(progress.env_steps, evaluate(checkpoint, NUM_GAMES, seed=seed).mean)
    return None
