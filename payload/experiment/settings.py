"""An experiment, typed: run, env, config, stop, in the words of `rllib train`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import ale_py
import gymnasium
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from payload.errors import UserError, nearest
from payload.experiment.old_names import (
    IGNORED_CONFIG,
    IGNORED_MODEL,
    RENAMED_CONFIG,
    RENAMED_MODEL,
    RENAMED_STOP,
    translate_config,
    translate_stop,
)

gymnasium.register_envs(ale_py)


class _Loader(yaml.SafeLoader):
    """Reads 5e-5 as a number, as YAML 1.2 and JSON do; YAML 1.1 wants 5.0e-5."""


class _Dumper(yaml.SafeDumper):
    """Quotes text that _Loader would take for a number."""


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )

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


class Settings(BaseModel):
    """What `config` may contain; RLlib's names where RLlib has the setting."""

    model_config = _STRICT

    # Env runners
    num_env_runners: int | None = Field(None, ge=0)
    """Default: one for each CPU of the cluster that no learner takes."""
    num_envs_per_env_runner: int = Field(32, ge=1)
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
    """Agent steps, filled up to whole fragments. Default: one fragment, num_envs_per_env_runner *
    rollout_fragment_length."""
    minibatch_size: int | None = Field(None, ge=1)
    """Steps of one gradient step, a multiple of rollout_fragment_length. Default: 4 (IMPALA) or
    8 (APPO) fragments of one environment."""
    num_epochs: int | None = Field(None, ge=1)
    """Passes over a train batch. Default: 1 (IMPALA), 2 (APPO)."""
    learner_queue_size: int = Field(1, ge=1)
    broadcast_interval: int = Field(1, ge=1)
    # Loss and optimizer
    lr: Schedule | None = None
    """Default: see defaults.py."""
    gamma: float = Field(0.99, ge=0, le=1)
    lambda_: float = Field(0.95, ge=0, le=1)
    normalize_advantages: bool = True
    vf_loss_coeff: float | None = Field(None, ge=0)
    """Default: see defaults.py."""
    entropy_coeff: Schedule | None = None
    """Keeps the policy random where nothing has been learnt yet. Default: see defaults.py."""
    uniform_kl_coeff: float | None = Field(None, ge=0)
    """Of KL(uniform || policy), which keeps every action alive. Default: see defaults.py; 0 where
    entropy_coeff was given."""
    uniform_kl_coeff_at_goal: float | None = Field(None, gt=0)
    """What uniform_kl_coeff falls to on the way to the stop criterion, most of it at the end of
    the way. Default: see defaults.py; None (constant) where uniform_kl_coeff was given."""
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

    model_config = _STRICT

    episode_return_mean: float | None = None
    """Mean return of the last 100 episodes."""
    time_total_s: float | None = Field(None, gt=0)
    """Seconds of training, those before a resume included."""
    num_env_steps_sampled_lifetime: int | None = Field(None, gt=0)
    """Agent steps sampled."""
    training_iteration: int | None = Field(None, gt=0)


class Experiment(BaseModel):
    """One experiment, as an experiment file or the command line gives it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )

    run: Literal["IMPALA", "APPO"] = "IMPALA"
    env: str = "PongNoFrameskip-v4"
    config: Settings = Settings()
    stop: Stop = Stop()

    def to_yaml(self) -> str:
        """Returns the experiment file that gives this experiment again."""
        values = json.loads(self.model_dump_json(exclude_unset=True))
        text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False)
        return text


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
    # A section left empty in a file is None.
    raw = {key: value for key, value in raw.items() if value is not None}
    for section in ("config", "stop"):
        if not isinstance(raw.get(section, {}), dict):
            raise UserError(f"{section}: {raw[section]!r} is not a mapping of settings")
    config, notes = translate_config(raw.get("config", {}))
    stop, stop_notes = translate_stop(raw.get("stop", {}))
    try:
        experiment = Experiment.model_validate({**raw, "config": config, "stop": stop})
    except ValidationError as error:
        raise UserError(_one_line(error, raw)) from None
    _check_env(experiment.env)
    return LoadedExperiment(experiment, notes + stop_notes)


def read_experiment_file(path: Path) -> dict[str, Any]:
    """Reads an experiment file (YAML; JSON is YAML).

    A file of `rllib train`, {name: {run, env, ...}}, is understood as well.

    Raises:
        UserError: The file cannot be read or is no experiment.
    """
    try:
        raw = yaml.load(path.read_text(), Loader=_Loader)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: is no YAML: {' '.join(str(error).split())}") from None
    if isinstance(raw, dict) and len(raw) == 1:
        (inner,) = raw.values()
        if isinstance(inner, dict) and ("run" in inner or "env" in inner):
            raw = inner
    if not isinstance(raw, dict):
        raise UserError(f"{path}: is no mapping with run, env, config, stop")
    return raw


def _one_line(error: ValidationError, raw: dict[str, Any]) -> str:
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
        meant = nearest(path[depth - 1], [*known, *_old_names(path)])
        return f"{key}: unknown key{meant}; known: {', '.join(known)}"
    value = first["input"]
    key = _name_given(key, raw)
    if model is Settings and path[-1] in ("lr", "entropy_coeff", "float") and len(path) > depth:
        return f"{key}: {value!r} is neither a number nor a list of [steps, value]"
    if model is Settings and path[1] in ("lr", "entropy_coeff"):
        return f"{key}: {value!r} is neither a number nor a list of [steps, value]"
    return f"{key}: {value!r}: {first['msg'][0].lower()}{first['msg'][1:]}"


def _old_names(path: list[str]) -> list[str]:
    if path[0] == "stop":
        return list(RENAMED_STOP)
    if path[-1].startswith("model."):
        return [f"model.{name}" for name in (*RENAMED_MODEL, *IGNORED_MODEL)]
    return [*RENAMED_CONFIG, *IGNORED_CONFIG] if path[0] == "config" else []


def _name_given(key: str, raw: dict[str, Any]) -> str:
    """Returns the name by which the person gave the setting."""
    section, _, name = key.partition(".")
    given = raw.get(section)
    if not isinstance(given, dict):
        return key
    for old, new in (RENAMED_CONFIG if section == "config" else RENAMED_STOP).items():
        if new == name and old in given:
            return f"{section}.{old}"
    model = given.get("model")
    for old, new in RENAMED_MODEL.items():
        if new == name and isinstance(model, dict) and old in model:
            return f"{section}.model.{old}"
    return key


def _check_env(env_id: str) -> None:
    try:
        gymnasium.spec(env_id)
    except gymnasium.error.Error:
        known = nearest(env_id, gymnasium.registry)
        raise UserError(f"env: {env_id}: no such Gymnasium environment{known}") from None
