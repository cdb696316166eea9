"""`notify` of what is submitted: the URL travels as a secret does, and the head tells the end."""

from __future__ import annotations

import getpass
import json
import socket
from pathlib import Path

import pytest

from tests.receiver import PATH, own_address, receiving
from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead, until

pytestmark = pytest.mark.slow

URL = f"https://hooks.example.com{PATH}"


def holding(folder: Path, text: str) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text.encode() in path.read_bytes()]


@pytest.mark.parametrize("given", ["option", "file", "variable"])
def test_a_url_is_in_a_file_of_ray_alone_and_nowhere_else(
    connected: Laptop,
    head: LocalHead,
    experiment: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
) -> None:
    monkeypatch.setenv("CHAT", URL)
    notify = {"option": (), "file": URL, "variable": "$CHAT"}[given]
    options = ("--notify", URL) if given == "option" else ()
    if notify:
        experiment.write_text(f"{experiment.read_text()}notify: {notify}\n")
    connected.volley("submit", str(experiment), *options)
    secrets = head.root / "var/lib/volley/.secrets/cart"
    assert holding(head.root, PATH) == [secrets]
    assert secrets.stat().st_mode & 0o777 == 0o600
    name = "$CHAT" if given == "variable" else "$VOLLEY_NOTIFY"
    assert head.record("cart")["notify"] == name
    assert secrets.read_text().startswith(f"export {name[1:]}=")
    assert PATH not in connected.volley("status", "--json")


def test_a_dry_run_shows_no_url(connected: Laptop, experiment: Path) -> None:
    experiment.write_text(f"{experiment.read_text()}notify: curl {URL}\n")
    shown = connected.volley("submit", str(experiment), "--dry-run")
    assert "notify: $VOLLEY_NOTIFY" in shown
    assert PATH not in shown


@pytest.mark.parametrize(
    ("notify", "problem"),
    [
        (
            "http://169.254.169.254/metadata",
            "notify: 169.254.169.254: is a machine's own or Azure's metadata address, which a "
            "cluster does not notify. Next: --notify",
        ),
        ("$NO_SUCH", "notify: $NO_SUCH is not set in the environment. Next: export NO_SUCH=..."),
    ],
)
def test_what_a_cluster_cannot_tell_is_refused_before_anything_is_sent(
    connected: Laptop, head: LocalHead, experiment: Path, notify: str, problem: str
) -> None:
    for options in ((), ("--dry-run",)):
        words = ("submit", str(experiment), "--notify", notify, *options)
        assert connected.volley(*words, code=2) == problem
    assert head.connections() == 0


def test_the_end_of_a_script_is_told_with_who_has_submitted_it(
    connected: Laptop, head: LocalHead
) -> None:
    script = connected.folder / "cart.py"
    script.write_text("print(1)\n")
    with receiving(own_address()) as receiver:
        connected.volley("submit", str(script), "--notify", receiver.url)
        connected.volley("stop", "cart")
        with head.running():
            until(lambda: head.record("cart")["told"] != "")
    (received,) = receiver.received
    assert (received["name"], received["state"], received["env"]) == ("cart", "KILLED", None)
    assert head.record("cart")["submitted_by"] == f"{getpass.getuser()}@{socket.gethostname()}"


def test_status_says_that_nobody_was_notified(connected: Laptop, head: LocalHead) -> None:
    head.experiment("pong", "FINISHED", reason="over", untold="https://chat/***: HTTP 404")
    shown = " ".join(connected.volley("status").split())
    assert "over; nobody was notified: https://chat/***: HTTP 404" in shown


def test_what_is_submitted_is_the_same_whoever_does(
    connected: Laptop, head: LocalHead, experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected.volley("submit", str(experiment))
    before = head.record("cart")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    connected.volley("submit", str(experiment))
    assert head.record("cart") == before


def test_each_experiment_and_person_has_a_cost(connected: Laptop, head: LocalHead) -> None:
    for name in ("pong", "cart"):
        head.experiment(name)
    shares = [
        {"key": f"{name}-key", "name": name, "submitted_by": person, "dollars": spent}
        for name, person, spent in (
            ("pong", "ann@a", 6.0),
            ("cart", "bob@b", 1.5),
            ("old", "", 0.5),
        )
    ]
    shares = [{**share, "cpu_hours": 2 * float(str(share["dollars"]))} for share in shares]
    shares.append({**shares[1], "key": "cart-2", "dollars": 0.25, "cpu_hours": 1.0})
    cost = {"so_far": 10.0, "per_hour": 2.0, "estimate": "eastus, 2026-01-31"}
    damaged = [{"key": 1}, 5]
    content = json.dumps({**cost, "shares": [*shares, *damaged]}).encode()
    head.write("var/lib/volley/cost.json", content)
    lines = connected.volley("cost").splitlines()
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if "│" in line]
    assert [row for row in rows if len(row) == 4] == [
        ["pong", "ann@a", "12.0", "6.00"],
        ["cart", "bob@b", "4.0", "1.75"],
        ["old", "(volley up)", "1.0", "0.50"],
        ["nobody: idle, starting, asleep", "", "", "1.75"],
        ["ann@a", "1", "12.0", "6.00"],
        ["bob@b", "1", "4.0", "1.75"],
        ["(volley up)", "1", "1.0", "0.50"],
    ]
    answer = json.loads(connected.volley("cost", "--json"))
    assert answer["shares"] == shares
    status = connected.volley("status")
    (line,) = [line for line in status.splitlines() if line.startswith("│ pong ")]
    assert line.strip("│").split("│")[-1].strip() == "6.00"
