"""What `evaluate` and its video play, and how they refuse a checkpoint that they cannot read."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import pytest
import yaml

from payload.errors import UserError
from payload.run.checkpoint_policy import Policy
from payload.run.checkpoints import EXPERIMENT_FILE, Checkpoint, find_checkpoint
from payload.run.evaluate import evaluate
from payload.run.video import record_video
from payload.run.window import watch
from tests.payload.impala.test_parity import CHECKPOINT

pytestmark = pytest.mark.slow


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A copy of a checkpoint, which a test may damage."""
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


OTHER_GAMES: dict[str, dict[str, float]] = {
    "another frame skip": {"frame_skip": 3, "max_episode_frames": 900},
    "sticky actions": {"repeat_action_probability": 0.25, "max_episode_frames": 1200},
    "fewer no-ops": {"noop_max": 5, "max_episode_frames": 1200},
    "short episodes": {"max_episode_frames": 402},
}
"""Games that differ in their env_config."""


@dataclass(frozen=True)
class Filmed:
    """An episode that was evaluated, and one that was recorded, with the same seed."""

    evaluated: tuple[float, int]
    """Return and length."""
    recorded: tuple[float, int]
    video: Path
    frame_skip: int


@pytest.fixture(scope="module", params=OTHER_GAMES)
def filmed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Filmed:
    """A checkpoint of an experiment with its own env_config, played and recorded."""
    folder = tmp_path_factory.mktemp("filmed")
    checkpoint = find_checkpoint(shutil.copytree(CHECKPOINT, folder / "pong"))
    file = checkpoint.path / EXPERIMENT_FILE
    raw = yaml.safe_load(file.read_text())
    raw["config"]["env_config"] = OTHER_GAMES[request.param]
    file.write_text(yaml.safe_dump(raw))
    played = evaluate(checkpoint, episodes=1, seed=7)
    recorded = record_video(checkpoint, folder / "video.mp4", seed=7)
    frame_skip = OTHER_GAMES[request.param].get("frame_skip", 4)
    return Filmed(
        (played.returns[0], played.lengths[0]), recorded, folder / "video.mp4", int(frame_skip)
    )


def test_the_video_shows_the_game_that_is_evaluated(filmed: Filmed) -> None:
    assert filmed.recorded == filmed.evaluated


def test_the_video_has_a_picture_for_each_step(filmed: Filmed) -> None:
    _, length = filmed.recorded
    with av.open(str(filmed.video)) as video:
        assert video.streams.video[0].frames == length


def test_a_gif_has_the_same_pictures(filmed: Filmed) -> None:
    checkpoint, gif = (
        find_checkpoint(filmed.video.parent / "pong"),
        filmed.video.with_suffix(".gif"),
    )
    assert record_video(checkpoint, gif, seed=7) == filmed.recorded
    assert gif.read_bytes().startswith(b"GIF8")


def test_an_episode_is_shown_in_a_window_until_its_end(
    filmed: Filmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr("pygame.time.wait", lambda _: None)
    assert watch(find_checkpoint(filmed.video.parent / "pong"), episodes=1, seed=7) == 1


def test_the_video_runs_at_twice_the_games_speed(filmed: Filmed) -> None:
    with av.open(str(filmed.video)) as video:
        assert video.streams.video[0].average_rate == Fraction(2 * 60, filmed.frame_skip)
