"""Writes a checkpoint's policy as an ONNX model that gives what torch gives."""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch.distributions import Distribution
from torch.utils._pytree import tree_leaves

import payload
from payload.environments.atari import game_of
from payload.environments.policy_action import PolicyAction, PolicyActions
from payload.errors import UserError, raised
from payload.experiment.settings import Experiment
from payload.run.checkpoint_policy import Policy
from payload.run.checkpoints import Checkpoint
from payload.run.evaluate import environment_of, make_games
from payload.run.policy_graph import OBSERVATIONS, PolicyGraph

TOLERANCE = 1e-4
"""Of a number, relative to its size where that is above 1."""
STEPS = 100
GAMES = 4
"""Copies of a game that are compared; of another environment it is one."""
EXAMPLES = 2
"""Observations that torch traces the policy with: it would take a batch of 1 as fixed."""


class Parity(NamedTuple):
    """How far ONNX Runtime is from torch, over the same observations."""

    observations: int
    different_actions: int
    scores: str
    """What an action is chosen by: the name of that output."""
    difference: float
    """Its largest difference, or that of a state; see TOLERANCE."""

    @property
    def holds(self) -> bool:
        return self.different_actions == 0 and self.difference <= TOLERANCE


def export(checkpoint: Checkpoint, file: Path) -> tuple[Parity, dict[str, str]]:
    """Writes the file, unless some steps in the environment show that it differs from torch.

    Returns:
        The comparison, and the model's metadata.

    Raises:
        UserError: The network cannot become an ONNX model, or the environment cannot be made.
    """
    experiment, policy = checkpoint.experiment(), Policy(checkpoint, explore=False)
    if not isinstance(policy.module.observation_space, spaces.Box):
        network = type(policy.module).__name__
        raise UserError(f"config.module: {network} sees a Dict, which export does not offer")
    actions = PolicyActions(_action_space(experiment, policy))
    graph = PolicyGraph(policy, actions).eval()
    metadata = _metadata(checkpoint, policy, actions)
    aside = file.with_name(f".{file.name}.tmp")
    try:
        session = _write(graph, metadata, aside)
        parity = _compare(session, graph, actions, experiment, policy)
        if parity.holds:
            aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)
    return parity, metadata


def inference_session(file: Path) -> Any:
    """Returns a session of ONNX Runtime; it sends no usage data unless the user turns that on."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


def _action_space(experiment: Experiment, policy: Policy) -> spaces.Space[Any]:
    """Returns the environment's own space of actions."""
    if game_of(experiment) is not None:
        space: spaces.Space[Any] = policy.module.action_space
        return space
    with closing(environment_of(experiment, policy)) as env:
        assert isinstance(env, PolicyAction)
        return env.env.action_space


def _metadata(checkpoint: Checkpoint, policy: Policy, actions: PolicyActions) -> dict[str, str]:
    experiment, seen = checkpoint.experiment(), policy.module.observation_space
    game = game_of(experiment)
    preprocessing = {} if game is None else {"preprocessing": json.dumps(game.env_config())}
    shape = ", ".join(map(str, ("batch", *seen.shape)))
    return {
        "env": experiment.env,
        "algorithm": experiment.run,
        "checkpoint": str(checkpoint.path.absolute()),
        "volley": payload.__version__,
        OBSERVATIONS: f"{seen.dtype} [{shape}]",
        **preprocessing,
        **{part.name: str(part.space) for part in actions.parts},
    }


