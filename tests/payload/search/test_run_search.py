"""What a search does between the events of Ray Tune."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from payload.experiment.settings import Experiment
from payload.run.driver_lock import driver_lock
from payload.search.run_search import Follower, SearchInterruptedError
from payload.search.search_folder import SearchFolder
from payload.search.trial import FAILED, PASSES, REASON, bundles

UPLOAD_S = 1.0


def trial(name: str, status: str) -> Any:
    """Returns what a callback of Tune sees of a trial."""
    over = status in ("TERMINATED", "ERROR")
    return SimpleNamespace(config={"name": name}, status=status, is_finished=lambda: over)


@pytest.fixture
def uploading(tmp_path: Path) -> Iterator[SearchFolder]:
    """A search whose trial `a` takes a moment to end."""
    folder = SearchFolder(tmp_path)
    folder.trial("a").path.mkdir()
    locked = threading.Event()

    def upload() -> None:
        with driver_lock(folder.trial("a")):
            locked.set()
            time.sleep(UPLOAD_S)

    thread = threading.Thread(target=upload)
    thread.start()
    locked.wait()
    yield folder
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requested", "status_of_b", "waits"),
    [
        (False, "TERMINATED", True),
        (False, "ERROR", True),
        (False, "RUNNING", False),
        (True, "RUNNING", True),
    ],
)
def test_tune_kills_no_trial_that_is_still_uploading(
    uploading: SearchFolder, requested: bool, status_of_b: str, waits: bool
) -> None:
    search: Any = SimpleNamespace(job=SimpleNamespace(folder=uploading), show=lambda: None)
    interruption: Any = SimpleNamespace(requested=requested)
    follower = Follower(search, interruption)
    follower._idle.add("b")
    start = time.monotonic()
    try:
        follower.on_step_end(1, [trial("a", "TERMINATED"), trial("b", status_of_b)])
    except SearchInterruptedError:
        assert requested
    assert (time.monotonic() - start >= UPLOAD_S / 2) is waits


def test_a_failure_that_may_pass_is_remembered_and_another_is_not() -> None:
    search: Any = SimpleNamespace(metric="return", may_pass={}, take=lambda *_, **__: None)
    follower = Follower(search, SimpleNamespace(requested=False))  # type: ignore[arg-type]
    for name, passes in (("full-disk", True), ("bug", False)):
        result = {"done": True, FAILED: True, REASON: name, PASSES: passes}
        follower.on_trial_result(1, [], trial(name, "TERMINATED"), result)
    assert search.may_pass == {"full-disk": "full-disk"}


def test_env_runners_have_the_bundles_that_rllib_takes_for_them() -> None:
    config = {"num_learners": 1, "evaluation_interval": 1, "evaluation_num_env_runners": 1}
    config |= {"num_cpus_per_env_runner": 2}
    experiment = Experiment(run="PPO", env="CartPole-v1", config=config)  # type: ignore[arg-type]
    job: Any = SimpleNamespace(search=experiment, env_runners=2)
    own, *others = bundles(job, 1, "10.0.0.1")
    assert own == {"node:10.0.0.1": 0.001, "CPU": 1}
    assert others == [{"CPU": 2}, {"CPU": 2}, {"CPU": 2}, {"CPU": 1}]
