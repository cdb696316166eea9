"""The settings that a search draws, and the trials that it makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from payload.errors import UserError
from payload.experiment.read import read_experiment
from payload.experiment.settings import Experiment
from payload.search.search_plan import DEFAULT_SAMPLES, Plan, make_plan

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def searching(**config: Any) -> Experiment:
    return read_experiment({"config": config}).experiment


def test_a_grid_has_every_combination() -> None:
    experiment = searching(lr={"grid_search": [1, 2]}, gamma={"grid_search": [0.5, 0.9]})
    settings = make_plan(experiment, None, None).settings
    assert sorted((s["lr"], s["gamma"]) for s in settings) == [
        (1, 0.5),
        (1, 0.9),
        (2, 0.5),
        (2, 0.9),
    ]


def test_what_is_drawn_goes_with_every_combination_of_a_grid() -> None:
    experiment = searching(lr={"uniform": [1, 2]}, gamma={"grid_search": [0.5, 0.9]}, seed=0)
    settings = make_plan(experiment, 3, None).settings
    assert [s["gamma"] for s in settings] == [0.5, 0.9] * 3
    assert len({s["lr"] for s in settings}) == 6


def test_as_many_are_drawn_as_asked_for_where_their_first_digits_are_the_same() -> None:
    settings = make_plan(searching(lr={"uniform": [0.5, 0.50001]}), 20, None).settings
    assert len({s["lr"] for s in settings}) == 20


def test_a_setting_is_drawn_once() -> None:
    assert len(make_plan(searching(lr={"choice": [1, 2]}), 50, None).settings) == 2


def test_the_same_seed_draws_the_same_settings() -> None:
    experiment = searching(lr={"loguniform": [1e-5, 1e-2]}, seed=7)
    assert make_plan(experiment, 5, None) == make_plan(experiment, 5, None)


@pytest.mark.parametrize(
    ("kind", "bounds"), [("uniform", [0.5, 0.50001]), ("loguniform", [1e-5, 1e-2])]
)
def test_a_drawn_number_lies_within_its_bounds(kind: str, bounds: list[float]) -> None:
    settings = make_plan(searching(lr={kind: bounds}, seed=1), 100, None).settings
    assert all(bounds[0] <= s["lr"] <= bounds[1] for s in settings)


def test_randint_draws_whole_numbers_below_the_upper_bound() -> None:
    settings = make_plan(searching(num_epochs={"randint": [1, 4]}), 50, None).settings
    assert sorted(s["num_epochs"] for s in settings) == [1, 2, 3]


def test_how_many_are_drawn_is_said_by_command_line_file_or_default() -> None:
    raw = {"num_samples": 4, "config": {"lr": {"uniform": [0, 1]}}}
    experiment = read_experiment(raw).experiment
    assert len(make_plan(experiment, 6, None).settings) == 6
    assert len(make_plan(experiment, None, None).settings) == 4
    drawn = make_plan(searching(lr={"uniform": [0, 1]}), None, None).settings
    assert len(drawn) == DEFAULT_SAMPLES


@pytest.mark.parametrize(("config", "seeds"), [({}, [0, 1, 2]), ({"seed": 5}, [5, 6, 7])])
def test_seeds_count_up_from_that_of_the_experiment(
    config: dict[str, Any], seeds: list[int]
) -> None:
    plan = make_plan(searching(lr={"grid_search": [1, 2]}, **config), None, 3)
    assert plan.seeds == seeds
    assert [trial.seed for trial in plan.trials()] == sorted(seeds * 2)


def test_each_trial_is_an_experiment_of_its_own() -> None:
    search = searching(lr={"grid_search": [1.0, 2.0]})
    trials = make_plan(search, None, 2).trials()
    made = [trial.experiment(search).config.model_dump() for trial in trials]
    assert [(one["lr"], one["seed"]) for one in made] == [(1, 0), (2, 0), (1, 1), (2, 1)]
    assert len({trial.name for trial in trials}) == 4


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = make_plan(searching(lr={"choice": [[[0, 1e-3], [100, 0.0]], 1e-3]}), 20, 2)
    plan.write(tmp_path / "search.json")
    assert Plan.read(tmp_path / "search.json") == plan


@pytest.mark.parametrize(
    ("config", "samples", "words"),
    [
        ({"lr": 1e-3}, None, ("no search space", "train")),
        (
            {"lr": {"grid_search": [1, 2]}},
            3,
            ("--samples 3", "no effect on a pure grid", "--seeds"),
        ),
        (
            {"minibatch_size": {"randint": [32, 65]}},
            20,
            ("minibatch_size=", "not a multiple of rollout_fragment_length"),
        ),
    ],
)
def test_what_cannot_be_searched_is_one_line(
    config: dict[str, Any], samples: int | None, words: tuple[str, ...]
) -> None:
    with pytest.raises(UserError) as error:
        make_plan(searching(**config), samples, None)
    assert [word for word in words if word not in str(error.value)] == []
