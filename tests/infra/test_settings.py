"""The stack's configuration: what it means, and everything that is wrong with it at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.settings import ConfigError, StackSettings, read_settings
from tests.infra.stack import EXISTING_SUBNETS, REQUIRED, ROOT

PRIVATE_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END"


def read(**config: str) -> StackSettings:
    return read_settings({**REQUIRED, **config}, ROOT)


def problems(**config: str) -> dict[str, str]:
    """Each key that is refused, and the line about it."""
    with pytest.raises(ConfigError) as error:
        read(**config)
    return {problem.key: str(problem) for problem in error.value.problems}


@pytest.fixture
def project() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    return loaded


def test_two_values_make_a_stack() -> None:
    assert read().head.gpus == 1


def test_the_articles_cluster_has_13_env_runners() -> None:
    # 6 + 8 - 1: a head of 6 vCPUs is sold no more, so one of 4 and workers of 10.
    settings = read(maxWorkers="5", workerSize="Standard_D2as_v5")
    assert settings.env_runners == 4 + 5 * 2 - 1


def test_env_runners_that_are_set_are_kept() -> None:
    assert read(numEnvRunners="3").env_runners == 3


@pytest.mark.parametrize("size", ["STANDARD_NC4AS_T4_V3", "NC4as_T4_v3", "nc4as_t4_v3"])
def test_a_size_is_known_however_it_is_spelt(size: str) -> None:
    assert read(headSize=size).head_size == "Standard_NC4as_T4_v3"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("adminCidr", "my house", "IPv4 CIDR"),
        ("adminCidr", "203.0.113.7/24", "IPv4 CIDR"),
        ("adminCidr", "0.0.0.0/0", "allowPublicSsh"),
        ("adminCidr", "", "required"),
        ("sshPublicKey", "", "required"),
        ("sshPublicKey", PRIVATE_KEY, "is a private key"),
        ("sshPublicKey", "ssh-ed25519 AAAA", "must be one line"),
        ("sshPublicKey", "ecdsa-sha2-nistp256 AAAA me", "ssh-ed25519 or ssh-rsa"),
        (
            "headSize",
            "Standard_NC6",
            "retired on 2023-09-06; its successor is Standard_NC4as_T4_v3",
        ),
        ("headSize", "NC6s_v3", "retired on 2025-09-30"),
        ("workerSize", "STANDARD_D2_V2", "its successor is Standard_D2as_v5"),
        ("workerSize", "Standard_D2as_v6", "did you mean Standard_D2as_v5?"),
        ("headSize", "Standard_NV6ads_A10_v5", "GRID driver"),
        ("location", "east-us", "did you mean eastus"),
        ("maxWorkers", "many", "valid integer"),
        ("maxWorkers", "-1", "greater than or equal to 0"),
        ("headSubnetCidr", "10.9.0.0/24", "outside vnetCidr"),
        ("workerSubnetCidr", "10.42.0.128/25", "overlaps headSubnetCidr"),
        ("workerSubnetCidr", "10.42.1.0/30", "smaller than Azure's smallest"),
        ("headSubnetId", "theirs", "must look like /subscriptions/"),
        ("resultsAccountId", "theirs", "must look like /subscriptions/"),
        ("experiment", "experiments/none.yaml", "cannot be read"),
        ("keepResults", "maybe", "valid boolean"),
        ("environmentVariables", "A=1", "valid dictionary"),
        ("image", "ubuntu", "publisher:offer:sku:version"),
        ("headSzie", "Standard_NC4as_T4_v3", "did you mean headSize?"),
    ],
)
def test_what_is_wrong_is_named(key: str, value: str, words: str) -> None:
    assert words in problems(**{key: value})[key]


def test_a_private_key_is_never_shown() -> None:
    assert "b3Blbn" not in problems(sshPublicKey=PRIVATE_KEY)["sshPublicKey"]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = problems(adminCidr="x", headSize="Standard_NC6", maxWorkers="-1", nope="1")
    assert set(found) == {"adminCidr", "headSize", "maxWorkers", "nope"}


def test_public_ssh_is_possible_for_those_who_mean_it() -> None:
    assert read(adminCidr="0.0.0.0/0", allowPublicSsh="true").admin_cidr == "0.0.0.0/0"


def test_fewer_workers_at_most_than_at_least_are_refused() -> None:
    assert "minWorkers" in problems(minWorkers="3", maxWorkers="2")["maxWorkers"]


def test_workers_need_room_in_their_subnet() -> None:
    found = problems(workerSubnetCidr="10.42.1.0/29", maxWorkers="4")
    assert "room for 3 machines" in found["workerSubnetCidr"]


def test_one_existing_subnet_alone_is_refused() -> None:
    subnet = EXISTING_SUBNETS["headSubnetId"]
    assert "both subnets" in problems(headSubnetId=subnet)["workerSubnetId"]


# The experiment


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """A file outside the project: the path is absolute."""
    return tmp_path / "experiment.yaml"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run: DQN", "'DQN' is not one of ['IMPALA', 'APPO']"),
        ("config: {num_wokers: 3}", "did you mean num_workers?"),
        ("config: {num_workers: three}", "num_workers"),
        ("stop: {time_totals: 3}", "did you mean time_total_s?"),
        ("[1, 2]", "must be a mapping"),
        ("{", "is no YAML"),
    ],
)
def test_an_experiment_that_the_payload_would_refuse_is_refused(
    experiment: Path, text: str, words: str
) -> None:
    experiment.write_text(text)
    (line,) = problems(experiment=str(experiment)).values()
    assert words in line


def test_an_experiment_in_old_words_is_taken(experiment: Path) -> None:
    experiment.write_text(
        "config: {num_gpus: 1, num_workers: 13, sample_batch_size: 50, model: {dim: 42}}\n"
        "stop: {episode_reward_mean: 18}\n"
    )
    assert read(experiment=str(experiment)).experiment == str(experiment)


def test_a_gpu_experiment_on_a_head_without_gpu_is_refused(experiment: Path) -> None:
    experiment.write_text("config: {num_gpus: 1}")
    found = problems(experiment=str(experiment), headSize="Standard_D4as_v5")
    assert "has 0 GPUs; the experiment asks for 1" in found["headSize"]


# Pulumi.yaml


def test_pulumi_yaml_describes_every_key(project: dict[str, Any]) -> None:
    fields = {field.alias for field in StackSettings.model_fields.values()}
    ours = {key for key in project["config"] if ":" not in key}
    assert ours == fields
    assert all(project["config"][key]["description"] for key in ours)


def test_pulumi_yamls_defaults_are_those_of_the_settings(project: dict[str, Any]) -> None:
    for field in StackSettings.model_fields.values():
        declared = project["config"][field.alias]
        assert declared["default"] == field.default, field.alias


def test_the_dev_stack_needs_two_values_more() -> None:
    stack = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())
    config = {
        key.removeprefix("volley:"): value if isinstance(value, str) else json.dumps(value)
        for key, value in stack["config"].items()
        if key.startswith("volley:")
    }
    assert set(config).isdisjoint(REQUIRED)
    assert read(**config)


def test_the_readme_has_a_row_for_every_setting(project: dict[str, Any]) -> None:
    rows = (ROOT / "README.md").read_text().splitlines()
    for key, setting in project["config"].items():
        row = next(line for line in rows if line.startswith(f"| `{key}` |"))
        assert setting["description"] in row
        default = setting["default"]
        shown = default if isinstance(default, str) else json.dumps(default)
        assert (f"| `{shown}` |" if shown else "|  |") in row
