"""An experiment, typed: run, env, config, stop, in the words of `rllib train`.

What a setting is when it is not given stands beside the setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Algorithm = Literal["IMPALA", "APPO"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)

_Point = Annotated[tuple[Annotated[int, Field(ge=0)], float], Field(strict=False)]
Schedule = float | Annotated[list[_Point], Field(min_length=1)]
"""A number, or [[environment steps, value], ...] with values interpolated in between."""

_STRICT = ConfigDict(
    extra="forbid",
    frozen=True,
    strict=True,
    allow_inf_nan=False,
    use_attribute_docstrings=True,
)


@dataclass(frozen=True)
class ByEnvironment:
    """A default that is one value for Atari games and another one elsewhere."""

    atari: Any
    other: Any = None


@dataclass(frozen=True)
class ByAlgorithm:
    """A default that each algorithm has for itself."""

    impala: Any
    appo: Any


class AtariOnly:
    """Marks a setting that RLlib's own env runner, learner and module do not have."""


class Settings(BaseModel):
    """What `config` may contain; RLlib's names where RLlib has the setting."""

    model_config = _STRICT

    # Env runners
    num_env_runners: int | None = Field(None, ge=0)
    """Default: as many as `placement.place` finds room for."""
    num_envs_per_env_runner: int = Field(32, ge=1)
    num_cpus_per_env_runner: int = Field(1, ge=1)
    """An env runner steps its environments with as many threads."""
    rollout_fragment_length: int = Field(32, ge=2)
    """T: steps of each environment in one rollout fragment."""
    max_requests_in_flight_per_env_runner: int = Field(2, ge=1)
    explore: bool = True
    """False: env runners take the most likely action instead of sampling one."""
    env_config: dict[str, Any] = {}
    """Arguments of gymnasium.make; for an Atari game, overrides of AtariSettings."""
    # Preprocessing
    image_size: Annotated[int, AtariOnly] = Field(42, ge=32, le=210)
    frame_stack: Annotated[int, AtariOnly] = Field(4, ge=1, le=16)
    clip_rewards: Annotated[bool, AtariOnly] = True
    end_return_at_lost_life: Annotated[bool, AtariOnly] = True
    # Learners
    num_learners: int = Field(0, ge=0)
    """0: the learner runs in the driver."""
    num_gpus_per_learner: float = Field(0.0, ge=0)
    train_batch_size_per_learner: int | None = Field(None, ge=1)
    """Environment steps, rounded up to whole rollout fragments. Default: one fragment."""
    minibatch_size: int | None = Field(None, ge=1)
    """Environment steps of one gradient step, a multiple of rollout_fragment_length. Default:
    MINIBATCH_ROWS fragments of one environment."""
    num_epochs: Annotated[int | None, ByAlgorithm(impala=1, appo=2)] = Field(None, ge=1)
    """Passes over a train batch."""
    learner_queue_size: int = Field(1, ge=1)
    broadcast_interval: int = Field(1, ge=1)
    # Loss and optimizer. Elsewhere than on Atari games the defaults are RLlib's own.
    lr: Annotated[Schedule | None, ByEnvironment(atari=1e-3, other=5e-4)] = None
    gamma: float = Field(0.99, ge=0, le=1)
    lambda_: Annotated[float, AtariOnly] = Field(0.95, ge=0, le=1)
    normalize_advantages: Annotated[bool, AtariOnly] = True
    vf_loss_coeff: Annotated[float | None, ByEnvironment(atari=4.0, other=0.5)] = Field(None, ge=0)
    """Values err by 0.1 or 0.2 where normalized advantages are about 1. With RLlib's 0.5 they learn
    so slowly that some runs stand still for half a million environment steps."""
    entropy_coeff: Annotated[Schedule | None, ByEnvironment(atari=0.0, other=0.01)] = None
    uniform_kl_coeff: Annotated[float | None, AtariOnly, ByEnvironment(atari=0.03)] = Field(
        None, ge=0
    )
    """Weight of KL(uniform || policy), which keeps every action alive. Pong without sticky actions
    is deterministic, and a policy that becomes so early stays in one losing cycle; an entropy bonus
    gives up an action that has become unlikely. Default: 0 where entropy_coeff is given."""
    uniform_kl_coeff_at_goal: Annotated[
        float | None, AtariOnly, ByAlgorithm(impala=0.004, appo=0.002)
    ] = Field(None, gt=0)
    """What uniform_kl_coeff is annealed to on the way to the stop criterion, most of it at the end
    of the way. Default: none, a constant, where uniform_kl_coeff is given."""
    grad_clip: float | None = Field(0.5, gt=0)
    """Largest global norm of a gradient."""
    clip_param: float = Field(0.2, gt=0)
    """APPO's clip of the probability ratio; IMPALA clips nothing."""
    vtrace_clip_rho_threshold: float = Field(1.0, gt=0)
    vtrace_clip_pg_rho_threshold: float = Field(1.0, gt=0)
    fcnet_hidden: Annotated[int, AtariOnly] = Field(256, ge=1)
    """Units of the layer after the convolutions."""
    # The run
    seed: int | None = Field(None, ge=0)
    """Of weights, actions and no-op starts; None: different in every run, and a faster start."""
    min_time_s_per_iteration: float = Field(5.0, ge=0)

    @property
    def fragment_steps(self) -> int:
        """Environment steps in one rollout fragment, T * N."""
        return self.rollout_fragment_length * self.num_envs_per_env_runner

    @model_validator(mode="after")
    def _sizes_fit(self) -> Settings:
        size = self.minibatch_size
        if size is not None and size % self.rollout_fragment_length:
            raise ValueError(
                f"config.minibatch_size: {size} is not a multiple of rollout_fragment_length "
                f"({self.rollout_fragment_length})"
            )
        return self


