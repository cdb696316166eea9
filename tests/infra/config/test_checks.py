"""Configuration errors of a stack are reported all at once, without a traceback."""

from __future__ import annotations

import json

import pytest

from infra.config.read_stack import ConfigError, read_settings
from infra.config.stack_settings import StackSettings
from tests.infra.declared_stack import EXISTING_SUBNETS, REQUIRED, SSH_KEY
from tests.project import ROOT

PRIVATE_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END"


def read(**config: str) -> StackSettings:
    return read_settings({**REQUIRED, **config}, ROOT)


def problems(**config: str) -> dict[str, str]:
    """Returns the message for each key that is rejected."""
    with pytest.raises(ConfigError) as error:
        read(**config)
    return {problem.key: str(problem) for problem in error.value.problems}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("adminCidr", "my house", "IPv4 CIDR"),
        ("adminCidr", "203.0.113.7/24", "IPv4 CIDR"),
        ("adminCidr", "0.0.0.0/0", "allowPublicSsh"),
        ("adminCidr", "128.0.0.0/1", "allowPublicSsh"),
        ("adminCidr", "20.0.0.0/15", "allowPublicSsh"),
        ("adminCidr", "", "required"),
        ("adminCidr", "203.0.113.7/32,8.8.8.8/4", '"8.8.8.8/4": must be an IPv4 CIDR'),
        ("sshPublicKey", f"{SSH_KEY}\nssh-dss AAAA", "ssh-dss AAAA"),
        ("adminUsername", "root", "reserved by Azure or taken on the machines"),
        ("adminUsername", "admin", "reserved by Azure or taken on the machines"),
        ("adminUsername", "ray", "reserved by Azure or taken on the machines"),
        ("adminUsername", "mlflow", "reserved by Azure or taken on the machines"),
        ("sshPublicKey", "", "required"),
        ("sshPublicKey", PRIVATE_KEY, "is a private key"),
        ("sshPublicKey", "ssh-ed25519 AAAA", "must be one key per line"),
        ("sshPublicKey", "ecdsa-sha2-nistp256 AAAA me", "ssh-ed25519 or ssh-rsa"),
        (
            "headSize",
            "Standard_NC6",
            "retired on 2023-09-06; its successor is Standard_NC4as_T4_v3",
        ),
        ("headSize", "NC6s_v3", "retired on 2025-09-30"),
        ("headSize", "Standard_NC24rs_v3", "retired on 2025-09-30"),
        ("headSize", "Standard_NC24rs_v2", "retired on 2023-09-06"),
        ("headSize", "Standard_ND24rs", "retired on 2023-09-06"),
        ("headSize", "Standard_NC6_Promo", "retired on 2023-09-06"),
        ("headSize", "Standard_NV12s_v3", "retired on 2026-09-30"),
        ("headSize", "NV16as_v4", "retired on 2026-09-30"),
        ("workerSize", "STANDARD_D2_V2", "its successor is Standard_D2as_v5"),
        (
            "workerSize",
            "Standard_D2as_v99",
            "is not in the list of 2026-11 (did you mean",
        ),
        ("workerSize", "Standard_F4s_v2", "Azure knows all sizes: az login, with checkQuota true"),
        ("headSize", "Standard_NV6ads_A10_v5", "GRID driver"),
        ("zone", "1,2", "should match pattern"),
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
        ("environmentVariables", '{"MY-MODE": "fast"}', "letters, digits and underscores"),
        ("environmentVariables", '{"": "fast"}', "letters, digits and underscores"),
        ("pipPackages", '["--index-url=https://example.com"]', "an option of pip"),
        ("pipPackages", '["-e ."]', "an option of pip"),
        ("pipPackages", '["einops\\n--pre"]', "more than one line"),
        ("pipPackages", '["a @ https://me:key@example.com/a.whl"]', "contains credentials"),
        ("pipPackages", '["git+https://key@github.com/me/a"]', "contains credentials"),
        ("aptPackages", '["Htop"]', "not a Debian package name"),
        ("aptPackages", '["htop; reboot"]', "not a Debian package name"),
        ("aptPackages", '["-o=Debug::NoLocking=1"]', "not a Debian package name"),
        ("sharedMemoryGib", "7", "more than 80 % of the 8 GiB of Standard_D2as_v5"),
        ("numEnvRunners", "12", "more than the 11 that fit"),
        ("image", "ubuntu", "publisher:offer:sku:version"),
        ("headSzie", "Standard_NC4as_T4_v3", "did you mean headSize?"),
        (
            "headIdentityId",
            "rl-head",
            "Microsoft.ManagedIdentity/userAssignedIdentities/<identity>",
        ),
        ("owner", "me", "pulumi config set --path tags.owner VALUE"),
        ("costCentre", "42", "pulumi config set --path tags.cost-centre VALUE"),
        ("tags", '{"Stack": "dev"}', '"Stack": is volley\'s own'),
        ("tags", '{"team": "a", "Team": "b"}', '"Team": is there twice'),
        ("tags", '{"a/b": "c"}', '"a/b": must have 1 to 128 characters, none of'),
        ("tags", json.dumps({"note": "x" * 257}), '"note": has a value of more than 256'),
        ("tags", json.dumps({str(tag): "x" for tag in range(49)}), "49: too many; Azure allows 48"),
    ],
)
def test_what_is_wrong_is_named(key: str, value: str, words: str) -> None:
    assert words in problems(**{key: value})[key]


