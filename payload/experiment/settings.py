"""An experiment, typed: run, env, config, stop, in the words of `rllib train`.

What a setting is when it is not given stands beside the setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)

from payload.experiment.common_settings import (
    STRICT,
    AtariOnly,
    ByEnvironment,
    CommonSettings,
    EpsilonGreedySettings,
    LSTMSettings,
    Schedule,
)
from payload.experiment.scale import LAPTOP, Scale, scale_of
from payload.experiment.search_space import SearchSpace
from payload.experiment.standard_settings import DQNSettings, PPOSettings, SACSettings

Algorithm = Literal["IMPALA", "APPO", "PPO", "DQN", "SAC"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


@dataclass(frozen=True)
class ByAlgorithm:
    """A default that each algorithm has for itself."""

    impala: Any
    appo: Any


class Settings(LSTMSettings, EpsilonGreedySettings):
    """What `config` of IMPALA and APPO may contain."""

    # Env runners
    num_envs_per_env_runner: int = Field(LAPTOP.num_envs_per_env_runner, ge=1)
    """On Atari games the sizes and lr follow the number of env runners; see scale.py."""
    rollout_fragment_length: int = Field(LAPTOP.rollout_fragment_length, ge=2)
    """T: steps of each environment in one rollout fragment."""
    max_requests_in_flight_per_env_runner: int = Field(2, ge=1)
    # Preprocessing
    image_size: Annotated[int, AtariOnly] = Field(42, ge=32, le=210)
    image_width: Annotated[int | None, AtariOnly] = Field(None, ge=32, le=160)
    """Default: image_size. 40 beside a height of 42 divides a game's 160 x 210 pixels evenly, which
    the emulator scales faster, but Pong took more environment steps in four of five runs."""
    end_return_at_lost_life: Annotated[bool, AtariOnly] = True
    # Learners
    train_batch_size_per_learner: int | None = Field(None, ge=1)
    """Environment steps, rounded up to whole rollout fragments. Default: as many fragments as the
    scale says, shared by the learners."""
    minibatch_size: int | None = Field(None, ge=1)
    """Environment steps of one gradient step, a multiple of rollout_fragment_length. Default:
    MINIBATCH_STEPS, times the scale, shared by the learners; elsewhere than on Atari games the
    whole train batch."""
    num_epochs: Annotated[int | None, ByAlgorithm(impala=1, appo=3)] = Field(None, ge=1)
    """Passes over a train batch."""
    replay_proportion: Annotated[int, AtariOnly] = Field(0, ge=0)
    """Train batches replayed for each new one."""
    replay_buffer_num_slots: Annotated[int, AtariOnly] = Field(16, ge=1)
    """Train batches that a learner keeps for that."""
    learner_queue_size: int = Field(1, ge=1)
    broadcast_interval: int = Field(1, ge=1)
    # Loss and optimizer. Elsewhere than on Atari games lr and the coefficients are RLlib's own.
    lr: Annotated[
        Schedule | None, ByEnvironment(atari=ByAlgorithm(impala=1e-3, appo=5e-4), other=5e-4)
    ] = None
    anneal_lr: Annotated[bool | None, AtariOnly] = None
    """Whether lr falls to 0 on the way to the stop criterion of time, steps or iterations. Default:
    where lr is not given."""
    lr_at_goal: Annotated[float | None, AtariOnly] = Field(None, gt=0)
    """What lr, a number, is annealed to on the way to the stop criterion, most of it near it.
    Default: none."""
    lambda_: Annotated[float, AtariOnly] = Field(0.95, ge=0, le=1)
    normalize_advantages: Annotated[bool, AtariOnly] = True
    vf_loss_coeff: Annotated[
        float | None, ByEnvironment(atari=ByAlgorithm(impala=4.0, appo=0.5), other=0.5)
    ] = Field(None, ge=0)
    """Values of Pong err by 0.1 or 0.2 where normalized advantages are about 1. With 0.5 and one
    pass they learn so slowly that some runs stand still for half a million environment steps."""
    entropy_coeff: Annotated[
        Schedule | None, ByEnvironment(atari=ByAlgorithm(impala=0.0, appo=0.01), other=0.01)
    ] = None
    anneal_entropy_coeff: Annotated[bool | None, AtariOnly] = None
    """Whether entropy_coeff falls to 0 as lr does. Default: where entropy_coeff is not given."""
    final_temperature: Annotated[
        float | None, AtariOnly, ByEnvironment(atari=ByAlgorithm(impala=1.0, appo=0.4))
    ] = Field(None, gt=0)
    """Env runners sample from softmax(logits / temperature). The temperature falls from 1 to this
    value on the way to the stop criterion of time, steps or iterations, most of it at the end."""
    uniform_kl_coeff: Annotated[
        float | None, AtariOnly, ByEnvironment(atari=ByAlgorithm(impala=0.03, appo=0.0))
    ] = Field(None, ge=0)
    """Weight of KL(uniform || policy), which keeps every action alive. Pong without sticky actions
    is deterministic, and a policy that becomes so early stays in one losing cycle; an entropy bonus
    gives up an action that has become unlikely. Default: 0 where entropy_coeff is given."""
    uniform_kl_coeff_at_goal: Annotated[
        float | None, AtariOnly, ByAlgorithm(impala=0.004, appo=None)
    ] = Field(None, gt=0)
    """What uniform_kl_coeff is annealed to, near a return goal or as time, steps or iterations
    pass. Default: none, a constant, where uniform_kl_coeff is given."""
    grad_clip: float | None = Field(0.5, gt=0)
    """Largest global norm of a gradient."""
    clip_param: Annotated[float | None, ByEnvironment(atari=0.1, other=0.2)] = Field(None, gt=0)
    """APPO's clip of the probability ratio; IMPALA clips nothing."""
    vtrace_clip_rho_threshold: float = Field(1.0, gt=0)
    vtrace_clip_pg_rho_threshold: float = Field(1.0, gt=0)
    network: Annotated[Literal["small", "fine", "nature", "impala"], AtariOnly] = "small"
    """Convolutions: two, two with a smaller first stride, the three of Mnih et al. (2015), or the
    residual ones of IMPALA."""
    fcnet_hidden: Annotated[int, AtariOnly] = Field(256, ge=1)
    """Units of the layer after the convolutions."""

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

    @model_validator(mode="after")
    def _lr_can_be_annealed(self) -> Settings:
        unfit = self.lr is not None and (isinstance(self.lr, list) or self.lr <= 0)
        if self.lr_at_goal is not None and unfit:
            raise ValueError(
                f"config.lr_at_goal: {self.lr_at_goal:g} needs an lr that is a positive number"
            )
        return self


