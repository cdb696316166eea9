"""What limits training on many machines, predicted from the cost of each part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from bench import limits, scale_limits
from bench.limited_link import why_not
from bench.limits import Limit, measure_driver
from bench.parts import Part
from bench.scale import (
    FRAGMENTS,
    GAMES,
    LIMITED_LINK,
    costs_from,
    draw_time_to_solve,
    measurements,
    predictions_from,
    to_json,
)
from bench.scale_limits import SCALE_PARTS
from bench.scale_model import Costs, predict
from payload.experiment.batch_sizes import LAPTOP
from tests.local_ray import leave_local_ray, short_lived_cluster

COSTS = Costs(
    env_runner_us=dict.fromkeys(GAMES, 400.0),
    driver_us_per_fragment=1_000.0,
    fragment_bytes=100.0,
    weights_bytes=600_000.0,
    gradient_step_us=2_000.0,
    learner_us=70.0,
)
MEASURED = {
    **{f"env runner, {games} games: steps_per_s": 2_500.0 for games in GAMES},
    "driver: driver_us_per_1000_steps": 1_000.0,
    "rollout fragment: bytes_per_step": 100.0,
    "weights: bytes": 600_000.0,
    "gradient step, host: us": 2_000.0,
    "1 learner process: samples_per_s": 12_500.0,
}


def test_few_env_runners_are_the_limit_themselves() -> None:
    one = predict(COSTS, cores=2, gpu=True)
    assert (one.wall, one.throughput) == ("env runners", 5_000.0)


def test_a_learner_without_a_gpu_is_the_first_wall() -> None:
    one = predict(COSTS, cores=13, gpu=False)
    assert one.wall == "learner on a core"
    assert one.throughput == pytest.approx(1e6 / 70)


@pytest.mark.parametrize(
    ("worse", "wall"),
    [
        ({"driver_us_per_fragment": 1e6}, "driver"),
        ({"fragment_bytes": 1e6}, "network into the head"),
        ({"weights_bytes": 1e9}, "network out of the head"),
        ({"gradient_step_us": 1e6}, "learner's host"),
    ],
    ids=lambda worse: next(iter(worse)) if isinstance(worse, dict) else "",
)
def test_what_costs_most_is_the_wall(worse: dict[str, Any], wall: str) -> None:
    assert predict(replace(COSTS, **worse), cores=100, gpu=True).wall == wall


@given(st.integers(1, 2_000), st.booleans())
def test_a_throughput_is_what_every_part_can_carry(cores: int, gpu: bool) -> None:
    one = predict(COSTS, cores, gpu)
    assert one.throughput <= one.offered == cores * 2_500.0
    assert all(one.throughput <= limit for limit in one.limits.values())


def test_no_cluster_with_a_gpu_takes_longer_than_two_cores() -> None:
    alone = predict(COSTS, 2, gpu=True).seconds_to_solve_pong
    assert all(predict(COSTS, n, gpu=True).seconds_to_solve_pong < alone for n in (13, 100, 1000))


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    draw_time_to_solve(predictions_from(COSTS), tmp_path / "time.png")
    assert (tmp_path / "time.png").read_bytes().startswith(b"\x89PNG")


def test_costs_are_those_that_were_measured() -> None:
    costs = costs_from(MEASURED)
    assert costs.driver_us_per_fragment == pytest.approx(LAPTOP.fragment_steps)
    assert set(costs.env_runner_us.values()) == {400.0}
    assert costs.learner_us == pytest.approx(80.0)


def test_predictions_are_json() -> None:
    rows = [to_json(one) for one in predictions_from(COSTS)]
    assert json.loads(json.dumps(rows)) == rows


def test_every_measurement_that_costs_need_is_made() -> None:
    made = measurements(seconds=1.0)
    assert {name.rpartition(": ")[0] for name in MEASURED} <= made.keys()


def test_every_measurement_has_a_log_of_its_own() -> None:
    names = [Part(name, lambda _: []).log_name for name in measurements(seconds=1.0)]
    assert len(set(names)) == len(names)
    assert [name for name in names if Path(name).name != name] == []


# Parts are measured in this process, which has RLlib imported; test_benchmark.py uses another.


def small(what: str, seconds: float, **changes: Any) -> Limit:
    """Returns a measurement with few games: loading the usual number takes four seconds."""
    return replace(measurements(seconds)[what], num_envs=8, **changes)


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warms up briefly, and records one fragment instead of several."""
    record = scale_limits._recorded
    times = scale_limits.FRAGMENTS
    monkeypatch.setattr(limits, "WARM_UP_S", 0.1)
    monkeypatch.setattr(scale_limits, "WARM_UP_UPDATES", 1)
    monkeypatch.setattr(scale_limits, "FRAGMENTS", 1)
    monkeypatch.setattr(scale_limits, "_recorded", lambda config: record(config) * times)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here", "little")
@pytest.mark.parametrize(
    ("what", "figure", "least", "most"),
    [
        ("weights", "bytes", 500_000, 700_000),
        ("gradient step, host", "us", 100, 100_000),
        ("1 learner process", "samples_per_s", 100, 1_000_000),
        ("object store", "steps_per_s", 1_000, 1_000_000_000),
    ],
)
def test_a_part_is_measured(what: str, figure: str, least: float, most: float) -> None:
    limit = small(what, seconds=0.1)
    assert least < SCALE_PARTS[limit.part](limit)[figure] < most


Drive = Callable[[Limit], tuple[float, set[str]]]


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drive]:
    """Measures a driver with its own Ray: steps per second, and the nodes of its env runners."""
    nodes: set[str] = set()

    def throughput(algorithm: Any, limit: Limit) -> dict[str, float]:
        measured = measure_throughput(algorithm, limit)
        nodes.update(
            algorithm.env_runner_group.foreach_env_runner(
                lambda _: ray.get_runtime_context().get_node_id(), local_env_runner=False
            )
        )
        algorithm.stop()
        return measured

    measure_throughput = limits.throughput
    monkeypatch.setattr(limits, "throughput", throughput)
    leave_local_ray()
    yield lambda limit: (measure_driver(limit)["steps_per_s"], nodes)
    leave_local_ray()


@pytest.mark.slow
def test_env_runners_are_on_the_nodes_with_a_resource_of_a_running_cluster(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = small(FRAGMENTS, seconds=0.1, node_resource="worker", env_runners=1)
    with short_lived_cluster({"num_cpus": 1}) as cluster:
        worker = cluster.add_node(num_cpus=1, resources={"worker": 1})
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        try:
            steps_per_s, nodes = drive(limit)
        finally:
            ray.shutdown()
    assert steps_per_s > 1_000
    assert nodes == {worker.node_id}


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=f"a limited link {why_not()}")
def test_a_limited_link_carries_no_more_than_its_rate(drive: Drive) -> None:
    limit = small(LIMITED_LINK, seconds=2.0, link_mbit_per_s=8.0, env_runners=1)
    steps_per_s, _ = drive(limit)
    # At 60 bytes a step the link carries 17,000 steps/s; the driver handles 150,000.
    assert 1_000 < steps_per_s < 25_000
