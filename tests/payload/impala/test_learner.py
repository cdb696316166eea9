"""The learners' losses and updates, on small made-up fragments and in one process."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from queue import Empty, Queue
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import ray
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from ray.rllib.algorithms.impala.impala_learner import _LearnerThread
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch.overrides import TorchFunctionMode

from payload.algorithms.algorithm_config import algorithm_config
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment
from payload.impala import train_batch as batches
from payload.impala.learner import TOTAL_LOSS, Adam
from payload.impala.policy_gradient_learners import SurrogateLearner, VTraceLearner
from payload.impala.policy_gradient_loss import (
    PROXIMAL_LOGP,
    PolicyGradientLoss,
    RunningNormalizer,
)
from payload.impala.rollout_fragment import RolloutFragment
from payload.impala.schedule import UpdateSettings, annealed, near_limit
from payload.impala.train_batch import FIRST, FRAMES, FragmentsToTrainBatch
from payload.impala.vtrace import vtrace

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pixel_statistics_once")]

PATIENT = settings(
    deadline=None,
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # No example changes a learner.
)
"""A busy machine must not fail a test."""
STEPS, NUM_ACTIONS, STACK, IMAGE = 4, 6, 4, (42, 42)
SPACES: tuple[Box, Discrete[np.int64]] = (
    Box(0, 255, (STACK, *IMAGE), np.uint8),
    Discrete(NUM_ACTIONS),
)

TrainBatch = dict[str, torch.Tensor]
Losses = npt.NDArray[np.float64]


BARE = {"vf_loss_coeff": 0.0, "entropy_coeff": 0.0, "normalize_advantages": False}
"""Only the policy's loss, without normalised advantages."""
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "IMPALA": ("IMPALA", {}),
    "APPO": ("APPO", {}),
    "bare IMPALA": ("IMPALA", BARE),
    "bare APPO": ("APPO", BARE),
    "IMPALA with entropy": ("IMPALA", {"entropy_coeff": 0.02, "uniform_kl_coeff": 0.01}),
    "IMPALA in minibatches": ("IMPALA", {"minibatch_size": 2 * STEPS}),
    "IMPALA with replay": ("IMPALA", {"minibatch_size": 2 * STEPS, "replay_proportion": 1}),
    "APPO with both": ("APPO", {"uniform_kl_coeff": 0.01, "uniform_kl_coeff_at_goal": 0.001}),
    "APPO in minibatches": ("APPO", {"minibatch_size": 2 * STEPS}),
    "APPO with replay": ("APPO", {"minibatch_size": 2 * STEPS, "replay_proportion": 1}),
    "IMPALA in small steps": ("IMPALA", {"lr": 1e-4}),
    "APPO in small steps": ("APPO", {"lr": 1e-4}),
}


class Learners:
    """One learner of each kind for all tests."""

    def __init__(self) -> None:
        self._all: list[VTraceLearner] = []
        self._kinds: dict[str, tuple[VTraceLearner, UpdateSettings, Any]] = {}

    def of(self, run: str, **config: Any) -> VTraceLearner:
        """Builds a learner."""
        sizes = {"num_envs_per_env_runner": 3, "rollout_fragment_length": STEPS, "seed": 1}
        experiment = read_experiment({"run": run, "config": {**sizes, **config}}).experiment
        settings = with_defaults(experiment, atari=True, num_env_runners=4)
        rllib_config = algorithm_config(experiment, settings)
        learner: VTraceLearner = rllib_config.build_learner(spaces={DEFAULT_MODULE_ID: SPACES})
        self._all.append(learner)
        return learner

    def fresh(self, kind: str) -> VTraceLearner:
        """Returns the learner of this kind in its initial state."""
        if kind not in self._kinds:
            learner = self.of(KINDS[kind][0], **KINDS[kind][1])
            # A copy: the state shares its memory with the weights.
            self._kinds[kind] = learner, learner.update_settings, deepcopy(learner.get_state())
        learner, settings, state = self._kinds[kind]
        learner.update_settings = learner._current = settings
        learner.set_state(state)
        learner.normalize = RunningNormalizer()
        return learner

    def shutdown(self) -> None:
        for learner in self._all:
            learner.shutdown()


@pytest.fixture(scope="module")
def learners() -> Iterator[Learners]:
    learners = Learners()
    yield learners
    learners.shutdown()


@pytest.fixture(params=["IMPALA", "APPO"])
def learner(request: pytest.FixtureRequest, learners: Learners) -> VTraceLearner:
    return learners.fresh(request.param)