SETTINGS: dict[Algorithm, type[CommonSettings]] = {
    "IMPALA": Settings,
    "APPO": Settings,
    "PPO": PPOSettings,
    "DQN": DQNSettings,
    "SAC": SACSettings,
}
MINIBATCH_STEPS: dict[Algorithm, int] = {"IMPALA": 128, "APPO": 256}
"""About so many in a gradient step: a plain policy gradient learns faster from many small ones."""
TRAJECTORY_SIZES = frozenset(
    {"num_envs_per_env_runner", "rollout_fragment_length", "minibatch_size"}
)
EPISODE_RETURN_MEAN = "env_runners/episode_return_mean"
"""Where RLlib's result has it, and by what Tune's `stop` and MLflow know it."""
EVALUATION_RETURN_MEAN = f"evaluation/{EPISODE_RETURN_MEAN}"
DEFAULT_TIME_TOTAL_S = 3600.0
"""Of a run without any stop criterion."""


class Stop(BaseModel):
    """When training ends: whichever criterion is met first. Without any, after an hour."""

    model_config = ConfigDict(**STRICT, validate_by_name=True, validate_by_alias=True)

    episode_return_mean: float | None = Field(None, alias=EPISODE_RETURN_MEAN)
    """Mean return of the last 100 episodes."""
    evaluation_return_mean: float | None = Field(None, alias=EVALUATION_RETURN_MEAN)
    """Mean return of an evaluation's episodes."""
    time_total_s: float | None = Field(None, gt=0)
    """Seconds of training, those before a resume included."""
    num_env_steps_sampled_lifetime: int | None = Field(None, gt=0)
    """Environment steps sampled."""
    training_iteration: int | None = Field(None, gt=0)


