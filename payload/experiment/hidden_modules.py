"""Finds a user's files that Python would import instead of a module that Ray or torch needs."""

import sys
from collections.abc import Iterator
from pathlib import Path

NEEDED = frozenset({"ale_py", "gymnasium", "mlflow", "numpy", "payload", "ray", "torch", "yaml"})
NOT_NEEDED = frozenset({"antigravity", "test", "this", "turtle"})
"""Python's own modules that only a person imports."""
OURS = Path(__file__).resolve().parent.parent


def hidden_modules(folder: Path) -> Iterator[str]:
    """Yields a line for each needed module that a folder on Python's path hides."""
    packages = (init.parent for init in folder.glob("*/__init__.py"))
    for path in sorted([*folder.glob("*.py"), *packages]):
        needed = path.stem in sys.stdlib_module_names - NOT_NEEDED or path.stem in NEEDED
        if needed and path.resolve() != OURS:
            yield (
                f"{path} would be imported instead of the module {path.stem}, which Python, Ray or "
                "torch needs; rename it"
            )
