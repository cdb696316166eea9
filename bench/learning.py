"""`volley bench --learn`: the time and the environment steps to a mean return of 18, seed by seed.

Two experiments that are compared train on the same seeds, alternately (A B A B ...), so that both
run under the same conditions. A difference counts if the ratio's interval excludes 1.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.benchmark import fresh_logs
from bench.intervals import Interval, median_interval, percentile, ratio_interval
from bench.played_games import AT_CURRENT_RETURN, NUM_GAMES
from bench.table import (
    Bar,
    Comparison,
    comparison_table,
    machine,
    number,
    with_interval,
    write_json,
)
from bench.trainer import Learned, measure_learning
from payload.errors import UserError, nearest
from payload.experiment.read import read_experiment
from payload.experiment.settings import ALGORITHMS

GOAL = 18.0
"""Mean return of 100 episodes at which Pong (best: 21) counts as solved."""
LIMIT_S = 1200.0
"""Seconds of training after which a seed counts as not solved."""
DECISIVE = 5
"""With fewer seeds, a ratio decides nothing."""


@dataclass(frozen=True)
class LearningBars:
    """The most that seeds may take from the command to the goal."""

    median_s: float
    p95_s: float
    """For the 95th percentile of the seeds."""
    median_steps: float


BARS = LearningBars(median_s=150.0, p95_s=230.0, median_steps=620_000)
"""On a machine that trains 4,900 environment steps per second."""


@dataclass
class LearningReport:
    """The seeds of one experiment measured so far."""

    run: str
    goal: float
    bars: LearningBars
    asked: int
    """Seeds to measure."""
    learned: list[Learned] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)
    """Why a run failed, by seed."""

    @property
    def num_seeds(self) -> int:
        return len(self.learned) + len(self.problems)

    def seconds(self) -> dict[int, float]:
        """Returns the seconds to the goal by seed; infinite where it was not reached."""
        return self._unless_missed({seed.seed: seed.seconds or 0.0 for seed in self.learned})

    def steps(self) -> dict[int, float]:
        """Returns the environment steps to the goal by seed; infinite where it was not reached."""
        return self._unless_missed({seed.seed: float(seed.env_steps) for seed in self.learned})

    def _unless_missed(self, by_seed: dict[int, float]) -> dict[int, float]:
        missed = [seed.seed for seed in self.learned if seed.seconds is None]
        return by_seed | dict.fromkeys([*missed, *self.problems], math.inf)

    def throughput(self) -> dict[int, float]:
        """Returns environment steps per second of training by seed."""
        return {seed.seed: seed.env_steps / seed.training_s for seed in self.learned}

    def verdicts(self) -> list[Comparison]:
        """Compares the seeds measured so far with the bars, and the solved ones with `asked`."""
        times = list(self.seconds().values())
        if not times:
            return []
        solved = Interval.point(sum(math.isfinite(seconds) for seconds in times))
        median, steps = median_interval(times), median_interval(list(self.steps().values()))
        p95, bars = Interval.point(percentile(times, 95)), self.bars
        return [
            Comparison("seeds_solved", "seeds solved", solved, Bar(self.asked, "at least")),
            Comparison("median_s", "median seconds to goal", median, Bar(bars.median_s, "at most")),
            Comparison("p95_s", "95th percentile of them", p95, Bar(bars.p95_s, "at most")),
            Comparison(
                "median_steps", "median steps to goal", steps, Bar(bars.median_steps, "at most")
            ),
        ]

    def to_json(self) -> dict[str, Any]:
        medians = {}
        if self.learned:
            medians = {
                "steps": asdict(median_interval(list(self.steps().values()))),
                "steps_per_s": asdict(median_interval(list(self.throughput().values()))),
            }
        return {
            "run": self.run,
            "goal": self.goal,
            "seeds": [asdict(seed) for seed in self.learned],
            "medians": medians,
            "comparisons": {verdict.name: verdict.to_json() for verdict in self.verdicts()},
            "problems": {str(seed): problem for seed, problem in self.problems.items()},
        }


@dataclass(frozen=True)
class Arm:
    """An experiment that is measured, and its measurements so far."""

    name: str
    experiment: Path
    run: str | None
    """Replaces the experiment's `run`, unless None."""
    report: LearningReport


def bench_learning(
    experiment: Path,
    run: str,
    seeds: int,
    results: Path,
    first_seed: int | None = None,
    against: Path | None = None,
) -> int:
    """Measures the time from the command to a mean return of 18, start-up included.

    Writes bench_learn_<run>.json after every seed; the runs keep their files in bench-learn-<run>/.
    The exit code is 1 if a run failed; missing the goal in time is not a failure.

    Args:
        experiment: Its run and stop are ignored.
        first_seed: Seeds count up from here. By default it comes from the clock, so that the seeds
            are not those that the defaults were tuned on.
        against: An experiment to compare with on the same seeds; its stop is ignored.
    """
    read_experiment(experiment)
    if run not in ALGORITHMS:
        names = ", ".join(ALGORITHMS)
        raise UserError(f"--run {run}: unknown{nearest(run, ALGORITHMS)}; known: {names}")
    arms = [_arm(run, experiment, run, seeds)]
    if against is not None:
        other = against.stem if against.stem != run else f"{against.stem}-other"
        arms.append(_arm(other, against, None, seeds))
    console = Console(soft_wrap=True, highlight=False)
    about = machine()
    name = "-against-".join(arm.name for arm in arms)
    folder, path = results / f"bench-learn-{name}", results / f"bench_learn_{name}.json"
    logs = fresh_logs(folder / "bench-logs")
    try:
        first = int(time.time()) if first_seed is None else first_seed
        for seed in range(first, first + seeds):
            for arm in arms:
                _measure(arm, seed, folder, logs / f"{arm.name}-seed-{seed}.log", console)
                write_json(path, {**about, **_to_json(arms)})
    finally:
        _show(arms, console)
        console.print(f"Written to {path}; runs in {folder}")
    return 1 if any(arm.report.problems for arm in arms) else 0


