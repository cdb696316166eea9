"""The options of train, tune, evaluate and run; shell completion reads them, so imports are few."""

import argparse
from pathlib import Path
from typing import Any

from payload.episode_length import MAX_EPISODE_STEPS

DEFAULT_RESULTS = Path("results")


def add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train until a stop criterion is met",
        description="Trains an experiment. Options override the experiment file.",
        allow_abbrev=False,
    )
    _add_experiment(train)
    train.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="train with N seeds, as many at once as fit, and show their combined result",
    )
    train.add_argument(
        "--name",
        help="name of the run's folder and of its MLflow run (default: from algorithm, environment "
        "and time)",
    )
    train.add_argument(
        "--init-from",
        type=Path,
        metavar="CHECKPOINT",
        help="start from the weights of a checkpoint, or of a run's best one, where shapes match",
    )
    train.set_defaults(samples=None)
    _add_resume(train, "run")
    _add_run_options(train)
    train.add_argument(
        "--env-runners",
        type=Path,
        metavar="FILE",
        help="read the wanted number of env runners from FILE during training (the cluster's "
        "queue uses it)",
    )


def add_tune(commands: Any) -> None:
    tune = commands.add_parser(
        "tune",
        help="search settings: train many trials, keep the best setting",
        description=(
            "Searches settings with Ray Tune. Replace a setting's value in config with a search "
            "space: {grid_search: [...]}, {choice: [...]}, {uniform: [a, b]}, {loguniform: [a, b]} "
            "or {randint: [a, b]}. Each trial trains until a stop criterion is met, or until ASHA "
            "stops it for ranking low among trials at the same number of environment steps."
        ),
        allow_abbrev=False,
    )
    _add_experiment(tune)
    add = tune.add_argument
    add(
        "--samples",
        type=int,
        metavar="N",
        help="random settings to try for each grid combination "
        "(default 10; 1 if everything is a grid)",
    )
    add("--seeds", type=int, metavar="K", help="trials of each setting (default 1)")
    _add_resume(tune, "search")
    _add_run_options(tune)
    tune.set_defaults(env_runners=None, name=None, init_from=None)


def add_plot(commands: Any) -> None:
    plot = commands.add_parser(
        "plot",
        help="draw the learning curves of runs in one picture",
        description="Draws learning curves and writes them as a table. Runs whose experiments "
        "differ only in the seed become one line: their interquartile mean, with its interval.",
        allow_abbrev=False,
    )
    add = plot.add_argument
    add(
        "runs",
        type=Path,
        nargs="*",
        metavar="RUN",
        help="folder of a run, a search or several seeds (default: the newest run)",
    )
    add(
        "--metric",
        help="a column of progress.csv (default: the mean episode return)",
    )
    add(
        "--output",
        type=Path,
        metavar="FILE",
        default=Path("curves.png"),
        help="image file: .png, .svg or .pdf; the table goes next to it (default curves.png)",
    )
    add_results(plot)


def add_runs(commands: Any) -> None:
    runs = commands.add_parser(
        "runs",
        help="list the runs on this machine, or delete some",
        description="Lists the runs and searches in a folder of results. A deleted run is gone "
        "from the folder; MLflow keeps it among its deleted runs.",
        allow_abbrev=False,
    )
    runs.add_argument("--delete", nargs="+", metavar="RUN", help="delete these instead")
    add_results(runs)


def add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="play with a trained policy, record a video",
        description="Plays complete episodes with a checkpoint's policy. It needs no cluster.",
        allow_abbrev=False,
    )
    _add_checkpoint(evaluate)
    add = evaluate.add_argument
    add("--episodes", type=int, default=20, help="number of episodes (default 20)")
    add("--explore", action="store_true", help="sample actions instead of taking the likeliest")
    add("--seed", type=int, help="seed of environments and actions")
    add(
        "--max-episode-steps",
        type=int,
        metavar="N",
        default=MAX_EPISODE_STEPS,
        help=f"cut off longer episodes (default {MAX_EPISODE_STEPS:,}; an Atari game has a limit "
        "of its own)",
    )
    add("--video", type=Path, metavar="FILE", help="also record an episode, as .mp4 or .gif")
    add("--watch", action="store_true", help="also show the episodes in a window")


def add_export(commands: Any) -> None:
    export = commands.add_parser(
        "export",
        help="write a trained policy as an ONNX model",
        description="Writes a checkpoint's policy as an ONNX model and compares it with torch over "
        "some steps in the environment. A model that differs is removed; the exit code is then 1.",
        allow_abbrev=False,
    )
    _add_checkpoint(export)
    export.add_argument("--onnx", type=Path, required=True, metavar="FILE", help="the model's file")


def add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="run a script with Ray and MLflow, as on the cluster",
        usage="volley run [OPTION ...] FILE [-- ARGUMENT ...]",
        description="Runs a Python script of your own. In it, ray.init() connects to a Ray for "
        "this script, mlflow.start_run() to MLflow, and VOLLEY_RESULTS is a folder for files.",
        allow_abbrev=False,
    )
    add = run.add_argument
    add("file", type=Path, help="a Python file, or a YAML file with entry_script")
    add("--source-directory", help="folder from which Python imports")
    add(
        "--resume",
        type=Path,
        metavar="RUN",
        help="run it in the folder of an earlier run, with the files in its VOLLEY_RESULTS",
    )
    _add_tracking_uri(run)
    _add_status(run)
    add_results(run)
    run.set_defaults(script_params=[])


