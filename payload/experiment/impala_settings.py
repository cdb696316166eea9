"""Settings of IMPALA and APPO. What a setting is when it is not given stands beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from payload.experiment.batch_sizes import LAPTOP
from payload.experiment.settings_of_every_algorithm import (
    AtariOnly,
    ByEnvironment,
    ConvFilters,
    EpsilonGreedySettings,
    LSTMSettings,
    OtherOnly,
    Schedule,
)

MINIBATCH_STEPS: dict[str, int] = {"IMPALA": 128, "APPO": 256}
"""About so many in a gradient step: a plain policy gradient learns faster from many small ones."""
TRAJECTORY_SIZES = frozenset(
    {"num_envs_per_env_runner", "rollout_fragment_length", "minibatch_size"}
)


@dataclass(frozen=True)
class ByAlgorithm:
    """A default that differs between IMPALA and APPO."""

    impala: Any
    appo: Any


class ImpalaSettings(LSTMSettings, EpsilonGreedySettings):
    """What `config` of IMPALA and APPO may contain."""

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
    """Width of an observation in pixels. 40 beside a height of 42 divides a game's 160 x 210 pixels
    evenly: the emulator's step takes 14 % less, but Pong took more environment steps in four of
    five runs. Default: image_size."""
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
    num_epochs: Annotated[int | None, ByAlgorithm(impala=1, appo=3)] = Field(None, ge=1)
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
    # Loss and optimizer. Elsewhere than on Atari games lr and the coefficients are RLlib's own.
    lr: Annotated[
        Schedule | None, ByEnvironment(atari=ByAlgorithm(impala=1e-3, appo=5e-4), other=5e-4)
    ] = None
    """Learning rate of Adam: a number, or a schedule [[environment steps, value], ...]; larger with
    many env runners."""
    anneal_lr: Annotated[bool | None, AtariOnly] = None
    """Let lr fall to 0 on the way to the stop criterion of time, steps or iterations. Default:
    where lr is not set."""
    lr_at_goal: Annotated[float | None, AtariOnly] = Field(None, gt=0)
    """Value that lr, a number, is annealed to with the fourth power of the progress to the nearest
    stop criterion."""
    lambda_: Annotated[float, AtariOnly] = Field(0.95, ge=0, le=1)
    """Lambda of V-trace."""
    normalize_advantages: Annotated[bool, AtariOnly] = True
    """Normalize advantages by their running mean and deviation."""
    vf_loss_coeff: Annotated[
        float | None, ByEnvironment(atari=ByAlgorithm(impala=4.0, appo=0.5), other=0.5)
    ] = Field(None, ge=0)
    """Weight of the value loss. Values of Pong err by 0.1 or 0.2 where normalized advantages are
    about 1: with 0.5 and one pass they learn slowly, and some runs stand still for half a million
    environment steps."""
    entropy_coeff: Annotated[
        Schedule | None, ByEnvironment(atari=ByAlgorithm(impala=0.0, appo=0.01), other=0.01)
    ] = None
    """Weight of the entropy bonus: a number or a schedule."""
    anneal_entropy_coeff: Annotated[bool | None, AtariOnly] = None
    """Let entropy_coeff fall to 0 as lr does. Default: where entropy_coeff is not set."""
    final_temperature: Annotated[
        float | None, AtariOnly, ByEnvironment(atari=ByAlgorithm(impala=1.0, appo=0.4))
    ] = Field(None, gt=0)
    """Env runners sample from softmax(logits / temperature); the temperature falls from 1 to this
    value on the way to the stop criterion of time, steps or iterations, most of it at the end."""
    uniform_kl_coeff: Annotated[
        float | None, AtariOnly, ByEnvironment(atari=ByAlgorithm(impala=0.03, appo=0.0))
    ] = Field(None, ge=0)
    """Weight of KL(uniform || policy), which keeps every action possible; 0 where entropy_coeff is
    set. Pong without sticky actions is deterministic: a policy that becomes so early stays in one
    losing cycle, and an entropy bonus gives up an action that has become unlikely."""
    uniform_kl_coeff_at_goal: Annotated[
        float | None, AtariOnly, ByAlgorithm(impala=0.004, appo=None)
    ] = Field(None, gt=0)
    """Value that uniform_kl_coeff is annealed to, near a return goal or as time, steps or
    iterations pass; none where uniform_kl_coeff is set."""
    grad_clip: float | None = Field(0.5, gt=0)
    """Largest global norm of a gradient; `null` clips nothing."""
    clip_param: Annotated[float | None, ByEnvironment(atari=0.1, other=0.2)] = Field(None, gt=0)
    """APPO's clip of the probability ratio; IMPALA clips nothing."""
    use_kl_loss: Annotated[bool, OtherOnly] = False
    """APPO's: add the divergence from the old policy to the loss."""
    kl_coeff: Annotated[float | None, OtherOnly] = Field(None, ge=0)
    """First weight of that divergence. RLlib: 1.0."""
    kl_target: Annotated[float | None, OtherOnly] = Field(None, gt=0)
    """The divergence that its weight aims at. RLlib: 0.01."""
    vtrace_clip_rho_threshold: float = Field(1.0, gt=0)
    """Clip of rho in V-trace's targets."""
    vtrace_clip_pg_rho_threshold: float = Field(1.0, gt=0)
    """Clip of rho in V-trace's policy gradient."""
    network: Annotated[Literal["small", "fine", "nature", "impala"], AtariOnly] = "small"
    """Convolutions: `small` has two, `fine` two with a smaller first stride, which takes longer,
    `nature` the three of Mnih et al. (2015), `impala` the residual blocks of Espeholt et al.
    (2018)."""
    fcnet_hidden: Annotated[int, AtariOnly] = Field(256, ge=1)
    """Units of the layer after the convolutions."""
    fcnet_hiddens: Annotated[list[Annotated[int, Field(ge=1)]] | None, OtherOnly] = None
    """Units of the fully connected layers of a network for vectors. RLlib: [256, 256]."""
    fcnet_activation: Annotated[str | None, OtherOnly] = None
    """Activation of the fully connected layers. RLlib: tanh."""
    conv_filters: Annotated[ConvFilters | None, OtherOnly] = None
    """Convolutions of a network for images, [channels, kernel, stride] of each. Default: as many as
    leave at most 8 pixels of the smaller side."""
    vf_share_layers: Annotated[bool | None, OtherOnly] = None
    """Policy and value share all layers but the last. RLlib: IMPALA true, APPO false."""

    @property
    def fragment_steps(self) -> int:
        """Environment steps in one rollout fragment, T * N."""
        return self.rollout_fragment_length * self.num_envs_per_env_runner

    @model_validator(mode="after")
    def _sizes_fit(self) -> ImpalaSettings:
        size = self.minibatch_size
        if size is not None and size % self.rollout_fragment_length:
            raise ValueError(
                f"config.minibatch_size: {size} is not a multiple of rollout_fragment_length "
                f"({self.rollout_fragment_length})"
            )
        return self

    @model_validator(mode="after")
    def _lr_can_be_annealed(self) -> ImpalaSettings:
        unfit = self.lr is not None and (isinstance(self.lr, list) or self.lr <= 0)
        if self.lr_at_goal is not None and unfit:
            raise ValueError(
                f"config.lr_at_goal: {self.lr_at_goal:g} needs an lr that is a positive number"
            )
        return self
