"""Reading an experiment: what it means, what is refused, and in which words."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from payload.errors import UserError
from payload.experiment.file import read_file, read_mapping, to_yaml
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.old_tables import (
    IGNORED_CONFIG,
    IGNORED_MODEL,
    RENAMED_CONFIG,
    RENAMED_MODEL,
)
from payload.experiment.ppo_dqn_sac_settings import DQNSettings
from payload.experiment.read import read_experiment
from payload.experiment.search_space import is_search_space
from payload.experiment.settings import Experiment, Stop

ARTICLE = {
    "run": "IMPALA",
    "env": "PongNoFrameskip-v4",
    "config": {
        "num_gpus": 1,
        "num_workers": 13,
        "num_cpus_per_worker": 1,
        "num_envs_per_worker": 5,
        "sample_batch_size": 50,
        "train_batch_size": 1000,
        "num_sgd_iter": 2,
        "num_data_loader_buffers": 2,
        "lambda": 0.9,
        "exploration_config": {"type": "StochasticSampling"},
        "model": {"dim": 42},
    },
    "stop": {"episode_reward_mean": 18, "time_total_s": 3600, "timesteps_total": 5_000_000},
}
"""Every setting of Azure ML's articles on Pong."""


def settings(**config: Any) -> ImpalaSettings:
    found = read_experiment({"config": config}).experiment.config
    assert isinstance(found, ImpalaSettings)
    return found


def refusal(raw: Any) -> str:
    """Returns the text of the error that an experiment causes."""
    with pytest.raises(UserError) as error:
        read_experiment(raw)
    return str(error.value)


def written(folder: Path, text: str) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(text)
    return path


# What the articles say


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_learners", 1),
        ("num_gpus_per_learner", 1.0),
        ("num_env_runners", 13),
        ("num_cpus_per_env_runner", 1),
        ("num_envs_per_env_runner", 5),
        ("rollout_fragment_length", 50),
        ("train_batch_size_per_learner", 1000),
        ("num_epochs", 2),
        ("learner_queue_size", 2),
        ("lambda_", 0.9),
        ("explore", True),
        ("image_size", 42),
    ],
)
def test_the_articles_settings_have_their_meaning(name: str, value: object) -> None:
    assert getattr(read_experiment(ARTICLE).experiment.config, name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("episode_return_mean", 18),
        ("time_total_s", 3600),
        ("num_env_steps_sampled_lifetime", 5_000_000),
    ],
)
def test_the_articles_criteria_have_their_meaning(name: str, value: float) -> None:
    assert getattr(read_experiment(ARTICLE).experiment.stop, name) == value


@pytest.mark.parametrize(
    "note",
    [
        "config.num_gpus is now num_learners: 1",
        "config.num_gpus is now num_gpus_per_learner: 1.0",
        "config.num_workers is now num_env_runners: 13",
        "config.num_cpus_per_worker is now num_cpus_per_env_runner: 1",
        "config.num_envs_per_worker is now num_envs_per_env_runner: 5",
        "config.sample_batch_size is now rollout_fragment_length: 50",
        "config.train_batch_size is now train_batch_size_per_learner: 1000",
        "config.num_sgd_iter is now num_epochs: 2",
        "config.num_data_loader_buffers is now learner_queue_size: 2",
        "config.lambda is now lambda_: 0.9",
        "config.exploration_config is now explore: True",
        "config.model.dim is now image_size: 42",
        "stop.episode_reward_mean is now env_runners/episode_return_mean: 18",
        "stop.timesteps_total is now num_env_steps_sampled_lifetime: 5000000",
    ],
)
def test_each_old_name_is_translated_with_a_line(note: str) -> None:
    assert note in read_experiment(ARTICLE).notes


def test_a_name_that_did_not_change_has_no_line() -> None:
    assert not [note for note in read_experiment(ARTICLE).notes if "time_total_s" in note]


def test_settings_that_nothing_uses_any_more_are_named_with_a_reason() -> None:
    raw = {"config": {"framework": "torch", "batch_mode": "x"}, "stop": {"training_iteration": 1}}
    notes = read_experiment(raw).notes
    assert [note.split(": ")[0] for note in notes] == [
        "config.framework is ignored",
        "config.batch_mode is ignored",
    ]


