"""Env runners are added and removed during training; one that does not start blocks nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray._private.state import actors

from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.atari import game_of
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment
from payload.room import Node
from payload.run import env_runner_number
from payload.run.env_runner_number import EnvRunnerNumber
from payload.run.training_callback import TrainingCallback, callback_of
from payload.tracking.metrics import RESTARTS, metrics
from payload.tracking.report import Report
from tests.local_ray import CPUS, local_ray
from tests.payload.command_line import wait_for

HANGS_S = 40
"""RLlib waits 60 s for samples, and indefinitely for an env runner to stop."""

pytestmark = [
    pytest.mark.slow,
    # Ray warns about a setting that it makes itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
]


@dataclass
class Training:
    """An algorithm whose env runners follow a file."""

    algorithm: Any
    number: EnvRunnerNumber
    file: Path
    said: list[str] = field(default_factory=list)
    stopped: bool = False

    def ask(self, number: int) -> None:
        aside = self.file.with_suffix(".aside")
        aside.write_text(f"{number}\n")
        aside.replace(self.file)

    def train(self) -> Report:
        self.number.follow(self.algorithm)
        self.algorithm.train()
        report = callback_of(self.algorithm).report
        assert report is not None
        return report

    def indices(self) -> list[int]:
        return sorted(self.algorithm.env_runner_group._worker_manager.actor_ids())

    def until(self, number: int, step: Callable[[], object]) -> None:
        """Repeats a step until exactly this many env runners exist, all of them healthy."""

        def there() -> bool:
            step()
            group = self.algorithm.env_runner_group
            return bool(
                group.num_remote_env_runners() == group.num_healthy_remote_workers() == number
            )

        wait_for(there)

    def follow(self) -> None:
        self.number.follow(self.algorithm)

    def of(self, index: int, function: Callable[[Any], Any]) -> Any:
        """Runs a function in an env runner's process and returns its result."""
        actor = self.algorithm.env_runner_group._worker_manager._actors[index]
        return ray.get(actor.apply.remote(function))

    def kill(self, index: int) -> None:
        """Kills an env runner's process; Ray begins to restart it."""
        actor = self.algorithm.env_runner_group._worker_manager._actors[index]
        os.kill(self.of(index, lambda _: os.getpid()), signal.SIGKILL)
        wait_for(lambda: actors(actor._actor_id.hex())["State"] != "ALIVE")

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self.number.end()
            self.algorithm.stop()


Start = Callable[..., Training]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a training with one env runner, and stops the previous training."""
    trainings: list[Training] = []

    def start(run: str = "IMPALA", env: str = "CartPole-v1", **config: Any) -> Training:
        for training in trainings:
            training.stop()
        trainings.clear()
        local_ray()
        sizes = {"num_env_runners": 1, "num_envs_per_env_runner": 2, "seed": 3}
        config = {**sizes, "min_time_s_per_iteration": 0.5, **config}
        experiment = read_experiment({"run": run, "env": env, "config": config}).experiment
        settings = with_defaults(experiment, atari=game_of(experiment) is not None)
        rllib = algorithm_config(experiment, settings)
        rllib.callbacks(TrainingCallback)
        said: list[str] = []
        folder = tmp_path_factory.mktemp("training")
        file = folder / "env_runners"
        number = EnvRunnerNumber(file, settings, said.append)
        training = Training(rllib.build_algo(), number, file, said)
        training.ask(1)
        callback_of(training.algorithm)._losses._say = said.append
        trainings.append(training)
        return training

    yield start
    for training in trainings:
        training.stop()


@dataclass(frozen=True)
class Story:
    """One env runner, then two; the first is lost while one is requested; then two, then one.

    The training uses IMPALA's fast path.
    """

    training: Training

    weights: Any
    """The learner's weights when the second env runner was added."""
    new: tuple[int, int, int, Any]
    """Its initial weights_seq_no, steps of all env runners, number of env runners, weights."""
    old: tuple[int, int]
    """Number of env runners and fragment length, as the first env runner knows them then."""
    before: Report
    with_two: Report
    after_loss: list[int]
    with_the_new: list[Report]
    """Reports with the added env runner alone."""
    grown: list[int]
    shrunk: list[int]
    last: Report
    said: list[str]


