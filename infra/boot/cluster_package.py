"""The Python package that the run command `scaling` brings to the head: volley_cluster.

It is too large for customData, and a change of it must not replace the head.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = "volley_cluster"
PARTS = ("autoscaler", "sleep")
"""Packages below infra/boot, by the same names in volley_cluster."""


def cluster_package() -> dict[str, bytes]:
    """Returns the package's files by their paths: volley_cluster/autoscaler/growth.py."""
    here = Path(__file__).parent
    modules = [path for part in PARTS for path in sorted((here / part).glob("[!.]*.py"))]
    files = {f"{PACKAGE}/{path.relative_to(here)}": path.read_bytes() for path in modules}
    return {f"{PACKAGE}/__init__.py": b"", **files}


def units() -> dict[str, bytes]:
    """Returns the units of systemd that run the package: units/cluster-sleep.timer."""
    found = sorted((Path(__file__).parent / "sleep").glob("cluster-sleep.*"))
    return {f"units/{path.name}": path.read_bytes() for path in found}