def test_an_old_and_a_new_name_together_are_refused() -> None:
    message = refusal({"config": {"num_workers": 1, "num_env_runners": 1}})
    assert message == "config.num_workers: num_env_runners is set too; keep one of the two"


# What is read


def test_an_empty_experiment_is_impala_on_pong() -> None:
    experiment = read_experiment({}).experiment
    assert (experiment.run, experiment.env) == ("IMPALA", "PongNoFrameskip-v4")


@pytest.mark.parametrize("key", ["run", "env", "config", "stop"])
def test_a_key_left_empty_in_a_file_means_its_default(key: str) -> None:
    assert read_experiment({key: None}) == read_experiment({})


def test_a_learning_rate_can_be_a_schedule() -> None:
    assert settings(lr=[[0, 1e-3], [1_000_000, 1e-4]]).lr == [(0, 1e-3), (1_000_000, 1e-4)]


def test_an_entropy_coefficient_can_be_a_schedule() -> None:
    assert settings(entropy_coeff=[[0, 0.01], [1000, 0]]).entropy_coeff == [(0, 0.01), (1000, 0)]


def test_a_whole_number_will_do_where_a_fraction_may_stand() -> None:
    assert settings(grad_clip=40).grad_clip == 40


def test_a_file_of_rllib_train_is_read(tmp_path: Path) -> None:
    text = "pong-impala:\n  run: APPO\n  env: ALE/Pong-v5\n  config: {num_workers: 2}\n"
    raw = read_file(written(tmp_path, text))
    assert raw == {"run": "APPO", "env": "ALE/Pong-v5", "config": {"num_workers": 2}}


def test_a_plain_experiment_file_is_read(tmp_path: Path) -> None:
    raw = read_file(written(tmp_path, "run: APPO\nstop: {time_total_s: 60}\n"))
    assert raw == {"run": "APPO", "stop": {"time_total_s": 60}}


def test_json_is_an_experiment_file_too(tmp_path: Path) -> None:
    assert read_file(written(tmp_path, '{"run": "APPO"}')) == {"run": "APPO"}


def test_a_file_that_only_sets_config_is_not_a_file_of_rllib_train(tmp_path: Path) -> None:
    assert read_file(written(tmp_path, "config: {lr: 0.1}")) == {"config": {"lr": 0.1}}


def test_a_power_of_ten_in_a_file_is_a_number(tmp_path: Path) -> None:
    raw = read_file(written(tmp_path, "config: {lr: 5e-5}"))
    assert read_experiment(raw).experiment.config == ImpalaSettings(lr=5e-5)


# Layers


def test_the_command_lines_new_name_wins_over_a_files_old_name(tmp_path: Path) -> None:
    file = written(tmp_path, "config: {num_workers: 13}")
    loaded = read_experiment(file, {"config": {"num_env_runners": 5}})
    assert loaded.experiment.config.num_env_runners == 5


def test_the_command_lines_old_name_wins_over_a_files_new_name(tmp_path: Path) -> None:
    file = written(tmp_path, "config: {num_env_runners: 13}")
    assert read_experiment(file, {"config": {"num_workers": 5}}).experiment == Experiment(
        config=ImpalaSettings(num_env_runners=5), stop=Stop(time_total_s=3600.0)
    )


def test_a_layers_other_settings_are_kept() -> None:
    loaded = read_experiment({"config": {"lr": 0.1}}, {"config": {"gamma": 0.5}})
    assert loaded.experiment.config == ImpalaSettings(lr=0.1, gamma=0.5)


def test_a_later_stop_replaces_an_earlier_one() -> None:
    loaded = read_experiment({"stop": {"time_total_s": 60}}, {"stop": {"training_iteration": 3}})
    assert loaded.experiment.stop == Stop(training_iteration=3)


def test_a_wrong_value_is_shown_under_the_name_of_the_layer_that_gave_it() -> None:
    with pytest.raises(UserError, match=r"^config\.num_env_runners: 'x'"):
        read_experiment({"config": {"num_workers": 1}}, {"config": {"num_env_runners": "x"}})


