"""`volley status`: its output for users and its JSON for scripts."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.head.sleep.sleeping_head import SETTINGS
from tests.volley.conftest import Laptop, outputs_of
from tests.volley.head import LocalHead, until
from volley.cost import cost_so_far
from volley.stack import Outputs
from volley.status import cluster_lines, status_page
from volley.tables import console

OUTPUTS = Outputs({"pricePerHourUsd": 0.73, "pricePerHourAsleepUsd": 0.05})
RUN = {
    "env_steps": 1_234_567,
    "steps_per_s": 5000.4,
    "episode_return": 17.25,
    "seconds_left": 1200,
    "num_env_runners": 11,
}
NODE = {"name": "10.42.0.4", "address": "10.42.0.4", "role": "head", "cpus": 4, "gpus": 1.0}
WORKER = {"name": "10.42.0.5", "address": "10.42.0.5", "role": "worker", "cpus": 8, "gpus": 0.0}
ANSWER: dict[str, Any] = {
    "time": 1000.0,
    "nodes": [{**NODE, "state": "ALIVE"}],
    "experiments": [
        {"name": "pong", "state": "TRAINING", "reason": "", "wish": "", "status": RUN},
        {"name": "next", "state": "QUEUED", "reason": "no room", "status": None, "position": 2},
        {
            "name": "bad",
            "state": "FAILED",
            "reason": "config.lr: [bold] is not a number",
            "status": None,
        },
    ],
    "saved": {"time": 940.0},
    "head": {"uptime_s": 7200.0, "memory_bytes": 64 * 2**20, "disk_free_bytes": 90 * 2**30},
}


def page(
    answer: dict[str, Any], all_experiments: bool = False, outputs: Outputs = OUTPUTS
) -> list[str]:
    pipe = console()
    with pipe.capture() as printed:
        pipe.print(status_page(answer, outputs, all_experiments))
    return printed.get().splitlines()


def row(name: str) -> list[str]:
    (line,) = [line for line in page(ANSWER) if line.startswith(f"│ {name} ")]
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_a_training_is_shown_with_its_progress() -> None:
    assert row("pong") == ["pong", "TRAINING", "17.25", "1,234,567", "5,000", "11", "20 min", ""]


def test_a_queued_experiment_is_shown_with_its_position_and_the_reason() -> None:
    assert row("next")[:2] == ["next", "QUEUED (2)"]
    assert row("next")[-1] == "no room"


def test_an_experiment_that_waits_for_what_is_away_says_when_it_is_tried_again() -> None:
    away = {"name": "away", "state": "STARTING", "status": None, "reason": "the registry is away"}
    answer = {**ANSWER, "experiments": [{**away, "not_before": 1240.0, "away": 4}]}
    assert "the registry is away; retry in 4 min (try 5)" in "".join(page(answer))
    answer = {**ANSWER, "experiments": [{**away, "not_before": 1240.0, "state": "STOPPED"}]}
    assert "retry" not in "".join(page(answer))


def test_a_failed_experiment_is_shown_with_the_reason_as_it_is() -> None:
    assert row("bad")[-1] == "config.lr: [bold] is not a number"


def many(state: str) -> list[dict[str, Any]]:
    numbers = range(1, 201)
    return [{"name": f"{state.lower()}-{n}", "state": state, "position": n} for n in numbers]


def test_of_many_experiments_the_next_and_the_last_are_shown() -> None:
    experiments = [*many("FINISHED"), *ANSWER["experiments"], *many("QUEUED")]
    text = "\n".join(page({**ANSWER, "experiments": experiments}))
    assert "finished-190 " not in text
    assert "finished-192 " in text
    assert "pong " in text
    assert "queued-9 " in text
    assert "queued-10 " not in text
    assert "Not shown: 191 queued, 191 ended. Next: volley status --all" in text


def test_all_experiments_are_shown_on_demand() -> None:
    answer = {**ANSWER, "experiments": many("QUEUED")}
    text = "\n".join(page(answer, all_experiments=True))
    assert "queued-200 " in text
    assert "Not shown" not in text


def test_cost_and_the_last_save_are_shown() -> None:
    text = page(ANSWER)
    assert any(line.startswith("about $0.73/h with all workers, $1.46 ") for line in text)
    assert "Results were saved 60 s ago" in text


def test_the_memory_of_the_services_is_shown() -> None:
    assert "The queue's services use 64 MiB on the head" in page(ANSWER)


def test_a_service_that_does_not_work_is_named_with_its_log() -> None:
    services = [{"unit": "mlflow", "restarts": 12}, {"unit": "sync-results", "restarts": 0}]
    lines = page({**ANSWER, "services": services})
    assert [line for line in lines if line.startswith("The head's service ")] == [
        "The head's service mlflow keeps restarting (12 times). Next: volley logs --unit mlflow",
        "The head's service sync-results has failed. Next: volley logs --unit sync-results",
    ]


@pytest.mark.parametrize(
    ("warning", "ending"),
    [("", ""), ("it is little. Next: volley rm NAME", ": it is little. Next: volley rm NAME")],
)
def test_the_space_that_the_head_has_left_is_shown(warning: str, ending: str) -> None:
    answer = {**ANSWER, "head": {**ANSWER["head"], "disk_warning": warning}}
    assert f"The head's disk has 90.0 GiB left{ending}" in page(answer)


def test_a_queue_that_has_seen_no_nodes_says_where_to_look() -> None:
    (line,) = [line for line in page({**ANSWER, "nodes": []}) if "any machines yet" in line]
    assert line.endswith("Next: volley logs --unit experiments")


def test_an_idle_cluster_says_what_to_type() -> None:
    assert any("Next: volley submit" in line for line in page({**ANSWER, "experiments": []}))


@pytest.mark.parametrize(("state", "told"), [("TRAINING", True), ("STOPPED", False)])
def test_what_an_experiment_was_asked_to_do_is_told_until_it_has_ended(
    state: str, told: bool
) -> None:
    (first, *_) = ANSWER["experiments"]
    asked = {**first, "state": state, "wish": "stop", "reason": "stopped"}
    text = "\n".join(page({**ANSWER, "experiments": [asked]}))
    assert ("writing its checkpoint" in text) == told


@pytest.mark.parametrize(
    ("image", "updated", "line"),
    [
        (
            "d:ubuntu-hpc:2204:latest (22.04.2026992401)",
            None,
            "of unknown age; OpenSSH and OpenSSL have not been updated since the head's start",
        ),
        (
            "d:ubuntu-hpc:2204:latest (22.04.2026022401)",
            None,
            "30 days old; OpenSSH and OpenSSL have not been updated since the head's start",
        ),
        (
            "d:ubuntu-hpc:2204:22.04.2026022401",
            3600,
            "30 days old; OpenSSH and OpenSSL were updated 60 min ago",
        ),
        (
            "/subscriptions/s/images/own",
            None,
            "of unknown age; OpenSSH and OpenSSL have not been updated since the head's start",
        ),
    ],
)
def test_the_age_of_the_image_is_shown(image: str, updated: float | None, line: str) -> None:
    now = datetime(2026, 3, 26, 12, tzinfo=UTC).timestamp()
    head = {**ANSWER["head"], "updated": updated and now - updated}
    outputs = Outputs({**OUTPUTS.values, "image": image})
    lines = page({**ANSWER, "time": now, "head": head}, outputs=outputs)
    assert f"The head's image is {line}" in " ".join(lines)


def test_cost_is_the_price_times_the_hours() -> None:
    assert cost_so_far(ANSWER, OUTPUTS).so_far == 1.46


def test_what_the_head_has_counted_is_the_cost() -> None:
    counted = {"so_far": 1.2, "per_hour": 0.41, "estimate": "estimated, eastus, 2026-06"}
    text = page({**ANSWER, "cost": counted})
    assert "about $0.41/h now, $1.20 since this head was created" in text
    assert not any("with all workers" in line for line in text)


@pytest.mark.parametrize("key", ["workers", "cost", "sleep", "nodes_time"])
def test_what_a_head_does_not_know_yet_is_left_out(key: str) -> None:
    assert page({**ANSWER, key: None}) == page(ANSWER)


WORKERS = {
    "time": 995.0,
    "wanted": 4,
    "there": ["w1", "w2"],
    "coming": ["w3"],
    "leaving": [],
    "missing": 1,
    "why": "SkuNotAvailable: \x1b[31mnone left",
    "next_try": 1180.0,
    "problem": "",
}
ENOUGH = {"missing": 0, "why": "", "next_try": None}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {},
            "2 of 4 running, 1 starting. SkuNotAvailable: none left; retry in 3 min",
        ),
        ({"coming": ["w3", "w4"], **ENOUGH}, "2 of 4 running, 2 starting"),
        (
            {"coming": ["w3", "w4"], "sizes": {"D4as_v5": 1, "D4s_v5": 3}, **ENOUGH},
            "2 of 4 running, 2 starting, 1 D4as_v5, 3 D4s_v5",
        ),
        ({"wanted": 2, "coming": [], "leaving": ["w5"], **ENOUGH}, "2 of 2 running, 1 leaving"),
        (
            {"wanted": 2, "coming": [], "time": 700.0, **ENOUGH},
            "2 of 2 running (as of 5 min ago)",
        ),
    ],
    ids=["missing", "coming", "sizes", "leaving", "old"],
)
def test_workers_are_shown_with_why_some_are_missing(changes: dict[str, Any], line: str) -> None:
    assert f"Workers: {line}" in page({**ANSWER, "workers": {**WORKERS, **changes}})


def test_what_azure_refuses_is_shown_in_red() -> None:
    lines = cluster_lines({**ANSWER, "workers": {**WORKERS, "problem": "AuthorizationFailed"}})
    assert [(line.plain, line.style) for line in lines][1:] == [
        ("Workers: AuthorizationFailed", "red")
    ]


SLEEP = {
    "idle_since": 280.0,
    "sleeps_at": 2080.0,
    "going": False,
    "warning": "",
    "problem": "",
    "next_try": None,
}


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, [("Idle for 12 min; sleeps in 18 min", "")]),
        ({"sleeps_at": None}, [("Idle for 12 min", "")]),
        ({"idle_since": None}, [("Sleeps in 18 min", "")]),
        ({"idle_since": None, "sleeps_at": None}, []),
        (
            {"warning": "9.50 of 10 dollars"},
            [("Idle for 12 min; sleeps in 18 min", ""), ("9.50 of 10 dollars", "yellow")],
        ),
        (
            {"going": True},
            [("The cluster is falling asleep. To wake it up: volley start", "yellow")],
        ),
        (
            {"going": True, "problem": "Conflict", "next_try": 1120.0},
            [
                ("The cluster is falling asleep. To wake it up: volley start", "yellow"),
                ("The cluster could not fall asleep: Conflict; retry in 2 min", "red"),
            ],
        ),
    ],
    ids=["idle", "no-sleep", "a-limit", "busy", "warning", "going", "problem"],
)
def test_sleep_is_shown(changes: dict[str, Any], lines: list[tuple[str, str]]) -> None:
    found = cluster_lines({**ANSWER, "sleep": {**SLEEP, **changes}})
    assert [(line.plain, str(line.style)) for line in found] == lines


def test_nodes_that_were_seen_long_ago_are_shown_so() -> None:
    head = next(line for line in page({**ANSWER, "nodes_time": 700.0}) if "node " in line)
    assert "state (as of 5 min ago)" in head
    assert "as of" not in "".join(page({**ANSWER, "nodes_time": 975.0}))


@pytest.mark.slow
def test_what_the_head_knows_is_shown(connected: Laptop, head: LocalHead) -> None:
    head.knows({**NODE, "state": "ALIVE"}, {**WORKER, "state": "ALIVE"})
    folder = head.experiment("pong", order=1)
    (folder / "status.json").write_text(json.dumps({"state": "TRAINING", "run": "a", **RUN}))
    head.experiment("breakout", "QUEUED", order=2, reason="waiting for CPUs or GPUs in use by pong")
    head.experiment("cart", "QUEUED", order=3, reason="waiting for its turn")
    head.write("var/lib/volley-identity/saved-at", b"")
    memory = "sys/fs/cgroup/system.slice/experiments.service/memory.current"
    head.write(memory, str(61 * 2**20).encode())
    said = connected.volley("status")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.splitlines()]
    assert ["10.42.0.5", "worker", "ALIVE", "8", "0"] in cells
    assert ["pong", "TRAINING", "17.25", "1,234,567", "5,000", "11", "20 min", ""] in cells
    why = "waiting for its turn"
    assert ["cart", "QUEUED (2)", "", "", "", "", "", why] in cells
    assert "Results were saved" in said
    assert "61 MiB" in said
    assert "as of" not in said


@pytest.mark.slow
def test_nodes_of_a_queue_that_is_away_are_not_shown_as_if_it_saw_them(
    connected: Laptop, head: LocalHead
) -> None:
    head.knows({**NODE, "state": "ALIVE"}, ago_s=300)
    assert "state (as of 5 min ago)" in connected.volley("status")


@pytest.mark.slow
def test_what_still_bills_while_the_head_sleeps_is_shown(
    connected: Laptop, head: LocalHead
) -> None:
    connected.outputs(**outputs_of(head, pricePerHourAsleepUsd=0.08))
    (line,) = [line for line in connected.volley("cost").splitlines() if "asleep" in line]
    assert line.strip("│").split("│")[1].strip() == "0.08"
    assert json.loads(connected.volley("cost", "--json"))["per_hour_asleep"] == 0.08


@pytest.mark.slow
def test_what_each_experiment_has_stored_is_shown_with_its_price(
    connected: Laptop, head: LocalHead
) -> None:
    for name in ("pong", "small"):
        head.experiment(name)
    sizes = {"pong-key": 100 * 2**30, "small-key": 2**30, "older-key": 2**30}
    counted = {"everything": 110 * 2**30, "runs": sizes, "time": 1.0}
    head.write("var/lib/volley-identity/stored.json", json.dumps(counted).encode())
    prices = {**SETTINGS["prices"], "stored_gb": 0.0208 / 730}
    settings = {**SETTINGS, "endpoint": "", "prices": prices}
    head.write("etc/volley/cluster-settings.json", json.dumps(settings).encode())
    lines = connected.volley("cost").splitlines()
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if "│" in line]
    assert rows[-4:] == [
        ["pong", "100.00", "2.08"],
        ["small", "1.00", "0.02"],
        ["MLflow, Python environment, other runs", "9.00", "0.19"],
        ["all", "110.00", "2.29"],
    ]
    answer = json.loads(connected.volley("cost", "--json"))["stored"]
    assert answer["experiments"] == {"pong": 100 * 2**30, "small": 2**30}


@pytest.mark.slow
def test_a_script_reads_json(connected: Laptop, head: LocalHead) -> None:
    head.experiment("pong")
    (found,) = json.loads(connected.volley("status", "--json"))["experiments"]
    assert (found["name"], found["key"], found["position"]) == ("pong", "pong-key", None)
    answer = json.loads(connected.volley("cost", "--json"))
    assert answer["so_far"] == pytest.approx(0.73 * answer["uptime_s"] / 3600, abs=1e-4)


@pytest.mark.slow
def test_status_of_two_hundred_experiments_is_shown(connected: Laptop, head: LocalHead) -> None:
    for place in range(200):
        head.experiment(f"pong-{place}")
    assert connected.volley("status").count("TRAINING") == 200


@pytest.mark.slow
def test_watch_shows_the_cluster_until_ctrl_c(connected: Laptop, head: LocalHead) -> None:
    head.experiment("pong")
    file = connected.folder / "watched"
    with file.open("w") as output:
        process = connected.start("status", "--watch", stdout=output)
    until(lambda: head.commands() > 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip() == "volley: The cluster keeps running."
    assert "pong" in file.read_text()


def test_jupyterlab_is_shown_while_it_runs() -> None:
    assert "JupyterLab is running with 1 kernel" in page({**ANSWER, "jupyter": {"kernels": 1}})
    assert not [line for line in page({**ANSWER, "jupyter": None}) if "JupyterLab" in line]