def decision(ratio: Interval, seeds: int) -> str:
    """Returns what a ratio of steps or seconds, first / second, decides."""
    if seeds < DECISIVE or not ratio.low <= ratio.high:
        return "not decided"
    if ratio.high < 1:
        return "the first needs less"
    return "the second needs less" if ratio.low > 1 else "not decided"


def _arm(name: str, experiment: Path, run: str | None, seeds: int) -> Arm:
    algorithm = run or read_experiment(experiment).experiment.run
    return Arm(name, experiment, run, LearningReport(algorithm, GOAL, BARS, seeds))


def _measure(arm: Arm, seed: int, folder: Path, log: Path, console: Console) -> None:
    console.print(f"Training {arm.name}, seed {seed} ...")
    try:
        learned = measure_learning(arm.experiment, arm.run, seed, GOAL, LIMIT_S, folder, log)
    except Exception as error:  # The other seeds are measured.
        arm.report.problems[seed] = str(error)
        console.print(f"seed {seed} failed: {error}", style="red", markup=False)
    else:
        arm.report.learned.append(learned)
        console.print(seed_line(learned))


@dataclass(frozen=True)
class Ratio:
    """How two arms compare over the seeds that both have."""

    what: str
    interval: Interval
    seeds: int
    decision: str


def _ratios(arms: Sequence[Arm]) -> list[Ratio]:
    """Returns the ratios of two arms' steps and seconds to the goal."""
    first, second = (arm.report for arm in arms)
    ratios = []
    for what, a, b in (
        ("steps", first.steps(), second.steps()),
        ("seconds", first.seconds(), second.seconds()),
    ):
        # A seed that failed, on a full disk for instance, says nothing of its experiment.
        if shared := sorted((a.keys() & b.keys()) - first.problems.keys() - second.problems.keys()):
            interval = ratio_interval([a[seed] for seed in shared], [b[seed] for seed in shared])
            ratios.append(Ratio(what, interval, len(shared), decision(interval, len(shared))))
    return ratios


def _to_json(arms: Sequence[Arm]) -> dict[str, Any]:
    if len(arms) == 1:
        return arms[0].report.to_json()
    return {
        "arms": {arm.name: arm.report.to_json() for arm in arms},
        "ratios": [asdict(ratio) for ratio in _ratios(arms)],
    }


def _show(arms: Sequence[Arm], console: Console) -> None:
    for arm in arms:
        if arm.report.num_seeds:
            console.print(learning_table(arm.report))
            console.print(comparison_table(arm.report.verdicts()))
    for ratio in _ratios(arms) if len(arms) == 2 else []:
        console.print(
            f"{arms[0].name} / {arms[1].name}, {ratio.what} to the goal over {ratio.seeds} seeds: "
            f"{with_interval(ratio.interval)}, {ratio.decision}"
        )


def learning_table(report: LearningReport) -> Table:
    """Lays out the seeds, one per row, then their median with its interval, and the worst seed."""
    table = Table(title=f"{report.run}: to a mean return of {report.goal:g}", title_justify="left")
    columns = (
        "Seed",
        "Seconds",
        "Environment\nsteps",
        "Steps/s",
        "Final\nmean",
        "First\nupdate, s",
        f"{NUM_GAMES}\ngames",
    )
    table.caption = (
        f"{NUM_GAMES} games: their mean return with one policy, the first that was saved at a "
        f"current return of {AT_CURRENT_RETURN:g} or more."
    )
    for name in columns:
        table.add_column(name, justify="right")
    throughput = report.throughput()
    for learned in report.learned:
        table.add_row(
            str(learned.seed),
            number(math.inf if learned.seconds is None else learned.seconds),
            f"{learned.env_steps:,}",
            number(throughput[learned.seed]),
            f"{learned.return_mean:.2f}",
            "-" if learned.startup_s is None else number(learned.startup_s),
            "-" if learned.games is None else f"{learned.games.return_mean:.2f}",
        )
    for seed in report.problems:
        table.add_row(str(seed), "failed", *5 * ["-"])
    table.add_section()
    if times := list(report.seconds().values()):
        steps, rate = list(report.steps().values()), list(throughput.values())
        medians = [median_interval(values) for values in (times, steps, rate) if values]
        table.add_row("median", *(number(median.value) for median in medians))
        table.add_row("95% from", *(number(median.low) for median in medians))
        table.add_row("to", *(number(median.high) for median in medians))
        table.add_row("worst", number(max(times)))
    return table


def seed_line(learned: Learned) -> str:
    """Summarises a seed in one line."""
    outcome = "not solved" if learned.seconds is None else f"solved after {learned.seconds:.0f} s"
    return (
        f"seed {learned.seed} {outcome}: mean return {learned.return_mean:.2f} "
        f"at {learned.env_steps:,} environment steps"
    )
