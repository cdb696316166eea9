"""What `evaluate` does with a checkpoint that it cannot play."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

from payload.errors import UserError
from payload.run.checkpoints import Checkpoint, find_checkpoint
from payload.run.evaluate import Policy
from tests.payload.impala.test_parity import CHECKPOINT


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A checkpoint that may be spoilt."""
    return find_checkpoint(shutil.copytree(CHECKPOINT, tmp_path / "pong"))


def test_a_truncated_checkpoint_is_named(checkpoint: Checkpoint) -> None:
    state = checkpoint.module / "module_state.pkl"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(UserError, match=f"{checkpoint.path}: cannot be read"):
        Policy(checkpoint, explore=False)


def test_a_checkpoint_of_another_network_is_named(checkpoint: Checkpoint) -> None:
    state = checkpoint.module / "module_state.pkl"
    weights = pickle.loads(state.read_bytes())
    weights["policy.weight"] = weights["policy.weight"][:, 1:]
    state.write_bytes(pickle.dumps(weights))
    with pytest.raises(UserError, match=f"{checkpoint.path}: cannot be read"):
        Policy(checkpoint, explore=False)
