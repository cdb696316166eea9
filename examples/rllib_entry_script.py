"""Trains an RLlib algorithm and logs to MLflow, with the options of Azure ML's examples.

    volley run examples/rllib_entry_script.py -- --run PPO --env CartPole-v1 \
        --config '{"lr": 0.0003}' --stop '{"env_runners/episode_return_mean": 150}'
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import mlflow
import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.tune.registry import get_trainable_cls
from ray.tune.utils import flatten_dict

METRICS = ("env_runners/episode_return_mean", "env_runners/episode_len_mean", "time_total_s")
STEPS = "num_env_steps_sampled_lifetime"


class LogToMLflow(RLlibCallback):
    """Logs each iteration; RLlib calls it in this process."""

    def on_train_result(self, *, algorithm: Algorithm, result: dict[str, Any], **_: Any) -> None:
        flat = flatten_dict(result)
        values = {name: flat[name] for name in METRICS if name in flat}
        mlflow.log_metrics(values, step=int(flat.get(STEPS, 0)))


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--run", default="IMPALA")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--config", type=json.loads, default={})
    parser.add_argument("--stop", type=json.loads, default={"time_total_s": 60})
    options = parser.parse_args()

    ray.init()
    config = get_trainable_cls(options.run).get_default_config().environment(options.env)
    config.update_from_dict(options.config)
    config.callbacks(LogToMLflow)
    with mlflow.start_run(run_name=f"{options.run} {options.env}"):
        mlflow.log_params({"run": options.run, "env": options.env, **options.config})
        algorithm = config.build_algo()
        reached = False
        while not reached:
            result = flatten_dict(algorithm.train())
            print({name: result.get(name) for name in METRICS}, flush=True)
            reached = any(result.get(name, -1e9) >= limit for name, limit in options.stop.items())
        algorithm.save_to_path(Path(os.environ["VOLLEY_RESULTS"], "checkpoint"))


if __name__ == "__main__":
    main()