@pytest.fixture(params=["IMPALA", "APPO", "bare IMPALA", "bare APPO"])
def any_learner(request: pytest.FixtureRequest, learners: Learners) -> VTraceLearner:
    return learners.fresh(request.param)


@pytest.fixture
def impala(learners: Learners) -> VTraceLearner:
    return learners.fresh("IMPALA")


@pytest.fixture
def bare_impala(learners: Learners) -> VTraceLearner:
    return learners.fresh("bare IMPALA")


@pytest.fixture
def bare_appo(learners: Learners) -> VTraceLearner:
    return learners.fresh("bare APPO")


def module_of(learner: VTraceLearner) -> Any:
    return learner.module[DEFAULT_MODULE_ID].unwrapped()


def made_up(num_envs: int = 3, seed: int = 0, **arrays: Any) -> RolloutFragment:
    """Returns a fragment of noise without episode ends, except for the given arrays."""
    random = np.random.default_rng(seed)
    shape = (STEPS, num_envs)
    values: dict[str, Any] = {
        # About as grey as Pong's court.
        "frames": random.integers(80, 100, (STACK + STEPS, num_envs, *IMAGE), np.uint8),
        "first": np.zeros((STEPS + 1, num_envs), np.bool_),
        "actions": random.integers(NUM_ACTIONS, size=shape, dtype=np.uint8),
        "action_logp": np.full(shape, -math.log(NUM_ACTIONS), np.float32),
        "rewards": random.uniform(-1, 1, shape).astype(np.float32),
        "terminated": np.zeros(shape, np.bool_),
        "truncated": np.zeros(shape, np.bool_),
        "weights_seq_no": 0,
    }
    return RolloutFragment(**{**values, **arrays})


def rows_of(fragment: RolloutFragment, envs: slice) -> RolloutFragment:
    """Returns the part of a fragment that some of its environments played."""
    values: dict[str, Any] = {
        k: v[:, envs] if isinstance(v, np.ndarray) else v for k, v in vars(fragment).items()
    }
    return RolloutFragment(**values)


@cache
def connector() -> FragmentsToTrainBatch:
    """Returns one connector for all examples: RLlib inspects the whole call stack to make one."""
    return FragmentsToTrainBatch(*SPACES)


def train_batch(fragment: RolloutFragment) -> TrainBatch:
    return connector()(episodes=[fragment], batch={})[DEFAULT_MODULE_ID]


def first_loss(learner: VTraceLearner, batch: TrainBatch) -> PolicyGradientLoss:
    """Returns the loss of a first minibatch, with no earlier advantages remembered."""
    learner.normalize = RunningNormalizer()
    outputs = module_of(learner).forward_train(batch)
    return learner.loss_of(batch, outputs)


def loss_of(learner: VTraceLearner, batch: TrainBatch) -> torch.Tensor:
    return first_loss(learner, batch).metrics()[TOTAL_LOSS]


def gradient_of(learner: VTraceLearner, batch: TrainBatch) -> torch.Tensor:
    """Returns the gradient of the loss with respect to all weights."""
    module_of(learner).zero_grad()
    first_loss(learner, batch).backward()
    return torch.cat([parameter.grad.flatten() for parameter in module_of(learner).parameters()])


def policy_gradient_of(learner: VTraceLearner, batch: TrainBatch) -> float:
    """Returns the size of the gradient with respect to the logits' biases."""
    gradient_of(learner, batch)
    return float(module_of(learner).policy.bias.grad.abs().max())


def update(learner: VTraceLearner, fragment: RolloutFragment) -> Any:
    """Updates with a fragment as RLlib's learner thread does; returns metrics."""
    timesteps = {NUM_ENV_STEPS_SAMPLED_LIFETIME: 0}
    return Learner.update(learner, episodes=[fragment], timesteps=timesteps)


def gradient_steps(learner: VTraceLearner) -> int:
    """Returns how many steps the optimizer has taken."""
    optimizer = learner.get_optimizer(DEFAULT_MODULE_ID)
    (steps,) = {int(state["step"]) for state in optimizer.state.values()}
    return steps


def weights_of(learner: VTraceLearner) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(module_of(learner).parameters()).detach()


def log_probabilities(learner: VTraceLearner, batch: TrainBatch) -> torch.Tensor:
    """Returns those of every action in every slot, [slots, actions]."""
    with torch.no_grad():
        logits = module_of(learner).forward_train(batch)[Columns.ACTION_DIST_INPUTS]
    return torch.log_softmax(logits, -1)


