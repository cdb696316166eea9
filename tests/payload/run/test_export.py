"""`volley export` writes an ONNX model that acts as `volley evaluate` does, or none."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from payload.environments.observation_filter import MeanStd
from payload.errors import UserError
from payload.impala.module import AtariModule
from payload.run.checkpoint_policy import Policy
from payload.run.checkpoints import Checkpoint, _write_checksums
from payload.run.export import Parity, export, inference_session
from tests.payload.algorithms.test_random_spaces import ENV, RandomSpaces, Untrained
from tests.payload.command_line import in_process
from tests.payload.impala.test_parity import CHECKPOINT
from volley.cli import main

pytestmark = pytest.mark.slow

IMAGE = spaces.Box(0, 255, (36, 36), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,))
NESTED = spaces.Dict(
    arm=spaces.Tuple([spaces.Box(0, np.inf, (2,)), spaces.MultiDiscrete([2, 3], start=[5, -1])]),
    gas=spaces.Box(0, 100, (), np.int32),
    none=spaces.Box(0, 1, (0,)),
)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(ENV, RandomSpaces, disable_env_checker=True)
    yield
    del gymnasium.registry[ENV]


def exported(
    folder: Path, run: str, seen: spaces.Space[Any], acted: spaces.Space[Any], **config: Any
) -> tuple[Parity, Any]:
    """Exports an untrained policy of these spaces."""
    RandomSpaces.declared = (seen, acted)
    untrained = Untrained.of(run, **config)
    untrained.runner.stop()
    file = folder / "policy.onnx"
    parity, _ = export(untrained.checkpoint(folder), file)
    return parity, inference_session(file)


@pytest.fixture
def pong(tmp_path: Path) -> Path:
    """A whole checkpoint."""
    folder = shutil.copytree(CHECKPOINT, tmp_path / "pong")
    _write_checksums(folder)
    return folder


def of_pong(pong: Path) -> subprocess.CompletedProcess[str]:
    folder = pong.parent
    return in_process(folder, "export", "pong", "--onnx", "pong.onnx", "--trust", command=main)


def test_a_game_is_exported_with_its_normalisation(pong: Path) -> None:
    done = of_pong(pong)
    assert done.returncode == 0, done.stderr
    assert "400 observations: the same actions, action_dist_inputs within" in done.stdout
    file = pong.parent / "pong.onnx"
    session = inference_session(file)
    (seen,) = session.get_inputs()
    assert (seen.name, seen.type, seen.shape) == (
        "observations",
        "tensor(uint8)",
        ["batch", 4, 42, 42],
    )
    scores, action = session.get_outputs()
    assert (scores.name, scores.shape) == ("action_dist_inputs", ["batch", 6])
    assert (action.name, action.type) == ("action", "tensor(int64)")
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata["env"] == "PongNoFrameskip-v4"
    assert metadata["algorithm"] == "IMPALA"
    assert metadata["checkpoint"] == str(pong)
    assert metadata["observations"] == "uint8 [batch, 4, 42, 42]"
    assert metadata["action"] == "Discrete(6)"
    assert json.loads(metadata["preprocessing"])["frame_skip"] == 4


@pytest.mark.parametrize(
    ("run", "seen", "acted", "config"),
    [
        ("PPO", spaces.Dict(image=IMAGE, at=VECTOR), NESTED, {}),
        ("APPO", VECTOR, spaces.MultiBinary(2), {"use_lstm": True}),
        ("DQN", IMAGE, spaces.Discrete(3, start=-1), {}),
        ("SAC", VECTOR, spaces.Box(-30, 30, (2,), np.float64), {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_algorithm_and_network_is_exported(
    tmp_path: Path,
    run: str,
    seen: spaces.Space[Any],
    acted: spaces.Space[Any],
    config: dict[str, Any],
) -> None:
    parity, session = exported(tmp_path, run, seen, acted, **config)
    assert parity.holds
    assert parity.observations == 100
    shapes = {each.name: [7, *each.shape[1:]] for each in session.get_inputs()}
    types = {each.name: each.type for each in session.get_inputs()}
    feed = {
        name: np.ones(shape, np.uint8 if "uint8" in types[name] else np.float32)
        for name, shape in shapes.items()
    }
    received = dict(
        zip([each.name for each in session.get_outputs()], session.run(None, feed), strict=True)
    )
    assert {len(part) for part in received.values()} == {7}
    assert [name.replace("_in", "_out") for name in feed][1:] == [
        name for name in received if name.startswith("state")
    ]
    if acted is NESTED:
        action = {
            "arm": (received['action["arm"][0]'][3], received['action["arm"][1]'][3]),
            "gas": np.asarray(received['action["gas"]'][3]),
            "none": np.zeros(0, np.float32),
        }
    else:
        action = received["action"][3]
    assert action in acted


def test_the_observation_filter_is_part_of_the_model(tmp_path: Path) -> None:
    RandomSpaces.declared = (VECTOR, spaces.Discrete(3))
    untrained = Untrained.of("PPO", observation_filter="MeanStdFilter")
    untrained.runner.stop()
    checkpoint = untrained.checkpoint(tmp_path)
    filter_ = MeanStd(100, np.array([0.5, -0.5, 0.0]), np.array([0.2, 0.1, 1e-3]))
    filter_.write(checkpoint.observation_filter)
    file = tmp_path / "policy.onnx"
    parity, _ = export(checkpoint, file)
    assert parity.holds
    session, seen = inference_session(file), np.full((1, 3), 0.4, np.float32)
    logits, _ = session.run(None, {"observations": seen})
    policy = Policy(checkpoint, explore=False)
    wanted = policy.module.forward_inference({"obs": torch.from_numpy(filter_(seen))})
    np.testing.assert_allclose(logits, wanted["action_dist_inputs"].detach(), atol=1e-4)


def test_a_model_that_differs_from_torch_is_removed(
    pong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    normalize = AtariModule._normalize

    def without_normalisation(self: AtariModule, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.float() if torch.compiler.is_exporting() else normalize(self, pixels)

    monkeypatch.setattr(AtariModule, "_normalize", without_normalisation)
    done = of_pong(pong)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("volley: --onnx pong.onnx: not written, because it differs from torch: ")
    assert list(pong.parent.iterdir()) == [pong]


def test_a_network_that_tensors_cannot_trace_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_number(_: AtariModule, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.float() if float(pixels.sum()) > 0 else pixels.float() + 1

    monkeypatch.setattr(AtariModule, "_normalize", by_number)
    with pytest.raises(UserError, match="AtariModule cannot become an ONNX model"):
        export(Checkpoint(CHECKPOINT), tmp_path / "pong.onnx")
    assert list(tmp_path.iterdir()) == []
