"""The command line: reads it, checks the input, then starts."""

from __future__ import annotations

import argparse
import logging
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from payload.errors import UserError, nearest
from payload.experiment.file import read_mapping
from payload.tracking.mlflow_pages import UI_PORT

if TYPE_CHECKING:
    from payload.experiment.read import LoadedExperiment
    from payload.run.run_folder import RunFolder

DEFAULT_RESULTS = Path("results")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, with the nearest known option."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()[0]
        if unknown.startswith("-") and message.startswith("unrecognized"):
            message += nearest(unknown, self._all_options())
        raise UserError(message)

    def _all_options(self) -> list[str]:
        """This parser's options and those of its commands, which do not report errors."""
        options = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for command in action.choices.values():
                    options += command._option_string_actions
        return options


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns the exit code: 2 after a UserError, which is one line."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        options = _parser().parse_args(arguments)
        exit_code: int = options.command(options)
    except UserError as error:
        print(f"{Path(sys.argv[0]).stem and 'payload'}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return exit_code


def _parser() -> Parser:
    parser = Parser(
        prog="python -m payload",
        description="Distributed IMPALA and APPO on RLlib, with MLflow.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        title="commands",
        metavar="train | evaluate | ui | bench",
        required=True,
        parser_class=Parser,
    )
    _add_train(commands)
    _add_evaluate(commands)
    _add_ui(commands)
    _add_bench(commands)
    return parser


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train until a stop criterion is met",
        description="Trains an experiment. Options override what the experiment file says.",
        allow_abbrev=False,
    )
    add = train.add_argument
    add("file", nargs="?", type=Path, help="experiment file (YAML): run, env, config, stop")
    add("--run", help="algorithm: IMPALA or APPO (default IMPALA)")
    add("--env", help="Gymnasium id (default PongNoFrameskip-v4)")
    add("--config", type=_mapping, help="settings, JSON or YAML: '{\"num_workers\": 13}'")
    add("--stop", type=_mapping, help="criteria, whichever comes first: '{\"time_total_s\": 3600}'")
    add("--seed", type=int, help="seed of weights, actions and environments")
    add("--address", help='a running Ray cluster ("auto"); default: Ray on this machine')
    add(
        "--resume",
        nargs="?",
        const="latest",
        metavar="RUN",
        help="continue a run's folder, or the newest run in --results",
    )
    add("--results", type=Path, default=DEFAULT_RESULTS, help="folder of results (./results)")
    add("--tracking-uri", help="MLflow server; default: an embedded database in --results")
    add("--status", type=Path, metavar="FILE", help="keep the run's state in a file (JSON)")
    add("--checkpoint-every", type=float, default=60.0, metavar="S", help="seconds (60)")
    add("--keep-checkpoints", type=int, default=3, metavar="K", help="newest to keep (3)")
    train.set_defaults(command=_train)


def _add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="play a checkpoint's policy",
        description="Plays complete episodes with a checkpoint's policy; needs no cluster.",
        allow_abbrev=False,
    )
    add = evaluate.add_argument
    add("checkpoint", type=Path, help="a checkpoint, or a run's folder: its best checkpoint")
    add("--episodes", type=int, default=20, help="how many (20)")
    add("--explore", action="store_true", help="sample actions instead of taking the likeliest")
    add("--env", help="must be the checkpoint's environment")
    add("--seed", type=int, help="seed of environments and actions")
    add("--video", type=Path, metavar="MP4", help="also record an episode")
    evaluate.set_defaults(command=_evaluate)


def _add_ui(commands: Any) -> None:
    ui = commands.add_parser(
        "ui",
        help="open MLflow's charts of the newest run",
        description="Serves MLflow's pages of the runs in --results on loopback, until Ctrl-C.",
        allow_abbrev=False,
    )
    add = ui.add_argument
    add("--results", type=Path, default=DEFAULT_RESULTS, help="folder of results (./results)")
    add("--port", type=int, default=UI_PORT, help=f"on 127.0.0.1 ({UI_PORT})")
    add("--no-browser", action="store_true", help="print the address, open nothing")
    ui.set_defaults(command=_ui)


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure this trainer, stock RLlib and the emulator's limit",
        description="Measures side by side, prints a table and writes a JSON file.",
        allow_abbrev=False,
    )
    add = bench.add_argument
    add("--seconds", type=float, default=60.0, help="of each measurement (60)")
    add("--learn", action="store_true", help="measure the time to a mean return of 18 instead")
    add("--run", default="IMPALA", help="algorithm of --learn (IMPALA)")
    add("--seeds", type=int, default=5, help="runs of --learn (5)")
    add("--first-seed", type=int, help="of --learn; the runs count up from it (drawn by the clock)")
    add("--results", type=Path, default=DEFAULT_RESULTS, help="folder of results (./results)")
    bench.set_defaults(command=_bench)


