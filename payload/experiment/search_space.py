"""Search spaces, which replace values in `config`, in the words of Ray Tune.

{grid_search: [...]} and {choice: [...]} name the values; {uniform: [a, b]}, {loguniform: [a, b]}
and {randint: [a, b]} name bounds. Nothing is ever evaluated as Python.
"""

import math
from dataclasses import dataclass
from typing import Any

from payload.errors import UserError, nearest

LISTS = ("grid_search", "choice")
RANGES = ("uniform", "loguniform", "randint")
KINDS = (*LISTS, *RANGES)
_PLACEMENT = "it decides how many trials fit, so all of them have the same"
NOT_SEARCHED = {
    "num_env_runners": _PLACEMENT,
    "num_cpus_per_env_runner": _PLACEMENT,
    "num_learners": _PLACEMENT,
    "num_gpus_per_learner": _PLACEMENT,
    "env_config": "returns of different environments cannot be compared",
    "wrappers": "returns of different environments cannot be compared",
    "min_time_s_per_iteration": "it decides when a trial reports, and does not affect learning",
    "seed": "each setting is trained with --seeds K seeds",
}
"""Settings that cannot be searched, and why."""


@dataclass(frozen=True)
class SearchSpace:
    """Values to try, or bounds between which they are drawn."""

    kind: str
    """One of KINDS."""
    values: tuple[Any, ...]
    """The values, or the two bounds. Tune's randint never draws the upper one."""

    @property
    def candidates(self) -> tuple[Any, ...]:
        """Values that must all be valid: those named, or the smallest and the largest drawn."""
        if self.kind == "randint":
            return self.values[0], self.values[1] - 1
        if self.kind in ("uniform", "loguniform"):
            return tuple(map(float, self.values))
        return self.values

    @property
    def is_random(self) -> bool:
        return self.kind != "grid_search"

    def to_plain(self) -> dict[str, list[Any]]:
        """Returns the search space as an experiment file contains it."""
        return {self.kind: list(self.values)}

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.values))})"


def search_space(key: str, value: Any) -> SearchSpace | None:
    """Returns a value as a search space, None if it is not one.

    Raises:
        UserError: It looks like a search space, but is not well formed.
    """
    if not isinstance(value, dict):
        return None
    if "eval" in value:
        raise UserError(f"{key}: {value}: text is not evaluated; allowed: {', '.join(KINDS)}")
    named = [kind for kind in value if kind in KINDS]
    if not named:
        return None
    if len(value) > 1:
        raise UserError(f"{key}: {value}: a search space has one key of {', '.join(KINDS)}")
    (kind,) = named
    values = value[kind]
    example = "[a, b]" if kind in RANGES else "[...]"
    if not isinstance(values, list) or not values:
        raise UserError(f"{key}: {kind}: {values!r} is not a list of values: {{{kind}: {example}}}")
    if kind == "randint":
        values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    if kind in RANGES:
        _check_bounds(f"{key}: {kind}", kind, values)
    return SearchSpace(kind, tuple(values))


def is_search_space(value: Any) -> bool:
    """Whether a value is a well-formed search space."""
    try:
        return search_space("", value) is not None
    except UserError:
        return False


def _check_bounds(name: str, kind: str, bounds: list[Any]) -> None:
    number = int if kind == "randint" else (int, float)
    if len(bounds) != 2 or any(isinstance(b, bool) or not isinstance(b, number) for b in bounds):
        what = "whole numbers" if kind == "randint" else "numbers"
        raise UserError(f"{name}: {bounds} are not two {what} [a, b]")
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UserError(f"{name}: {bounds}: the first number must be less than the second")
    if kind == "loguniform" and low <= 0:
        raise UserError(f"{name}: {bounds}: the first number must be greater than 0")


def check_no_space(key: str, value: Any) -> None:
    """Raises UserError if the value is a search space, which is not allowed here."""
    if search_space(key, value) is not None:
        raise UserError(f"{key}: cannot be searched; only settings in config can")


def check_searched(name: str, given: str) -> None:
    """Raises UserError if a setting, given under some name, cannot be searched."""
    if name in NOT_SEARCHED:
        raise UserError(f"{given}: cannot be searched: {NOT_SEARCHED[name]}")


def check_is_value(given: str, value: Any) -> None:
    """Raises UserError for a search space that is misspelt, or that volley does not have."""
    if not isinstance(value, dict) or len(value) != 1:
        return
    ((kind, values),) = value.items()
    meant = nearest(str(kind), KINDS)
    if meant or isinstance(values, list):
        raise UserError(
            f"{given}: {kind} is not a search space{meant}; search spaces: {', '.join(KINDS)}"
        )
