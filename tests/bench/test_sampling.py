"""The benchmark of the env runner beside RLlib's own."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium
import pytest

from bench.sampling import bench_sampling
from payload.errors import UserError

pytestmark = pytest.mark.slow


def test_both_env_runners_are_measured_in_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    assert bench_sampling(["CartPole-v1"], 0.1, 2, results) == 0
    content = json.loads((results / "bench_sampling.json").read_text())
    figures, comparison = content["figures"], content["comparisons"]["CartPole-v1"]
    ours, rllibs = (figures[f"CartPole-v1 {name}"]["rounds"] for name in ("volley", "RLlib"))
    ratios = [ours[turn] / rllibs[turn] for turn in ("1", "2")]
    assert comparison["value"] == pytest.approx(sum(ratios) / 2)
    assert comparison["value"] > 1.5
    assert "CartPole-v1, volley / RLlib" in capsys.readouterr().out


def test_an_environment_that_cannot_be_made_is_a_problem_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = gymnasium.envs.registration.EnvSpec("Broken-v0", entry_point="simulator:Broken")
    monkeypatch.setitem(gymnasium.registry, "Broken-v0", spec)
    assert bench_sampling(["Broken-v0", "CartPole-v1"], 0.1, 1, tmp_path) == 1
    content = json.loads((tmp_path / "bench_sampling.json").read_text())
    assert "No module named 'simulator'" in content["problems"]["Broken-v0"]
    assert list(content["comparisons"]) == ["CartPole-v1"]


def test_an_unknown_environment_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean CartPole-v1"):
        bench_sampling(["CartPole-v1", "CartPol-v1"], 0.1, 1, tmp_path)
    assert not list(tmp_path.iterdir())
