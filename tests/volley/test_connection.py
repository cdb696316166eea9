"""Several commands share one connection to the stack's current head."""

from __future__ import annotations

import resource
import shlex
import subprocess
from pathlib import Path

import pytest

from infra.outputs import ssh_command
from tests.volley.conftest import Laptop, outputs_of
from tests.volley.head import LocalHead
from volley.stack import Outputs

pytestmark = pytest.mark.slow


def test_a_second_command_opens_no_new_connection(connected: Laptop, head: LocalHead) -> None:
    connected.volley("status")
    connected.volley("status")
    connected.volley("exec", "--", "true")
    assert head.connections() == 1


def test_pulumi_is_not_asked_while_a_connection_is_open(connected: Laptop) -> None:
    connected.volley("status")
    connected.volley("status")
    assert connected.asked.read_text().splitlines() == ["stack output --json --non-interactive"]


def test_an_answer_on_an_open_connection_takes_little_time(connected: Laptop) -> None:
    connected.volley("status")
    before = processor_s()
    connected.volley("status")
    # CPU time, not wall time: other tests run in parallel.
    assert processor_s() - before < 1


def processor_s() -> float:
    """Returns the CPU time of all ended descendants of this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_commands_that_start_at_once_open_one_connection(
    connected: Laptop, head: LocalHead
) -> None:
    started = [connected.start("status", "--json") for _ in range(3)]
    ended = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], ended
    assert head.connections() == 1


def test_another_selected_stack_is_not_answered_for_from_memory(connected: Laptop) -> None:
    connected.volley("status")
    connected.outputs()
    workspace = connected.folder / "pulumi" / "workspaces" / "volley-1-workspace.json"
    workspace.parent.mkdir(parents=True)
    workspace.touch()
    assert connected.volley("status", code=2).startswith("the selected stack has no cluster")


def test_two_laptops_submit_at_once(
    connected: Laptop, other_laptop: Laptop, head: LocalHead, experiment: Path
) -> None:
    started = [
        one.start("submit", str(experiment), "--name", name)
        for one, name in ((connected, "one"), (other_laptop, "two"))
    ]
    ended = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0, 0], ended
    assert head.store.get("one").state == head.store.get("two").state == "QUEUED"


def test_a_replaced_head_is_another_host_without_a_question(
    connected: Laptop, head: LocalHead
) -> None:
    connected.volley("status")
    head.stop()
    head.new_host_key()
    head.start()
    connected.outputs(**outputs_of(head, "vm-2"))
    connected.volley("status")


def test_the_same_vm_with_another_host_key_is_refused(connected: Laptop, head: LocalHead) -> None:
    connected.volley("status")
    head.stop()
    head.new_host_key()
    head.start()
    said = connected.volley("status", code=2)
    assert "the host key differs from the one that the stack has; nothing was sent" in said


def test_a_head_with_another_key_than_the_stacks_is_refused_at_first_contact(
    connected: Laptop, head: LocalHead
) -> None:
    head.stop()
    head.new_host_key()
    head.start()
    assert "the host key differs from the one" in connected.volley("status", code=2)
    assert head.connections() == 0


def test_the_first_key_of_a_stack_without_one_is_accepted_with_a_line_and_then_holds(
    connected: Laptop, head: LocalHead
) -> None:
    connected.outputs(**outputs_of(head, headHostKey=""))
    with connected.start("status") as process:
        _, err = process.communicate(timeout=100)
    assert "the stack does not have the head's host key, so volley accepts the key that" in err
    head.stop()
    head.start()
    with connected.start("status") as process:
        _, err = process.communicate(timeout=100)
    assert err == ""
    head.stop()
    head.new_host_key()
    head.start()
    said = connected.volley("status", code=2)
    assert "the host key of this VM has changed" in said
    assert f"then ssh-keygen -f {connected.home}/known_hosts -R vm-1" in said


def test_the_stacks_own_ssh_command_accepts_the_heads_key_alone(head: LocalHead) -> None:
    def ssh() -> subprocess.CompletedProcess[str]:
        command = head.login.replace("ssh ", f"{ssh_command(key)} -o BatchMode=yes ", 1)
        return subprocess.run(
            [*shlex.split(command), "echo", "here"], capture_output=True, text=True, check=False
        )

    key = str(outputs_of(head)["headHostKey"])
    assert ssh().stdout == "here\n"
    head.stop()
    head.new_host_key()
    head.start()
    assert "Host key verification failed" in ssh().stderr


def test_volley_needs_no_newer_openssh_than_the_stacks_ssh_command_does(
    connected: Laptop, head: LocalHead
) -> None:
    values = outputs_of(head)
    ssh = head.login.replace("ssh", ssh_command(values["headHostKey"]), 1)
    connected.outputs(**{**values, "ssh": ssh})
    connected.volley("status")
    assert "KnownHostsCommand" not in " ".join(Outputs({**values, "ssh": ssh}).ssh)
    assert Outputs({**values, "ssh": ssh}).login == Outputs(values).login


def test_a_head_that_has_rebooted_is_connected_to_again(connected: Laptop, head: LocalHead) -> None:
    connected.volley("status")
    head.stop()
    head.start()
    connected.volley("status")
    assert head.connections() == 2


def test_only_the_user_can_read_what_the_laptop_keeps(connected: Laptop) -> None:
    connected.home.mkdir(mode=0o755)
    connected.volley("status")
    assert connected.home.stat().st_mode & 0o777 == 0o700


def test_a_home_that_is_a_link_is_refused(connected: Laptop) -> None:
    target = connected.folder / "somebody's"
    target.mkdir(mode=0o755)
    connected.home.symlink_to(target)
    said = connected.volley("status", code=2)
    assert (
        said == f"{connected.home} is a link. Next: export VOLLEY_HOME={shlex.quote(str(target))}"
    )
    assert target.stat().st_mode & 0o777 == 0o755
    assert list(target.iterdir()) == []


def test_a_home_may_have_a_space_and_a_percent_sign(connected: Laptop, head: LocalHead) -> None:
    connected.home = connected.home.parent / "my 5% h"
    connected.volley("status")
    connected.volley("status")
    assert head.connections() == 1
    (file,) = connected.home.glob("known_hosts-*")
    assert file.read_text().startswith("vm-1 ssh-ed25519 ")


def test_a_home_too_long_for_a_socket_is_told(connected: Laptop) -> None:
    connected.home = connected.home.parent / ("h" * 80)
    said = connected.volley("status", code=2)
    assert said.endswith(
        "the path is too long for a socket. Next: export VOLLEY_HOME=/tmp/volley-$UID"
    )


def test_the_entry_for_ssh_config_reaches_the_head(
    connected: Laptop, head: LocalHead, tmp_path: Path
) -> None:
    entry = tmp_path / "config"
    entry.write_text(connected.volley("ssh-config"))
    options = head.login.removeprefix("ssh -F /dev/null ").split()[:-1]
    command = ["ssh", "-F", str(entry), *options, "volley", "echo", "here"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "here\n"


def test_ray_on_the_head_is_only_asked(connected: Laptop) -> None:
    said = connected.volley("ray", "--", "stop", "--force", code=2)
    assert said.startswith("ray stop: only commands that change nothing are allowed: status, list")
