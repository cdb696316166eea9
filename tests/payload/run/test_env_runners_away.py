"""What the driver does while every env runner is out of service."""

from __future__ import annotations

import pytest

from tests.payload.run.conftest import Build, tiny


@pytest.mark.slow
def test_the_driver_does_not_sample_for_its_env_runners(build: Build) -> None:
    # APPO's method is the same.
    algorithm = build(tiny(num_env_runners=1).model_copy(update={"run": "APPO"}))
    algorithm.env_runner_group._worker_manager.set_actor_state(1, False)
    assert algorithm._sample_and_get_connector_states() == ([], [], [], set())
