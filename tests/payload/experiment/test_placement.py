"""How many env runners a cluster gets, and what does not fit on it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from payload.errors import UserError
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.placement import (
    Cluster,
    cpus_of_trials_driver,
    place,
    place_trials,
    room_for_env_runners,
)
from payload.room import Node

ARTICLES = Cluster([Node(6, gpus=1.0), *[Node(2)] * 4])
"""A head of 6 vCPUs with a GPU, and workers of 8 vCPUs in all."""


def local(cpus: int, gpus: float | None = 0.0) -> Cluster:
    return Cluster([Node(cpus, gpus)], local=True)


def refusal(cluster: Cluster, **config: Any) -> str:
    with pytest.raises(UserError) as error:
        place(ImpalaSettings(**config), cluster)
    return str(error.value)


def test_a_local_ray_gives_every_cpu_to_an_env_runner() -> None:
    assert place(ImpalaSettings(), local(14)) == 14


def test_a_cluster_keeps_one_cpu_for_the_driver() -> None:
    assert place(ImpalaSettings(), ARTICLES) == 13


def test_a_cluster_of_one_cpu_trains_as_well() -> None:
    assert place(ImpalaSettings(), Cluster([Node(1)])) == 1


@pytest.mark.parametrize(("cluster", "room"), [(local(14), 12), (ARTICLES, 12)])
def test_learners_without_a_gpu_take_their_cpus_first(cluster: Cluster, room: int) -> None:
    assert place(ImpalaSettings(num_learners=2), cluster) == room


def test_learners_with_a_gpu_take_no_cpu() -> None:
    settings = ImpalaSettings(num_learners=2, num_gpus_per_learner=1.0)
    assert place(settings, local(14, gpus=2.0)) == 14


def test_env_runners_of_several_cpus_are_fewer() -> None:
    assert place(ImpalaSettings(num_cpus_per_env_runner=4), local(14)) == 3


def test_an_env_runner_has_its_cpus_on_one_machine() -> None:
    settings = ImpalaSettings(num_cpus_per_env_runner=4)
    assert place(settings, Cluster([Node(4), Node(4), Node(3)])) == 2


def test_the_driver_takes_a_cpu_that_no_env_runner_can_use() -> None:
    settings = ImpalaSettings(num_cpus_per_env_runner=2)
    assert place(settings, Cluster([Node(5), Node(2)])) == 3


@pytest.mark.parametrize("asked", [0, 1, 5, 13])
def test_env_runners_that_were_asked_for_are_kept(asked: int) -> None:
    assert place(ImpalaSettings(num_env_runners=asked), ARTICLES) == asked


def test_more_env_runners_than_fit_are_refused() -> None:
    assert refusal(ARTICLES, num_env_runners=14) == (
        "config.num_env_runners: 14 is more than the 13 that fit on 5 machines with 14 CPUs "
        "(0 CPUs for learners, 1 for each env runner)"
    )


def test_a_cluster_that_has_lost_workers_takes_what_fits() -> None:
    assert place(ImpalaSettings(num_env_runners=13), Cluster([Node(6)]), shrink=True) == 5


def test_a_cluster_with_all_its_workers_takes_what_was_asked_for() -> None:
    assert place(ImpalaSettings(num_env_runners=7), ARTICLES, shrink=True) == 7


def test_env_runners_that_only_fit_without_the_learners_are_refused() -> None:
    message = refusal(local(4), num_env_runners=4, num_learners=1)
    assert message.startswith("config.num_env_runners: 4 is more than the 3 that fit")


def test_a_machine_with_no_cpu_left_for_an_env_runner_is_refused() -> None:
    assert "is more than the 0 that fit on this machine" in refusal(local(1), num_learners=1)


def test_more_learners_than_cpus_are_refused() -> None:
    assert refusal(local(2), num_learners=3, num_env_runners=0) == (
        "config.num_learners: 3 is more than the 2 CPUs of this machine with 2 CPUs"
    )


@pytest.mark.parametrize("shrink", [False, True])
def test_more_learners_than_gpus_are_refused(shrink: bool) -> None:
    settings = ImpalaSettings(num_learners=2, num_gpus_per_learner=1.0)
    with pytest.raises(UserError, match=r"^config\.num_gpus: 2 is more than the 1 GPUs of 5 mach"):
        place(settings, ARTICLES, shrink)


def test_a_learner_in_the_driver_has_its_gpu_too() -> None:
    assert "config.num_gpus: 1 is more" in refusal(local(2), num_gpus_per_learner=1.0)


def test_learners_share_a_gpu() -> None:
    settings = ImpalaSettings(num_learners=2, num_gpus_per_learner=0.5)
    assert place(settings, ARTICLES) == 13


def test_gpus_that_are_not_known_yet_refuse_nothing() -> None:
    assert place(ImpalaSettings(num_learners=1, num_gpus_per_learner=1.0), local(2, gpus=None)) == 2


@given(
    st.lists(st.integers(1, 16), min_size=1, max_size=5),
    st.booleans(),
    st.integers(0, 8),
    st.integers(1, 8),
)
@example(cpus=[1], is_local=True, num_learners=2, each=1)
def test_what_fits_never_takes_more_cpus_than_there_are(
    cpus: list[int], is_local: bool, num_learners: int, each: int
) -> None:
    settings = ImpalaSettings(num_learners=num_learners, num_cpus_per_env_runner=each)
    room = room_for_env_runners(settings, Cluster([Node(n) for n in cpus], is_local))
    slots = sum(n // each for n in cpus)
    assert 0 <= room <= slots
    if num_learners <= sum(cpus):
        # The env runners leave enough CPUs for the learners.
        assert sum(cpus) - room * each >= num_learners


def test_env_runners_that_evaluate_take_the_place_of_others() -> None:
    evaluation = {"evaluation_interval": 5, "evaluation_num_env_runners": 2}
    assert place(ImpalaSettings.model_validate(evaluation), local(8)) == 6


def test_env_runners_for_evaluation_take_no_place_where_it_is_off() -> None:
    assert place(ImpalaSettings(evaluation_num_env_runners=2), local(8)) == 8


# Trials of a search


@pytest.mark.parametrize(
    ("cluster", "trials", "each"),
    [
        (local(2), 1, 2),
        (local(2), 2, 1),
        (local(2), 10, 1),
        (local(14), 3, 4),
        (local(14), 100, 1),
        # Each trial's driver keeps a CPU.
        (ARTICLES, 1, 13),
        (ARTICLES, 2, 6),
        (ARTICLES, 100, 1),
        (Cluster([Node(1)]), 5, 1),
    ],
)
def test_trials_share_the_cpus(cluster: Cluster, trials: int, each: int) -> None:
    assert place_trials(ImpalaSettings(), cluster, trials) == each


def test_a_trial_has_the_env_runners_that_were_asked_for() -> None:
    assert place_trials(ImpalaSettings(num_env_runners=3), local(14), 100) == 3


def test_trials_are_as_many_as_have_a_gpu() -> None:
    settings = ImpalaSettings(num_learners=1, num_gpus_per_learner=1.0)
    assert place_trials(settings, local(14, gpus=2.0), 100) == 7


def test_a_trial_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match=r"config\.num_env_runners: 15"):
        place_trials(ImpalaSettings(num_env_runners=15), local(14), 2)


@pytest.mark.parametrize(
    ("cluster", "env_runners", "cpus"),
    [(local(2), 2, 0), (ARTICLES, 2, 1), (Cluster([Node(1)]), 1, 0), (local(2), 0, 1)],
)
def test_the_driver_of_a_trial_keeps_a_cpu_where_that_of_a_run_does(
    cluster: Cluster, env_runners: int, cpus: int
) -> None:
    assert cpus_of_trials_driver(ImpalaSettings(), cluster, env_runners) == cpus