def _write(graph: PolicyGraph, metadata: dict[str, str], file: Path) -> Any:
    """Writes the model; returns a session of ONNX Runtime that has read it."""
    seen, state = graph.module.observation_space, graph.state(EXAMPLES)
    observations = torch.from_numpy(np.zeros((EXAMPLES, *seen.shape), seen.dtype))
    # It names operators of torchvision, which is not installed.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    # A distribution checks its numbers, and a graph has none yet.
    Distribution.set_default_validate_args(False)
    try:
        # Of its own code, and of an LSTM's weights, which it keeps as they are.
        with warnings.catch_warnings(action="ignore"):
            program = torch.onnx.export(
                graph,
                (observations, *state),
                input_names=graph.inputs,
                output_names=graph.outputs,
                dynamic_shapes=({0: "batch"}, ({0: "batch"},) * len(state))[: 1 + bool(state)],
                verbose=False,
            )
        program.model.metadata_props.update(metadata)
        program.save(file)
        return inference_session(file)
    except Exception as error:  # A network may do whatever Python can.
        network = type(graph.module).__name__
        raise UserError(f"{network} cannot become an ONNX model: {raised(error)}") from error
    finally:
        Distribution.set_default_validate_args(__debug__)


def _compare(
    session: Any,
    graph: PolicyGraph,
    actions: PolicyActions,
    experiment: Experiment,
    policy: Policy,
) -> Parity:
    """Feeds both the same observations, and each its own state."""
    compared, different, differences = 0, 0, [0.0]
    chosen = slice(1, 1 + len(graph.actions))
    states: list[Any] = [(), ()]
    for observations, taken in _play(experiment, policy):
        if not compared:
            states = [graph.state(len(observations))] * 2
        with torch.inference_mode():
            wanted = graph(torch.from_numpy(observations), *states[0])
        inputs = [observations, *map(np.asarray, states[1])]
        received = session.run(None, dict(zip(graph.inputs, inputs, strict=True)))
        states = [outputs[chosen.stop :] for outputs in (wanted, received)]
        numbers = zip((wanted[0], *states[0]), (received[0], *states[1]), strict=True)
        differences += [_difference(np.asarray(here), there) for here, there in numbers]
        for index, action in enumerate(taken):
            own = [part[index] for part in received[chosen]]
            different += not _is_same(actions, actions.to_environment(action), own)
        compared += len(observations)
    return Parity(compared, different, graph.scores, float(np.max(differences)))


def _play(experiment: Experiment, policy: Policy) -> Iterator[tuple[npt.NDArray[Any], Any]]:
    """Yields observations [N, ...] of the environment, and the policy's actions."""
    policy.start()
    game = game_of(experiment)
    if game is not None:
        with closing(make_games(experiment, game, GAMES)) as games:
            observations, _ = games.reset(seed=0)
            for _ in range(STEPS):
                yield observations, (taken := policy(observations))
                observations, *_ = games.step(taken)
        return
    with closing(environment_of(experiment, policy)) as env:
        observation, over = None, True
        for step in range(STEPS):
            if over:
                observation, _ = env.reset(seed=step)
            observations = np.asarray(observation)[None]
            yield observations, (taken := policy(observations))
            observation, _, terminated, truncated, _ = env.step(taken[0])
            over = terminated or truncated


def _is_same(actions: PolicyActions, wanted: Any, received: list[npt.NDArray[Any]]) -> bool:
    """Whether the parts are those of an action; real numbers may differ by TOLERANCE."""
    parts = [np.asarray(part) for part in tree_leaves(wanted) if np.size(part)]
    return all(
        _difference(own, part, _width(entry.space)) <= TOLERANCE
        if np.issubdtype(own.dtype, np.floating)
        else np.array_equal(own, part)
        for entry, own, part in zip(actions.parts, parts, received, strict=True)
    )


def _width(space: Any) -> npt.NDArray[np.float64]:
    """Returns the width of each number's interval, 1 without two bounds."""
    width = space.high.astype(np.float64) - space.low.astype(np.float64)
    return np.where(np.isfinite(width), width, 1.0)


def _difference(wanted: npt.NDArray[Any], received: npt.NDArray[Any], scale: Any = 1.0) -> float:
    """Returns the largest difference, relative to the largest of 1, the number and `scale`."""
    sizes = np.maximum(np.maximum(np.abs(wanted.astype(np.float64)), 1.0), scale)
    return float(np.max(np.abs(wanted.astype(np.float64) - received) / sizes, initial=0.0))