def test_a_run_without_a_criterion_ends_after_an_hour_and_says_so() -> None:
    loaded = read_experiment({"stop": {}})
    assert loaded.experiment.stop == Stop(time_total_s=3600.0)
    assert loaded.notes == ["stop is empty: time_total_s is 3600"]


@pytest.mark.slow
def test_the_language_needs_pydantic_and_yaml_alone() -> None:
    code = (
        "import sys\n"
        "import payload.experiment.read, payload.experiment.placement\n"
        "heavy = {'ray', 'torch', 'gymnasium', 'ale_py', 'numpy', 'mlflow', 'pulumi'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# What is refused


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1, 2]", "is not a mapping of run, env, config and stop"),
        ("run: [", "is not YAML"),
        ("run: 2020-99-99", "is not YAML"),
        ("", "is not a mapping of run, env, config and stop"),
    ],
    ids=["list", "broken", "no such date", "empty"],
)
def test_a_file_that_is_not_an_experiment_is_refused(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UserError, match=f"^{path}: {reason}.*$"):
        read_file(path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    with pytest.raises(UserError, match=f"^{path}: "):
        read_file(path)


@pytest.mark.parametrize("name", ["none.yaml", "."], ids=["missing", "folder"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r": cannot be read: \w"):
        read_file(tmp_path / name)


def test_a_missing_file_names_the_nearest_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "atari.yaml").touch()
    with pytest.raises(UserError, match=r"atari.yml: cannot .* \(did you mean atari.yaml\?\)$"):
        read_file(tmp_path / "atari.yml")


@pytest.mark.parametrize(
    ("raw", "key", "meant"),
    [
        ({"config": {"num_env_runer": 1}}, "config.num_env_runer", "num_env_runners"),
        ({"config": {"num_worker": 1}}, "config.num_worker", "num_workers"),
        ({"config": {"gama": 1}}, "config.gama", "gamma"),
        ({"config": {"model": {"dimm": 42}}}, "config.model.dimm", "dim"),
        ({"stop": {"time_total": 1}}, "stop.time_total", "time_total_s"),
        ({"stop": {"episode_reward_men": 1}}, "stop.episode_reward_men", "episode_reward_mean"),
        ({"envs": "CartPole-v1"}, "envs", "env"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_unknown_key_names_the_nearest_known(raw: dict[str, Any], key: str, meant: str) -> None:
    message = refusal(raw)
    (names,) = re.findall(r"^.*: unknown key \(did you mean (.*)\?\); docs/\S+ lists all$", message)
    assert message.startswith(f"{key}: ")
    nearest, *others = re.split(", | or ", names)
    assert nearest.removeprefix("model.") == meant
    assert len(others) < 3


def test_an_unknown_key_unlike_any_says_where_all_are() -> None:
    message = refusal({"config": {"zzzzzzzz": 1}})
    assert message == "config.zzzzzzzz: unknown key; docs/algorithm.md lists all"


WRONG = [
    ("num_env_runners", "two", "valid integer"),
    ("num_env_runners", "2", "valid integer"),
    ("num_env_runners", True, "valid integer"),
    ("num_env_runners", -1, "greater than or equal to 0"),
    ("num_env_runners", [2], "valid integer"),
    ("num_env_runners", {"a": 2}, "valid integer"),
    ("num_env_runners", 2.5, "valid integer"),
    ("rollout_fragment_length", 1, "greater than or equal to 2"),
    ("rollout_fragment_length", None, "valid integer"),
    ("image_size", 8, "greater than or equal to 32"),
    ("gamma", 1.5, "less than or equal to 1"),
    ("clip_rewards", 1, "valid boolean"),
    ("clip_rewards", "yes", "valid boolean"),
    ("env_config", [1], "valid dictionary"),
    ("lr", "fast", "neither a number nor a list of [steps, value]"),
    ("lr", True, "neither a number nor a list of [steps, value]"),
    ("lr", {"a": 1}, "neither a number nor a list of [steps, value]"),
    ("lr", [[0, 0.1], [5]], "neither a number nor a list of [steps, value]"),
    ("lr", [[-1, 0.1]], "neither a number nor a list of [steps, value]"),
    ("lr", [], "neither a number nor a list of [steps, value]"),
    ("seed", -1, "greater than or equal to 0"),
]


@pytest.mark.parametrize(("key", "value"), [wrong[:2] for wrong in WRONG], ids=repr)
def test_a_wrong_setting_names_the_key(key: str, value: object) -> None:
    assert refusal({"config": {key: value}}).startswith(f"config.{key}: ")


@pytest.mark.parametrize(("key", "value"), [wrong[:2] for wrong in WRONG], ids=repr)
def test_a_wrong_setting_names_the_value(key: str, value: object) -> None:
    assert repr(value) in refusal({"config": {key: value}})


@pytest.mark.parametrize(("key", "value", "allowed"), WRONG, ids=repr)
def test_a_wrong_setting_names_what_is_allowed(key: str, value: object, allowed: str) -> None:
    assert allowed in refusal({"config": {key: value}})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"config": {"num_workers": "x"}}, "config.num_workers"),
        ({"config": {"model": {"dim": "x"}}}, "config.model.dim"),
        ({"stop": {"timesteps_total": "x"}}, "stop.timesteps_total"),
    ],
    ids=["config", "model", "stop"],
)
def test_a_wrong_value_under_an_old_name_is_shown_under_that_name(
    raw: dict[str, Any], words: str
) -> None:
    assert words in refusal(raw)