def add_convert(commands: Any) -> None:
    convert = commands.add_parser(
        "convert",
        help="convert an rllib train file to a volley experiment file",
        description="Writes an experiment of an older RLlib or of Azure ML under today's names. "
        "Keys without an equivalent become comments in it and lines on stderr.",
        allow_abbrev=False,
    )
    convert.add_argument("file", type=Path, metavar="FILE", help="the older file (YAML or JSON)")
    convert.add_argument(
        "-o", "--output", type=Path, metavar="NEW", help="the new file (default: print it)"
    )
    convert.add_argument("--force", action="store_true", help="overwrite NEW if it exists")


def add_results(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--results",
        type=Path,
        default=DEFAULT_RESULTS,
        metavar="DIR",
        help="folder of results (default ./results)",
    )


def _add_checkpoint(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add(
        "checkpoint",
        type=Path,
        nargs="?",
        help="a checkpoint, or a run's folder for its best checkpoint (default: the newest run)",
    )
    add("--env", help="check that the checkpoint was trained on this environment")
    add(
        "--source-directory",
        type=Path,
        help="folder of the environment's package, if it has moved since training",
    )
    add(
        "--input",
        action="append",
        default=[],
        type=_input,
        metavar="NAME=FOLDER",
        help="folder of an input, if it has moved since training",
    )
    _add_trust(command, "checkpoint")
    add_results(command)


def _add_experiment(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", nargs="?", type=Path, help="experiment file (YAML): run, env, config, stop"
    )
    add_overrides(command)


def add_overrides(command: argparse.ArgumentParser) -> None:
    """Adds the options that override the keys of an experiment file."""
    add = command.add_argument
    add("--run", help="algorithm: IMPALA, APPO, PQN, PPO, DQN or SAC (default IMPALA)")
    add("--env", help="Gymnasium id, or package:EnvId-v0 (default PongNoFrameskip-v4)")
    add("--source-directory", help="folder from which Python imports the environment's package")
    add("--config", type=_mapping, help="settings as JSON or YAML, for example '{\"lr\": 0.0005}'")
    add(
        "--stop",
        type=_mapping,
        help="stop criteria, for example '{\"time_total_s\": 3600}'; the first one that is met "
        "ends the training",
    )
    add("--seed", type=int, help="seed of weights, actions and environments")
    add(
        "--tag",
        action="append",
        type=_tag,
        dest="tags",
        metavar="KEY=VALUE",
        help="a tag of the MLflow run",
    )
    add("--notes", metavar="TEXT", help="the description of the MLflow run")
    add(
        "--experiment-name",
        metavar="NAME",
        help="the MLflow experiment (default: MLFLOW_EXPERIMENT_NAME, or volley)",
    )
    add(
        "--notify",
        metavar="URL",
        help="at the end, POST JSON to this URL, or run this command with the JSON on stdin; $NAME "
        "takes the URL or command from an environment variable",
    )


def overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the keys of an experiment that the options of `add_overrides` give."""
    keys = ["run", "env", "stop", "source_directory"]
    keys += ["notes", "notify", "experiment_name", "tensorboard", "wandb"]
    given = {key: value for key in keys if (value := getattr(options, key, None)) is not None}
    if getattr(options, "tags", None):
        given["tags"] = dict(options.tags)
    config = dict(options.config or {})
    if options.seed is not None:
        config["seed"] = options.seed
    return {**given, "config": config} if config else given


def _add_resume(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "--resume",
        nargs="?",
        const="latest",
        metavar=what.upper(),
        help=f"continue the {what} in a folder from its last checkpoint "
        f"(default: the newest {what} in --results)",
    )
    _add_trust(command, what)


def _add_trust(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "--trust",
        action="store_true",
        help=f"run the code that somebody else's {what} names, without asking",
    )


def _add_run_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--address", help='Ray cluster to join, "auto" or HOST:PORT (default: a local Ray)')
    add_results(command)
    _add_tracking_uri(command)
    add(
        "--tensorboard",
        action="store_const",
        const=True,
        help="write the metrics to TensorBoard event files too, for volley ui --tensorboard",
    )
    add(
        "--wandb",
        nargs="?",
        const="volley",
        metavar="PROJECT",
        help="send the metrics to Weights & Biases too (default volley); needs the package wandb, "
        "and WANDB_API_KEY unless WANDB_MODE is offline",
    )
    _add_status(command)
    add(
        "--checkpoint-every",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds between checkpoints (default 60)",
    )
    add(
        "--keep-checkpoints",
        type=int,
        default=3,
        metavar="K",
        help="recent checkpoints to keep besides the best (default 3)",
    )


def _add_status(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--status",
        type=Path,
        metavar="FILE",
        help="write the run's state to FILE as JSON, for scripts",
    )


def _add_tracking_uri(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow server (default: MLFLOW_TRACKING_URI, or an embedded database in --results)",
    )


def _input(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if not name or not folder:
        raise argparse.ArgumentTypeError(f"{text!r}: is not NAME=FOLDER")
    return name, Path(folder)


def _tag(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: is not KEY=VALUE")
    return key, value


def _mapping(text: str) -> dict[str, Any]:
    """Reads YAML, which is easier to type than JSON, and JSON, which is YAML."""
    import yaml

    from payload.experiment.file import read_mapping

    try:
        value = read_mapping(text)
    except (yaml.YAMLError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(
            f"{text!r}: neither a JSON object nor a YAML mapping of settings"
        )
    return value