_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Package = Annotated[str, Field(pattern=r"^[A-Za-z0-9]")]
"""Nothing that apt or uv would take for an option."""


class Experiment(BaseModel):
    """One experiment, as an experiment file or the command line gives it.

    Folders and files are relative to the experiment file.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )

    run: Algorithm = "IMPALA"
    env: str = "PongNoFrameskip-v4"
    """A Gymnasium id, or "package:EnvId-v0" with the package that registers it."""
    config: SerializeAsAny[CommonSettings] = Settings()
    """Of the algorithm's class in SETTINGS."""
    stop: Stop = Stop()
    # What the environment needs
    source_directory: str | None = None
    """A folder from which Python imports, on every machine."""
    pip_packages: list[_Package] = []
    pip_requirements_file: str | None = None
    environment_variables: dict[_Name, str] = {}
    inputs: dict[_Name, str] = {}
    """Folders to read, by name; the environment finds each one at VOLLEY_INPUT_<NAME>."""
    apt_packages: list[_Package] = []
    """On a cluster of volley they are added to the stack's own."""
    shm_size: str | None = Field(None, pattern=r"^[0-9]+[bkmgBKMG]?$")
    """Shared memory, as `docker run --shm-size` takes it: 64m, 2g."""
    run_under: str | None = Field(None, min_length=1)
    """A command that runs the env runners' Python: "xvfb-run -a" for a simulator with a window."""
    # A search
    num_samples: int | None = Field(None, ge=1)
    """Settings that `tune` draws, times the combinations of a grid."""
    num_seeds: int | None = Field(None, ge=1)
    """Trials of each setting."""
    _search: dict[str, SearchSpace] = PrivateAttr(default_factory=dict)

    @property
    def search(self) -> dict[str, SearchSpace]:
        """Settings of `config` that `tune` searches; `config` has a value of each."""
        return self._search

    def searching(self, search: dict[str, SearchSpace]) -> Experiment:
        """Returns the experiment with a search over settings of `config`."""
        found = self.model_copy()
        found._search = search
        return found

    def setting(self, values: dict[str, Any]) -> Experiment:
        """Returns the experiment with values in the place of its search space.

        Raises:
            pydantic.ValidationError: The values do not go together.
        """
        keys = self.model_fields_set - {"num_samples", "num_seeds", "config"}
        config = self.config.model_dump(exclude_unset=True) | values
        given = {key: getattr(self, key) for key in keys}
        return Experiment(**given, config=SETTINGS[self.run].model_validate(config))

    @field_validator("config", mode="before")
    @classmethod
    def _of_the_algorithm(cls, config: Any, info: ValidationInfo) -> Any:
        settings = SETTINGS[info.data.get("run", "IMPALA")]
        return settings.model_validate(config) if isinstance(config, dict) else config