@pytest.mark.parametrize(
    ("stop", "allowed"),
    [
        ({"time_total_s": 0}, "greater than 0"),
        ({"time_total_s": "soon"}, "valid number"),
        ({"training_iteration": 1.5}, "valid integer"),
        ({"env_runners/episode_return_mean": [18]}, "valid number"),
    ],
)
def test_a_wrong_criterion_names_key_value_and_what_is_allowed(
    stop: dict[str, Any], allowed: str
) -> None:
    ((key, value),) = stop.items()
    message = refusal({"stop": stop})
    assert message.startswith(f"stop.{key}: {value!r}: ")
    assert allowed in message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("section", "key"), [("config", "lr"), ("config", "grad_clip"), ("stop", "time_total_s")]
)
def test_a_number_that_is_not_finite_is_refused(section: str, key: str, value: float) -> None:
    assert refusal({section: {key: value}}).startswith(f"{section}.{key}: ")


def test_an_unknown_algorithm_names_the_known_ones() -> None:
    names = "'IMPALA', 'APPO', 'PQN', 'PPO', 'DQN' or 'SAC'"
    assert refusal({"run": "A3C"}) == f"run: 'A3C': input should be {names}"


@pytest.mark.parametrize(
    ("run", "key", "owners"),
    [("IMPALA", "epsilon_", ""), ("PPO", "actor_lr", "SAC"), ("SAC", "lambda_", "IMPALA and APPO")],
)
def test_a_key_of_another_algorithm_names_that_one(run: str, key: str, owners: str) -> None:
    message = refusal({"run": run, "config": {key: 1.0}})
    assert (f"is a setting of {owners}" in message) == bool(owners)


def test_epsilon_greedy_of_dqn_is_its_schedule() -> None:
    exploration = {
        "type": "EpsilonGreedy",
        "initial_epsilon": 1.0,
        "final_epsilon": 0.02,
        "epsilon_timesteps": 500000,
    }
    read = read_experiment({"run": "DQN", "config": {"exploration_config": exploration}})
    assert read.experiment.config == DQNSettings(epsilon=[(0, 1.0), (500000, 0.02)])


@pytest.mark.parametrize(("section", "value"), [("config", []), ("stop", 3), ("config", "x")])
def test_a_section_that_is_not_a_mapping_is_refused(section: str, value: object) -> None:
    assert refusal({section: value}) == f"{section}: {value!r} is not a mapping of settings"


def test_a_minibatch_of_broken_fragments_is_refused() -> None:
    message = refusal({"config": {"minibatch_size": 100, "rollout_fragment_length": 32}})
    assert message == (
        "config.minibatch_size: 100 is not a multiple of rollout_fragment_length (32)"
    )


