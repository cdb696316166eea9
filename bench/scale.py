"""`bench --scale`: the throughput of each part of a training, and where more cores stop helping."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.benchmark import check_system, measure_parts
from bench.limited_link import why_not
from bench.limits import Limit
from bench.parts import Part, measure
from bench.scale_model import CORES, HEAD_LINK, Costs, Prediction, predict
from bench.table import Figure, figure_table, machine, number, over_rounds, write_json
from payload.experiment.batch_sizes import LAPTOP, TRAJECTORIES

UNITS = {
    "steps_per_s": "steps/s",
    "samples_per_s": "steps/s",
    "driver_us_per_1000_steps": "us/1000 steps",
    "us": "us",
    "bytes_per_step": "B/step",
    "bytes": "B",
}
"""The unit of a figure, by its name in a measurement."""
BESIDES = {"driver_us_per_1000_steps": ": driver's CPU"}
TWO_CORES_PER_S = 5_000.0
"""About what two cores train; the driver is offered 10 and 30 times as much."""
LINK_MBIT_PER_S = HEAD_LINK * 8 / 1e6 / 20
"""A twentieth of the head's network for about a twentieth of a cluster."""
FRAGMENTS = "fragments to a learner"
LIMITED_LINK = f"{FRAGMENTS}, over {LINK_MBIT_PER_S:,.0f} Mbit/s"
MANY_ENV_RUNNERS = 128
"""This many require several learners: a minibatch over all learners then has 1,024 steps."""
GAMES = sorted({games for _, games, _ in TRAJECTORIES}, reverse=True)


def bench_scale(seconds: float, results: Path) -> int:
    """Measures each part by itself, predicts clusters, prints both and writes bench_scale.json.

    A measurement lasts `seconds`, plus start-up. The exit code is 1 if a measurement failed; the
    others still run. Logs are in bench-scale-logs/.
    """
    check_system()
    console = Console(soft_wrap=True, highlight=False)
    about = machine()
    logs = results / "bench-scale-logs"
    limits = measurements(seconds)
    if (reason := why_not()) is not None:
        console.print(f"Skipped: {LIMITED_LINK}: {reason}")
        del limits[LIMITED_LINK]
    parts = [Part(name, partial(_figures, name, limit)) for name, limit in limits.items()]
    figures, problems = measure_parts(parts, logs, console)
    measured = over_rounds(figures)
    values = {name: figure.median.value for name, figure in measured.items()}
    predictions = [] if problems else predictions_from(costs_from(values))
    path = results / "bench_scale.json"
    write_json(
        path,
        {
            **about,
            "seconds": seconds,
            "figures": {name: figure.to_json() for name, figure in measured.items()},
            "predictions": [to_json(prediction) for prediction in predictions],
            "problems": problems,
        },
    )
    console.print(figure_table(measured.values()))
    if predictions:
        console.print(capacity_table(predictions))
        console.print(prediction_table(predictions))
        draw_time_to_solve(predictions, results / "time_to_solve.png")
    console.print(f"Written to {path}; logs in {logs}")
    return 1 if problems else 0


def measurements(seconds: float) -> dict[str, Limit]:
    limit = partial(Limit, seconds=seconds)
    driver = partial(limit, "driver", env_runners=2, learning=False)
    wanted = {f"env runner, {games} games": limit("env runner", num_envs=games) for games in GAMES}
    wanted |= {
        "2 env runners of 1 CPU": limit("sampling", env_runners=2, learning=False),
        "1 env runner of 2 CPUs": limit("sampling", cpus=2, learning=False),
        "driver": driver(),
        "driver, fragments of 4 times the steps": driver(fragments=4),
    }
    for times in (10, 30):
        offered = driver(steps_per_s=times * TWO_CORES_PER_S)
        wanted[f"driver, offered {offered.steps_per_s:,.0f} steps/s"] = offered
    wanted |= {
        "object store": limit("object store"),
        FRAGMENTS: driver(receiving=True),
        LIMITED_LINK: driver(receiving=True, link_mbit_per_s=LINK_MBIT_PER_S),
    }
    for learners, name in ((1, "1 learner process"), (2, "2 learner processes")):
        wanted[name] = limit("learners", learners=learners)
        wanted[f"{name}, sizes for {MANY_ENV_RUNNERS} env runners"] = limit(
            "learners", env_runners=MANY_ENV_RUNNERS, learners=learners
        )
    return wanted | {
        "gradient step, host": limit("gradient step"),
        "rollout fragment": limit("fragment"),
        "weights": limit("weights"),
    }


