"""What is installed in the Python environment that trains."""

import importlib.metadata
import site


def installed_versions() -> dict[str, str]:
    """Returns the version of every distribution, by name.

    Those that PYTHONPATH adds, for example an experiment's own, do not count.
    """
    found = importlib.metadata.distributions(path=site.getsitepackages())
    return {distribution.metadata["Name"]: distribution.version for distribution in found}