@pytest.mark.parametrize("lr", [0.0, [[0, 1e-3], [1000, 1e-4]]])
def test_only_a_positive_rate_can_be_annealed_on_the_way_to_the_goal(lr: object) -> None:
    message = refusal({"config": {"lr": lr, "lr_at_goal": 1e-4}})
    assert message == "config.lr_at_goal: 0.0001 needs an lr that is a positive number"


# For any input

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=8,
)
config_keys = st.sampled_from(
    [
        *ImpalaSettings.model_fields,
        *RENAMED_CONFIG,
        *IGNORED_CONFIG,
        "num_gpus",
        "exploration_config",
        "model",
    ]
)
model_values = st.dictionaries(
    st.sampled_from([*RENAMED_MODEL, *IGNORED_MODEL]) | st.text(max_size=10), json_values
)
numbers = st.integers(-2, 100) | st.floats()
experiments_of_known_keys = st.fixed_dictionaries(
    {},
    optional={
        "run": st.sampled_from(["IMPALA", "APPO"]) | json_values,
        "env": st.sampled_from(["CartPole-v1", "PongNoFrameskip-v4"]) | json_values,
        "config": st.dictionaries(config_keys, numbers | json_values | model_values, max_size=4)
        | json_values,
        "stop": st.dictionaries(st.sampled_from([*Stop.model_fields]), numbers | json_values)
        | json_values,
        "other": json_values,
    },
)


def parsed_or_refused_in_one_line(raw: Any) -> bool:
    try:
        read_experiment(raw)
    except UserError as error:
        return len(str(error).splitlines()) == 1
    return True


@given(json_values | st.dictionaries(st.text(), json_values))
@example({"a\nb": 1})
@example({"env": "CartPole\n-v1"})
def test_any_data_is_read_or_refused_in_one_line(raw: Any) -> None:
    assert parsed_or_refused_in_one_line(raw)


@given(experiments_of_known_keys)
@example({"config": {"num_gpus": float("nan")}})
@example({"config": {"num_gpus": float("inf")}})
@example({"config": {"env_config": {"a\nb": float("nan")}}})
def test_any_value_of_a_known_key_is_read_or_refused_in_one_line(raw: dict[str, Any]) -> None:
    assert parsed_or_refused_in_one_line(raw)


finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=1e-9, max_value=1e9)
share = st.floats(0, 1)
schedules = finite | st.lists(
    st.tuples(st.integers(0, 10**9), finite).map(list),
    min_size=1,
    max_size=4,
    unique_by=lambda point: point[0],
).map(lambda points: sorted(points, key=lambda point: point[0]))
plain_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), finite, st.text(max_size=10)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=6,
).filter(lambda value: not is_search_space(value))
arguments = st.dictionaries(st.text(max_size=10), plain_json, max_size=3).filter(
    lambda value: not is_search_space(value)
)
valid_experiments = st.fixed_dictionaries(
    {},
    optional={
        "run": st.sampled_from(["IMPALA", "APPO"]),
        "env": st.sampled_from(["CartPole-v1", "PongNoFrameskip-v4", "ALE/Breakout-v5"]),
        "config": st.fixed_dictionaries(
            {},
            optional={
                "num_workers": st.integers(0, 1000),
                "num_gpus": st.sampled_from([0, 1, 2, 0.5]),
                "model": st.fixed_dictionaries({"dim": st.integers(32, 210)}),
                "rollout_fragment_length": st.sampled_from([8, 32]),
                "minibatch_size": st.none() | st.integers(1, 100).map(lambda n: 32 * n),
                "explore": st.booleans(),
                "env_config": arguments,
                "lr": schedules,
                "entropy_coeff": schedules,
                "gamma": share,
                "lambda": share,
                "grad_clip": st.none() | positive,
                "seed": st.none() | st.integers(0, 2**63),
            },
        ),
        "stop": st.fixed_dictionaries(
            {},
            optional={
                "episode_reward_mean": finite,
                "time_total_s": positive | st.integers(1, 10**6),
                "timesteps_total": st.integers(1, 10**12),
                "training_iteration": st.none() | st.integers(1, 10**6),
            },
        ),
    },
)


