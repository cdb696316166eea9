"""An experiment, typed: run, env, config, stop, in the words of `rllib train`."""

from __future__ import annotations

from typing import Any, Literal, get_args

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
from payload.experiment.machine_needs import MachineNeeds
from payload.experiment.ppo_dqn_sac_settings import DQNSettings, PPOSettings, SACSettings
from payload.experiment.pqn_settings import PQNSettings
from payload.experiment.search_space import SearchSpace
from payload.experiment.settings_of_every_algorithm import STRICT, AlgorithmSettings

Algorithm = Literal["IMPALA", "APPO", "PQN", "PPO", "DQN", "SAC"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
SETTINGS: dict[Algorithm, type[AlgorithmSettings]] = {
    "IMPALA": ImpalaSettings,
    "APPO": ImpalaSettings,
    "PQN": PQNSettings,
    "PPO": PPOSettings,
    "DQN": DQNSettings,
    "SAC": SACSettings,
}
EPISODE_RETURN_MEAN = "env_runners/episode_return_mean"
"""Where RLlib's result has it, and by what Tune's `stop` and MLflow know it."""
EVALUATION_RETURN_MEAN = f"evaluation/{EPISODE_RETURN_MEAN}"
EPISODE_LEN_MEAN = "env_runners/episode_len_mean"
INFO_MEAN = "env_runners/info/"
"""Before the name of a number of `info_metrics`."""
NUM_EPISODES_LIFETIME = "env_runners/num_episodes_lifetime"
DEFAULT_TIME_TOTAL_S = 3600.0
"""Time limit of a run without any stop criterion."""


class Stop(BaseModel):
    """When training ends: whichever criterion is met first. Without any, after an hour."""

    model_config = ConfigDict(**STRICT, validate_by_name=True, validate_by_alias=True)

    episode_return_mean: float | None = Field(None, alias=EPISODE_RETURN_MEAN)
    """Mean return of the last 100 episodes is at least this; it needs 100 episodes."""
    evaluation_return_mean: float | None = Field(None, alias=EVALUATION_RETURN_MEAN)
    """Mean return of an evaluation's episodes is at least this; it needs evaluation_interval."""
    episode_len_mean: float | None = Field(None, gt=0, alias=EPISODE_LEN_MEAN)
    """Mean length of the last 100 episodes, in environment steps, is at least this; it needs 100
    episodes."""
    info: dict[str, float] = Field({}, alias=INFO_MEAN.rstrip("/"))
    """The mean of one of the `info_metrics` over the last 100 episodes is at least this; it needs
    100 episodes. Example: `env_runners/info/success: 0.9`."""
    time_total_s: float | None = Field(None, gt=0)
    """Seconds of training, including those before a resume: a number, or `1h30m`."""
    num_env_steps_sampled_lifetime: int | None = Field(None, gt=0)
    """Environment steps sampled."""
    num_episodes_lifetime: int | None = Field(None, gt=0, alias=NUM_EPISODES_LIFETIME)
    """Episodes finished."""
    training_iteration: int | None = Field(None, gt=0)
    """Iterations of the training loop."""

    @property
    def only_time(self) -> bool:
        """Whether time is the only limit; a goal is not a limit."""
        others = self.num_env_steps_sampled_lifetime, self.num_episodes_lifetime
        return self.time_total_s is not None and not any((*others, self.training_iteration))


class Experiment(MachineNeeds):
    """One experiment, as an experiment file or the command line gives it."""

    run: Algorithm = "IMPALA"
    """The algorithm."""
    env: str = "PongNoFrameskip-v4"
    """A Gymnasium id, or "package:EnvId-v0" with the package that registers it."""
    config: SerializeAsAny[AlgorithmSettings] = ImpalaSettings()
    """Settings of the algorithm."""
    stop: Stop = Stop()
    """Training ends when the first criterion is met; without any, after an hour."""
    run_under: str | None = Field(None, min_length=1)
    """A command that runs the env runners' Python: "xvfb-run -a" for a simulator with a window."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Tags of the MLflow run."""
    notes: str | None = None
    """The description on the page of the MLflow run."""
    experiment_name: str | None = Field(None, min_length=1)
    """The run's experiment in MLflow (default: MLFLOW_EXPERIMENT_NAME, or `volley`)."""
    tensorboard: bool = False
    """Write the metrics to TensorBoard event files too, in the run's folder."""
    wandb: str | None = Field(None, min_length=1)
    """A project of Weights & Biases that gets the metrics too; needs the package wandb."""
    # A search
    num_samples: int | None = Field(None, ge=1)
    """Settings that `tune` draws, times the combinations of a grid."""
    metric: str | None = None
    """What `tune` maximizes: a mean return, the length of episodes, or
    `env_runners/info/NAME`. Default: `env_runners/episode_return_mean`."""
    num_seeds: int | None = Field(None, ge=1)
    """Number of trainings of each setting, also for `train`."""
    _search: dict[str, SearchSpace] = PrivateAttr(default_factory=dict)

    @property
    def search(self) -> dict[str, SearchSpace]:
        """Settings of `config` that `tune` searches; `config` has a value of each."""
        return self._search

    @property
    def search_metric(self) -> str:
        return self.metric or EPISODE_RETURN_MEAN

    @property
    def has_trials(self) -> bool:
        """Whether it is several trainings: a search, or several seeds."""
        return bool(self._search) or (self.num_seeds or 1) > 1

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
