"""What is made once for all rehearsals is whole or not there, and follows the host's own set-up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rehearsal.set_up.atomic import in_namespaces, made_aside
from rehearsal.set_up.package_sources import (
    BUNDLE,
    HostPackages,
    apt_settings,
    apt_sources,
    debian_mirrors,
    manager_settings,
    package_variables,
)
from rehearsal.set_up.set_up import lock_digest, overlays_on, recipe_digest
from rehearsal.shell import CommandError
from tests.project import ROOT

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root is needed for namespaces")

BOOKWORM = {"ID": "debian", "VERSION_CODENAME": "bookworm"}
TARGETS = """\
bookworm main https://mirror.example/debian/ Debian
bookworm-security main https://mirror.example/debian-security/ $(ORIGIN)
bookworm contrib https://contrib.example/debian/ Debian
bookworm main https://apt.example/other/ Other Co
"""


def test_a_thing_is_there_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "home/thing"
    with made_aside(target) as aside:
        aside.mkdir()
        assert not target.exists()
    assert target.is_dir()
    (target / "old").touch()
    with pytest.raises(KeyboardInterrupt), made_aside(target) as aside:
        _interrupted_in(aside)
    assert list(target.parent.iterdir()) == []


def test_what_an_interrupted_set_up_left_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "thing.making").mkdir()
    (tmp_path / "thing.making/half").touch()
    with made_aside(tmp_path / "thing") as aside:
        assert not aside.exists()
        aside.mkdir()
    assert list((tmp_path / "thing").iterdir()) == []


@pytest.mark.slow
@needs_root
def test_mounts_end_with_the_script(tmp_path: Path) -> None:
    script = 'mount -t tmpfs tmpfs "$1"; touch "$1/inside"; cat /proc/mounts > "$2"'
    mounts = tmp_path / "mounts"
    (tmp_path / "mounted").mkdir()
    in_namespaces(script, tmp_path / "mounted", mounts, variables={}, timeout_s=20)
    assert str(tmp_path / "mounted") in mounts.read_text()
    assert list((tmp_path / "mounted").iterdir()) == []


@pytest.mark.slow
@needs_root
def test_a_failing_script_says_why_and_keeps_the_variables_to_itself() -> None:
    with pytest.raises(CommandError, match="no such mirror") as caught:
        in_namespaces(
            "echo no such mirror >&2; exit 3",
            variables={"PIP_INDEX_URL": "https://me:secret@pypi.example"},
            timeout_s=20,
        )
    assert "secret" not in str(caught.value)


@pytest.mark.slow
@needs_root
def test_a_script_that_a_network_failed_is_tried_again(tmp_path: Path) -> None:
    script = 'echo >> "$1"; (($(wc -l < "$1") == 3))'
    tries = tmp_path / "tries"
    in_namespaces(script, tries, variables={}, timeout_s=20, pauses_s=(0, 0))
    with pytest.raises(CommandError):
        in_namespaces(script, tries, variables={}, timeout_s=20, pauses_s=(0, 0))
    assert tries.read_text() == 6 * "\n"


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_the_set_up_whatever_ends_it(
    tmp_path: Path, how: signal.Signals
) -> None:
    beat = tmp_path / "beat"
    program = (
        "import sys; from rehearsal.set_up.atomic import in_namespaces\n"
        "script = 'trap : INT TERM; while :; do date +%N > \"$1\"; sleep 0.05; done'\n"
        "in_namespaces(script, sys.argv[1], variables={}, timeout_s=60)"
    )
    command = [sys.executable, "-c", program, str(beat)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        while not (beat.exists() and beat.read_text()):
            time.sleep(0.05)
        process.send_signal(how)
    time.sleep(0.5)
    last = beat.read_text()
    time.sleep(0.5)
    assert beat.read_text() == last


def test_an_overlay_on_the_base_image_is_found() -> None:
    mountinfo = (
        "22 27 0:21 / /proc rw - proc proc rw\n"
        "50 27 0:50 / /run/a rw - overlay vr-a rw,lowerdir=/home/base,upperdir=/u,workdir=/w\n"
        "51 27 0:51 / /run/b rw shared:1 - overlay b rw,lowerdir+=/x,lowerdir+=/home/base\n"
        "52 27 0:52 / /run/c rw - overlay c rw,lowerdir=/home/base2:/y,upperdir=/home/base\n"
    )
    assert overlays_on(Path("/home/base"), mountinfo) == ["/run/a", "/run/b"]


def test_another_host_configuration_is_another_base_image() -> None:
    assert recipe_digest("one") == recipe_digest("one") != recipe_digest("other")


@pytest.mark.slow
def test_the_lock_digest_is_the_one_that_the_machines_compute(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("ray==2.60.0\n")
    said = subprocess.check_output(["sha256sum"], input=b"ray==2.60.0\n")
    assert lock_digest((tmp_path / "lock").read_bytes()) == said.decode().split()[0]


def test_a_debian_host_lends_its_mirrors_but_not_those_of_others() -> None:
    found = debian_mirrors(BOOKWORM, TARGETS)
    assert found == {
        "bookworm": "https://mirror.example/debian",
        "bookworm-security": "https://mirror.example/debian-security",
    }
    assert debian_mirrors(BOOKWORM, "bookworm main https://apt.example/ Other Co\n") == {}


def test_a_newer_debian_lends_its_mirrors_too_and_ubuntu_none() -> None:
    trixie = {"ID": "debian", "VERSION_CODENAME": "trixie"}
    assert debian_mirrors(trixie, TARGETS.replace("bookworm", "trixie")) == debian_mirrors(
        BOOKWORM, TARGETS
    )
    assert debian_mirrors({"ID": "ubuntu", "VERSION_CODENAME": "jammy"}, TARGETS) == {}


def test_mirrors_become_apt_sources() -> None:
    sources = apt_sources(debian_mirrors(BOOKWORM, TARGETS)).splitlines()
    assert sources[0] == "deb https://mirror.example/debian bookworm main"


def test_a_host_without_mirrors_of_debian_leaves_debootstraps_own(tmp_path: Path) -> None:
    sources = tmp_path / "etc/apt/sources.list"
    sources.parent.mkdir(parents=True)
    (tmp_path / "etc/ssl/certs").mkdir(parents=True)
    sources.write_text("deb of debootstrap\n")
    HostPackages(mirrors={}, apt_settings="", variables={}).carry_into(tmp_path)
    assert sources.read_text() == "deb of debootstrap\n"


def test_package_servers_are_the_configured_ones() -> None:
    variables = {"PIP_INDEX_URL": "https://index.example/simple", "no_proxy": "localhost"}
    host = HostPackages({"bookworm": "https://mirror.example/debian"}, "", variables)
    assert host.servers == {"mirror.example", "index.example"}


def test_only_settings_by_which_packages_are_reached_are_carried() -> None:
    dump = """\