MINIBATCH_ROWS: dict[Algorithm, int] = {"IMPALA": 4, "APPO": 8}
"""Trajectories in one gradient step: a plain policy gradient learns faster from many small ones."""
EPISODE_RETURN_MEAN = "env_runners/episode_return_mean"
"""Where RLlib's result has it, and by what Tune's `stop` and MLflow know it."""
DEFAULT_TIME_TOTAL_S = 3600.0
"""Of a run without any stop criterion."""


class Stop(BaseModel):
    """When training ends: whichever criterion is met first. Without any, after an hour."""

    model_config = ConfigDict(**_STRICT, validate_by_name=True, validate_by_alias=True)

    episode_return_mean: float | None = Field(None, alias=EPISODE_RETURN_MEAN)
    """Mean return of the last 100 episodes."""
    time_total_s: float | None = Field(None, gt=0)
    """Seconds of training, those before a resume included."""
    num_env_steps_sampled_lifetime: int | None = Field(None, gt=0)
    """Environment steps sampled."""
    training_iteration: int | None = Field(None, gt=0)


class Experiment(BaseModel):
    """One experiment, as an experiment file or the command line gives it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )

    run: Algorithm = "IMPALA"
    env: str = "PongNoFrameskip-v4"
    config: Settings = Settings()
    stop: Stop = Stop()


def with_defaults(
    experiment: Experiment, atari: bool, num_env_runners: int | None = None
) -> Settings:
    """Returns the experiment's settings with every default filled in.

    Args:
        atari: Whether the environment takes the Atari fast path.
        num_env_runners: What `placement.place` returned; None leaves the setting as it is.
    """
    given = experiment.config
    filled: dict[str, Any] = {}
    if num_env_runners is not None:
        filled["num_env_runners"] = num_env_runners
    for name, field in Settings.model_fields.items():
        if getattr(given, name) is not None:
            continue
        for default in field.metadata:
            if isinstance(default, ByEnvironment):
                filled[name] = default.atari if atari else default.other
            elif isinstance(default, ByAlgorithm):
                filled[name] = getattr(default, experiment.run.lower())
    if given.minibatch_size is None:
        rows = MINIBATCH_ROWS[experiment.run]
        filled["minibatch_size"] = rows * given.rollout_fragment_length
    if given.entropy_coeff is not None:
        filled["uniform_kl_coeff"] = given.uniform_kl_coeff or 0.0
    if given.uniform_kl_coeff is not None:
        filled.pop("uniform_kl_coeff_at_goal", None)
    # RLlib collects whole fragments for all learners together and then divides them: one with fewer
    # fragments than another would halt both.
    fragments = -(-(given.train_batch_size_per_learner or 1) // given.fragment_steps)
    filled["train_batch_size_per_learner"] = fragments * given.fragment_steps
    return given.model_copy(update=filled)


def notes_on_defaults(experiment: Experiment, atari: bool) -> list[str]:
    """Returns a line for each given setting that has no effect, or not the one that was asked."""
    given = experiment.config
    asked = given.train_batch_size_per_learner
    size = with_defaults(experiment, atari).train_batch_size_per_learner
    notes = []
    if asked not in (None, size):
        notes.append(
            f"config.train_batch_size_per_learner is now {size}: "
            f"whole rollout fragments of {given.fragment_steps} environment steps"
        )
    if not atari:
        notes += [
            f"config.{name} is ignored: {experiment.env} is not an Atari game, "
            "RLlib's own env runner and learner train it"
            for name, field in Settings.model_fields.items()
            if AtariOnly in field.metadata and name in given.model_fields_set
        ]
    return notes
