"""Settings of the algorithms whose learners train on rollout fragments: IMPALA, APPO and PQN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from payload.experiment.batch_sizes import LAPTOP
from payload.experiment.settings_of_every_algorithm import (
    AtariOnly,
    ByEnvironment,
    EpsilonGreedySettings,
    Schedule,
)

MINIBATCH_STEPS: dict[str, int] = {"IMPALA": 128, "APPO": 256, "PQN": 128}
"""About this many per gradient step: a plain policy gradient learns faster in many small steps."""
TRAJECTORY_SIZES = frozenset(
    {"num_envs_per_env_runner", "rollout_fragment_length", "minibatch_size"}
)


@dataclass(frozen=True)
class ByAlgorithm:
    """A default that differs between algorithms."""

    impala: Any
    appo: Any
    pqn: Any = None


class FragmentSettings(EpsilonGreedySettings):
    """What `config` of IMPALA, APPO and PQN may contain."""

    # Env runners
    num_envs_per_env_runner: int = Field(LAPTOP.num_envs_per_env_runner, ge=1)
    """Environments that each env runner steps; fewer with many env runners."""
    rollout_fragment_length: int = Field(LAPTOP.rollout_fragment_length, ge=2)
    """Steps of each environment in one rollout fragment; more with many env runners."""
    max_requests_in_flight_per_env_runner: int = Field(2, ge=1)
    """Rollout fragments of an env runner that may wait for the driver."""
    # Preprocessing
    image_size: Annotated[int, AtariOnly] = Field(42, ge=32, le=210)
    """Height of an observation in pixels."""
    image_width: Annotated[int | None, AtariOnly] = Field(None, ge=32, le=160)
    """Width of an observation in pixels. 40, with a height of 42, divides a game's 160 x 210
    pixels evenly: the emulator's step takes 14 % less, but Pong took more environment steps in
    four of five runs. Default: image_size."""
    end_return_at_lost_life: Annotated[bool, AtariOnly] = True
    """End the learner's return at a lost life."""
    # Learners
    train_batch_size_per_learner: int | None = Field(None, ge=1)
    """Environment steps of a train batch, rounded up to whole rollout fragments. Default: one
    rollout fragment, more with many env runners; several learners share them."""
    minibatch_size: int | None = Field(None, ge=1)
    """Environment steps of one gradient step, a multiple of rollout_fragment_length. Default:
    `128`, APPO `256`, more with many env runners, shared by the learners; other environments: the
    whole train batch."""
    num_epochs: Annotated[int | None, ByAlgorithm(impala=1, appo=3, pqn=2)] = Field(None, ge=1)
    """Passes over a train batch."""
    replay_proportion: Annotated[int, AtariOnly] = Field(0, ge=0)
    """Train batches replayed for each new one."""
    replay_buffer_num_slots: Annotated[int, AtariOnly] = Field(16, ge=1)
    """Train batches that a learner keeps for replay, in its memory and not in checkpoints: 2 MB for
    each rollout fragment."""
    learner_queue_size: int = Field(1, ge=1)
    """Train batches that may wait for a learner."""
    broadcast_interval: int = Field(1, ge=1)
    """Updates between two broadcasts of the weights to env runners."""
    # Optimizer. Outside Atari games, lr is RLlib's own.
    lr: Annotated[
        Schedule | None,
        ByEnvironment(atari=ByAlgorithm(impala=1e-3, appo=5e-4, pqn=5e-4), other=5e-4),
    ] = None
    """Learning rate of Adam: a number, or a schedule [[environment steps, value], ...]; larger with
    many env runners."""
    anneal_lr: Annotated[bool | None, AtariOnly] = None
    """Anneal lr to 0 as the stop criterion of time, steps or iterations is approached. Default:
    where lr is not set."""
    lr_at_goal: Annotated[float | None, AtariOnly] = Field(None, gt=0)
    """Value that lr, a number, is annealed to with the fourth power of the progress to the nearest
    stop criterion."""
    lambda_: Annotated[float, AtariOnly] = Field(0.95, ge=0, le=1)
    """Lambda of V-trace."""
    grad_clip: float | None = Field(0.5, gt=0)
    """Largest global norm of a gradient; `null` disables clipping."""
    # Network
    network: Annotated[Literal["small", "fine", "nature", "impala"], AtariOnly] = "small"
    """Convolutions: `small` has two, `fine` two with a smaller first stride, which takes longer,
    `nature` the three of Mnih et al. (2015), `impala` the residual blocks of Espeholt et al.
    (2018)."""
    fcnet_hidden: Annotated[int, AtariOnly] = Field(256, ge=1)
    """Units of the layer after the convolutions."""

    @property
    def fragment_steps(self) -> int:
        """Environment steps in one rollout fragment, T * N."""
        return self.rollout_fragment_length * self.num_envs_per_env_runner

    @model_validator(mode="after")
    def _sizes_fit(self) -> FragmentSettings:
        size = self.minibatch_size
        if size is not None and size % self.rollout_fragment_length:
            raise ValueError(
                f"config.minibatch_size: {size} is not a multiple of rollout_fragment_length "
                f"({self.rollout_fragment_length})"
            )
        return self

    @model_validator(mode="after")
    def _lr_can_be_annealed(self) -> FragmentSettings:
        unfit = self.lr is not None and (isinstance(self.lr, list) or self.lr <= 0)
        if self.lr_at_goal is not None and unfit:
            raise ValueError(
                f"config.lr_at_goal: {self.lr_at_goal:g} needs an lr that is a positive number"
            )
        return self