def costs_from(values: Mapping[str, float]) -> Costs:
    """Returns what the predictions need, from the figures by their names."""
    return Costs(
        env_runner_us={
            games: 1e6 / values[f"env runner, {games} games: steps_per_s"] for games in GAMES
        },
        driver_us_per_fragment=values["driver: driver_us_per_1000_steps"]
        * LAPTOP.fragment_steps
        / 1000,
        fragment_bytes=values["rollout fragment: bytes_per_step"],
        weights_bytes=values["weights: bytes"],
        gradient_step_us=values["gradient step, host: us"],
        learner_us=1e6 / values["1 learner process: samples_per_s"],
    )


def predictions_from(costs: Costs) -> list[Prediction]:
    """Returns the throughput of clusters of several sizes."""
    return [predict(costs, cores, gpu) for cores in CORES for gpu in (False, True)]


def capacity_table(predictions: list[Prediction]) -> Table:
    """Returns a table of the capacity of each part of a cluster, for the terminal."""
    table = Table(title="Capacity, environment steps per second", title_justify="left")
    parts = ("Driver", "Network in", "Network out", "Learning")
    for column in ("Cores", "Learner", "Env runners", *parts):
        table.add_column(column, justify="right")
    for cluster in predictions:
        limits = [number(limit) for limit in (cluster.offered, *cluster.limits.values())]
        table.add_row(str(cluster.cores), "GPU" if cluster.gpu else "core", *limits)
    return table


def prediction_table(predictions: list[Prediction]) -> Table:
    """Returns a table of what a cluster trains and what limits it first, for the terminal."""
    table = Table(title="Predicted, environment steps per second", title_justify="left")
    for column in ("Cores", "Learner", "Throughput", "First wall", "Seconds to solve Pong"):
        table.add_column(column, justify="right")
    for cluster in predictions:
        figures = (number(cluster.throughput), cluster.wall, number(cluster.seconds_to_solve_pong))
        table.add_row(str(cluster.cores), "GPU" if cluster.gpu else "core", *figures)
    return table


def draw_time_to_solve(predictions: list[Prediction], path: Path) -> None:
    """Draws the predicted time to solve Pong over the env runners' cores, as a PNG."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(7, 4.5), layout="constrained")
    axes = picture.subplots()
    for gpu, words in ((False, "learner on a core"), (True, "learner on a GPU")):
        seconds = [cluster.seconds_to_solve_pong for cluster in predictions if cluster.gpu == gpu]
        axes.plot(CORES, seconds, marker="o", label=words)
    axes.set(
        title="Pong: predicted time to a mean return of 18",
        xlabel="cores of env runners",
        ylabel="seconds from the command",
        xscale="log",
        yscale="log",
        xticks=CORES,
        xticklabels=list(map(str, CORES)),
        yticks=[20, 50, 100, 200, 500, 1000, 2000],
        yticklabels=["20", "50", "100", "200", "500", "1,000", "2,000"],
    )
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    picture.savefig(path, dpi=150)


def _figures(name: str, limit: Limit, log: Path) -> list[Figure]:
    return [
        Figure(f"{name}: {key}", value, UNITS[key], f"{name}{BESIDES.get(key, '')}")
        for key, value in measure(limit, log).items()
    ]


def to_json(prediction: Prediction) -> dict[str, object]:
    """Returns a prediction with its derived figures."""
    return {
        **vars(prediction),
        "limits": dict(prediction.limits),
        "throughput": prediction.throughput,
        "seconds_to_solve_pong": prediction.seconds_to_solve_pong,
        "wall": prediction.wall,
    }
