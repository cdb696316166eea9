"""An experiment, typed: run, env, config, stop, in the words of `rllib train`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from payload.errors import UserError, nearest
from payload.old_names import translate_config, translate_stop

Schedule = float | list[tuple[Annotated[int, Field(ge=0)], float]]
"""A number, or [[environment steps, value], ...] with values interpolated in between."""


class Settings(BaseModel):
    """What `config` may contain; RLlib's names where RLlib has the setting."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    # Env runners
    num_env_runners: int | None = Field(None, ge=0)
    """Default: one for each CPU of the cluster that no learner takes."""
    num_envs_per_env_runner: int = Field(16, ge=1)
    num_cpus_per_env_runner: int = Field(1, ge=1)
    """An env runner steps its environments with as many threads."""
    rollout_fragment_length: int = Field(32, ge=2)
    """T: steps of each environment in one fragment."""
    max_requests_in_flight_per_env_runner: int = Field(2, ge=1)
    explore: bool = True
    """False: env runners take the most likely action instead of sampling one."""
    env_config: dict[str, Any] = {}
    """Arguments of gymnasium.make; for an Atari game, overrides of AtariSettings."""
    # Preprocessing
    image_size: int = Field(42, ge=32, le=210)
    frame_stack: int = Field(4, ge=1, le=16)
    clip_rewards: bool = True
    end_return_at_lost_life: bool = True
    # Learners
    num_learners: int = Field(0, ge=0)
    """0: the learner runs in the driver."""
    num_gpus_per_learner: float = Field(0.0, ge=0)
    train_batch_size_per_learner: int | None = Field(None, ge=1)
    """Default: one fragment, num_envs_per_env_runner * rollout_fragment_length."""
    minibatch_size: int | None = Field(None, ge=1)
    """Steps of one gradient step, a multiple of rollout_fragment_length. Default: all."""
    num_epochs: int | None = Field(None, ge=1)
    """Passes over a train batch. Default: 1 (IMPALA), 3 (APPO)."""
    learner_queue_size: int = Field(1, ge=1)
    broadcast_interval: int = Field(1, ge=1)
    # Loss and optimizer
    lr: Schedule | None = None
    gamma: float = Field(0.99, ge=0, le=1)
    lambda_: float = Field(0.95, ge=0, le=1)
    normalize_advantages: bool = True
    vf_loss_coeff: float = Field(0.5, ge=0)
    entropy_coeff: Schedule | None = None
    """Keeps the policy random where nothing has been learnt yet. Default: see defaults.py."""
    entropy_coeff_at_goal: float | None = Field(None, ge=0)
    """What entropy_coeff falls to, in proportion to the progress towards the stop criterion."""
    grad_clip: float | None = Field(0.5, gt=0)
    """Largest global norm of a gradient."""
    clip_param: float = Field(0.2, gt=0)
    """APPO's clip of the probability ratio; IMPALA clips nothing."""
    vtrace_clip_rho_threshold: float = Field(1.0, gt=0)
    vtrace_clip_pg_rho_threshold: float = Field(1.0, gt=0)
    fcnet_hidden: int = Field(256, ge=1)
    """Units of the layer after the convolutions."""
    # The run
    seed: int | None = Field(None, ge=0)
    """Of weights, actions and no-op starts; None: different in every run, and a faster start."""
    min_time_s_per_iteration: float = Field(5.0, ge=0)

    @property
    def fragment_steps(self) -> int:
        """Agent steps in one fragment, T * N."""
        return self.rollout_fragment_length * self.num_envs_per_env_runner

    @model_validator(mode="after")
    def _sizes_fit(self) -> Settings:
        size = self.minibatch_size
        if size is not None and size % self.rollout_fragment_length:
            raise ValueError(
                f"config.minibatch_size: {size} is no multiple of rollout_fragment_length "
                f"({self.rollout_fragment_length})"
            )
        return self


class Stop(BaseModel):
    """When training ends: whichever comes first; no criterion means never."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    episode_return_mean: float | None = None
    """Mean return of the last 100 episodes."""
    time_total_s: float | None = Field(None, gt=0)
    """Seconds of training, those before a resume included."""
    num_env_steps_sampled_lifetime: int | None = Field(None, gt=0)
    """Agent steps sampled."""
    training_iteration: int | None = Field(None, gt=0)


class Experiment(BaseModel):
    """One experiment, as an experiment file or the command line gives it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    run: Literal["IMPALA", "APPO"] = "IMPALA"
    env: str = "PongNoFrameskip-v4"
    config: Settings = Settings()
    stop: Stop = Stop()

    def to_yaml(self) -> str:
        """Returns the experiment file that gives this experiment again."""
        return yaml.safe_dump(json.loads(self.model_dump_json(exclude_unset=True)), sort_keys=False)


@dataclass(frozen=True)
class LoadedExperiment:
    """An experiment and what had to be translated to read it."""

    experiment: Experiment
    notes: list[str]


def parse_experiment(raw: dict[str, Any], source: str = "experiment") -> LoadedExperiment:
    """Checks and translates an experiment given as plain data.

    Raises:
        UserError: Unknown key, wrong type or value, unknown environment.
    """
    if not isinstance(raw, dict):
        raise UserError(f"{source}: {raw!r} is not a mapping with run, env, config, stop")
    for section in ("config", "stop"):
        if not isinstance(raw.get(section, {}), dict):
            raise UserError(f"{section}: {raw[section]!r} is not a mapping of settings")
    config, notes = translate_config(raw.get("config", {}))
    stop, stop_notes = translate_stop(raw.get("stop", {}))
    try:
        experiment = Experiment.model_validate({**raw, "config": config, "stop": stop})
    except ValidationError as error:
        raise UserError(_one_line(error)) from None
    _check_env(experiment.env)
    return LoadedExperiment(experiment, notes + stop_notes)


def read_experiment_file(path: Path) -> dict[str, Any]:
    """Reads an experiment file (YAML; JSON is YAML).

    A file of `rllib train`, {name: {run, env, ...}}, is understood as well.

    Raises:
        UserError: The file cannot be read or is no experiment.
    """
    try:
        raw = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: is no YAML: {' '.join(str(error).split())}") from None
    if isinstance(raw, dict) and len(raw) == 1:
        (inner,) = raw.values()
        if isinstance(inner, dict) and ("run" in inner or "env" in inner):
            raw = inner
    if not isinstance(raw, dict):
        raise UserError(f"{path}: is no mapping with run, env, config, stop")
    return raw


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    if not path or first["type"] == "value_error":
        return first["msg"].removeprefix("Value error, ")
    # A union's members (a number or a schedule) stand behind the key's own name.
    models: dict[str, type[BaseModel]] = {"config": Settings, "stop": Stop}
    model = models.get(path[0], Experiment)
    depth = 2 if path[0] in models else 1
    key = ".".join(path[:depth])
    if first["type"] == "extra_forbidden":
        known = list(model.model_fields)
        return f"{key}: unknown key{nearest(path[depth - 1], known)}; known: {', '.join(known)}"
    value = error.errors()[0]["input"]
    if model is Settings and path[-1] in ("lr", "entropy_coeff", "float") and len(path) > depth:
        return f"{key}: {value!r} is neither a number nor a list of [steps, value]"
    return f"{key}: {value!r}: {first['msg'].lower()}"


def _check_env(env_id: str) -> None:
    try:
        gymnasium.spec(env_id)
    except gymnasium.error.Error:
        known = nearest(env_id, gymnasium.registry)
        raise UserError(f"env: {env_id}: no such Gymnasium environment{known}") from None