def _train(options: argparse.Namespace) -> int:
    from payload.experiment.placement import place
    from payload.experiment.settings import notes_on_defaults, with_defaults
    from payload.run import run_folder
    from payload.run.driver_lock import driver_lock
    from payload.run.ray_cluster import connect, this_machine

    _positive("--checkpoint-every", options.checkpoint_every)
    _positive("--keep-checkpoints", options.keep_checkpoints)
    if options.status is not None and not options.status.absolute().parent.is_dir():
        raise UserError(f"--status {options.status}: the folder does not exist")
    if options.tracking_uri is not None:
        _check_tracking_uri(options.tracking_uri)
    resumed = None
    if options.resume is not None:
        resumed = run_folder.find_run_to_resume(options.results, options.resume)
    loaded = _read_experiment(options, resumed)
    experiment = loaded.experiment
    from payload.impala.atari import game_of

    atari = game_of(experiment) is not None
    run_folder.check_writable(options.results)
    if options.address is None:
        # On this machine the answer is known before Ray starts.
        place(experiment.config, this_machine())
    with ExitStack() as until_end:
        if resumed is not None:
            until_end.enter_context(driver_lock(resumed))
        if options.address is None:
            print("Starting Ray on this machine ...", flush=True)
        # While Ray's processes start, this one imports RLlib.
        importing = threading.Thread(target=_import_rllib, daemon=True)
        importing.start()
        cluster = connect(options.address)
        importing.join()
        settings = with_defaults(experiment, atari, place(experiment.config, cluster))
        from payload.run.train import TrainOptions, train

        folder = resumed or run_folder.create_run_folder(options.results, experiment)
        if resumed is None:
            until_end.enter_context(driver_lock(folder))
        return train(
            experiment,
            settings,
            folder,
            TrainOptions(
                options.results,
                options.tracking_uri,
                options.checkpoint_every,
                options.keep_checkpoints,
                options.status,
            ),
            resumed.checkpoints().newest_first() if resumed is not None else [],
            loaded.notes + notes_on_defaults(experiment, atari),
        )


def _read_experiment(options: argparse.Namespace, resumed: RunFolder | None) -> LoadedExperiment:
    """Reads the command line over the file, or over what a resumed run was."""
    from payload.experiment.read import read_experiment

    command_line: dict[str, Any] = {
        key: value for key in ("run", "env", "stop") if (value := getattr(options, key)) is not None
    }
    config = dict(options.config or {})
    if options.seed is not None:
        config["seed"] = options.seed
    command_line["config"] = config
    file, before = options.file, None
    if resumed is not None:
        newest = resumed.checkpoints().newest_first()[0]
        file, before = file or newest.experiment_file, newest.experiment().env
    layers = [command_line] if file is None else [file, command_line]
    loaded = read_experiment(*layers)
    if resumed is not None and loaded.experiment.env != before:
        raise UserError(f"--env {loaded.experiment.env}: the run in {resumed.path} plays {before}")
    return loaded


def _import_rllib() -> None:
    import payload.run.train  # noqa: F401


def _evaluate(options: argparse.Namespace) -> int:
    from payload.run.checkpoints import find_checkpoint

    _positive("--episodes", options.episodes)
    checkpoint = find_checkpoint(options.checkpoint)
    env = checkpoint.experiment().env
    if options.env not in (None, env):
        raise UserError(f"--env {options.env}: the checkpoint {checkpoint.path} plays {env}")
    if options.video is not None and not options.video.absolute().parent.is_dir():
        raise UserError(f"--video {options.video}: the folder does not exist")
    from payload.run.evaluate import evaluate, record_video

    # RLlib would warn of a deprecated class that it uses itself.
    logging.getLogger("ray._common.deprecation").setLevel(logging.ERROR)
    result = evaluate(checkpoint, options.episodes, options.explore, options.seed)
    print(f"{env}, checkpoint {checkpoint.path}")
    print(
        f"return {result.mean:.2f} +- {result.deviation:.2f} over {len(result.returns)} episodes "
        f"(worst {min(result.returns):g}, best {max(result.returns):g}), "
        f"{sum(result.lengths) / len(result.lengths):,.0f} steps each"
    )
    if options.video is not None:
        episode_return, length = record_video(checkpoint, options.video, options.seed or 0)
        print(f"video {options.video}: return {episode_return:g} in {length:,} steps")
    return 0


def _ui(options: argparse.Namespace) -> int:
    from payload.run.driver_lock import mark_dead_runs
    from payload.tracking.ui import serve_ui

    if not 0 < options.port <= 0xFFFF:
        raise UserError(f"--port {options.port}: must be from 1 to 65535")
    for line in mark_dead_runs(options.results):
        print(line)
    code: int = serve_ui(options.results, options.port, not options.no_browser)
    return code


def _bench(options: argparse.Namespace) -> int:
    from payload.bench.benchmark import bench, bench_learning
    from payload.run import run_folder

    _positive("--seconds", options.seconds)
    _positive("--seeds", options.seeds)
    run_folder.check_writable(options.results)
    code: int
    if options.learn:
        code = bench_learning(options.run, options.seeds, options.results, options.first_seed)
    else:
        code = bench(options.seconds, options.results)
    return code


def _mapping(text: str) -> dict[str, Any]:
    """Reads YAML, which is easier to type than JSON, and JSON, which is YAML."""
    try:
        value = read_mapping(text)
    except (yaml.YAMLError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(
            f"{text!r}: neither a JSON object nor a YAML mapping of settings"
        )
    return value


def _positive(option: str, value: float) -> None:
    if not value > 0:
        raise UserError(f"{option} {value:g}: must be greater than 0")


def _check_tracking_uri(uri: str) -> None:
    known = ("http://", "https://", "sqlite:///", "postgresql://", "mysql://", "databricks")
    if not uri.startswith(known):
        raise UserError(f"--tracking-uri {uri}: must start with one of {', '.join(known)}")