def tell(training: Training) -> Story:
    wait_for(lambda: training.train().env_steps_trained > 0)
    before = training.train()
    training.ask(2)
    # No training step runs meanwhile, so the learner stands still.
    training.until(2, training.follow)
    weights = training.algorithm.learner_group.get_weights()

    def begins_with(env_runner: Any) -> tuple[int, int, int, Any]:
        return (
            env_runner._weights_seq_no,
            env_runner.num_env_steps_sampled_lifetime,
            env_runner.config.num_env_runners,
            env_runner.module.get_state(),
        )

    new = training.of(2, begins_with)
    old = training.of(
        1, lambda it: (it.config.num_env_runners, it.config.get_rollout_fragment_length(1))
    )
    for _ in range(2):
        with_two = training.train()
    training.kill(1)
    training.ask(1)
    training.train()
    after_loss = training.indices()
    with_the_new = [training.train()]

    def learned_more() -> bool:
        with_the_new.append(training.train())
        return with_the_new[-1].env_steps_trained > with_the_new[0].env_steps_trained

    wait_for(learned_more)
    training.ask(2)
    training.until(2, training.follow)
    grown = training.indices()
    training.ask(1)
    training.train()
    shrunk = training.indices()
    for _ in range(2):
        last = training.train()
    return Story(
        training=training,
        weights=weights,
        new=new,
        old=old,
        before=before,
        with_two=with_two,
        after_loss=after_loss,
        with_the_new=with_the_new,
        grown=grown,
        shrunk=shrunk,
        last=last,
        said=list(training.said),
    )


@pytest.fixture(scope="module")
def story(start: Start) -> Story:
    return tell(start(env="PongNoFrameskip-v4", rollout_fragment_length=4, image_size=42))


def test_a_new_env_runner_begins_with_the_learners_weights(story: Story) -> None:
    weights_seq_no, _, _, weights = story.new
    assert weights_seq_no > 0
    (learned,) = story.weights.values()
    assert weights.keys() <= learned.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(value, learned[name], name)


def test_a_new_env_runner_knows_how_far_the_training_is(story: Story) -> None:
    _, env_steps, env_runners, _ = story.new
    assert (env_steps, env_runners) == (story.before.env_steps, 2)


def test_env_runners_are_told_how_many_they_are(story: Story) -> None:
    env_runners, _ = story.old
    assert env_runners == 2


def test_a_lost_env_runner_is_removed_before_one_that_is_alive(story: Story) -> None:
    assert story.after_loss == [2]


def test_a_new_env_runner_samples(story: Story) -> None:
    first, *_, last = story.with_the_new
    assert last.env_steps > first.env_steps


def test_what_a_new_env_runner_samples_is_learned(story: Story) -> None:
    first, *_, last = story.with_the_new
    assert last.env_steps_trained > first.env_steps_trained


def test_a_removed_env_runner_is_neither_restarted_nor_counted_as_lost(story: Story) -> None:
    assert metrics(story.last)[RESTARTS] == 0
    assert [line for line in story.said if "lost" in line or "failed" in line] == []


def test_no_env_runner_gets_the_number_of_an_earlier_one(story: Story) -> None:
    assert story.grown == [2, 3]


def test_the_newest_env_runner_is_removed(story: Story) -> None:
    assert story.shrunk == [2]


def test_it_learns_after_env_runners_came_and_left(story: Story) -> None:
    assert story.last.env_steps_trained > story.with_the_new[-1].env_steps_trained


def test_the_number_that_is_there_is_a_metric(story: Story) -> None:
    number = "fault_tolerance/num_healthy_workers"
    reports = (story.before, story.with_two, story.last)
    assert [metrics(report)[number] for report in reports] == [1, 2, 1]


def test_every_change_is_said(story: Story) -> None:
    assert story.said == [
        "Env runners: now 2 (were 1, target 2)",
        "Env runners: now 1 (were 2, target 1)",
        "Env runners: now 2 (were 1, target 2)",
        "Env runners: now 1 (were 2, target 1)",
    ]


# After the story, one env runner is left: the second one.


def test_a_file_that_has_not_changed_costs_less_than_a_millisecond(story: Story) -> None:
    repetitions = 200
    before = time.perf_counter()
    for _ in range(repetitions):
        story.training.follow()
    each = (time.perf_counter() - before) / repetitions
    assert each < 1e-3


def test_a_lost_env_runner_comes_back_while_another_one_is_added(story: Story) -> None:
    training = story.training
    training.kill(2)
    training.ask(2)
    wait_for(lambda: metrics(training.train()).get(RESTARTS) == 1)
    training.until(2, training.follow)
    assert training.indices() == [2, 4]
    # It knows the current number.
    assert training.of(2, lambda it: it.config.num_env_runners) == 2


def test_a_restarted_env_runner_begins_with_the_weights_and_steps_of_today(story: Story) -> None:
    training = story.training

    def as_at_the_runs_start(env_runner: Any) -> None:
        env_runner._weights_seq_no = env_runner.num_env_steps_sampled_lifetime = 0

    training.of(2, as_at_the_runs_start)
    algorithm = training.algorithm
    callback_of(algorithm).on_env_runners_recreated(
        algorithm=algorithm, env_runner_group=algorithm.env_runner_group, env_runner_indices=[2]
    )
    weights_seq_no, env_steps = training.of(
        2, lambda it: (it._weights_seq_no, it.num_env_steps_sampled_lifetime)
    )
    assert weights_seq_no > 0
    assert env_steps >= story.last.env_steps


