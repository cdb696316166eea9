"""The command line: reads it, checks the input, then starts."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import yaml

from payload.errors import UserError
from payload.experiment.file import read_mapping
from payload.parser import Parser
from payload.tracking.mlflow_pages import UI_PORT

if TYPE_CHECKING:
    from payload.experiment.algorithm_settings import AlgorithmSettings
    from payload.experiment.placement import Cluster
    from payload.experiment.read import LoadedExperiment
    from payload.experiment.settings import Experiment
    from payload.run.run_folder import RunFolder
    from payload.run.train import TrainOptions
    from payload.search.search_plan import Plan

DEFAULT_RESULTS = Path("results")
IS_UNDER = "VOLLEY_IS_UNDER"
"""Set where an experiment's run_under has started this process."""


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
        metavar="train | tune | evaluate | ui | bench",
        required=True,
        parser_class=Parser,
    )
    _add_train(commands)
    _add_tune(commands)
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
    _add_experiment(train)
    _add_resume(train, "run")
    _add_run_options(train)
    train.add_argument(
        "--env-runners",
        type=Path,
        metavar="FILE",
        help="follow the number of env runners in a file while it trains",
    )
    train.set_defaults(command=_train)


def _add_tune(commands: Any) -> None:
    tune = commands.add_parser(
        "tune",
        help="search settings: train many, keep the best",
        description=(
            "Searches settings with Ray Tune. In the place of a setting's value in config stands "
            "{grid_search: [...]}, {choice: [...]}, {uniform: [a, b]}, {loguniform: [a, b]} or "
            "{randint: [a, b]}. Each trial trains until a stop criterion is met, or until ASHA "
            "ranks it low at the same number of environment steps."
        ),
        allow_abbrev=False,
    )
    _add_experiment(tune)
    add = tune.add_argument
    add(
        "--samples",
        type=int,
        metavar="N",
        help="settings drawn at random, times the combinations of a grid (10; a grid alone: 1)",
    )
    add("--seeds", type=int, metavar="K", help="trials of each setting (1)")
    _add_resume(tune, "search")
    _add_run_options(tune)
    tune.set_defaults(command=_tune, env_runners=None)