@torch.no_grad()
def expect_nothing(learner: VTraceLearner) -> None:
    """Sets every value to 0, so that the reward of a terminal step is its advantage."""
    module_of(learner).value.weight.zero_()


# The loss


def loss_row_by_row(learner: VTraceLearner, batch: TrainBatch) -> torch.Tensor:
    """Computes the whole loss again: row by row, with torch's own distribution and plain means."""
    config, module = learner.config, module_of(learner)
    normalize = config.learner_config_dict["normalize_advantages"]
    per_step: dict[str, list[torch.Tensor]] = {
        name: [] for name in ("logp", "entropy", "uniform_kl", "advantage", "error")
    }
    for row in range(len(batch[FIRST])):
        slots = {name: column[row : row + 1] for name, column in batch.items()}
        logits = module.forward_train(slots)[Columns.ACTION_DIST_INPUTS][:STEPS]
        policy = torch.distributions.Categorical(logits=logits)
        steps = {name: column[0, :STEPS] for name, column in slots.items() if column.ndim > 1}
        values = module.compute_values(slots)
        logp = policy.log_prob(steps[Columns.ACTIONS])
        mask = steps[Columns.LOSS_MASK]
        returns = vtrace(
            values=values.detach()[:, None],
            rewards=steps[Columns.REWARDS][:, None],
            discounts=torch.where(steps[Columns.TERMINATEDS], 0.0, 0.99)[:, None],
            log_rhos=(logp.detach() - steps[Columns.ACTION_LOGP])[:, None],
            mask=mask[:, None],
            lambda_=0.95,
        )
        per_step["logp"].append(logp[mask])
        per_step["entropy"].append(policy.entropy()[mask])
        uniform = torch.distributions.Categorical(logits=torch.zeros_like(logits))
        uniform_kl = torch.distributions.kl_divergence(uniform, policy)
        per_step["uniform_kl"].append(uniform_kl[mask])
        per_step["advantage"].append(returns.advantages[:, 0][mask])
        per_step["error"].append((returns.targets[:, 0] - values[:STEPS])[mask])
    step = {name: torch.cat(values) for name, values in per_step.items()}
    advantages = step["advantage"]
    if normalize:
        advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
    logp = step["logp"]
    # The ratio of a first gradient step is 1.
    surrogate = isinstance(learner, SurrogateLearner)
    gains = advantages * ((logp - logp.detach()).exp() if surrogate else logp)
    return (
        -gains.mean()
        + config.vf_loss_coeff * 0.5 * step["error"].pow(2).mean()
        + config.learner_config_dict["uniform_kl_coeff"] * step["uniform_kl"].mean()
        - config.entropy_coeff * learner.update_settings.entropy_coeff_left * step["entropy"].mean()
    )


@given(
    seed=st.integers(0, 1000),
    terminated=arrays(np.bool_, (STEPS, 3)),
    truncated=arrays(np.bool_, (STEPS, 3)),
)
@PATIENT
def test_the_loss_is_policy_plus_value_plus_uniform_kl_minus_entropy(
    any_learner: VTraceLearner,
    seed: int,
    terminated: npt.NDArray[np.bool_],
    truncated: npt.NDArray[np.bool_],
) -> None:
    truncated[0] = False  # Some steps have to remain.
    action_logp = -np.random.default_rng(seed).uniform(0.5, 3.5, (STEPS, 3)).astype(np.float32)
    batch = train_batch(
        made_up(
            seed=seed,
            action_logp=action_logp,
            terminated=terminated & ~truncated,
            truncated=truncated,
        )
    )
    loss, expected = loss_of(any_learner, batch), loss_row_by_row(any_learner, batch)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
    parameters = list(module_of(any_learner).parameters())
    by_autograd = [values.flatten() for values in torch.autograd.grad(expected, parameters)]
    gradient = gradient_of(any_learner, batch)
    torch.testing.assert_close(gradient, torch.cat(by_autograd), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("column", "other"),
    [
        (Columns.REWARDS, 0.5),
        (Columns.ACTIONS, 3),
        (Columns.ACTION_LOGP, -9.0),
        (Columns.TERMINATEDS, True),
    ],
)
def test_masked_steps_add_nothing_to_the_loss(
    learner: VTraceLearner, column: str, other: float
) -> None:
    truncated = np.zeros((STEPS, 3), np.bool_)
    truncated[1, 0] = truncated[STEPS - 1, 1] = True
    batch = train_batch(made_up(truncated=truncated))
    masked = ~batch[Columns.LOSS_MASK]
    changed = {**batch, column: batch[column].masked_fill(masked, other)}
    assert not torch.equal(changed[column], batch[column])
    assert loss_of(learner, changed) == loss_of(learner, batch)


