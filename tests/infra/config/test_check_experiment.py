"""The preview reads an experiment as the payload does and checks that it fits the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.config.check_experiment import check_experiment, cluster, with_stack_layer
from infra.config.stack_settings import StackSettings
from payload.experiment import place


def stack(folder: Path, experiment: str, **settings: object) -> StackSettings:
    (folder / "experiment.yaml").write_text(experiment)
    return StackSettings.model_validate({"experiment": "experiment.yaml", **settings})


def problems(folder: Path, experiment: str, **settings: object) -> list[str]:
    found = check_experiment(stack(folder, experiment, **settings), folder)
    return [f"{problem.key}: {problem.allowed}" for problem in found]


@pytest.mark.parametrize(
    "experiment",
    [
        "config: {lr: 5e-4}",
        "pong-impala: {run: IMPALA, env: PongNoFrameskip-v4, config: {num_workers: 2}}",
        "config: {num_workers: 11, lambda: 0.9, model: {dim: 42}}",
        "run: IMPALA\nconfig:\nstop:\n",
        "env: SomethingOfOurOwn-v0\nnotify: ./tell.sh",
        "num_samples: 4\nconfig: {num_workers: 2, lr: {loguniform: [1e-5, 1e-2]}}",
    ],
    ids=[
        "power of ten",
        "file of rllib train",
        "older names",
        "empty sections",
        "environment",
        "search",
    ],
)
def test_what_the_payload_takes_the_preview_takes(tmp_path: Path, experiment: str) -> None:
    assert problems(tmp_path, experiment) == []


@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        ("[", "experiment: is not YAML"),
        ("[1]", "experiment: is not a mapping of run, env, config and stop"),
        (
            "run: A3C",
            "experiment: run: 'A3C': input should be 'IMPALA', 'APPO', 'PQN', 'PPO', "
            "'DQN' or 'SAC'",
        ),
        ("config: [1]", "experiment: config: [1] is not a mapping of settings"),
        ("config: {1: 2}", "experiment: config.1: 1: keys should be strings"),
        ("stop: {time_total: 1}", "experiment: stop.time_total: unknown key (did you mean"),
        ("config: {num_wokers: 3}", "experiment: config.num_wokers: unknown key (did you mean"),
        (
            "config: {num_workers: {grid_search: [1, 2]}}",
            "experiment: config.num_workers: cannot be searched",
        ),
        ("config: {lr: fast}", "experiment: config.lr: 'fast' is neither a number nor"),
        ("config: {num_workers: 12}", "experiment: config.num_env_runners: 12 is more than the 11"),
        (
            "config: {num_learners: 2, num_gpus_per_learner: 1}",
            "experiment: config.num_gpus: 2 is more than the 1 GPUs of 5 machines",
        ),
        ("config: {num_gpus: 2}", "experiment: config.num_gpus: 2 is more than the 1 GPUs"),
        ("notify: https://chat/T0KEN", "experiment: notify: https://chat/***: up sends no secrets"),
        ("notify: $CHAT", "experiment: notify: $CHAT: up sends no secrets"),
    ],
)
def test_what_the_payload_would_refuse_after_the_boot_is_refused_before(
    tmp_path: Path, experiment: str, words: str
) -> None:
    (problem,) = problems(tmp_path, experiment)
    assert problem.startswith(words)


def test_the_stacks_number_of_env_runners_wins_over_the_experiments(tmp_path: Path) -> None:
    settings = stack(tmp_path, "config: {num_workers: 99}", numEnvRunners=3)
    assert list(check_experiment(settings, tmp_path)) == []
    assert with_stack_layer(settings, tmp_path).config.num_env_runners == 3


def test_a_number_of_the_stack_that_does_not_fit_is_the_stacks_problem(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "config: {num_workers: 2}", numEnvRunners=12)
    assert problem.startswith("numEnvRunners: config.num_env_runners: 12 is more than the 11")


def test_a_head_of_4_and_workers_of_10_vcpus_have_13_env_runners(tmp_path: Path) -> None:
    settings = stack(tmp_path, "run: IMPALA", maxWorkers=5)
    assert place(with_stack_layer(settings, tmp_path).config, cluster(settings)) == 4 + 5 * 2 - 1