def _add_experiment(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("file", nargs="?", type=Path, help="experiment file (YAML): run, env, config, stop")
    add("--run", help="algorithm: IMPALA, APPO, PPO, DQN or SAC (default IMPALA)")
    add("--env", help="Gymnasium id, or package:EnvId-v0 (default PongNoFrameskip-v4)")
    add("--source-directory", help="folder from which Python imports the environment's package")
    add("--config", type=_mapping, help="settings, JSON or YAML: '{\"num_workers\": 13}'")
    add("--stop", type=_mapping, help="criteria, whichever comes first: '{\"time_total_s\": 3600}'")
    add("--seed", type=int, help="seed of weights, actions and environments")


def _add_resume(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "--resume",
        nargs="?",
        const="latest",
        metavar=what.upper(),
        help=f"continue a {what}'s folder, or the newest {what} in --results",
    )


def _add_run_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--address", help='a running Ray cluster ("auto"); default: Ray on this machine')
    add("--results", type=Path, default=DEFAULT_RESULTS, help="folder of results (./results)")
    add("--tracking-uri", help="MLflow server; default: an embedded database in --results")
    add("--status", type=Path, metavar="FILE", help="keep the run's state in a file (JSON)")
    add("--checkpoint-every", type=float, default=60.0, metavar="S", help="seconds (60)")
    add("--keep-checkpoints", type=int, default=3, metavar="K", help="newest to keep (3)")


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
    add("--source-directory", type=Path, help="where its package is, if not where it was trained")
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
    instead = bench.add_mutually_exclusive_group().add_argument
    instead("--learn", action="store_true", help="measure the time to a mean return of 18 instead")
    instead("--scale", action="store_true", help="measure what limits a cluster instead")
    instead(
        "--games",
        nargs="*",
        metavar="GAME",
        help="measure the scores on these Atari games instead, without a name on five of them",
    )
    add("--run", default="IMPALA", help="algorithm of --learn (IMPALA)")
    add(
        "--experiment",
        type=Path,
        help="settings of --learn (experiments/pong.yaml; experiments/pong-appo.yaml of APPO) or "
        "of --games (experiments/atari.yaml)",
    )
    add("--seeds", type=int, default=5, help="runs of --learn, and of each of --games (5)")
    add(
        "--first-seed",
        type=int,
        help="of --learn and --games; the runs count up from it (drawn by the clock). "
        "Runs of --games that are there are not repeated",
    )
    add("--steps", type=int, default=2_500_000, help="environment steps of --games (2500000)")
    add("--results", type=Path, default=DEFAULT_RESULTS, help="folder of results (./results)")
    bench.set_defaults(command=_bench)


def _train(options: argparse.Namespace) -> int:
    from payload.experiment.defaults import notes_on_defaults, with_defaults
    from payload.experiment.placement import place
    from payload.run import run_folder
    from payload.run.driver_lock import driver_lock

    _check_run_options(options)
    resumed = None
    if options.resume is not None:
        resumed = run_folder.find_run_to_resume(options.results, options.resume)
    loaded = _read_experiment(options, resumed)
    experiment = loaded.experiment
    if experiment.search:
        name = next(iter(experiment.search))
        raise UserError(
            f"config.{name}: {experiment.search[name]} is a search space; "
            "python -m payload tune searches, train trains one value"
        )
    run_folder.check_writable(options.results)
    installed, atari = _provide(options, experiment, [experiment])
    with ExitStack() as until_end:
        if resumed is not None:
            until_end.enter_context(driver_lock(resumed))
        cluster = _start_ray(options, experiment, installed, until_end)
        # What a file asks for may not fit yet, and needs no more than one env runner.
        shrink = options.env_runners is not None
        settings = with_defaults(experiment, atari, place(experiment.config, cluster, shrink))
        from payload.run.train import train

        folder = resumed or run_folder.create_run_folder(options.results, experiment)
        if resumed is None:
            until_end.enter_context(driver_lock(folder))
        return train(
            experiment,
            settings,
            folder,
            _train_options(options),
            resumed.checkpoints().newest_first() if resumed is not None else [],
            [
                *(*loaded.notes, *notes_on_defaults(experiment, atari)),
                *(*_notes_on_search(experiment), *_notes_on_env_runners(options, settings)),
            ],
        )


def _notes_on_env_runners(options: argparse.Namespace, settings: AlgorithmSettings) -> list[str]:
    if options.env_runners is None or settings.num_env_runners:
        return []
    return [
        f"--env-runners {options.env_runners} is ignored: config.num_env_runners is 0, "
        "the driver samples itself"
    ]


def _notes_on_search(experiment: Experiment) -> list[str]:
    given = experiment.model_fields_set & {"num_samples", "num_seeds"}
    return [f"{key} is ignored: train makes a single run" for key in sorted(given)]


def _tune(options: argparse.Namespace) -> int:
    from payload.experiment.defaults import for_atari_only, notes_on_defaults
    from payload.experiment.placement import place_trials
    from payload.experiment.read import read_experiment
    from payload.experiment.resume import check_resumable
    from payload.run.driver_lock import driver_lock
    from payload.run.run_folder import check_writable
    from payload.search.search_folder import create_search_folder, find_search_to_resume
    from payload.search.search_plan import Plan, make_plan

    _check_run_options(options)
    for option in ("samples", "seeds"):
        if getattr(options, option) is not None:
            _positive(f"--{option}", getattr(options, option))
    resumed = None
    if options.resume is not None:
        resumed = find_search_to_resume(options.results, options.resume)
        options.file = options.file or resumed.experiment_file
    loaded = _read_experiment(options, None)
    experiment = loaded.experiment
    if resumed is None:
        plan = make_plan(experiment, options.samples, options.seeds)
    else:
        plan = Plan.read(resumed.plan_file)
        if options.samples is not None or options.seeds is not None:
            raise UserError("--resume: --samples and --seeds cannot change; start a new search")
        before = read_experiment(resumed.experiment_file).experiment
        loaded.notes.extend(check_resumable(before, experiment, f"--resume {resumed.path}"))
    check_writable(options.results)
    trials = [trial.experiment(experiment) for trial in plan.trials()]
    installed, atari = _provide(options, experiment, trials)
    for name in [] if atari else for_atari_only(experiment.config):
        if name in experiment.search:
            raise UserError(
                f"config.{name}: cannot be searched: {experiment.env} is not an Atari game"
            )
    with ExitStack() as until_end:
        if resumed is not None:
            until_end.enter_context(driver_lock(resumed))
        cluster = _start_ray(options, experiment, installed, until_end)
        env_runners = place_trials(experiment.config, cluster, len(trials))
        from payload.search.run_search import search
        from payload.search.trial import Job

        folder = resumed or create_search_folder(options.results, experiment, plan)
        if resumed is None:
            until_end.enter_context(driver_lock(folder))
        named = {trial.name: trial for trial in plan.trials()}
        # A trial's process may have another working directory.
        options.results = options.results.absolute()
        folder = type(folder)(folder.path.absolute())
        job = Job(experiment, folder, _train_options(options), named, atari, env_runners)
        notes = loaded.notes + notes_on_defaults(experiment, atari) + _notes_on_plan(plan)
        return search(job, plan, cluster, notes)


def _notes_on_plan(plan: Plan) -> list[str]:
    settings, seeds = len(plan.settings), len(plan.seeds)
    each = f", {seeds} seeds each" if seeds > 1 else ""
    return [f"{settings} settings{each}: {settings * seeds} trials"]


def _check_run_options(options: argparse.Namespace) -> None:
    _positive("--checkpoint-every", options.checkpoint_every)
    _positive("--keep-checkpoints", options.keep_checkpoints)
    if options.status is not None and not options.status.absolute().parent.is_dir():
        raise UserError(f"--status {options.status}: the folder does not exist")
    if options.env_runners is not None and not options.env_runners.absolute().parent.is_dir():
        raise UserError(f"--env-runners {options.env_runners}: the folder does not exist")
    if options.tracking_uri is not None:
        _check_tracking_uri(options.tracking_uri)


def _train_options(options: argparse.Namespace) -> TrainOptions:
    from payload.run.train import TrainOptions

    return TrainOptions(
        options.results,
        options.tracking_uri,
        options.checkpoint_every,
        options.keep_checkpoints,
        options.status,
        options.env_runners,
    )


def _provide(
    options: argparse.Namespace, experiment: Experiment, trained: list[Experiment]
) -> tuple[Path | None, bool]:
    """Makes this process able to run an environment, and checks what is to be trained in it.

    Returns:
        The folder of what was installed, and whether the environment is an Atari game.
    """
    from payload.environments.machine_requirements import provide, provide_inputs
    from payload.environments.probe import probe
    from payload.experiment.placement import place
    from payload.run.ray_cluster import is_job, this_machine

    installed = None
    if is_job():
        provide_inputs(experiment, options.results)
    else:
        installed = provide(experiment, options.results)
    from payload.algorithms.check_environment import check_algorithm, facts_of_game
    from payload.environments.atari import game_of

    atari = game_of(experiment) is not None
    facts = None if atari else probe(experiment)
    for one in trained:
        check_algorithm(one, facts or facts_of_game(one))
    if options.address is None:
        # On this machine the answer is known before Ray starts.
        place(experiment.config, this_machine(), shrink=options.env_runners is not None)
    return installed, atari


def _start_ray(
    options: argparse.Namespace,
    experiment: Experiment,
    installed: Path | None,
    until_end: ExitStack,
) -> Cluster:
    from payload.run.ray_cluster import check_nodes, connect

    if options.address is None:
        print("Starting Ray on this machine ...", flush=True)
    # While Ray's processes start, this one imports RLlib.
    importing = threading.Thread(target=_import_rllib, daemon=True)
    importing.start()
    staging = until_end.enter_context(TemporaryDirectory())
    cluster = connect(options.address, _runtime_env(options, experiment, installed, staging))
    if options.address is not None:
        check_nodes(experiment)
    importing.join()
    return cluster


def _read_experiment(options: argparse.Namespace, resumed: RunFolder | None) -> LoadedExperiment:
    """Reads the command line over the file, or over what a resumed run was."""
    from payload.experiment.read import read_experiment
    from payload.experiment.resume import check_resumable

    keys = ("run", "env", "stop", "source_directory")
    command_line: dict[str, Any] = {
        key: value for key in keys if (value := getattr(options, key)) is not None
    }
    config = dict(options.config or {})
    if options.seed is not None:
        config["seed"] = options.seed
    command_line["config"] = config
    file, before = options.file, None
    if resumed is not None:
        newest = resumed.checkpoints().newest_whole()
        if newest is None:
            raise UserError(f"--resume {resumed.path}: every checkpoint is damaged")
        file, before = file or newest.experiment_file, newest.experiment()
    layers = [command_line] if file is None else [file, command_line]
    loaded = read_experiment(*layers)
    if resumed is None or before is None:
        return loaded
    changes = check_resumable(before, loaded.experiment, f"--resume {resumed.path}")
    return replace(loaded, notes=[*loaded.notes, *changes])


def _runtime_env(
    options: argparse.Namespace, experiment: Experiment, installed: Path | None, staging: str
) -> dict[str, Any] | None:
    from payload.environments.runtime_env import local_runtime_env, runtime_env
    from payload.run.ray_cluster import is_job

    if is_job():
        return None
    if options.address is None:
        return local_runtime_env(experiment)
    return runtime_env(experiment, Path(__file__).parent, installed, Path(staging))


def _import_rllib() -> None:
    import payload.run.train  # noqa: F401


def _evaluate(options: argparse.Namespace) -> int:
    from payload.run.checkpoints import DamagedError, find_checkpoint

    _positive("--episodes", options.episodes)
    checkpoint = find_checkpoint(options.checkpoint)
    try:
        checkpoint.verify()
    except DamagedError as error:
        raise UserError(f"{error}; give another checkpoint") from None
    experiment = checkpoint.experiment()
    if options.source_directory is not None:
        source = str(options.source_directory.absolute())
        experiment = experiment.model_copy(update={"source_directory": source})
    env = experiment.env
    if options.env not in (None, env):
        raise UserError(f"--env {options.env}: the checkpoint {checkpoint.path} plays {env}")
    if options.video is not None and not options.video.absolute().parent.is_dir():
        raise UserError(f"--video {options.video}: the folder does not exist")
    from payload.environments.machine_requirements import provide
    from payload.run.evaluate import evaluate
    from payload.run.video import record_video

    # RLlib would warn of a deprecated class that it uses itself.
    logging.getLogger("ray._common.deprecation").setLevel(logging.ERROR)
    provide(experiment, DEFAULT_RESULTS)
    _continue_under(experiment)
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


def _continue_under(experiment: Experiment) -> None:
    """Becomes the experiment's run_under, which runs this command once more."""
    if experiment.run_under is not None and IS_UNDER not in os.environ:
        os.environ[IS_UNDER] = experiment.run_under
        command = [*shlex.split(experiment.run_under), sys.executable, "-m", "payload"]
        os.execvp(command[0], [*command, *sys.argv[1:]])


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
    from bench.benchmark import bench, bench_learning
    from bench.process import unwind_on_signals
    from payload.run import run_folder

    _positive("--seconds", options.seconds)
    _positive("--seeds", options.seeds)
    _positive("--steps", options.steps)
    run_folder.check_writable(options.results)
    unwind_on_signals()
    code: int
    if options.scale:
        from bench.scale import bench_scale

        code = bench_scale(options.seconds, options.results)
    elif options.learn:
        pong = "pong-appo" if options.run == "APPO" else "pong"
        code = bench_learning(
            options.experiment or Path(f"experiments/{pong}.yaml"),
            options.run,
            options.seeds,
            options.results,
            options.first_seed,
        )
    elif options.games is not None:
        from bench.games import bench_games

        code = bench_games(
            options.experiment or Path("experiments/atari.yaml"),
            options.games,
            options.seeds,
            options.steps,
            options.results,
            options.first_seed,
        )
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
