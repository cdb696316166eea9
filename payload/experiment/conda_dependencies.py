"""conda's dependencies file, environment.yml: channels, packages, and packages of PyPI."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from payload.errors import UserError, nearest
from payload.experiment.bounded_yaml import BoundedLoader

KEYS = ("name", "channels", "dependencies", "prefix")
"""`name` and `prefix` say where conda would make the environment; volley decides that itself."""
CONDA_FORGE = "conda-forge"


@dataclass(frozen=True)
class CondaDependencies:
    """What to install, and from where."""

    channels: list[str] = field(default_factory=lambda: [CONDA_FORGE])
    """Names or URLs, the most important first."""
    packages: list[str] = field(default_factory=list)
    """In conda's notation: swig, ffmpeg>=6, openjdk=8."""
    pip: list[str] = field(default_factory=list)
    """In pip's notation."""


def read_conda_dependencies(path: Path) -> CondaDependencies:
    """Reads a dependencies file.

    Raises:
        UserError: It cannot be read, is not YAML, or not in conda's format.
    """
    try:
        values = yaml.load(path.read_text("utf-8"), Loader=BoundedLoader)
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _wrong(path, "is not UTF-8 text") from None
    except (yaml.YAMLError, ValueError) as error:
        raise _wrong(path, f"is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict) or "dependencies" not in values:
        raise _wrong(path, "is not a mapping with dependencies, as conda's environment.yml")
    for key in values:
        if key not in KEYS:
            raise _wrong(path, f"{key}: unknown key{nearest(str(key), KEYS)}")
    packages, pip = [], []
    for value in _items(path, "dependencies", values["dependencies"]):
        if isinstance(value, dict) and list(value) == ["pip"]:
            pip += _texts(path, "dependencies: pip", value["pip"])
        else:
            packages += _texts(path, "dependencies", [value])
    channels = _texts(path, "channels", values.get("channels") or [])
    # conda's own word for: not those that its settings name.
    channels = [channel for channel in channels if channel != "nodefaults"]
    return CondaDependencies(channels or [CONDA_FORGE], packages, pip)


def _items(path: Path, key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(path, f"{key}: {value!r} is not a list")
    return value


def _texts(path: Path, key: str, value: Any) -> list[str]:
    """Returns a list of names, none of which an installer would take for an option."""
    for text in _items(path, key, value):
        if not isinstance(text, str) or not text.strip() or text.startswith("-"):
            raise _wrong(path, f"{key}: {text!r} is not the name of a package or channel")
    return list(value)


def _wrong(path: Path, problem: str) -> UserError:
    return UserError(f"conda_dependencies_file: {path}: {problem}")
