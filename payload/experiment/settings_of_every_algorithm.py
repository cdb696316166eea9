"""The settings that all algorithms share."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from payload.experiment.arguments import problem_of_arguments
from payload.experiment.wrappers import Wrapper, problem_of_wrappers

_Point = Annotated[tuple[Annotated[int, Field(ge=0)], float], Field(strict=False)]
Schedule = float | Annotated[list[_Point], Field(min_length=1)]
"""A number, or [[environment steps, value], ...] with values interpolated in between.

Steps are of all env runners together, those before a resume included.
"""

_Size = Annotated[int, Field(ge=1)]
_Sides = Annotated[list[_Size], Field(min_length=2, max_length=2)]
_Filter = Annotated[list[_Size | _Sides], Field(min_length=3, max_length=3)]
ConvFilters = Annotated[list[_Filter], Field(min_length=1)]
"""[channels, kernel, stride] of each convolution; the last two may be [height, width]."""

STRICT = ConfigDict(
    extra="forbid",
    frozen=True,
    strict=True,
    allow_inf_nan=False,
    use_attribute_docstrings=True,
)


@dataclass(frozen=True)
class ByEnvironment:
    """A default that is one value for Atari games and another one elsewhere.

    Either may be a ByAlgorithm.
    """

    atari: Any
    other: Any = None


class AtariOnly:
    """Marks a setting that has no effect on other environments."""


class OtherOnly:
    """Marks a setting that has no effect on Atari games."""


class AlgorithmSettings(BaseModel):
    """Settings that every algorithm has; RLlib's names where RLlib has the setting."""

    model_config = STRICT

    # Env runners
    num_env_runners: int | None = Field(None, ge=0)
    """Env runners. 0: the driver samples itself. Default: as many as fit."""
    num_envs_per_env_runner: int = Field(1, ge=1)
    """Environments that each env runner steps."""
    num_cpus_per_env_runner: int = Field(1, ge=1)
    """CPUs of an env runner, which steps the copies of an Atari game with as many threads."""
    explore: bool = True
    """Sample actions from the policy; `false` takes the most likely one."""
    env_config: dict[str, Any] = {}
    """Arguments of `gymnasium.make`; for an Atari game, fields of AtariSettings in
    payload/environments/atari.py, or Gymnasium's names for them."""
    env_step_timeout_s: float = Field(120.0, gt=0)
    """Not for IMPALA, APPO and PQN on Atari games. Seconds within which an environment must be
    created, and must answer a step or a reset."""
    disable_env_checking: bool = False
    """Not on Atari games. Accept observations outside their space."""
    info_metrics: list[Annotated[str, Field(pattern=r"^[^/]+$")]] = []
    """Not on Atari games. Numbers that the environment's `info` has at the end of an episode. Each
    is a metric `env_runners/info/NAME`, the mean of the last 100 episodes."""
    wrappers: list[Wrapper] = []
    """Not on Atari games. Gymnasium's wrappers around the environment, in training, evaluation and
    video, from the inside out: a name, `{name: {argument: value}}`, or `package:Class`."""
    reward_scale: float = Field(1.0, gt=0)
    """Not on Atari games. Factor of the rewards that the algorithm learns from; returns in metrics
    are the environment's own."""
    observation_filter: Literal["NoFilter", "MeanStdFilter"] = "NoFilter"
    """Not for images. `MeanStdFilter` subtracts the mean of all observations so far, divides by
    their standard deviation, and clips at 10."""
    # Preprocessing
    image_size: Annotated[int, AtariOnly] = Field(84, ge=32, le=210)
    """Height and width of an observation in pixels."""
    frame_stack: Annotated[int, AtariOnly] = Field(4, ge=1, le=16)
    """Frames in an observation."""
    clip_rewards: Annotated[bool, AtariOnly] = True
    """Clip the rewards that the algorithm learns from."""
    # Network
    module: str | None = None
    """A network of your own, `package:Class`, a TorchRLModule. IMPALA, APPO and PQN have their
    own on Atari games. Default: RLlib's."""
    module_config: dict[str, Any] = {}
    """Its model_config, in addition to the settings of RLlib's networks."""
    # Learners
    num_learners: int = Field(0, ge=0)
    """Learner processes. 0: the learner runs in the driver."""
    num_gpus_per_learner: float = Field(0.0, ge=0)
    """GPUs of each learner, or a part of one."""
    train_batch_size_per_learner: int | None = Field(None, ge=1)
    """Environment steps of a train batch."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount factor."""
    # Evaluation
    evaluation_interval: int | None = Field(None, ge=1)
    """Iterations between two evaluations. Default: off."""
    evaluation_duration: int = Field(10, ge=1)
    """Episodes of one evaluation."""
    evaluation_num_env_runners: int = Field(0, ge=0)
    """Env runners that only evaluate, besides num_env_runners. 0: the driver plays."""
    # The run
    seed: int | None = Field(None, ge=0)
    """Seed of weights, actions and no-op starts. A run starts faster without one. Default:
    different in each run."""
    min_time_s_per_iteration: float = Field(5.0, ge=0)
    """Shortest time between two reports, in seconds."""

    @field_validator("env_config", "module_config", mode="before")
    @classmethod
    def _arguments_can_travel(cls, arguments: Any, info: ValidationInfo) -> Any:
        key = f"config.{info.field_name}"
        if isinstance(arguments, dict) and (problem := problem_of_arguments(arguments, key)):
            raise ValueError(problem)
        return arguments

    @field_validator("wrappers", mode="before")
    @classmethod
    def _wrappers_are_known(cls, wrappers: Any) -> Any:
        if isinstance(wrappers, list) and (problem := problem_of_wrappers(wrappers)):
            raise ValueError(problem)
        return wrappers

    @field_validator("module")
    @classmethod
    def _module_is_a_class(cls, module: str | None) -> str | None:
        package, _, name = (module or "package:Class").rpartition(":")
        if not package or not name.isidentifier():
            raise ValueError(f"config.module: {module}: must be package:Class, a TorchRLModule")
        return module

    @model_validator(mode="after")
    def _module_has_its_config(self) -> Self:
        if self.module_config and self.module is None:
            raise ValueError("config.module_config: needs config.module: package:Class")
        return self

    @model_validator(mode="after")
    def _schedules_rise(self) -> Self:
        for name, value in self:
            points = value if isinstance(value, list) else []
            steps = [point[0] for point in points if isinstance(point, tuple)]
            if sorted(set(steps)) != steps:
                raise ValueError(f"config.{name}: {steps} are not rising numbers of steps")
        return self


class LSTMSettings(AlgorithmSettings):
    """Settings of algorithms that RLlib can train with an LSTM, behind the other layers."""

    use_lstm: bool = False
    """An LSTM after the other layers, for an environment whose observations do not show everything
    that matters."""
    lstm_cell_size: int = Field(256, ge=1)
    """Units of the LSTM."""
    max_seq_len: int = Field(20, ge=1)
    """Steps through which the LSTM's gradient is backpropagated."""


LSTM = LSTMSettings.model_fields.keys() - AlgorithmSettings.model_fields.keys()


class EpsilonGreedySettings(AlgorithmSettings):
    """Settings of algorithms that can explore with random actions."""

    epsilon: Schedule | None = None
    """Probability of a uniformly random action: a number or a schedule; discrete actions only.
    Default: 0."""

    @model_validator(mode="after")
    def _epsilon_is_a_probability(self) -> Self:
        given = self.epsilon
        for value in [given] if isinstance(given, float) else [value for _, value in given or []]:
            if not 0 <= value <= 1:
                raise ValueError(f"config.epsilon: {value:g} is not a probability, from 0 to 1")
        return self