def test_the_observation_of_a_truncated_step_counts(impala: VTraceLearner) -> None:
    """Its value bootstraps the previous step."""
    truncated = np.zeros((STEPS, 1), np.bool_)
    truncated[2] = True
    first = np.zeros((STEPS + 1, 1), np.bool_)
    first[3] = True
    batch = train_batch(made_up(num_envs=1, truncated=truncated, first=first))
    frames = batch[FRAMES].clone()
    frames[0, STACK - 1 + 2] = 255 - frames[0, STACK - 1 + 2]
    assert loss_of(impala, {**batch, FRAMES: frames}) != loss_of(impala, batch)


# The policy's loss

STEP_COUNT = 5
STEPWISE = arrays(np.float64, STEP_COUNT, elements=st.floats(-3.0, 3.0))


@given(logp=STEPWISE, proximal_logp=STEPWISE, advantages=STEPWISE)
@PATIENT
def test_impalas_policy_loss_is_the_plain_policy_gradient(
    impala: VTraceLearner, logp: Losses, proximal_logp: Losses, advantages: Losses
) -> None:
    tensors = (torch.from_numpy(values) for values in (logp, proximal_logp, advantages))
    assert impala.policy_losses(*tensors).losses.tolist() == pytest.approx(-(logp * advantages))


@given(logp=STEPWISE, proximal_logp=STEPWISE, advantages=STEPWISE)
@PATIENT
def test_appos_policy_loss_is_the_clipped_surrogate(
    learners: Learners, logp: Losses, proximal_logp: Losses, advantages: Losses
) -> None:
    tensors = (torch.from_numpy(values) for values in (logp, proximal_logp, advantages))
    losses = learners.fresh("APPO").policy_losses(*tensors).losses.tolist()
    gains = [
        min(ratio * advantage, min(max(ratio, 0.9), 1.1) * advantage)
        for ratio, advantage in zip(np.exp(logp - proximal_logp), advantages, strict=True)
    ]
    assert losses == pytest.approx(-np.array(gains))


@given(logp=STEPWISE, proximal_logp=STEPWISE, advantages=STEPWISE)
@PATIENT
def test_a_slope_is_the_derivative_of_the_policys_loss(
    learner: VTraceLearner, logp: Losses, proximal_logp: Losses, advantages: Losses
) -> None:
    variable = torch.from_numpy(logp).requires_grad_()
    others = (torch.from_numpy(values) for values in (proximal_logp, advantages))
    losses, slopes = learner.policy_losses(variable, *others)
    (derivative,) = torch.autograd.grad(losses.sum(), variable, materialize_grads=True)
    torch.testing.assert_close(slopes.detach(), derivative)


def ended_at_each_step(reward: float) -> TrainBatch:
    """Returns a batch in which each step takes action 0, gets this reward and ends its episode."""
    shape = (STEPS, 3)
    return train_batch(
        made_up(
            actions=np.zeros(shape, np.uint8),
            rewards=np.full(shape, reward, np.float32),
            terminated=np.ones(shape, np.bool_),
        )
    )


def policy_gradient(learner: VTraceLearner, log_ratio: float, reward: float) -> float:
    """Returns the policy gradient's size if every step has these ratios and this advantage.

    One ratio is to the env runner's policy, the other to the policy before the update.
    """
    expect_nothing(learner)
    batch = ended_at_each_step(reward)
    logp = log_probabilities(learner, batch)[:, 0].view_as(batch[Columns.ACTION_LOGP])
    before = {
        Columns.ACTION_LOGP: logp - log_ratio,
        PROXIMAL_LOGP: logp[:, :-1].t() - log_ratio,
    }
    return policy_gradient_of(learner, {**batch, **before})