Acquire "";
Acquire::Check-Date "false";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3128";
Acquire::http::Proxy-Auto-Detect "/usr/bin/of-the-host";
Acquire::https::Verify-Peer "true";
Acquire::IndexTargets::deb::DEP-11::MetaKey "x";
Acquire::Languages:: "de";
"""
    settings = apt_settings(dump)
    assert settings.splitlines() == [
        'Acquire::Check-Date "false";',
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::https::Verify-Peer "true";',
        'Acquire::Languages "none";',
    ]
    host = HostPackages(mirrors={}, apt_settings=settings, variables={})
    assert host.proxy == {"http_proxy": "http://proxy.example:3128"}


def test_variables_are_carried_only_where_they_are_set() -> None:
    certificates = {"SSL_CERT_FILE": BUNDLE, "PIP_CERT": BUNDLE}
    assert package_variables({"PYTHONPATH": "/x", "no_proxy": "", "PIP_CERT": "/root/ca.pem"}) == (
        certificates
    )
    assert package_variables({"UV_DEFAULT_INDEX": "https://pypi.example"}) == (
        certificates | {"UV_DEFAULT_INDEX": "https://pypi.example"}
    )


def test_a_carried_variable_reaches_services_as_it_is() -> None:
    assert manager_settings({"PIP_INDEX_URL": 'https://me:a%40"b@pypi.example', "A": "b c"}) == (
        '[Manager]\nDefaultEnvironment="PIP_INDEX_URL=https://me:a%%40\\"b@pypi.example" "A=b c"\n'
    )


def _interrupted_in(folder: Path) -> None:
    folder.mkdir()
    raise KeyboardInterrupt
