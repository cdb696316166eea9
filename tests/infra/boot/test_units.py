"""The meaning of a machine's units to systemd; test_boot verifies that systemd accepts them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

import pytest
import yaml
from requests.utils import get_environ_proxies

from head.identity.mlflow_token import ADDRESS
from head.paths import RUNS, SLEEP, SLEEP_REQUEST
from head.queue.__main__ import CLOSING_S
from head.queue.plan import OOM_SCORE
from head.queue.ray_api import REQUEST_S
from head.scheduled_events import STOP_S, WORKERS_S
from head.undelivered import FILES
from infra import ports
from infra.boot.cloud_config import HEAD_SOFTWARE_UNITS, UNITS, Role, cloud_config
from tests.free_port import free_port
from tests.infra.boot.machine_tree import machine, write_tree
from tests.mlflow_host import status_for
from tests.payload.command_line import WITHOUT_JOBS, wait_for
from volley.ports import answers


def settings(tree: Path, unit: str, key: str) -> list[str]:
    """Returns a setting's values in order, including those of the unit's drop-ins."""
    path = tree / "etc/systemd/system" / unit
    files = [path, *sorted(path.with_name(f"{unit}.d").glob("*.conf"))]
    text = "".join(file.read_text() for file in files).replace("\\\n", "")
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def variables(tree: Path, unit: str) -> dict[str, str]:
    """Returns a unit's environment; in systemd, a later file overrides an earlier one."""
    found = {}
    for path in settings(tree, unit, "EnvironmentFile"):
        for line in (tree / path.lstrip("/")).read_text().splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.partition("=")
                found[name] = " ".join(shlex.split(value))
    return found


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_mlflow_serves_and_starts_no_jobs(tree: Path) -> None:
    environment = settings(tree, "mlflow.service", "Environment")
    assert any("MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false" in line for line in environment)
    assert any("MLFLOW_DISABLE_TELEMETRY=true" in line for line in environment)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_mlflow_answers_through_the_tunnel_and_to_no_web_page(tree: Path, tmp_path: Path) -> None:
    port = free_port()
    (start,) = settings(tree, "mlflow.service", "ExecStart")
    command = [sys.executable, "-m", *shlex.split(start.replace("${MLFLOW_PORT}", str(port)))]
    command[2] = Path(command[2]).name
    for option in ("--backend-store-uri", "--artifacts-destination"):
        command[command.index(option) + 1] = f"sqlite:///{tmp_path}/mlflow.db"
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            command, env=WITHOUT_JOBS, stdout=log, stderr=log, start_new_session=True
        ) as server,
    ):
        try:
            wait_for(lambda: answers(f"http://127.0.0.1:{port}/health"))
            # The tunnel's end on the laptop may have another port.
            assert [status_for(port, f"{name}:5001") for name in ("127.0.0.1", "localhost")] == [
                200,
                200,
            ]
            assert status_for(port, f"evil.example:{port}") == 403
            assert status_for(port, f"10.42.0.4:{port}") == 403
        finally:
            os.killpg(server.pid, signal.SIGTERM)


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_the_head_looks_for_what_mlflow_has_not_received_where_the_payload_keeps_it(
    tree: Path,
) -> None:
    globs = [f"|{RUNS}/*/{files}" for files in FILES]
    assert settings(tree, "mlflow-undelivered.service", "ConditionPathExistsGlob") == globs


def test_nobody_switches_off_what_the_cluster_relies_on(tree: Path, role: Role) -> None:
    user = {
        "RAY_AUTH_MODE": "disabled",
        "RESULTS_ACCOUNT": "another",
        "MY_MODE": "mine",
        "PYTHONPATH": "/mine",
        "VOLLEY_ROOT": "/mine",
    }
    lines = "".join(f"{name}={value}\n" for name, value in user.items())
    (tree / "etc/volley/user.env").write_text(lines)
    for unit in {"head": ["ray-head", "experiments", "jupyter"], "worker": ["ray-worker"]}[role]:
        found = variables(tree, f"{unit}.service")
        assert found["RAY_AUTH_MODE"] == "token"
        assert found["RESULTS_ACCOUNT"] == "account"
        assert found["MY_MODE"] == "mine"
    if role == "head":
        (command,) = settings(tree, "experiments.service", "ExecStart")
        assert command.startswith(
            "/usr/bin/env VOLLEY_ROOT=/ PYTHONPATH=/usr/local/lib/volley/software "
        )