@pytest.mark.parametrize("reward", [1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [-1.0, 0.0, 1.0])
def test_impala_clips_no_gradient(
    bare_impala: VTraceLearner, log_ratio: float, reward: float
) -> None:
    assert policy_gradient(bare_impala, log_ratio, reward) > 0.1


@pytest.mark.parametrize(("log_ratio", "reward"), [(1.0, 1.0), (-1.0, -1.0)])
def test_appo_has_no_gradient_beyond_the_clip(
    bare_appo: VTraceLearner, log_ratio: float, reward: float
) -> None:
    assert policy_gradient(bare_appo, log_ratio, reward) == 0.0


@pytest.mark.parametrize(("log_ratio", "reward"), [(-1.0, 1.0), (1.0, -1.0)])
def test_appo_has_a_gradient_back_towards_the_clip(
    bare_appo: VTraceLearner, log_ratio: float, reward: float
) -> None:
    assert policy_gradient(bare_appo, log_ratio, reward) > 0.1


@pytest.mark.parametrize("log_ratio", [-0.05, 0.0, 0.05])
@pytest.mark.parametrize("reward", [1.0, -1.0])
def test_appo_has_a_gradient_within_the_clip(
    bare_appo: VTraceLearner, log_ratio: float, reward: float
) -> None:
    assert policy_gradient(bare_appo, log_ratio, reward) > 0.1


def test_the_lag_of_an_env_runner_clips_nothing(bare_appo: VTraceLearner) -> None:
    expect_nothing(bare_appo)
    batch = ended_at_each_step(reward=1.0)
    batch[Columns.ACTION_LOGP].fill_(-9.0)
    assert policy_gradient_of(bare_appo, batch) > 0.1


def test_a_later_pass_is_clipped_at_the_policy_of_before_the_first(
    bare_appo: VTraceLearner,
) -> None:
    expect_nothing(bare_appo)
    batch = ended_at_each_step(reward=1.0)
    loss_of(bare_appo, batch)
    with torch.no_grad():
        module_of(bare_appo).policy.bias[0] += 1.0
    assert policy_gradient_of(bare_appo, batch) == 0.0


# The update


def test_an_action_better_than_expected_becomes_likelier(any_learner: VTraceLearner) -> None:
    expect_nothing(any_learner)
    fragment = made_up(num_envs=8)
    rewards = np.where(fragment.actions == 2, 1.0, -1.0).astype(np.float32)
    fragment = made_up(num_envs=8, rewards=rewards, terminated=np.ones_like(rewards, np.bool_))
    batch = train_batch(fragment)
    before = log_probabilities(any_learner, batch)[:, 2].mean()
    update(any_learner, fragment)
    assert log_probabilities(any_learner, batch)[:, 2].mean() > before


# Adam's first steps have the same length for small and large gradients.
@pytest.mark.parametrize("name", ["IMPALA in small steps", "APPO in small steps"])
def test_values_come_closer_to_the_returns(learners: Learners, name: str) -> None:
    learner = learners.fresh(name)
    ones = np.ones((STEPS, 3), np.float32)
    fragment = made_up(rewards=ones, terminated=ones.astype(np.bool_))
    batch = train_batch(fragment)
    errors = []
    for _ in range(2):
        with torch.no_grad():
            values = module_of(learner).compute_values(batch)[batch[Columns.LOSS_MASK].flatten()]
        errors.append((values - 1.0).pow(2).mean())
        update(learner, fragment)
    assert errors[1] < errors[0]


@pytest.mark.parametrize(
    ("name", "rows", "steps"),
    [
        ("IMPALA", 3, 1),
        ("APPO", 3, 3),
        ("IMPALA in minibatches", 4, 2),
        ("IMPALA in minibatches", 5, 3),
        ("APPO in minibatches", 5, 9),
    ],
)
def test_each_minibatch_of_each_epoch_is_one_gradient_step(
    learners: Learners, name: str, rows: int, steps: int
) -> None:
    learner = learners.fresh(name)
    update(learner, made_up(num_envs=rows))
    assert gradient_steps(learner) == steps


def test_frames_are_stacked_once_for_all_passes(
    learners: Learners, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacked: list[torch.Tensor] = []

    def stack(*args: torch.Tensor) -> torch.Tensor:
        stacked.append(batches.stack_frames(*args))
        return stacked[-1]

    monkeypatch.setattr("payload.impala.module.stack_frames", stack)
    update(learners.fresh("APPO in minibatches"), made_up(num_envs=4))
    assert len(stacked) == 2


def test_minibatches_are_whole_rows(learners: Learners) -> None:
    fragment = made_up(num_envs=5)
    learner = learners.fresh("IMPALA in minibatches")
    update(learner, fragment)
    together = weights_of(learner)
    learner = learners.fresh("IMPALA in minibatches")
    for rows in (slice(0, 2), slice(2, 4), slice(4, 5)):
        update(learner, rows_of(fragment, rows))
    torch.testing.assert_close(weights_of(learner), together)


@pytest.mark.parametrize("train_batch_size", [STEPS // 2, 3 * STEPS // 2])
def test_without_minibatches_a_batch_is_one_gradient_step(
    learners: Learners, train_batch_size: int
) -> None:
    # RLlib collects fragments until they reach train_batch_size: one is enough here.
    learner = learners.of("IMPALA", train_batch_size_per_learner=train_batch_size)
    update(learner, made_up(num_envs=3))
    assert gradient_steps(learner) == 1


def test_only_one_batch_waits_for_the_learner(learner: VTraceLearner) -> None:
    assert learner._learner_thread_in_queue.maxsize == 1


@pytest.mark.usefixtures("ray_here")
def test_env_runners_get_the_weights_of_after_the_update(learner: VTraceLearner) -> None:
    # RLlib requests them only with the first update of a training step.
    for return_state in (True, False):
        data, timesteps = TrainingData(episodes=[made_up()]), {NUM_ENV_STEPS_SAMPLED_LIFETIME: 0}
        result = learner.update(data, timesteps=timesteps, return_state=return_state)
    sent = ray.get(result["_rl_module_state_after_update"][COMPONENT_RL_MODULE])[DEFAULT_MODULE_ID]
    for name, weights in module_of(learner).get_state(inference_only=True).items():
        np.testing.assert_array_equal(sent[name], weights, err_msg=name)


@pytest.mark.usefixtures("ray_here")
def test_weights_that_the_next_update_has_taken_away_are_not_a_failure(
    impala: VTraceLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TakenAway(Queue[Any]):
        """A queue that is not empty when asked, but is a moment later."""

        def empty(self) -> bool:
            return False

        def get_nowait(self) -> Any:
            raise Empty

    monkeypatch.setattr(impala, "_learner_state_queue", TakenAway())
    data, timesteps = TrainingData(episodes=[made_up()]), {NUM_ENV_STEPS_SAMPLED_LIFETIME: 0}
    result = impala.update(data, timesteps=timesteps)
    assert "_rl_module_state_after_update" not in result


def test_an_update_whose_fragments_died_with_their_node_is_skipped(learner: VTraceLearner) -> None:
    before = weights_of(learner)
    lost = TrainingData(episodes=[])
    assert learner.update(lost, timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: 0}) == {}
    assert torch.equal(weights_of(learner), before)


@pytest.fixture
def excepthook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores this process's own hook after a remote learner has replaced it."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)


@pytest.fixture
def remote_impala(learners: Learners) -> VTraceLearner:
    """A learner configured for a process of its own, where it watches its threads."""
    return learners.of("IMPALA", num_learners=1)


@pytest.mark.usefixtures("excepthook")
def test_a_remote_learner_tells_what_its_thread_died_of(
    remote_impala: VTraceLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(remote_impala, "_update", out_of_memory)
    for _ in range(2):  # The driver has sent a second update meanwhile.
        data, timesteps = TrainingData(episodes=[made_up()]), {NUM_ENV_STEPS_SAMPLED_LIFETIME: 0}
        with pytest.raises(RuntimeError, match="out of memory"):
            remote_impala.update(data, timesteps=timesteps)


@pytest.fixture
def one_of_two(learners: Learners) -> Iterator[VTraceLearner]:
    """One of two learners that make a gradient step per fragment; the other does not exist."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    rows = {"num_envs_per_env_runner": 2, "minibatch_size": 2 * STEPS, "replay_proportion": 1}
    yield learners.of("IMPALA", num_learners=2, train_batch_size_per_learner=2 * 2 * STEPS, **rows)
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("ray_here", "excepthook")
def test_a_learner_makes_as_many_steps_as_others_when_fragments_died(
    one_of_two: VTraceLearner,
) -> None:
    fragments = [made_up(num_envs=2, seed=seed) for seed in range(3)]
    # From the second update on, it replays as many.
    for steps, alive in ((2, fragments[:2]), (6, fragments[2:3]), (10, [])):
        data, timesteps = TrainingData(episodes=alive), {NUM_ENV_STEPS_SAMPLED_LIFETIME: 0}
        one_of_two.update(data, timesteps=timesteps)
        assert gradient_steps(one_of_two) == steps


@pytest.mark.usefixtures("ray_here", "excepthook")
@pytest.mark.parametrize("dealt", [1, 2])
def test_a_learner_whose_share_has_become_smaller_trains_on_just_that(
    one_of_two: VTraceLearner, dealt: int
) -> None:
    one_of_two.update_settings = replace(one_of_two.update_settings, train_batch_size=2 * STEPS)
    one_of_two.update(TrainingData(episodes=[made_up(num_envs=2)] * dealt), timesteps={})
    assert gradient_steps(one_of_two) == 1


@pytest.mark.usefixtures("ray_here")
def test_a_train_batch_keeps_the_settings_that_it_came_with(
    learners: Learners, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learners.fresh("IMPALA in minibatches")
    enqueue = _LearnerThread.enqueue

    def tell_first(*args: Any) -> None:
        learner.update_settings = replace(learner.update_settings, minibatch_size=None)
        enqueue(*args)

    monkeypatch.setattr(_LearnerThread, "enqueue", staticmethod(tell_first))
    learner.update(TrainingData(episodes=[made_up(num_envs=4)]), timesteps={})
    assert gradient_steps(learner) == 2


def test_a_gradient_that_is_not_finite_makes_no_step(learner: VTraceLearner) -> None:
    before = weights_of(learner)
    gradients = {key: torch.ones_like(value) for key, value in learner._params.items()}
    next(iter(gradients.values())).view(-1)[0] = torch.nan
    learner.apply_gradients(gradients)
    assert torch.equal(weights_of(learner), before)


def test_a_minibatch_whose_gradient_is_not_finite_is_skipped_and_told(
    learners: Learners, caplog: pytest.LogCaptureFixture
) -> None:
    learner = learners.fresh("IMPALA in minibatches")
    rewards = np.zeros((STEPS, 6), np.float32)
    rewards[:, 0] = np.nan  # In the first of three minibatches.
    update(learner, made_up(num_envs=6, rewards=rewards))
    assert gradient_steps(learner) == 2
    assert "Skipped 1 of 3 gradient steps" in caplog.text


class HostWaits(TorchFunctionMode):
    """Records calls that make the host wait for a GPU: they read values, or their number."""

    NAMES = frozenset(
        {"item", "tolist", "numpy", "cpu", "nonzero", "__bool__", "__float__", "__int__"}
        | {"masked_select", "unique", "equal", "allclose"}
    )

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        by_mask = "getitem" in name and isinstance(args[1], torch.Tensor)
        if name in self.NAMES or by_mask:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def test_an_update_waits_for_the_device_once(
    learners: Learners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_stack_on_cpu", batches._stack_on_gpu)
    learner = learners.fresh("APPO with replay")
    batch = train_batch(made_up(num_envs=6))
    learner._update({DEFAULT_MODULE_ID: batch})
    with HostWaits() as waits:
        learner._update({DEFAULT_MODULE_ID: batch})
    assert gradient_steps(learner) == 9 + 18
    assert waits.found == ["tolist"]


def test_an_update_trains_on_replayed_rows_too(learners: Learners) -> None:
    learner = learners.fresh("IMPALA with replay")
    for steps in (3, 3 + 6, 3 + 6 + 6):
        update(learner, made_up(num_envs=6))
        assert gradient_steps(learner) == steps


def test_a_restored_learner_replays_nothing_of_before(learners: Learners) -> None:
    learner = learners.fresh("IMPALA with replay")
    update(learner, made_up(num_envs=6))
    learner.set_state(deepcopy(learner.get_state()))
    before = gradient_steps(learner)
    update(learner, made_up(num_envs=6))
    assert gradient_steps(learner) == before + 3


def test_the_weights_that_travel_are_one_copy(impala: VTraceLearner) -> None:
    with HostWaits() as waits:
        state = module_of(impala).get_state(inference_only=True)
    assert waits.found.count("cpu") == 1
    for name, tensor in module_of(impala).state_dict().items():
        np.testing.assert_array_equal(state[name], tensor, err_msg=name)


def test_a_longer_fragment_launches_hardly_more_kernels() -> None:
    """V-trace is the only part that goes step by step."""

    def kernels(num_steps: int) -> int:
        column = torch.zeros(num_steps, 2)
        with torch.profiler.profile() as profile:
            vtrace(
                values=torch.zeros(num_steps + 1, 2),
                rewards=column,
                discounts=column,
                log_rhos=column,
                mask=column == 0,
            )
        return sum(event.count for event in profile.key_averages() if event.key.startswith("aten"))

    assert kernels(128) < 2 * kernels(16)


def test_an_update_does_without_torch_compile(
    learners: Learners, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Patches the step of its class, as another optimizer in this process would.
    torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])
    # From here on, importing it fails.
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    learner = learners.of("IMPALA")
    update(learner, made_up())
    assert gradient_steps(learner) == 1


def test_the_optimizer_steps_as_torchs_own() -> None:
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizers = [
        kind([w], lr=0.1, eps=1e-5, fused=True)
        for kind, w in zip((Adam, torch.optim.Adam), weights, strict=True)
    ]
    for _ in range(3):
        for weight, optimizer in zip(weights, optimizers, strict=True):
            optimizer.zero_grad()
            (weight**2).sum().backward()
            optimizer.step()
    assert torch.equal(*weights)


# The module's constants


@pytest.mark.parametrize(
    ("fraction", "value"), [(0.0, 0.04), (0.5, 0.02), (1.0, 0.01)], ids=["start", "half", "goal"]
)
def test_a_coefficient_falls_geometrically(fraction: float, value: float) -> None:
    assert annealed(0.04, 0.01, fraction) == pytest.approx(value)


@pytest.mark.parametrize(
    ("kind", "halfway"),
    [
        ("IMPALA", {"progress": 0.5**0.25, "used": 0.5}),
        ("IMPALA", {"progress": 7 / 12, "used": 7 / 12}),
        ("APPO with both", {"progress": 0.1, "used": 0.5}),
        ("APPO with both", {"progress": 0.5**0.5, "used": 0.1}),
    ],
    ids=[
        "IMPALA near the goal",
        "IMPALA evenly from a sixth of the run on",
        "APPO evenly over the run",
        "APPO on the way to the goal",
    ],
)
def test_a_policy_is_made_sure_of_itself(
    learners: Learners, kind: str, halfway: dict[str, Any]
) -> None:
    learner = learners.fresh(kind)
    settings = learner.config.learner_config_dict
    start, at_goal = settings["uniform_kl_coeff"], settings["uniform_kl_coeff_at_goal"]
    learner.update_settings = replace(learner.update_settings, **halfway)
    coefficient = update(learner, made_up())[DEFAULT_MODULE_ID]["uniform_kl_coeff"].peek()
    assert coefficient == pytest.approx((start * at_goal) ** 0.5)


@pytest.mark.parametrize(("used", "fraction"), [(0.1, 0.0), (1 / 6, 0.0), (1.0, 1.0)])
def test_a_limit_anneals_nothing_in_the_first_sixth_of_a_run(used: float, fraction: float) -> None:
    assert near_limit(used) == fraction


def test_an_entropy_bonus_weighs_what_annealing_has_left(learners: Learners) -> None:
    learner = learners.fresh("IMPALA with entropy")
    learner.update_settings = replace(learner.update_settings, entropy_coeff_left=0.25)
    batch = train_batch(made_up())
    coefficient = update(learner, made_up())[DEFAULT_MODULE_ID]["curr_entropy_coeff"].peek()
    assert coefficient == pytest.approx(0.005)
    torch.testing.assert_close(loss_of(learner, batch), loss_row_by_row(learner, batch))


def test_the_weights_for_env_runners_have_the_temperature_of_their_update(
    learners: Learners,
) -> None:
    learner = learners.fresh("IMPALA")
    learner.update_settings = replace(learner.update_settings, temperature=0.5)
    update(learner, made_up())
    state = learner.get_state(components="rl_module", inference_only=True)["rl_module"]
    assert state[DEFAULT_MODULE_ID]["temperature"] == 0.5


def test_a_coefficient_without_a_value_at_the_goal_is_constant() -> None:
    assert annealed(0.04, None, 0.9) == 0.04


def test_a_coefficient_of_zero_stays_zero() -> None:
    assert annealed(0.0, 0.01, 0.9) == 0.0


def test_pixels_are_normalised_by_the_games_own(impala: VTraceLearner) -> None:
    # Pong's middle is a court of one colour with a score above it.
    assert module_of(impala).pixel_mean.std() > 1.0


def test_pixel_statistics_travel_with_the_weights(impala: VTraceLearner) -> None:
    state = impala.get_state(COMPONENT_RL_MODULE)[COMPONENT_RL_MODULE][DEFAULT_MODULE_ID]
    np.testing.assert_array_equal(state["pixel_mean"], module_of(impala).pixel_mean)