LEFT_OUT = frozenset(
    {"__pycache__", ".git", ".venv", "venv"}
    | {"results", ".packages", ".inputs"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Names of files and folders that stay behind when a folder travels."""
MAX_TRAVEL_BYTES = 512 * 2**20
"""Ray refuses a larger package (GCS_STORAGE_MAX_SIZE)."""


def named_paths(experiment: Experiment) -> dict[str, str]:
    """Returns every folder and file that an experiment names, by its key."""
    found = {f"inputs.{name}": folder for name, folder in experiment.inputs.items()}
    if experiment.source_directory is not None:
        found["source_directory"] = experiment.source_directory
    if experiment.pip_requirements_file is not None:
        found["pip_requirements_file"] = experiment.pip_requirements_file
    return found


def in_bytes(size: str) -> int:
    """Returns the bytes of a size as `docker run --shm-size` takes it: 64m, 2g."""
    number, unit = size.rstrip("bkmgBKMG"), size[-1].lower()
    return int(number) * {"k": 2**10, "m": 2**20, "g": 2**30}.get(unit, 1)


def with_defaults(
    experiment: Experiment, atari: bool, num_env_runners: int | None = None
) -> CommonSettings:
    """Returns the experiment's settings with every default filled in.

    Args:
        atari: Whether the environment takes the Atari fast path.
        num_env_runners: What `placement.place` returned; None leaves the setting as it is.
    """
    given = experiment.config
    filled: dict[str, Any] = {}
    if num_env_runners is not None:
        filled["num_env_runners"] = num_env_runners
    for name, field in type(given).model_fields.items():
        if getattr(given, name) is not None:
            continue
        for default in field.metadata:
            if isinstance(default, ByEnvironment | ByAlgorithm):
                filled[name] = _default_for(default, experiment.run, atari)
    if isinstance(given, Settings):
        scale = scale_of(num_env_runners or 0) if atari else LAPTOP
        filled |= _scaled(given, MINIBATCH_STEPS[experiment.run] if atari else None, scale)
        if atari:
            filled["image_width"] = given.image_width or given.image_size
        for anneal, value in ("anneal_lr", given.lr), ("anneal_entropy_coeff", given.entropy_coeff):
            if getattr(given, anneal) is None:
                filled[anneal] = atari and value is None
        if given.lr is None:
            filled["lr"] *= scale.lr_factor
        if given.entropy_coeff is not None:
            filled["uniform_kl_coeff"] = given.uniform_kl_coeff or 0.0
        if given.uniform_kl_coeff is not None:
            filled.pop("uniform_kl_coeff_at_goal", None)
    return given.model_copy(update=filled)


def _default_for(default: Any, run: Algorithm, atari: bool) -> Any:
    if isinstance(default, ByEnvironment):
        return _default_for(default.atari if atari else default.other, run, atari)
    return getattr(default, run.lower()) if isinstance(default, ByAlgorithm) else default


def _scaled(given: Settings, minibatch_steps: int | None, scale: Scale) -> dict[str, Any]:
    """Returns the sizes of IMPALA and APPO.

    Where one of TRAJECTORY_SIZES is given, games and fragment length do not follow the scale.

    Args:
        minibatch_steps: Of a laptop's minibatch; None for the whole train batch.
    """
    filled: dict[str, Any] = {}
    if not given.model_fields_set & TRAJECTORY_SIZES:
        filled["num_envs_per_env_runner"] = scale.num_envs_per_env_runner
        filled["rollout_fragment_length"] = scale.rollout_fragment_length
    sizes = given.model_copy(update=filled)
    learners = max(1, given.num_learners)
    if given.minibatch_size is None and minibatch_steps is not None:
        length = sizes.rollout_fragment_length
        rows = max(1, round(minibatch_steps * scale.factor / learners / length))
        filled["minibatch_size"] = rows * length
    # RLlib collects whole fragments for all learners together and then divides them: one with fewer
    # fragments than another would halt both.
    fragments = max(1, scale.factor // learners)
    if given.train_batch_size_per_learner is not None:
        fragments = -(-given.train_batch_size_per_learner // sizes.fragment_steps)
    filled["train_batch_size_per_learner"] = fragments * sizes.fragment_steps
    return filled


def notes_on_defaults(experiment: Experiment, atari: bool) -> list[str]:
    """Returns a line for each given setting that has no effect, or not the one that was asked."""
    given = experiment.config
    asked = given.train_batch_size_per_learner
    size = with_defaults(experiment, atari).train_batch_size_per_learner
    notes = []
    if given.evaluation_interval is None:
        notes += [
            f"config.{name} is ignored: evaluation_interval is not set"
            for name in ("evaluation_duration", "evaluation_num_env_runners")
            if name in given.model_fields_set
        ]
    if isinstance(given, Settings) and asked not in (None, size):
        notes.append(
            f"config.train_batch_size_per_learner is now {size}: "
            f"whole rollout fragments of {given.fragment_steps} environment steps"
        )
    if not atari:
        notes += [
            f"config.{name} is ignored: {experiment.env} is not an Atari game, "
            "RLlib's own env runner and learner train it"
            for name in for_atari_only(given)
        ]
    return notes


def for_atari_only(given: CommonSettings) -> list[str]:
    """Returns the given settings that have no effect on other environments."""
    fields = type(given).model_fields
    return [
        name
        for name, field in fields.items()
        if AtariOnly in field.metadata and name in given.model_fields_set
    ]
