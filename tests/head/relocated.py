"""Imports modules of the head's software with their paths moved below a folder."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def relocated(name: str, root: Path, *imported: str) -> ModuleType:
    """Imports a module of head/ afresh, with its paths on the machine moved below `root`.

    Args:
        imported: Modules with such paths, of which it imports functions.
    """
    others = {other: relocated(other, root) for other in imported}
    original = importlib.import_module(name)
    assert original.__file__ is not None
    copy = f"{name}_below_{root.name}"
    spec = importlib.util.spec_from_file_location(copy, original.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[copy] = module
    spec.loader.exec_module(module)
    for constant, value in vars(module).items():
        if isinstance(value, Path) and value.is_absolute():
            setattr(module, constant, root / value.relative_to("/"))
        elif getattr(value, "__module__", None) in others:
            setattr(module, constant, getattr(others[value.__module__], constant))
    return module
