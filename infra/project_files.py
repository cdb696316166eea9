"""Files of the project that are not modules: locks, Pulumi.yaml, experiments."""

from pathlib import Path

_INSTALLED = Path(__file__).with_name("project")
"""The wheel has them below this package: pyproject.toml, force-include."""
PROJECT = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[1]
"""Their folder: the clone, or the wheel's copy."""
