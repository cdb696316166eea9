"""The successors of names that older scripts import."""

from __future__ import annotations

import importlib

import pytest
import ray.rllib  # noqa: F401 (its first import starts a process)

from payload.environments.retired_names import SUCCESSORS, successor


@pytest.mark.filterwarnings("ignore")  # Ray's own, of its old packages.
@pytest.mark.parametrize("name", SUCCESSORS)
def test_a_name_that_is_gone_has_a_successor(name: str) -> None:
    # Fails when a name is there again: then its line would be wrong.
    with pytest.raises(ModuleNotFoundError) as missing:
        importlib.import_module(name)
    assert successor(missing.value) == SUCCESSORS[name]


def test_a_name_imported_from_its_package_has_the_same_successor() -> None:
    error = ImportError("cannot import name 'train' from 'ray.rllib' (/x/__init__.py)")
    assert successor(error) == SUCCESSORS["ray.rllib.train"]


def test_a_module_of_a_retired_package_has_the_packages_successor() -> None:
    missing = ModuleNotFoundError("No module named 'azureml'", name="azureml.core.run")
    assert successor(missing) == SUCCESSORS["azureml"]


@pytest.mark.parametrize("error", [ValueError("gym"), ImportError("x", name="gymnasium.envs.box")])
def test_other_errors_have_none(error: BaseException) -> None:
    assert successor(error) == ""