# RLlib's own env runners, and those that cannot be placed.


@dataclass(frozen=True)
class Crowded:
    """A training of PPO with as many env runners as fit, and one that never gets a place."""

    weights: Any
    """The learner's weights when the env runners were added."""
    weights_of_the_newest: Any
    there_and_coming: tuple[int, int]
    """Env runners there and coming, while ten are requested."""
    env_steps: int
    """Environment steps of an iteration after an env runner has left."""
    train_s: float
    """Duration of an iteration while an env runner has no place: others took it meanwhile."""
    after_shrinking: tuple[int, int]
    """Env runners there and coming, once no more are requested than fit."""
    stop_s: float


BATCH = {"train_batch_size_per_learner": 300, "minibatch_size": 100, "num_epochs": 1}


@pytest.fixture(scope="module")
def crowded(start: Start) -> Crowded:
    training = start(run="PPO", min_time_s_per_iteration=0, **BATCH)
    training.train()

    training.ask(10)
    training.until(CPUS, training.follow)
    weights = training.algorithm.learner_group.get_weights()
    newest = training.of(CPUS, lambda it: it.module.get_state())
    training.train()
    there_and_coming = len(training.indices()), len(training.number._starting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(env_runner_number, "free_nodes", lambda: [Node(2)])
        training.ask(CPUS + 1)
        training.train()
        assert len(training.number._starting) == 1
        train_s = seconds(training.train)
        training.ask(CPUS)
        training.train()
        after_shrinking = len(training.indices()), len(training.number._starting)
        training.ask(CPUS - 1)  # The newest leaves.
        before = training.train()
        env_steps = training.train().env_steps - before.env_steps
        training.ask(CPUS + 1)
        training.train()
        assert len(training.number._starting) == 2
        stop_s = seconds(training.stop)
    return Crowded(
        weights=weights,
        weights_of_the_newest=newest,
        there_and_coming=there_and_coming,
        env_steps=env_steps,
        train_s=train_s,
        after_shrinking=after_shrinking,
        stop_s=stop_s,
    )


def seconds(call: Callable[[], object]) -> float:
    before = time.monotonic()
    call()
    return time.monotonic() - before


def test_a_new_env_runner_of_ppo_begins_with_the_learners_weights(crowded: Crowded) -> None:
    (learned,) = crowded.weights.values()
    assert crowded.weights_of_the_newest.keys() <= learned.keys()
    for name, value in crowded.weights_of_the_newest.items():
        np.testing.assert_array_equal(value, learned[name], name)


def test_only_as_many_are_added_as_have_room(crowded: Crowded) -> None:
    assert crowded.there_and_coming == (CPUS, 0)


def test_a_train_batch_of_ppo_stays_as_large_with_more_env_runners(crowded: Crowded) -> None:
    assert 300 <= crowded.env_steps <= 310


def test_it_trains_while_an_env_runner_waits_for_a_place(crowded: Crowded) -> None:
    assert crowded.train_s < HANGS_S


def test_those_that_wait_for_a_place_are_removed_first(crowded: Crowded) -> None:
    assert crowded.after_shrinking == (CPUS, 0)


def test_it_stops_at_once_while_an_env_runner_waits_for_a_place(crowded: Crowded) -> None:
    assert crowded.stop_s < HANGS_S


@pytest.fixture(scope="module")
def sac(start: Start) -> Training:
    sizes = {"num_steps_sampled_before_learning_starts": 300, "training_intensity": 16}
    return start(run="SAC", env="Pendulum-v1", **sizes)


def test_an_env_runner_is_added_to_sac(sac: Training) -> None:
    before = sac.train()
    sac.ask(2)
    sac.until(2, sac.follow)
    sac.train()
    assert sac.train().env_steps_trained > before.env_steps_trained
    assert sac.of(2, lambda it: it.config.num_env_runners) == 2


def test_an_env_runner_that_cannot_start_is_said_and_left_out(
    sac: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, there, said = sac, sac.indices(), len(sac.said)
    group = training.algorithm.env_runner_group
    make = group._make_worker
    broken = training.algorithm.config.copy(copy_frozen=False).environment("NoSuchGame-v0")
    monkeypatch.setattr(group, "_make_worker", lambda **given: make(**given | {"config": broken}))
    training.ask(len(there) + 1)
    wait_for(lambda: training.follow() or len(training.said) > said)  # type: ignore[func-returns-value]
    (line,) = training.said[said:]
    assert "An env runner could not start: " in line
    assert "NoSuchGame" in line
    assert training.indices() == there
