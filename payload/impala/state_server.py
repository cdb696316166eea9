"""The actor from which env runners get the newest weights."""

from typing import Any


class StateServer:
    """An actor that answers as RLlib's EnvRunnerStateServer does, without importing RLlib.

    The import would take seconds of a core while the env runners start.
    """

    def __init__(self, version: str) -> None:
        """
        Args:
            version: Key of a state's version: RLlib's WEIGHTS_SEQ_NO.
        """
        self._version = version
        self._state: dict[str, Any] | None = None

    def push(self, state: dict[str, Any]) -> None:
        """Stores the newest state, in which the weights are a ray.ObjectRef."""
        self._state = state

    def pull_if_newer(self, version: int) -> dict[str, Any] | None:
        """Returns the state if its version is higher, and None otherwise."""
        state = self._state  # Read once: `push` runs in another thread.
        return state if state is not None and state[self._version] > version else None

    def get_version(self) -> int:
        """Returns the version of the state, -1 without one."""
        return -1 if self._state is None else int(self._state[self._version])
