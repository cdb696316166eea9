"""The settings of a search, drawn by Ray Tune before anything starts.

Drawing them first allows a check of all, and gives a resumed search the same trials. A restored
Tuner would have those of its last snapshot, and nothing of what ASHA has seen.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from payload.atomic_file import replace_text
from payload.command_line import command_name
from payload.errors import UserError
from payload.experiment.search_space import SearchSpace
from payload.experiment.settings import Experiment

DEFAULT_SAMPLES = 10
"""Number of settings to draw if a search space is random."""
DIGITS = 4
"""Significant digits of a drawn number: more make a setting hard to read and change nothing."""
ALL_DIGITS = 17
"""Significant digits of a double."""


@dataclass(frozen=True)
class Planned:
    """A trial: one setting with one seed."""

    name: str
    values: dict[str, Any]
    seed: int

    def experiment(self, search: Experiment) -> Experiment:
        return search.setting({**self.values, "seed": self.seed})


@dataclass(frozen=True)
class Plan:
    """Every setting of a search, and the seeds to train each of them with."""

    settings: list[dict[str, Any]]
    seeds: list[int]

    @property
    def is_search(self) -> bool:
        """Whether settings are compared; otherwise one is trained with several seeds."""
        return bool(self.settings[0])

    def trials(self) -> list[Planned]:
        """Returns all trials: every setting with the first seed, then with the next.

        This gives ASHA many settings to compare early, and a search that is cut off has tried all.
        """
        if not self.is_search:
            return [Planned(f"seed_{seed}", {}, seed) for seed in self.seeds]
        several = len(self.seeds) > 1
        return [
            Planned(f"trial_{n:03d}" + (f"_seed_{seed}" if several else ""), values, seed)
            for seed in self.seeds
            for n, values in enumerate(self.settings)
        ]

    def write(self, path: Path) -> None:
        replace_text(path, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, path: Path) -> Plan:
        return cls(**json.loads(path.read_text()))


def make_plan(experiment: Experiment, samples: int | None, seeds: int | None) -> Plan:
    """Draws the settings of a search; the experiment provides missing arguments.

    Args:
        samples: Settings drawn at random, times the combinations of a grid.
        seeds: Trials of each setting. They count up from the experiment's seed, or from 0.

    Raises:
        UserError: There is nothing to search, or a setting is not valid.
    """
    search = experiment.search
    first, count = experiment.config.seed or 0, seeds or experiment.num_seeds or 1
    of_each = list(range(first, first + count))
    if not search and count > 1 and samples is None:
        return Plan([{}], of_each)
    if not search:
        raise UserError(
            "config has no search space, for example lr: {loguniform: [1e-4, 1e-2]}; "
            f"{command_name()} train trains a single setting, with --seeds several times"
        )
    samples = samples or experiment.num_samples
    is_random = any(space.is_random for space in search.values())
    if not is_random and samples is not None and samples > 1:
        key = "--samples" if samples != experiment.num_samples else "num_samples"
        raise UserError(
            f"{key} {samples}: has no effect on a pure grid; use --seeds to repeat settings"
        )
    samples = samples or (DEFAULT_SAMPLES if is_random else 1)
    settings = draw(search, samples, experiment.config.seed)
    for values in settings:
        _check(experiment, values)
    return Plan(settings, of_each)


def draw(search: dict[str, SearchSpace], samples: int, seed: int | None) -> list[dict[str, Any]]:
    """Returns settings by name: every combination of a grid, `samples` times; no duplicates."""
    from ray.tune.search.variant_generator import generate_variants

    space = {name: _for_tune(space) for name, space in search.items()}
    generator = np.random.default_rng(seed)
    settings: list[dict[str, Any]] = []
    for _ in range(samples):
        for _, values in generate_variants(space, random_state=generator):
            for digits in (DIGITS, ALL_DIGITS):
                plain = {
                    name: _plain(search[name], value, digits) for name, value in values.items()
                }
                # Two drawn numbers may differ only in the omitted digits.
                if plain not in settings:
                    settings.append(plain)
                    break
    return settings


def _for_tune(space: SearchSpace) -> Any:
    from ray import tune

    if space.kind in ("grid_search", "choice"):
        return getattr(tune, space.kind)(list(space.values))
    return getattr(tune, space.kind)(*space.values)


def _plain(space: SearchSpace, value: Any, digits: int) -> Any:
    """Returns a value as JSON and YAML represent it."""
    if space.kind == "randint":
        return int(value)
    if space.kind in ("uniform", "loguniform"):
        low, high = space.values
        return min(max(float(f"{value:.{digits}g}"), float(low)), float(high))
    return value


def _check(experiment: Experiment, values: dict[str, Any]) -> None:
    try:
        experiment.setting(values)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UserError(f"the search has the setting {in_words(values)}: {reason}") from None


def in_words(values: dict[str, Any]) -> str:
    """Returns "lr=0.001 gamma=0.99"."""
    return " ".join(f"{name}={value}" for name, value in values.items())
