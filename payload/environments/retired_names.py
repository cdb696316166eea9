"""Names of older scripts, and what stands for each today."""

import re

SUCCESSORS = {
    "gym": "gym is Gymnasium today: import gymnasium as gym; reset returns (observation, info), "
    "step five values",
    "ray.rllib.agents": "ray.rllib.agents is ray.rllib.algorithms today: PPOTrainer(config) is "
    "PPOConfig().build_algo()",
    "ray.rllib.contrib": "ray.rllib.contrib was removed; the rest of it is in ray.rllib.algorithms",
    "ray.rllib.train": "rllib train was removed: volley train takes its YAML files; in Python, "
    "config.build_algo().train() or ray.tune.Tuner",
    "ray.rllib.rollout": "rllib rollout was removed: volley evaluate plays a checkpoint",
    "ray.rllib.env.atari_wrappers": "it is ray.rllib.env.wrappers.atari_wrappers today",
    "ray.rllib.evaluation.episode": "it is ray.rllib.env.single_agent_episode today",
    "ray.rllib.examples.models": "old-stack models were removed: subclass TorchRLModule "
    "(ray.rllib.core.rl_module.torch)",
    "ray.tune.integration.mlflow": "it is ray.air.integrations.mlflow today",
    "ray.tune.integration.wandb": "it is ray.air.integrations.wandb today",
    "ray.tune.suggest": "ray.tune.suggest is ray.tune.search today",
    "ray.tune.track": "ray.tune.track.log(x=1) is ray.tune.report({'x': 1}) today",
    "azureml": "a run of Azure ML is an MLflow run here: Run.get_context().log(name, value) is "
    "mlflow.log_metric(name, value)",
    "tensorflow": "RLlib trains with PyTorch today; for code of your own add tensorflow to "
    "pip_packages",
}
FROM_MODULE = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def successor(error: BaseException) -> str:
    """Returns what stands for the name that an import error misses; empty if nothing is known."""
    if not isinstance(error, ImportError):
        return ""
    missing = error.name or ""
    if match := FROM_MODULE.match(str(error)):
        missing = f"{match[2]}.{match[1]}"
    parts = missing.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((SUCCESSORS[name] for name in names if name in SUCCESSORS), "")