@given(valid_experiments)
def test_an_experiment_written_as_yaml_is_the_same_when_read(raw: dict[str, Any]) -> None:
    experiment = read_experiment(raw).experiment
    again = read_experiment(read_mapping(to_yaml(experiment))).experiment
    assert again == experiment


@given(valid_experiments)
def test_an_experiment_file_has_no_old_names(raw: dict[str, Any]) -> None:
    experiment = read_experiment(raw).experiment
    assert read_experiment(read_mapping(to_yaml(experiment))).notes == []


@pytest.mark.parametrize("text", ["5e5", "1e-3", "1.5", "0x10", "true", "null", "2020-01-01", ""])
def test_text_that_looks_like_something_else_stays_text(tmp_path: Path, text: str) -> None:
    experiment = read_experiment({"config": {"env_config": {"level": text}}}).experiment
    raw = read_file(written(tmp_path, to_yaml(experiment)))
    assert raw["config"] == {"env_config": {"level": text}}


def test_an_experiment_file_says_only_what_was_set() -> None:
    experiment = read_experiment({"run": "APPO", "config": {"num_workers": 3}}).experiment
    assert read_mapping(to_yaml(experiment)) == {
        "run": "APPO",
        "config": {"num_env_runners": 3},
        "stop": {"time_total_s": 3600.0},
    }


def test_an_experiment_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Experiment().run = "APPO"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        (1.5, "config.epsilon: 1.5 is not a probability, from 0 to 1"),
        ([[0, 1.0], [10, -0.1]], "config.epsilon: -0.1 is not a probability, from 0 to 1"),
        ([[10, 1.0], [0, 0.1]], "config.epsilon: [10, 0] are not rising numbers of steps"),
    ],
)
def test_an_invalid_epsilon_is_an_error(epsilon: Any, said: str) -> None:
    assert refusal({"config": {"epsilon": epsilon}}) == said


def test_an_evaluations_return_is_not_a_goal_without_evaluation() -> None:
    goal = {"evaluation/env_runners/episode_return_mean": 18}
    assert "config.evaluation_interval" in refusal({"stop": goal})
    read_experiment({"config": {"evaluation_interval": 5}, "stop": goal})


def test_a_search_compares_evaluations_only_where_there_are_any() -> None:
    metric = {"metric": "evaluation/env_runners/episode_return_mean"}
    assert "is never known without evaluation" in refusal(metric)
    read_experiment({"config": {"evaluation_interval": 5}, **metric})


def test_azure_mls_limit_becomes_the_time_of_training() -> None:
    loaded = read_experiment({"max_run_duration_seconds": 600}, {"stop": {"training_iteration": 5}})
    assert loaded.experiment.stop == Stop(time_total_s=600, training_iteration=5)
    assert loaded.notes == ["max_run_duration_seconds is now stop.time_total_s: 600"]


def test_azure_mls_limit_beside_the_time_of_training_is_an_error() -> None:
    said = refusal({"max_run_duration_seconds": 600, "stop": {"time_total_s": 60}})
    assert said == "max_run_duration_seconds: stop.time_total_s is set too; keep one of the two"


def test_azure_mls_older_names_of_files_are_translated() -> None:
    loaded = read_experiment({"conda_dependencies_file_path": "/conda.yml"})
    assert loaded.experiment.conda_dependencies_file == "/conda.yml"
    assert loaded.notes[0] == (
        "conda_dependencies_file_path is now conda_dependencies_file: /conda.yml"
    )


def test_an_older_name_of_a_file_beside_todays_is_an_error() -> None:
    both = {"pip_requirements_file_path": "a.txt", "pip_requirements_file": "b.txt"}
    expected = "pip_requirements_file_path: pip_requirements_file is set too; keep one of the two"
    assert refusal(both) == expected


@pytest.mark.parametrize("limit", [0, -1, "soon"])
def test_azure_mls_limit_is_named_where_it_is_none(limit: Any) -> None:
    assert refusal({"max_run_duration_seconds": limit}).startswith(
        f"max_run_duration_seconds: {limit!r}: "
    )
