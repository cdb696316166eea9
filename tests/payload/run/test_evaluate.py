"""What `evaluate` and its video play, and what they do with a checkpoint that they cannot."""

from __future__ import annotations

import pickle
import shutil
from fractions import Fraction
from pathlib import Path

import av
import pytest
import yaml

from payload.errors import UserError
from payload.run.checkpoints import EXPERIMENT_FILE, Checkpoint, find_checkpoint
from payload.run.evaluate import evaluate, record_video
from payload.run.policy import Policy
from tests.payload.impala.test_parity import CHECKPOINT

pytestmark = pytest.mark.slow


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


OTHER_GAMES = {
    "another frame skip": {"frame_skip": 3, "max_episode_frames": 900},
    "sticky actions": {"repeat_action_probability": 0.25, "max_episode_frames": 1200},
    "fewer no-ops": {"noop_max": 5, "max_episode_frames": 1200},
    "short episodes": {"max_episode_frames": 402},
}
"""By their env_config."""


@pytest.fixture(params=OTHER_GAMES)
def other_game(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint of an experiment with its own env_config."""
    file = checkpoint.path / EXPERIMENT_FILE
    raw = yaml.safe_load(file.read_text())
    raw["config"]["env_config"] = OTHER_GAMES[request.param]
    file.write_text(yaml.safe_dump(raw))
    return checkpoint


def test_the_video_shows_the_game_that_is_evaluated(other_game: Checkpoint, tmp_path: Path) -> None:
    played = evaluate(other_game, episodes=1, seed=7)
    shown = record_video(other_game, tmp_path / "video.mp4", seed=7)
    assert shown == (played.returns[0], played.lengths[0])


def test_the_video_has_a_picture_for_each_step(other_game: Checkpoint, tmp_path: Path) -> None:
    _, length = record_video(other_game, tmp_path / "video.mp4")
    with av.open(str(tmp_path / "video.mp4")) as video:
        assert video.streams.video[0].frames == length


def test_the_video_runs_at_twice_the_games_speed(other_game: Checkpoint, tmp_path: Path) -> None:
    record_video(other_game, tmp_path / "video.mp4")
    frame_skip = other_game.experiment().config.env_config.get("frame_skip", 4)
    with av.open(str(tmp_path / "video.mp4")) as video:
        assert video.streams.video[0].average_rate == Fraction(2 * 60, frame_skip)
