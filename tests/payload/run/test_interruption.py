"""What ends a run from outside its loop."""

from __future__ import annotations

import threading

import pytest

from payload.run.interruption import Interruption, TrainingStalledError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", ["_LearnerThread", "_GPULoaderThread"])
def test_a_run_ends_with_what_a_thread_of_its_learner_died_of(name: str) -> None:
    def out_of_memory() -> None:
        raise RuntimeError("CUDA error: out of memory")

    def run() -> None:
        with Interruption():
            threading.Thread(target=out_of_memory, name=name).start()
            threading.Event().wait(10)

    with pytest.raises(TrainingStalledError, match="RuntimeError: CUDA error: out of memory"):
        run()
