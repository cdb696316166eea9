"""`volley bench --gpu` on a CPU, to test the check itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import gpu
from bench.limits import synthetic_fragment
from payload.errors import UserError
from payload.impala.rollout_fragment import RolloutFragment
from tests.local_ray import leave_local_ray
from volley.cli import main


def test_a_machine_without_a_gpu_is_told_what_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="torch finds no GPU on this machine; nvidia-smi shows"):
        gpu.bench_gpu("cuda", 1.0, 1, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_check_measures_learner_and_training_of_a_cpu(tmp_path: Path) -> None:
    leave_local_ray()  # The check starts its own.
    options = ["--device", "cpu", "--seconds", "0.5", "--rounds", "1", "--results", str(tmp_path)]
    assert main(["bench", "--gpu", *options]) == 0
    written = json.loads((tmp_path / "bench_gpu.json").read_text())
    assert written["checks"]["gradient"]["met"]
    learners = {f"learner_{n}_{kind}" for n in (128, 1024) for kind in ("float32", "bfloat16")}
    assert written["figures"].keys() == {*learners, "training"}
    assert all(figure["value"] > 0 for figure in written["figures"].values())


@pytest.mark.slow
def test_a_gradient_of_other_data_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = iter((1, -1))

    def rewarded_otherwise(*args: Any) -> RolloutFragment:
        fragment = synthetic_fragment(*args)
        return replace(fragment, rewards=next(signs) * fragment.rewards)

    monkeypatch.setattr(gpu, "synthetic_fragment", rewarded_otherwise)
    assert gpu.gradient_difference("cpu") > gpu.GRADIENT_BAR.limit
