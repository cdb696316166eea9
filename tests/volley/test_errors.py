"""An error prints one line with the next command and exits with code 2."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from payload.command_line import command_name
from tests.volley.conftest import Laptop, outputs_of
from tests.volley.head import LocalHead, make_key, program, until
from volley.arguments import parser
from volley.errors import OF_STACK, as_typed, selected

pytestmark = pytest.mark.slow
DELETING = {
    "type": "deleting",
    "resource": {
        "urn": "urn:pulumi:dev::volley::a$azure-native:compute:VirtualMachine::volley-head"
    },
}


def test_a_laptop_without_pulumi_is_told_where_it_is(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    (laptop.programs / "pulumi").unlink()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    said = laptop.volley("status", code=2)
    assert said.startswith(
        "the Pulumi CLI is not on the PATH. Next: install it, https://www.pulumi.com/"
    )


def test_no_selected_stack_is_told(laptop: Laptop) -> None:
    error = "error: no stack selected; please use `pulumi stack select` to choose one"
    program(laptop.programs / "pulumi", f"echo '{error}' >&2; exit 255")
    assert laptop.volley("status", code=2).startswith(
        "no stack is selected. Next: pulumi stack select dev"
    )


def test_an_unknown_stack_is_told_with_the_nearest(laptop: Laptop) -> None:
    said = laptop.volley("status", "--stack", "dve", code=2)
    assert said == "--stack dve: no such stack (did you mean dev?). Next: pulumi stack ls"


def test_any_other_error_of_pulumi_is_told_in_its_words(laptop: Laptop) -> None:
    program(laptop.programs / "pulumi", "echo 'error: incorrect passphrase' >&2; exit 255")
    said = laptop.volley("status", code=2)
    assert said == "pulumi: incorrect passphrase. Next: pulumi stack output"


def test_a_stack_without_a_cluster_is_told(laptop: Laptop) -> None:
    line = "the selected stack has no cluster. Next: volley up"
    assert laptop.volley("stop", "pong", code=2) == line
    left = f"{line}, or for earlier results --results-account NAME"
    assert laptop.volley("status", code=2) == left


def test_a_head_that_does_not_answer_is_told_with_why_its_state_is_unknown(
    connected: Laptop, head: LocalHead
) -> None:
    head.stop()
    said = connected.volley("status", code=2)
    assert "the head does not answer" in said
    assert "Whether it is asleep is unknown: not logged in to Azure: " in said


def test_a_sleep_that_was_announced_is_remembered(connected: Laptop, head: LocalHead) -> None:
    empty = {"time": 0, "nodes": [], "experiments": [], "head": {"uptime_s": 1}}
    answer = {**empty, "sleep": {"sleeps_at": 0.1}}
    program(head.folder / "programs" / "volley-head", f"echo '{json.dumps(answer)}'")
    connected.volley("status", "--json")
    head.stop()
    said = connected.volley("stop", "pong", code=2)
    assert re.fullmatch(r"The cluster went to sleep \d+ s ago\. Next: volley start", said)
    assert connected.volley("status").startswith("The cluster went to sleep ")


def test_a_refused_key_is_told(connected: Laptop, head: LocalHead, tmp_path: Path) -> None:
    login = head.login.replace(str(head.key), str(make_key(tmp_path / "other_key")))
    connected.outputs(**{**outputs_of(head), "ssh": login})
    said = connected.volley("status", code=2)
    assert "the head refuses your SSH key" in said
    assert said.endswith(
        "Next: ssh-add the private key that belongs to `pulumi config get sshPublicKey`"
    )


def test_a_head_without_volley_head_is_told(connected: Laptop, head: LocalHead) -> None:
    (head.folder / "programs" / "volley-head").unlink()
    said = connected.volley("status", code=2)
    assert said == "the head has no command volley-head. Next: volley up"


def test_a_failed_volley_head_is_told_in_one_line(connected: Laptop, head: LocalHead) -> None:
    program(head.folder / "programs" / "volley-head", "echo 'it is\nbroken' >&2; exit 1")
    said = connected.volley("status", code=2)
    assert said == (
        "volley-head failed on the head with exit code 1: it is broken. "
        "Next: volley logs --unit experiments"
    )


def test_an_answer_that_is_not_json_is_reported(connected: Laptop, head: LocalHead) -> None:
    program(head.folder / "programs" / "volley-head", "echo Welcome")
    said = connected.volley("status", code=2)
    assert said == (
        "the head sent unexpected text ('Welcome\\n'); a login message may print it. "
        "Next: volley exec -- true"
    )


@pytest.mark.parametrize("verb", ["logs", "stop", "resume", "pull", "rm"])
def test_an_unknown_experiment_is_told_with_the_nearest(
    connected: Laptop, head: LocalHead, verb: str
) -> None:
    head.experiment("pong")
    said = connected.volley(verb, "pnog", code=2)
    assert said == "no experiment is called pnog (did you mean pong?). Next: volley status"


def test_the_heads_refusal_is_told_with_its_next_command(
    connected: Laptop, head: LocalHead, experiment: Path
) -> None:
    head.experiment("cart")
    said = connected.volley("submit", str(experiment), code=2)
    assert said == (
        "an experiment cart is TRAINING with other files. "
        "Next: volley submit ... --name OTHER (or volley stop cart)"
    )


def test_submit_during_a_destroy_sends_nothing(
    connected: Laptop, head: LocalHead, experiment: Path
) -> None:
    connected.state({"deployment": {"pending_operations": [DELETING]}})
    said = connected.volley("submit", str(experiment), code=2)
    assert said.startswith(
        "the stack is being destroyed or changed: pulumi is deleting VirtualMachine volley-head"
    )
    assert list(head.experiments.iterdir()) == []


def test_a_head_that_a_destroy_has_taken_away_is_told_so(
    connected: Laptop, head: LocalHead
) -> None:
    connected.state({"deployment": {"pending_operations": [DELETING]}})
    head.stop()
    assert "pulumi is deleting VirtualMachine volley-head" in connected.volley("status", code=2)


def test_advice_has_the_stack_of_the_command() -> None:
    selected.set("dev")
    try:
        said = as_typed('Next: pulumi config set adminCidr "$(pulumi config get adminCidr),1" && x')
        assert said.count("--stack dev") == 2
        assert as_typed("is asleep. Next: volley start") == (
            "is asleep. Next: volley start --stack dev"
        ).replace("volley", command_name())
        assert as_typed("Next: volley up --stack dev").count("--stack") == 1
        assert "--stack" not in as_typed("Next: volley new DIR")
    finally:
        selected.set(None)


def test_advice_knows_every_command_with_a_stack() -> None:
    (commands,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        has_stack = "--stack" in command._option_string_actions or name in ("up", "down")
        assert bool(OF_STACK.search(f"volley {name} --from-results")) is has_stack, name


def test_a_machine_without_ssh_is_told(connected: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sh", "cat", "dirname", "echo"):
        (connected.programs / name).symlink_to(shutil.which(name) or "")
    with monkeypatch.context() as other:
        other.setenv("PATH", str(connected.programs))
        said = connected.volley("status", code=2)
    assert said.startswith("ssh is not on the PATH. Next: install")


def test_ctrl_c_before_anything_was_sent_says_so(connected: Laptop, head: LocalHead) -> None:
    head.experiment("pong", "TRAINING")
    stub = connected.programs / "pulumi"
    stub.write_text(stub.read_text().replace("#!/bin/sh\n", "#!/bin/sh\nsleep 20\n", 1))
    with connected.start("stop", "pong") as process:
        until(lambda: "sleep" in children_of(process.pid))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "Nothing was sent; nothing has changed." in errors
    assert head.record("pong")["wish"] == ""


def children_of(pid: int) -> list[str]:
    return [child.name() for child in psutil.Process(pid).children(recursive=True)]