def test_a_private_key_is_never_shown() -> None:
    assert "b3Blbn" not in problems(sshPublicKey=PRIVATE_KEY)["sshPublicKey"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pipPackages", '["git+https://s3cret@github.com/me/a"]'),
        ("mlflowTrackingUri", "https://me:s3cret@mlflow.example.com"),
    ],
)
def test_a_key_in_an_address_is_never_shown(key: str, value: str) -> None:
    assert "s3cret" not in problems(**{key: value})[key]


@pytest.mark.parametrize("value", ["fast", "a b"])
def test_a_variables_value_is_never_shown(value: str) -> None:
    found = problems(environmentVariables=json.dumps({"NOT MINE": value}))
    assert value not in found["environmentVariables"]


def test_of_a_variable_that_is_not_text_the_name_is_shown_and_no_value() -> None:
    line = problems(environmentVariables='{"KEY": "s3cret", "DEBUG": true}')["environmentVariables"]
    assert "DEBUG" in line
    assert "s3cret" not in line


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pipPackages", '["einops", "wandb==0.19.1", "ray[tune]>=2; python_version>\'3\'"]'),
        ("pipPackages", '["a @ git+https://github.com/me/a@v1", "b @ https://example.com/b.whl"]'),
        ("aptPackages", '["htop", "g++", "libstdc++6", "python3.11", "htop=3.0.5-7build2"]'),
        ("environmentVariables", '{"_MY_MODE2": "a=b", "N": 3}'),
        ("adminUsername", "azureuser"),
        ("workerSize", "d2ADS_v6"),
        ("zone", "3"),
        ("sharedMemoryGib", "6"),
        ("numEnvRunners", "11"),
    ],
)
def test_what_is_right_is_taken(key: str, value: str) -> None:
    assert read(**{key: value})


def test_shared_memory_only_has_to_fit_machines_that_are_there() -> None:
    assert read(sharedMemoryGib="20", maxWorkers="0").shared_memory_gib == 20


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = problems(adminCidr="x", headSize="Standard_NC6", maxWorkers="-1", nope="1")
    assert set(found) == {"adminCidr", "headSize", "maxWorkers", "nope"}


@pytest.mark.parametrize("cidr", ["10.0.0.0/8", "172.16.0.0/12", "20.0.0.0/16"])
def test_networks_of_one_organisation_may_use_ssh(cidr: str) -> None:
    assert read(adminCidr=cidr).admin_cidr == cidr


def test_head_and_workers_have_a_subnet_each() -> None:
    one = EXISTING_SUBNETS["headSubnetId"]
    assert "headSubnetId" in problems(headSubnetId=one, workerSubnetId=one)["workerSubnetId"]


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


@pytest.mark.parametrize("limit", ["maxHours", "budget"])
def test_a_limit_that_nobody_would_keep_is_refused(limit: str) -> None:
    assert "has no effect with scaling: cpu" in problems(**{limit: "9", "scaling": "cpu"})[limit]


@pytest.mark.parametrize(
    ("emails", "budget", "problem"),
    [
        ('["me"]', "5", "must be an address such as me@example.com"),
        ('["me@example.com"]', "0", "needs a budget"),
    ],
)
def test_azure_mails_of_a_budget_alone_and_to_addresses(
    emails: str, budget: str, problem: str
) -> None:
    assert problem in problems(contactEmails=emails, budget=budget)["contactEmails"]


def test_a_budget_needs_the_price_of_every_machine() -> None:
    line = problems(budget="20", headSize="Standard_D4as_v7")["budget"]
    assert "needs the price of Standard_D4as_v7, which is unknown" in line
