"""`volley evaluate`: complete episodes with a checkpoint's policy, and a video."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from payload.command_line import command_name
from payload.commands.prepare import check_positive
from payload.errors import TemporaryError, UserError, nearest, printable, raised

if TYPE_CHECKING:
    from payload.experiment.settings import Experiment
    from payload.run.checkpoints import Checkpoint

IS_UNDER = "VOLLEY_IS_UNDER"
"""Set if an experiment's run_under has started this process."""


def evaluate(options: argparse.Namespace) -> int:
    """Plays the episodes and prints their returns; returns the exit code.

    Raises:
        UserError: No checkpoint exists, or it cannot be played with these options.
    """
    check_positive("--episodes", options.episodes)
    check_positive("--max-episode-steps", options.max_episode_steps)
    if options.video is not None and not options.video.absolute().parent.is_dir():
        raise UserError(f"--video {options.video}: the folder does not exist")
    checkpoint, experiment = open_checkpoint(options)
    env = experiment.env
    from payload.run.evaluate import evaluate
    from payload.run.video import record_video

    with own_errors(f"env: {env}"):
        result = evaluate(
            checkpoint,
            options.episodes,
            options.explore,
            options.seed,
            options.max_episode_steps,
        )
    print(printable(f"{env}, checkpoint {checkpoint.path}"))
    print(
        f"return {result.mean:.2f} +- {result.deviation:.2f} over {len(result.returns)} episodes "
        f"(worst {min(result.returns):g}, best {max(result.returns):g}), "
        f"{sum(result.lengths) / len(result.lengths):,.0f} steps each"
    )
    if result.cut_off:
        print(
            f"{result.cut_off} of them had not ended after {options.max_episode_steps:,} steps "
            "(--max-episode-steps)"
        )
    if options.video is not None:
        with own_errors(f"--video {options.video}"):
            episode_return, length = record_video(checkpoint, options.video, options.seed or 0)
        print(f"video {options.video}: return {episode_return:g} in {length:,} steps")
    if options.watch:
        from payload.run.window import watch

        with own_errors("--watch"):
            watch(checkpoint, options.episodes, options.seed or 0)
    return 0


def open_checkpoint(options: argparse.Namespace) -> tuple[Checkpoint, Experiment]:
    """Returns the checkpoint that the options name; makes its environment importable.

    Raises:
        UserError: There is none, it is of another environment, or is not trusted.
    """
    checkpoint = _checkpoint(options.checkpoint, options.results)
    experiment = _with_folders(checkpoint.experiment(), options)
    if options.env not in (None, experiment.env):
        raise UserError(
            f"--env {options.env}: the checkpoint {checkpoint.path} was trained on {experiment.env}"
        )
    from payload.environments.machine_requirements import provide
    from payload.run.checkpoint_policy import needs_pickle
    from payload.run.machine_limits import lift_machine_limits
    from payload.run.trust import check_trust, code_of

    lift_machine_limits()
    # RLlib warns about a deprecated class that it uses itself.
    logging.getLogger("ray._common.deprecation").setLevel(logging.ERROR)
    if IS_UNDER not in os.environ:  # Otherwise this command has asked already.
        code = code_of(experiment, needs_pickle(checkpoint))
        check_trust(str(checkpoint.path), [checkpoint.signed], code, options.trust)
    provide(experiment, options.results)
    _continue_under(experiment)
    return checkpoint, experiment


@contextmanager
def own_errors(where: str) -> Iterator[None]:
    """Turns an error of the environment's own code into one line."""
    from payload.environments.missing_packages import remedy

    try:
        yield
    except (UserError, TemporaryError):
        raise
    except Exception as error:
        raise UserError(f"{where}: {raised(error)}{remedy(error)}") from error


def _checkpoint(path: Path | None, results: Path) -> Checkpoint:
    """Returns the checkpoint at a path, or the best of the newest run; checks that it is whole."""
    from payload.run.checkpoints import whole_checkpoint
    from payload.run.run_folder import newest_run

    if path is None:
        newest = newest_run(results)
        if newest is None:
            raise UserError(
                f"--results {results}: no run there has a checkpoint. Next: {command_name()} train"
            )
        path = newest.path
    return whole_checkpoint(path)


def _with_folders(experiment: Experiment, options: argparse.Namespace) -> Experiment:
    """Returns the experiment with the folders of this machine."""
    folders: dict[str, Any] = {"inputs": dict(experiment.inputs)}
    for name, folder in options.input:
        if name not in experiment.inputs:
            raise UserError(
                f"--input {name}={folder}: the experiment has "
                f"{', '.join(experiment.inputs) or 'no inputs'}{nearest(name, experiment.inputs)}"
            )
        folders["inputs"][name] = str(folder.absolute())
    for name, path in folders["inputs"].items():
        if not Path(path).is_dir():
            raise UserError(f"inputs.{name}: {path} is not a folder. Next: --input {name}=FOLDER")
    if options.source_directory is not None:
        folders["source_directory"] = str(options.source_directory.absolute())
    return experiment.model_copy(update=folders)


def _continue_under(experiment: Experiment) -> None:
    """Replaces this process with the experiment's run_under, which runs this command again."""
    if experiment.run_under is not None and IS_UNDER not in os.environ:
        os.environ[IS_UNDER] = experiment.run_under
        command = [*shlex.split(experiment.run_under), sys.executable, *sys.orig_argv[1:]]
        os.execvp(command[0], command)
