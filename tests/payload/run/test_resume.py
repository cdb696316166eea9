"""A resumed run begins with its checkpoint's learners, which know how far the run is."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from payload.experiment.settings import Experiment
from payload.impala.schedule import UpdateSettings
from payload.run.checkpoints import CheckpointStore
from payload.run.progress import Progress
from tests.payload.run.conftest import Build, building, of_learners, tiny

pytestmark = [
    pytest.mark.slow,
    # Ray warns about a setting that it makes itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
]


SOONER, LATER = 1e-3, 5e-4
"""Learning rates."""


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpdateSettings]:
    """The learner's settings in a run resumed with another limit and learning rate."""
    folder = tmp_path_factory.mktemp("resumed")
    with building(folder, io.StringIO()) as build:
        before, progress = tiny(steps=1000, lr=SOONER), Progress(iteration=1, env_steps=500)
        checkpoint = CheckpointStore(folder).save(build(before), before, progress)
        yield of_learners(build(tiny(steps=2000, lr=LATER), checkpoint))[0]


def test_learners_know_before_the_first_update_how_far_the_run_is(resumed: UpdateSettings) -> None:
    assert resumed.progress == 0.25


def test_a_learning_rate_given_to_a_resume_is_trained_with(resumed: UpdateSettings) -> None:
    assert resumed.lr == LATER


# A learner in a process of its own.


@dataclass(frozen=True)
class Away:
    """A run with such a learner, and a function that builds it again."""

    experiment: Experiment
    algorithm: Any
    store: CheckpointStore
    build: Build
    terminal: io.StringIO


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Away]:
    folder, terminal, experiment = (
        tmp_path_factory.mktemp("away"),
        io.StringIO(),
        tiny(num_learners=1),
    )
    with building(folder, terminal) as build:
        yield Away(experiment, build(experiment), CheckpointStore(folder), build, terminal)


def test_a_checkpoint_that_a_learners_process_cannot_read_is_passed_over(away: Away) -> None:
    whole, truncated = (
        away.store.save(away.algorithm, away.experiment, Progress(iteration=iteration))
        for iteration in (1, 2)
    )
    for state in truncated.path.rglob("module_state.pkl"):
        state.write_bytes(state.read_bytes()[:1000])
    algorithm = away.build(away.experiment, truncated, whole)
    assert "checkpoint_000002 cannot be read; trying the one before" in away.terminal.getvalue()
    assert f"Resumed from {whole.path}" in away.terminal.getvalue()
    assert algorithm.learner_group.get_weights()


def test_a_checkpoint_that_a_learners_process_cannot_write_is_an_error(away: Away) -> None:
    def fill_disk(learner: Any) -> None:
        learner.module.save_to_path = lambda *_, **__: Path("/dev/full").write_bytes(b"learned")

    away.algorithm.learner_group.foreach_learner(fill_disk)
    with pytest.raises(OSError, match="No space left on device"):
        away.store.save(away.algorithm, away.experiment, Progress())
