"""The options of `volley bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from payload.commands.arguments import add_results


def add_bench(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure this trainer, RLlib's example and the emulator's limit",
        description="Runs the benchmarks on this machine (Linux), prints a table and writes "
        "a JSON file.",
        allow_abbrev=False,
    )
    add = bench.add_argument
    add("--seconds", type=float, default=20.0, help="length of each measurement (default 20)")
    add(
        "--rounds",
        type=int,
        default=5,
        help="number of rounds in which the compared measurements alternate (default 5)",
    )
    instead = bench.add_mutually_exclusive_group().add_argument
    instead("--learn", action="store_true", help="measure the time to a mean return of 18 instead")
    instead("--scale", action="store_true", help="measure a cluster's throughput limits instead")
    instead(
        "--games",
        nargs="*",
        metavar="GAME",
        help="measure the scores on these Atari games instead (default: five games)",
    )
    instead("--gpu", action="store_true", help="check and measure the learner on a GPU instead")
    instead(
        "--sampling",
        nargs="+",
        metavar="ENV",
        help="compare the env runner with RLlib's own on these environments instead",
    )
    add(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="device for --gpu; cpu tries the check without a GPU (default cuda)",
    )
    add(
        "--run",
        help="algorithm of --learn (default: that of the experiment file) or --games (APPO or PQN, "
        "default APPO)",
    )
    add(
        "--experiment",
        type=Path,
        help="experiment file of --learn (default experiments/pong-appo.yaml, for IMPALA "
        "experiments/pong.yaml) or of --games (default experiments/atari.yaml, for PQN "
        "experiments/atari-pqn.yaml)",
    )
    add(
        "--against",
        type=Path,
        metavar="FILE",
        help="second experiment file for --learn: both train on the same seeds, alternately, and "
        "the intervals of the ratios show which needs less time and fewer steps",
    )
    add("--seeds", type=int, default=5, help="runs of --learn, and of each game (default 5)")
    add(
        "--first-seed",
        type=int,
        help="first seed of --learn and --games; further runs use the next ones "
        "(default: from the clock). Finished --games runs are skipped",
    )
    add(
        "--steps",
        type=int,
        default=2_500_000,
        help="environment steps of each run of --games (default 2,500,000)",
    )
    add_results(bench)
