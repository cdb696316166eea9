"""What a resumed run begins with: its checkpoint's learners, told how far the run is."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from payload.run.checkpoints import CheckpointStore
from payload.run.progress import Progress
from tests.payload.run.conftest import Build, of_learners, tiny

pytestmark = [
    pytest.mark.slow,
    # Ray warns of a setting that it makes itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
]


def test_learners_know_before_the_first_update_how_far_the_run_is(
    build: Build, tmp_path: Path
) -> None:
    progress = Progress(iteration=1, env_steps=500)
    checkpoint = CheckpointStore(tmp_path).save(build(tiny()), tiny(), progress)
    # Twice the steps that the run was to make at first.
    assert of_learners(build(tiny(steps=2000), checkpoint))[0].progress == 0.25


def test_a_checkpoint_that_a_learners_process_cannot_read_is_passed_over(
    build: Build, tmp_path: Path, terminal: io.StringIO
) -> None:
    experiment = tiny(num_learners=1)
    algorithm, store = build(experiment), CheckpointStore(tmp_path)
    whole, truncated = (
        store.save(algorithm, experiment, Progress(iteration=iteration)) for iteration in (1, 2)
    )
    for state in truncated.path.rglob("module_state.pkl"):
        state.write_bytes(state.read_bytes()[:1000])
    resumed = build(experiment, truncated, whole)
    assert "checkpoint_000002 cannot be read; trying the one before" in terminal.getvalue()
    assert f"Resumed from {whole.path}" in terminal.getvalue()
    assert resumed.learner_group.get_weights()


def test_a_checkpoint_that_a_learners_process_cannot_write_is_an_error(
    build: Build, tmp_path: Path
) -> None:
    experiment = tiny(num_learners=1)
    algorithm = build(experiment)

    def fill_disk(learner: Any) -> None:
        learner.module.save_to_path = lambda *_, **__: Path("/dev/full").write_bytes(b"learned")

    algorithm.learner_group.foreach_learner(fill_disk)
    with pytest.raises(OSError, match="No space left on device"):
        CheckpointStore(tmp_path).save(algorithm, experiment, Progress())


def test_a_learning_rate_given_to_a_resume_is_trained_with(build: Build, tmp_path: Path) -> None:
    before = tiny(lr=1e-3)
    checkpoint = CheckpointStore(tmp_path).save(build(before), before, Progress())
    assert of_learners(build(tiny(lr=5e-4), checkpoint))[0].lr == 5e-4
