"""How this host reaches its packages, carried into the machines' base image."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rehearsal.host_paths import name_servers
from rehearsal.host_shell import run

RELEASE = "trixie"
"""Debian 13: its python3 is the machines' PYTHON_VERSION. No registry has uv's own builds."""
SUITES = (RELEASE, f"{RELEASE}-updates", f"{RELEASE}-security")
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
FILES = ("etc/apt/auth.conf", "etc/pip.conf", "etc/uv/uv.toml")
FOLDERS = ("etc/apt/auth.conf.d", "etc/apt/keyrings", "etc/apt/trusted.gpg.d")
VARIABLES = re.compile(
    "(?i:(http|https|ftp|all|no)_proxy)|PIP_((EXTRA_)?INDEX_URL|TRUSTED_HOST)|"
    "UV_(DEFAULT_INDEX|INDEX|(EXTRA_)?INDEX_URL|INSECURE_HOST)"
)
REACHING = ("http", "https", "ftp", "Check-Valid-Until", "Check-Date", "ForceIPv4", "ForceIPv6")
"""The settings of apt's Acquire:: that say how packages are reached."""


@dataclass(frozen=True)
class PackageSources:
    mirrors: dict[str, str]
    """Mirrors by Debian suite; empty: debootstrap uses its default."""
    apt_settings: str
    variables: dict[str, str]

    @property
    def proxy(self) -> dict[str, str]:
        """The variable for debootstrap, which does not read apt's settings."""
        setting = re.search(r'^Acquire::http::Proxy "(\S+)";$', self.apt_settings, re.MULTILINE)
        return {"http_proxy": setting[1]} if setting and setting[1] != "DIRECT" else {}

    @property
    def servers(self) -> frozenset[str]:
        """The names of the configured package hosts."""
        places = [*self.mirrors.values(), *" ".join(self.variables.values()).split()]
        return frozenset(name for place in places if (name := urlsplit(place).hostname))

    def carry_into(self, root: Path) -> None:
        """Writes the sources below `root`; a machine's services get the variables."""
        for name in FOLDERS:
            if (folder := Path("/", name)).is_dir():
                shutil.copytree(folder, root / name, dirs_exist_ok=True)
        for name in FILES:
            if (file := Path("/", name)).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, root / name)
        if (bundle := host_bundle(os.environ)).is_file():
            shutil.copyfile(bundle, root / BUNDLE.lstrip("/"))
        _write(root / "etc/resolv.conf", name_servers().read_text())
        if RELEASE in self.mirrors:
            _write(root / "etc/apt/sources.list", apt_sources(self.mirrors))
        _write(root / "etc/apt/apt.conf.d/90-host", self.apt_settings)
        settings = root / "etc/systemd/system.conf.d/20-host-packages.conf"
        _write(settings, manager_settings(self.variables), mode=0o600)


def package_sources() -> PackageSources:
    """Asks apt and the environment."""
    wanted = "$(RELEASE) $(COMPONENT) $(REPO_URI) $(ORIGIN)"
    targets = run("apt-get", "indextargets", "--format", wanted, "Created-By: Packages").stdout
    return PackageSources(
        mirrors=debian_mirrors(platform.freedesktop_os_release(), targets),
        apt_settings=apt_settings(run("apt-config", "dump", "Acquire").stdout),
        variables=package_variables(os.environ),
    )


def fingerprint() -> str:
    """Returns a digest of everything that `package_sources` depends on; takes milliseconds."""
    apt = Path("/etc/apt")
    files = [host_bundle(os.environ), apt / "sources.list", apt / "apt.conf"]
    files += [Path("/", name) for name in FILES]
    for folder in (apt / "sources.list.d", apt / "apt.conf.d", *(Path("/", f) for f in FOLDERS)):
        files += sorted(folder.glob("*"))
    digest = hashlib.sha256(repr(sorted(package_variables(os.environ).items())).encode())
    for file in files:
        digest.update(file.read_bytes() if file.is_file() else b"-")
    return digest.hexdigest()


def debian_mirrors(os_release: Mapping[str, str], targets: str) -> dict[str, str]:
    """Reads the mirrors of a Debian host from `apt-get indextargets`, for its own or our release.

    The origin is known once the host has run `apt-get update`; it distinguishes Debian from
    distributions that use the same names for suites.
    """
    codename = os_release.get("VERSION_CODENAME", "")
    if os_release.get("ID") != "debian" or not codename:
        return {}
    mirrors: dict[str, str] = {}
    for line in targets.splitlines():
        suite, component, uri, origin = line.split(maxsplit=3)
        ours = suite.replace(codename, RELEASE)
        if component == "main" and ours in SUITES and origin in ("Debian", "$(ORIGIN)"):
            mirrors.setdefault(ours, uri.rstrip("/"))
    return mirrors


def apt_sources(mirrors: Mapping[str, str]) -> str:
    """Returns sources.list(5)."""
    return "".join(f"deb {uri} {suite} main\n" for suite, uri in mirrors.items())


def apt_settings(dump: str) -> str:
    """Picks from `apt-config dump Acquire` what is needed to reach packages; no translations."""
    names = "|".join(REACHING)
    wanted = re.compile(rf'Acquire::({names})(::(?!Proxy-?Auto-?Detect)\S+)? ".+";')
    kept = [line for line in dump.splitlines() if wanted.fullmatch(line)]
    return "\n".join([*kept, 'Acquire::Languages "none";', ""])


def package_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Picks the host's package variables, with the path of the CA bundle on the machines."""
    variables = {
        name: value for name, value in environment.items() if value and VARIABLES.fullmatch(name)
    }
    return variables | {"SSL_CERT_FILE": BUNDLE, "PIP_CERT": BUNDLE}


def manager_settings(variables: Mapping[str, str]) -> str:
    """Returns systemd-system.conf(5), whose % starts a specifier."""
    values = []
    for name, value in variables.items():
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
        values.append(f'"{name}={escaped}"')
    return f"[Manager]\nDefaultEnvironment={' '.join(values)}\n"


def host_bundle(environment: Mapping[str, str]) -> Path:
    named = environment.get("SSL_CERT_FILE") or environment.get("REQUESTS_CA_BUNDLE")
    return Path(named or BUNDLE)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode)
    path.write_text(text)
