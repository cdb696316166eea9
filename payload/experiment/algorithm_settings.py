"""What the settings of all algorithms have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Point = Annotated[tuple[Annotated[int, Field(ge=0)], float], Field(strict=False)]
Schedule = float | Annotated[list[_Point], Field(min_length=1)]
"""A number, or [[environment steps, value], ...] with values interpolated in between.

Steps are of all env runners together, those before a resume included.
"""

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


class AlgorithmSettings(BaseModel):
    """Settings that every algorithm has; RLlib's names where RLlib has the setting."""

    model_config = STRICT

    # Env runners
    num_env_runners: int | None = Field(None, ge=0)
    """Default: as many as `placement.place` finds room for."""
    num_envs_per_env_runner: int = Field(1, ge=1)
    num_cpus_per_env_runner: int = Field(1, ge=1)
    """An env runner steps an Atari game's copies with as many threads."""
    explore: bool = True
    """False: env runners take the most likely action instead of sampling one."""
    env_config: dict[str, Any] = {}
    """Arguments of gymnasium.make; for an Atari game, overrides of AtariSettings."""
    env_step_timeout_s: float = Field(120.0, gt=0)
    """Seconds in which an environment must answer a step, a reset or its making."""
    disable_env_checking: bool = False
    """True: observations may lie outside their space."""
    # Preprocessing
    image_size: Annotated[int, AtariOnly] = Field(84, ge=32, le=210)
    frame_stack: Annotated[int, AtariOnly] = Field(4, ge=1, le=16)
    clip_rewards: Annotated[bool, AtariOnly] = True
    # Learners
    num_learners: int = Field(0, ge=0)
    """0: the learner runs in the driver."""
    num_gpus_per_learner: float = Field(0.0, ge=0)
    train_batch_size_per_learner: int | None = Field(None, ge=1)
    """Environment steps."""
    gamma: float = Field(0.99, ge=0, le=1)
    # Evaluation
    evaluation_interval: int | None = Field(None, ge=1)
    """Iterations between two evaluations. None: no evaluation while it trains."""
    evaluation_duration: int = Field(10, ge=1)
    """Episodes of one evaluation."""
    evaluation_num_env_runners: int = Field(0, ge=0)
    """Env runners for evaluation alone, beside num_env_runners. 0: the driver plays."""
    # The run
    seed: int | None = Field(None, ge=0)
    """Of weights, actions and no-op starts; None: different in every run, and a faster start."""
    min_time_s_per_iteration: float = Field(5.0, ge=0)

    @model_validator(mode="after")
    def _schedules_rise(self) -> Self:
        for name, value in self:
            points = value if isinstance(value, list) else []
            steps = [point[0] for point in points if isinstance(point, tuple)]
            if sorted(set(steps)) != steps:
                raise ValueError(f"config.{name}: {steps} are not rising numbers of steps")
        return self


class LSTMSettings(AlgorithmSettings):
    """Of algorithms that RLlib trains with an LSTM; it stands behind the other layers."""

    use_lstm: bool = False
    lstm_cell_size: int = Field(256, ge=1)
    max_seq_len: int = Field(20, ge=1)
    """Steps over which a gradient goes back in time."""


LSTM = LSTMSettings.model_fields.keys() - AlgorithmSettings.model_fields.keys()


class EpsilonGreedySettings(AlgorithmSettings):
    """Of algorithms that may take a random action now and then."""

    epsilon: Schedule | None = None
    """Probability of a random action, each one as likely; discrete actions only. Default: 0."""

    @model_validator(mode="after")
    def _epsilon_is_a_probability(self) -> Self:
        given = self.epsilon
        for value in [given] if isinstance(given, float) else [value for _, value in given or []]:
            if not 0 <= value <= 1:
                raise ValueError(f"config.epsilon: {value:g} is not a probability, from 0 to 1")
        return self
