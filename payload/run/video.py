"""Records one episode of a checkpoint's policy as a video."""

import json
import math
import shlex
import subprocess
import sys
import traceback
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from payload.environments.atari import AtariSettings, game_of, make_vector_env
from payload.errors import first_line
from payload.experiment.settings import Experiment
from payload.run.checkpoint_policy import Policy
from payload.run.checkpoints import Checkpoint
from payload.run.evaluate import Play, PlayedStep, environment_of, make_games, play

PICTURES_PER_S = 30
GAME_PICTURES_PER_S = 120
"""Twice an Atari game's own speed; its frame skip divides them."""
MAX_VIDEO_S = 120
"""A policy that never serves would play for half an hour."""


class Kind(NamedTuple):
    """A format of videos, in FFmpeg's words."""

    format: str
    codec: str
    pixels: str
    options: dict[str, str]


MP4 = Kind("mp4", "libx264", "yuv420p", {"movflags": "faststart"})
GIF = Kind("gif", "gif", "rgb8", {})


def record(experiment: Experiment, checkpoint: Checkpoint, path: Path) -> str:
    """Records an episode, under the experiment's run_under; returns a line about it."""
    try:
        if experiment.run_under is None:
            episode_return, length = record_video(checkpoint, path)
        else:  # This process does not have the env runners' display.
            episode_return, length = record_under(experiment.run_under, checkpoint, path)
    except Exception as error:  # A failure to render must not fail a finished run.
        traceback.print_exc()
        return f"No video: {first_line(error)}"
    return f"Video            {path} (return {episode_return:g} in {length:,} steps)"


def record_video(checkpoint: Checkpoint, path: Path, seed: int = 0) -> tuple[float, int]:
    """Writes one episode as an mp4 that browsers play, or as a GIF if the file is called so;
    returns its return and length.
    """
    import av

    plays, rate = pictured(checkpoint, seed)
    kind = GIF if path.suffix.lower() == ".gif" else MP4
    aside = path.with_name(f".{path.name}")
    total, length = 0.0, 0
    with (
        closing(plays),
        av.open(str(aside), "w", format=kind.format, options=kind.options) as container,
    ):
        stream: Any = None
        for step in islice(plays, MAX_VIDEO_S * rate):
            total, length = total + step.reward, length + 1
            picture = _even(step.picture)
            if stream is None:
                stream = container.add_stream(kind.codec, rate=rate)
                stream.height, stream.width = picture.shape[:2]
                stream.pix_fmt = kind.pixels
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    aside.replace(path)
    return total, length


def pictured(checkpoint: Checkpoint, seed: int) -> tuple[Play, int]:
    """Returns the steps of an episode with their pictures, and how many are shown in a second."""
    experiment = checkpoint.experiment()
    policy = Policy(checkpoint, explore=False)
    game = game_of(experiment)
    if game is None:
        return _play_pictured(experiment, policy, seed), PICTURES_PER_S
    rate = max(1, GAME_PICTURES_PER_S // game.frame_skip)
    return _play_game(experiment, game, policy, seed), rate


def record_under(run_under: str, checkpoint: Checkpoint, path: Path) -> tuple[float, int]:
    """Runs `record_video` in a process under `run_under`.

    Raises:
        RuntimeError: The process has failed, for this reason.
    """
    command = [*shlex.split(run_under), sys.executable, "-m", __name__]
    command += [str(checkpoint.path), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])
    episode_return, length = json.loads(done.stdout.splitlines()[-1])
    return episode_return, length


def _play_game(experiment: Experiment, game: AtariSettings, policy: Policy, seed: int) -> Play:
    """Plays an episode twice in step: once as the policy sees it, once as people do."""
    with (
        closing(make_games(experiment, game, 1)) as env,
        closing(make_vector_env(game, 1, screen=True)) as screen,
    ):
        observations, _ = env.reset(seed=seed)
        screen.reset(seed=seed)
        policy.start()
        over = False
        while not over:
            actions = policy(observations)
            observations, rewards, terminated, truncated, _ = env.step(actions)
            over = bool(terminated[0] | truncated[0])
            yield PlayedStep(float(rewards[0]), over, screen.step(actions)[0][0, 0])


def _play_pictured(experiment: Experiment, policy: Policy, seed: int) -> Play:
    """Plays an episode of any other Gymnasium environment, which draws it."""
    with closing(environment_of(experiment, policy, "rgb_array")) as env:
        yield from play(env, policy, seed, pictured=True)


def _even(picture: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Enlarges small pictures and cuts an odd row or column: yuv420p has no half pixels."""
    zoom = max(1, math.ceil(320 / picture.shape[1]))
    picture = picture.repeat(zoom, 0).repeat(zoom, 1)
    return np.ascontiguousarray(picture[: picture.shape[0] & ~1, : picture.shape[1] & ~1])


if __name__ == "__main__":
    print(json.dumps(record_video(Checkpoint(Path(sys.argv[1])), Path(sys.argv[2]))))
