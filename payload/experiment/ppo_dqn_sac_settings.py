"""Settings of RLlib's own PPO, DQN and SAC. A setting that is None is RLlib's default."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from payload.experiment.settings_of_every_algorithm import (
    AlgorithmSettings,
    ByEnvironment,
    ConvFilters,
    EpsilonGreedySettings,
    LSTMSettings,
    Schedule,
)


class RLlibSettings(AlgorithmSettings):
    """What PPO, DQN and SAC have in common."""

    grad_clip: float | None = Field(None, gt=0)
    """Largest global norm of a gradient. RLlib: none; DQN 40."""
    fcnet_hiddens: list[Annotated[int, Field(ge=1)]] | None = None
    """Units of the fully connected layers of a network for vectors. RLlib: [256, 256]."""
    fcnet_activation: str | None = None
    """Activation of the fully connected layers. RLlib: tanh."""
    conv_filters: ConvFilters | None = None
    """Convolutions of a network for images, [channels, kernel, stride] of each. Default: as many as
    reduce the smaller side to at most 8 pixels."""


class PPOSettings(RLlibSettings, LSTMSettings, EpsilonGreedySettings):
    """What `config` of PPO may contain. On Atari games the defaults are CleanRL's."""

    num_envs_per_env_runner: int = Field(8, ge=1)
    """Environments that each env runner steps."""
    train_batch_size_per_learner: Annotated[int | None, ByEnvironment(atari=1024)] = Field(
        None, ge=1
    )
    """Environment steps of one iteration. RLlib: 4000."""
    minibatch_size: Annotated[int | None, ByEnvironment(atari=256)] = Field(None, ge=1)
    """Environment steps of one gradient step. RLlib: 128."""
    num_epochs: Annotated[int | None, ByEnvironment(atari=4)] = Field(None, ge=1)
    """Passes over a train batch. RLlib: 30."""
    lr: Annotated[Schedule | None, ByEnvironment(atari=2.5e-4)] = None
    """Learning rate: a number or a schedule. RLlib: 5e-5."""
    lambda_: Annotated[float | None, ByEnvironment(atari=0.95)] = Field(None, ge=0, le=1)
    """Lambda of the advantages. RLlib: 1.0."""
    clip_param: Annotated[float | None, ByEnvironment(atari=0.1)] = Field(None, gt=0)
    """Clip of the probability ratio. RLlib: 0.3."""
    vf_loss_coeff: Annotated[float | None, ByEnvironment(atari=0.5)] = Field(None, ge=0)
    """Weight of the value loss. RLlib: 1.0."""
    vf_clip_param: float | None = Field(None, gt=0)
    """Upper limit of the value loss; too low for returns in the hundreds. RLlib: 10.0."""
    entropy_coeff: Annotated[Schedule | None, ByEnvironment(atari=0.01)] = None
    """Weight of the entropy bonus: a number or a schedule. RLlib: 0."""
    use_kl_loss: Annotated[bool | None, ByEnvironment(atari=False)] = None
    """Add the divergence from the old policy to the loss. RLlib: true."""
    kl_coeff: float | None = Field(None, ge=0)
    """Initial weight of that divergence. RLlib: 0.2."""
    kl_target: float | None = Field(None, gt=0)
    """Target of the divergence, to which its weight is adapted. RLlib: 0.01."""
    grad_clip: Annotated[float | None, ByEnvironment(atari=0.5)] = Field(None, gt=0)
    """Largest global norm of a gradient. RLlib: none."""
    vf_share_layers: Annotated[bool | None, ByEnvironment(atari=True)] = None
    """Policy and value share all layers but the last. RLlib: false."""


class ReplaySettings(RLlibSettings):
    """What DQN and SAC have in common."""

    rollout_fragment_length: int | None = Field(None, ge=1)
    """Steps of each environment between two gradient steps, at least n_step. RLlib: n_step."""
    train_batch_size_per_learner: int | None = Field(None, ge=1)
    """Environment steps of one gradient step. RLlib: DQN 32, SAC 256."""
    replay_buffer_capacity: int = Field(50_000, ge=1)
    """Environment steps in the replay buffer, which is not in checkpoints."""
    prioritized_replay_alpha: float = Field(0.6, ge=0)
    """Exponent of the priorities."""
    prioritized_replay_beta: float = Field(0.4, ge=0)
    """Exponent of the importance weights."""
    num_steps_sampled_before_learning_starts: int | None = Field(None, ge=0)
    """Environment steps before the first gradient step, and before the first one after a resume.
    RLlib: DQN 1000, SAC 1500."""
    training_intensity: float | None = Field(None, gt=0)
    """Environment steps trained for each one sampled. RLlib: one gradient step for each sample."""
    n_step: int | None = Field(None, ge=1)
    """Rewards in a target. RLlib: 1."""
    tau: float | None = Field(None, gt=0, le=1)
    """Weight of the new network in the target network. RLlib: DQN 1.0, SAC 0.005."""
    target_network_update_freq: int | None = Field(None, ge=0)
    """Environment steps between updates of the target network. RLlib: DQN 500, SAC 0."""

    @model_validator(mode="after")
    def _fragment_has_a_target(self) -> Self:
        length, steps = self.rollout_fragment_length, self.n_step or 1
        if length is not None and length < steps:
            batch = self.train_batch_size_per_learner
            ratio = f"{batch / length:g}" if batch else "train batch / fragment length"
            raise ValueError(
                f"config.rollout_fragment_length: {length} is less than n_step ({steps}); leave it "
                f"out, and set training_intensity ({ratio}) for as many gradient steps as before"
            )
        return self


class DQNSettings(ReplaySettings, EpsilonGreedySettings):
    """What `config` of DQN may contain."""

    lr: Schedule | None = None
    """Learning rate: a number or a schedule. RLlib: 5e-4."""
    epsilon: Schedule | None = None
    """Probability of a random action: a number or a schedule. RLlib: 1.0 falls to 0.05 in 10,000
    environment steps."""
    double_q: bool | None = None
    """Double Q-learning. RLlib: true."""
    dueling: bool | None = None
    """Dueling network. RLlib: true."""


class SACSettings(ReplaySettings):
    """What `config` of SAC may contain."""

    actor_lr: Schedule | None = None
    """Learning rate of the policy. RLlib: 3e-5."""
    critic_lr: Schedule | None = None
    """Learning rate of the Q-functions. RLlib: 3e-4."""
    alpha_lr: Schedule | None = None
    """Learning rate of the temperature. RLlib: 3e-4."""
    initial_alpha: float | None = Field(None, gt=0)
    """Initial temperature. RLlib: 1.0."""
    target_entropy: float | None = None
    """Target of the policy's entropy, to which the temperature is adapted. RLlib: minus the number
    of action dimensions."""
    twin_q: bool | None = None
    """Two Q-functions. RLlib: true."""
