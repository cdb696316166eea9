"""An experiment, typed: run, env, config, stop, in the words of `rllib train`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
)

from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.ppo_dqn_sac_settings import DQNSettings, PPOSettings, SACSettings
from payload.experiment.search_space import SearchSpace
from payload.experiment.settings_of_every_algorithm import STRICT, AlgorithmSettings

Algorithm = Literal["IMPALA", "APPO", "PPO", "DQN", "SAC"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
SETTINGS: dict[Algorithm, type[AlgorithmSettings]] = {
    "IMPALA": ImpalaSettings,
    "APPO": ImpalaSettings,
    "PPO": PPOSettings,
    "DQN": DQNSettings,
    "SAC": SACSettings,
}
EPISODE_RETURN_MEAN = "env_runners/episode_return_mean"
"""Where RLlib's result has it, and by what Tune's `stop` and MLflow know it."""
EVALUATION_RETURN_MEAN = f"evaluation/{EPISODE_RETURN_MEAN}"
DEFAULT_TIME_TOTAL_S = 3600.0
"""Time limit of a run without any stop criterion."""


class Stop(BaseModel):
    """When training ends: whichever criterion is met first. Without any, after an hour."""

    model_config = ConfigDict(**STRICT, validate_by_name=True, validate_by_alias=True)

    episode_return_mean: float | None = Field(None, alias=EPISODE_RETURN_MEAN)
    """Mean return of the last 100 episodes is at least this; it needs 100 episodes."""
    evaluation_return_mean: float | None = Field(None, alias=EVALUATION_RETURN_MEAN)
    """Mean return of an evaluation's episodes is at least this; it needs evaluation_interval."""
    time_total_s: float | None = Field(None, gt=0)
    """Seconds of training, including those before a resume."""
    num_env_steps_sampled_lifetime: int | None = Field(None, gt=0)
    """Environment steps sampled."""
    training_iteration: int | None = Field(None, gt=0)
    """Iterations of the training loop."""


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
    """The algorithm."""
    env: str = "PongNoFrameskip-v4"
    """A Gymnasium id, or "package:EnvId-v0" with the package that registers it."""
    config: SerializeAsAny[AlgorithmSettings] = ImpalaSettings()
    """Settings of the algorithm."""
    stop: Stop = Stop()
    """Training ends when the first criterion is met; without any, after an hour."""
    # What the environment needs
    source_directory: str | None = None
    """A folder from which Python imports, on every machine."""
    pip_packages: list[_Package] = []
    """Packages of PyPI to install beside volley's own."""
    pip_requirements_file: str | None = None
    """A requirements file with more of them."""
    environment_variables: dict[_Name, str] = {}
    """Environment variables of every process of the run."""
    inputs: dict[_Name, str] = {}
    """Folders to read, by name; the environment finds each one at VOLLEY_INPUT_<NAME>."""
    apt_packages: list[_Package] = []
    """Packages of Ubuntu that every machine must have. On a cluster of volley they are added to the
    stack's own."""
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
        experiment = self.model_copy()
        experiment._search = search
        return experiment

    def setting(self, values: dict[str, Any]) -> Experiment:
        """Returns the experiment with values instead of its search spaces.

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
    paths = {f"inputs.{name}": folder for name, folder in experiment.inputs.items()}
    if experiment.source_directory is not None:
        paths["source_directory"] = experiment.source_directory
    if experiment.pip_requirements_file is not None:
        paths["pip_requirements_file"] = experiment.pip_requirements_file
    return paths


def in_bytes(size: str) -> int:
    """Returns the bytes of a size as `docker run --shm-size` takes it: 64m, 2g."""
    number, unit = size.rstrip("bkmgBKMG"), size[-1].lower()
    return int(number) * {"k": 2**10, "m": 2**20, "g": 2**30}.get(unit, 1)
