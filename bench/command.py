"""`volley bench`: checks the options, then starts one of the benchmarks."""

from __future__ import annotations

import argparse
from pathlib import Path

from payload.commands.prepare import check_positive
from payload.errors import UserError, nearest
from payload.experiment.read import read_experiment
from payload.run.run_folder import check_writable


def bench(options: argparse.Namespace) -> int:
    """Measures; returns the exit code: 1 if a measurement failed."""
    from bench.process import unwind_on_signals

    for name in ("seconds", "rounds", "seeds", "steps"):
        check_positive(f"--{name}", getattr(options, name))
    check_writable(options.results)
    if options.against and not options.learn:
        raise UserError("--against: needs --learn. Next: volley bench --learn --against FILE")
    if options.device != "cuda" and not options.gpu:
        raise UserError("--device: needs --gpu. Next: volley bench --gpu --device cpu")
    unwind_on_signals()
    if options.scale:
        from bench.scale import bench_scale

        return bench_scale(options.seconds, options.results)
    if options.gpu:
        from bench.gpu import bench_gpu

        return bench_gpu(options.device, options.seconds, options.rounds, options.results)
    if options.sampling:
        from bench.sampling import bench_sampling

        return bench_sampling(options.sampling, options.seconds, options.rounds, options.results)
    if options.games is not None:
        from bench.games import bench_games

        if options.experiment and options.run:
            raise UserError("--run: with --games, --experiment FILE names it. Next: leave one out")
        return bench_games(
            options.experiment or _of_games(options.run),
            options.games,
            options.seeds,
            options.steps,
            options.results,
            options.first_seed,
        )
    if not options.learn:
        from bench.benchmark import bench as measure

        return measure(options.seconds, options.rounds, options.results)
    from bench.learning import bench_learning

    pong = "pong-appo" if options.run in (None, "APPO") else "pong"
    experiment = options.experiment or Path(f"experiments/{pong}.yaml")
    return bench_learning(
        experiment,
        options.run or read_experiment(experiment).experiment.run,
        options.seeds,
        options.results,
        options.first_seed,
        options.against,
    )


def _of_games(run: str | None) -> Path:
    """Returns the experiment with one setting for all games."""
    files = {"APPO": "atari", "PQN": "atari-pqn"}
    run = run or "APPO"
    if run not in files:
        raise UserError(
            f"--run {run}: --games has settings for {' and '.join(files)}{nearest(run, files)}. "
            "Next: --experiment FILE with your own"
        )
    return Path(f"experiments/{files[run]}.yaml")