@pytest.mark.parametrize(
    "given", [{}, {"NO_PROXY": ".mine.example"}, {"no_proxy": ".mine.example"}]
)
def test_a_proxy_of_the_user_carries_nothing_of_the_cluster(
    role: Role, given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxies = {"HTTP_PROXY": "http://10.9.9.9:1", "https_proxy": "http://10.9.9.9:1"}
    tree = write_tree(machine(role, environment_variables={**proxies, **given}), tmp_path)
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        for spelt in (name, name.upper()):
            monkeypatch.delenv(spelt, raising=False)
    for name, value in variables(tree, f"ray-{role}.service").items():
        monkeypatch.setenv(name, value)
    for url in (
        "http://169.254.169.254/metadata/instance",
        "http://127.0.0.1:8265/api/jobs/",
        "https://account.blob.core.windows.net/token/ray-token",
        *(["http://registry.mine.example/"] if given else []),
    ):
        host = urlsplit(url).hostname or ""
        # Of urllib, as start-ray-worker has it, and of requests, as Azure's SDK and Ray have it.
        assert proxy_bypass(host), url
        assert get_environ_proxies(url) == {}, url
    assert get_environ_proxies("http://pypi.example/") != {}


def test_whatever_talks_to_many_processes_may_open_many_files(tree: Path, role: Role) -> None:
    units = {"head": ["ray-head", "mlflow", "experiments", "jupyter"], "worker": ["ray-worker"]}[
        role
    ]
    for unit in units:
        assert settings(tree, f"{unit}.service", "LimitNOFILE") == ["65536"]


def test_what_the_kernel_kills_for_its_memory_stops_nothing_else(tree: Path) -> None:
    # By default systemd stops the whole unit.
    units = [path.name for path in (tree / "etc/systemd/system").glob("*.service")]
    lasting = [unit for unit in units if settings(tree, unit, "Type") != ["oneshot"]]
    assert "scheduled-events.service" in lasting
    for unit in lasting:
        assert settings(tree, unit, "OOMPolicy") == ["continue"], unit


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_memory_is_taken_from_env_runners_then_drivers_then_the_queue_and_ray_last(
    tree: Path,
) -> None:
    def score(name: str) -> int:
        (value,) = settings(tree, f"{name}.service", "OOMScoreAdjust")
        return int(value)

    # A driver takes its own, and Ray gives 1000 to env runners: tests/head/queue/test_memory.py.
    order = ["jupyter", "experiments", "mlflow", "ray-head", "cluster-sleep", "scheduled-events"]
    scores = [score(name) for name in order]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > OOM_SCORE > 0 > scores[1] > scores[3]


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_what_sleep_has_to_know_in_a_boot_is_in_memory(tree: Path) -> None:
    for unit, file in (("cluster-sleep.service", SLEEP), ("disk-space.service", SLEEP_REQUEST)):
        assert f"/run/{settings(tree, unit, 'RuntimeDirectory')[0]}" == str(file.parent)
        assert settings(tree, unit, "RuntimeDirectoryPreserve") == ["yes"]
    # Whoever asks is not root.
    assert settings(tree, "disk-space.service", "User") == ["ray"]


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_a_training_has_time_for_a_last_checkpoint_before_an_eviction(tree: Path) -> None:
    # By default, Ray kills a job 3 s after asking it to stop.
    seconds = int(variables(tree, "ray-head.service")["RAY_JOB_STOP_WAIT_TIME_S"])
    assert seconds >= 60
    assert 10 < STOP_S["Preempt"] + 2 * WORKERS_S < 30


WAITS = ("After", "Requires", "Requisite", "BindsTo", "Wants", "PartOf", "ConditionPathExists")


@pytest.mark.parametrize("role", ["worker"], indirect=True)
def test_a_booting_worker_answers_azures_notices_without_its_python_environment(tree: Path) -> None:
    # Deleting regular VMs waits until each of them has approved, even one that is booting.
    unit = "scheduled-events.service"
    assert [line for key in WAITS for line in settings(tree, unit, key)] == []
    (start,) = settings(tree, unit, "ExecStart")
    python, program = start.split()
    assert python == "/usr/bin/python3"
    assert (tree / program.lstrip("/")).is_file()


def test_the_python_environment_is_tried_again_unless_that_is_useless(tree: Path) -> None:
    unit = "python-environment.service"
    assert settings(tree, unit, "Restart") == ["on-failure"]
    assert settings(tree, unit, "StartLimitIntervalSec") == ["0"]
    (final,) = settings(tree, unit, "RestartPreventExitStatus")
    script = (tree / "usr/local/lib/volley/make-python-environment").read_text()
    assert f"exit {final}\n" in script


def test_what_gave_up_on_the_python_environment_comes_up_with_it(tree: Path, role: Role) -> None:
    unit = "python-environment.service"
    # systemd does not restart a unit after its requirement has failed once.
    # The head's software may not be there yet.
    assert settings(tree, unit, "ExecStartPost") == ["-/bin/systemctl --no-block start $UNITS"]
    software = HEAD_SOFTWARE_UNITS if role == "head" else []
    assert variables(tree, unit)["UNITS"].split() == [*UNITS[role], *software]


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_the_queue_starts_and_stops_with_ray_and_outlives_a_start_of_it_that_fails(
    tree: Path,
) -> None:
    unit, ray = "experiments.service", "ray-head.service"
    assert ray in settings(tree, unit, "Wants")[0].split()
    assert settings(tree, unit, "PartOf") == [ray]
    assert settings(tree, unit, "Requires") == ["python-environment.service"]


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_the_queue_has_time_to_stop_every_experiment(tree: Path) -> None:
    (seconds,) = settings(tree, "experiments.service", "TimeoutStopSec")
    job = int(variables(tree, "ray-head.service")["RAY_JOB_STOP_WAIT_TIME_S"])
    assert job < CLOSING_S < int(seconds)


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_a_queue_that_hangs_is_restarted_and_one_that_waits_for_ray_is_not(tree: Path) -> None:
    (seconds,) = settings(tree, "experiments.service", "WatchdogSec")
    assert int(seconds) >= 20 * REQUEST_S
    assert settings(tree, "experiments.service", "Restart") == ["always"]
    # Its jobs are Ray's processes. It must not be asked to write a checkpoint of each first.
    assert settings(tree, "experiments.service", "WatchdogSignal") == ["SIGKILL"]


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_the_end_of_a_training_is_saved_whatever_else_is_being_saved(tree: Path) -> None:
    (command,) = settings(tree, "experiments.service", "ExecStopPost")
    # Not `systemctl start`: it would join a save that began before the end, and systemd would
    # refuse it during shutdown. With "-", a failed save does not make a finished training fail.
    assert command.startswith("-/usr/bin/env ")
    assert command.endswith(" -m head.identity save")
    # systemd stops in the reverse order.
    (after,) = settings(tree, "experiments.service", "After")
    assert "identity.service" in after.split()


@pytest.mark.parametrize("role", ["head"], indirect=True)
@pytest.mark.parametrize("unit", ["sync-results", "jupyter-notebooks"])
def test_saving_and_restoring_end(tree: Path, unit: str) -> None:
    # Without it, systemd has no time limit for a oneshot unit.
    (limit,) = settings(tree, f"{unit}.service", "TimeoutStartSec")
    assert limit.endswith("min")
    assert int(limit.removesuffix("min")) <= 30


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_jupyterlab_is_only_for_whoever_has_the_tunnel_and_the_token(tree: Path) -> None:
    unit = "jupyter.service"
    assert settings(tree, unit, "User") == ["ray"]
    (command,) = settings(tree, unit, "ExecStart")
    assert "--ServerApp.ip=127.0.0.1 " in command
    assert f"--ServerApp.port={ports.JUPYTER} --ServerApp.port_retries=0 " in command
    # Not in the command line, which everybody on the head can read, and not in the log.
    assert "JUPYTER_TOKEN= JUPYTER_TOKEN_FILE=/run/jupyter/token " in command
    assert settings(tree, unit, "RuntimeDirectoryMode") == ["0700"]
    # Nothing starts it but a person.
    assert "[Install]" not in (tree / "etc/systemd/system" / unit).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_each_start_of_jupyterlab_makes_a_token_that_its_user_alone_can_read(
    tree: Path, tmp_path: Path
) -> None:
    (command,) = settings(tree, "jupyter.service", "ExecStartPre")
    tokens = []
    for _ in range(2):
        subprocess.run(shlex.split(command.replace("/run/jupyter", str(tmp_path))), check=True)
        tokens.append((tmp_path / "token").read_text())
    assert all(re.fullmatch("[0-9a-f]{64}", token) for token in tokens)
    assert tokens[0] != tokens[1]
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_what_is_installed_for_jupyterlab_depends_on_nothing_of_rays(tree: Path) -> None:
    unit = "jupyter-environment.service"
    assert settings(tree, unit, "User") == ["identity"]
    assert settings(tree, unit, "EnvironmentFile") == []
    # Python looks for modules in the working directory first.
    assert settings(tree, unit, "WorkingDirectory") == ["/"]
    assert "PYTHONSAFEPATH=1" in settings(tree, unit, "Environment")[0]


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_what_needs_the_machines_identity_is_not_ray_and_has_no_other_right(tree: Path) -> None:
    for unit in ("identity.service", "sync-results.service"):
        assert settings(tree, unit, "User") == ["identity"]
        # What it writes Ray's user may read.
        assert settings(tree, unit, "Group") == ["ray"]
        assert settings(tree, unit, "UMask") == ["0027"]
        rights = settings(tree, unit, "CapabilityBoundingSet")
        assert rights == settings(tree, unit, "AmbientCapabilities")
        assert set(rights[0].split()) <= {"CAP_DAC_READ_SEARCH", "CAP_NET_BIND_SERVICE"}
        # Neither the user's variables nor a folder of Ray's: Python would import from them.
        assert settings(tree, unit, "EnvironmentFile") == ["/etc/volley/machine.env"]
        assert settings(tree, unit, "WorkingDirectory") == ["/"]
    assert settings(tree, "mlflow.service", "User") == ["mlflow"]
    address = "http://{}:{}".format(*ADDRESS)
    own = f"AZURE_POD_IDENTITY_AUTHORITY_HOST={address}"
    assert own in settings(tree, "mlflow.service", "Environment")
    for unit in ("ray-head", "experiments", "jupyter", "jupyter-notebooks", "restore-runs@"):
        assert settings(tree, f"{unit}.service", "User") == ["ray"]


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_a_kernel_ends_after_two_idle_hours_also_with_an_open_page(tree: Path) -> None:
    (command,) = settings(tree, "jupyter.service", "ExecStart")
    options = dict(re.findall(r"--\w+\.(\w+)=(\S+)", command))
    assert options["cull_idle_timeout"] == options["shutdown_no_activity_timeout"] == "7200"
    assert options["cull_connected"] == "True"
    assert "cull_busy" not in options


def test_root_watches_with_nothing_that_an_experiment_could_have_written(
    tree: Path, role: Role
) -> None:
    """Experiments' processes have the same user as much of what runs in the Python environment."""
    for unit in ["scheduled-events.service", *["cluster-sleep.service"] * (role == "head")]:
        (command,) = settings(tree, unit, "ExecStart")
        assert command.startswith("/usr/bin/python3 ")
        text = (tree / "etc/systemd/system" / unit).read_text()
        # Whatever became of the Python environment, they run.
        assert "python-environment" not in text
        assert "/opt/volley" not in text
        assert "user.env" not in text


@pytest.mark.parametrize("role", ["head"], indirect=True)
def test_the_watchdog_needs_nothing_that_a_boot_may_fail_to_make(tree: Path) -> None:
    unit = "head-watchdog.service"
    text = (tree / "etc/systemd/system" / unit).read_text()
    assert settings(tree, unit, "ExecStart")[0].startswith("/usr/bin/python3 -B /usr/local/lib/")
    assert not re.search("^(Requires|After|Wants|Condition|User)", text, re.MULTILINE)
    # Both keep what the other has written.
    for service in (unit, "cluster-sleep.service"):
        assert settings(tree, service, "RuntimeDirectory") == ["volley"]
        assert settings(tree, service, "RuntimeDirectoryPreserve") == ["yes"]
    commands = yaml.safe_load(cloud_config(machine("head")))["runcmd"]
    enabled = [command for command in commands if "enable" in command]
    assert enabled[0] == ["systemctl", "enable", "--now", "head-watchdog.timer"]


def may_unshare(*what: str) -> bool:
    command = ["unshare", *what, "true"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.slow
@pytest.mark.skipif(not may_unshare("--mount"), reason="needs root: a mount namespace")
def test_shared_memory_has_its_size_whenever_ray_starts(tree: Path, role: Role) -> None:
    *_, command = settings(tree, f"ray-{role}.service", "ExecStartPre")
    assert command.startswith("+")
    script = f"mount -t tmpfs -o size=64m tmpfs /dev/shm && {command[1:]} && df -B1 /dev/shm"
    shown = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split()[-5] == str(2 * 2**30)


@pytest.mark.slow
@pytest.mark.skipif(not may_unshare("--net"), reason="needs root: a network namespace")
def test_no_outgoing_connection_takes_a_port_of_ray(tree: Path, role: Role) -> None:
    file = tree / "etc/sysctl.d/60-ray-ports.conf"
    script = f"sysctl --quiet --load {file} && cat /proc/sys/net/ipv4/ip_local_reserved_ports"
    shown = subprocess.run(
        ["unshare", "--net", "bash", "-c", script], capture_output=True, text=True, check=True
    )
    reserved: set[int] = set()
    for part in shown.stdout.strip().split(","):
        first, _, last = part.partition("-")
        reserved.update(range(int(first), int(last or first) + 1))
    flags = " ".join([*ports.head_flags("10.42.0.4"), *ports.worker_flags("10.42.0.4")])
    flagged = {int(port) for port in re.findall(r"port=(\d+)", flags)}
    assert len(flagged) > 8
    assert flagged <= reserved
    # For the first boot: systemd-sysctl ran before cloud-init wrote the file.
    commands = yaml.safe_load(cloud_config(machine(role)))["runcmd"]
    enabled = max(i for i, command in enumerate(commands) if "enable" in command)
    assert ["systemctl", "restart", "systemd-sysctl.service"] in commands[:enabled]
