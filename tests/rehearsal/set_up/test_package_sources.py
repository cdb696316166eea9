"""The machines reach packages the same way as this host."""

from __future__ import annotations

from pathlib import Path

from rehearsal.set_up.package_sources import (
    BUNDLE,
    RELEASE,
    PackageSources,
    apt_settings,
    apt_sources,
    debian_mirrors,
    manager_settings,
    package_variables,
)

BOOKWORM = {"ID": "debian", "VERSION_CODENAME": "bookworm"}
TARGETS = """\
bookworm main https://mirror.example/debian/ Debian
bookworm-security main https://mirror.example/debian-security/ $(ORIGIN)
bookworm contrib https://contrib.example/debian/ Debian
bookworm main https://apt.example/other/ Other Co
"""


def test_a_debian_host_lends_its_mirrors_but_not_those_of_others() -> None:
    mirrors = debian_mirrors(BOOKWORM, TARGETS)
    assert mirrors == {
        RELEASE: "https://mirror.example/debian",
        f"{RELEASE}-security": "https://mirror.example/debian-security",
    }
    assert debian_mirrors(BOOKWORM, "bookworm main https://apt.example/ Other Co\n") == {}


def test_another_debian_lends_its_mirrors_too_and_ubuntu_none() -> None:
    trixie = {"ID": "debian", "VERSION_CODENAME": "trixie"}
    assert debian_mirrors(trixie, TARGETS.replace("bookworm", "trixie")) == debian_mirrors(
        BOOKWORM, TARGETS
    )
    assert debian_mirrors({"ID": "ubuntu", "VERSION_CODENAME": "jammy"}, TARGETS) == {}


def test_mirrors_become_apt_sources() -> None:
    sources = apt_sources(debian_mirrors(BOOKWORM, TARGETS)).splitlines()
    assert sources[0] == f"deb https://mirror.example/debian {RELEASE} main"


def test_a_host_without_mirrors_of_debian_leaves_debootstraps_own(tmp_path: Path) -> None:
    sources = tmp_path / "etc/apt/sources.list"
    sources.parent.mkdir(parents=True)
    (tmp_path / "etc/ssl/certs").mkdir(parents=True)
    sources.write_text("deb of debootstrap\n")
    PackageSources(mirrors={}, apt_settings="", variables={}).carry_into(tmp_path)
    assert sources.read_text() == "deb of debootstrap\n"


def test_package_servers_are_the_configured_ones() -> None:
    variables = {"PIP_INDEX_URL": "https://index.example/simple", "no_proxy": "localhost"}
    host = PackageSources({RELEASE: "https://mirror.example/debian"}, "", variables)
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
    host = PackageSources(mirrors={}, apt_settings=settings, variables={})
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
