"""Searches the settings of tabular Q-learning on FrozenLake with Ray Tune and ASHA.

volley run examples/tune_asha.py -- --samples 8
"""

import argparse
import os
from typing import Any

import gymnasium
import mlflow
import numpy as np
from ray import tune
from ray.tune.schedulers import ASHAScheduler

EPISODES = 500
"""For each report to Tune."""
REPORTS = 20


def learn(settings: dict[str, float]) -> None:
    """A trial; it runs on any machine of the cluster, and reports to Tune."""
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    random = np.random.default_rng(0)
    values = np.zeros((16, 4))
    for _ in range(REPORTS):
        arrived = sum(_episode(env, values, random, settings) for _ in range(EPISODES))
        tune.report({"success": arrived / EPISODES})


def _episode(
    env: gymnasium.Env[Any, Any],
    values: np.ndarray,
    random: np.random.Generator,
    settings: dict[str, float],
) -> float:
    place, over, total = env.reset(seed=int(random.integers(2**31)))[0], False, 0.0
    while not over:
        explores = random.random() < settings["epsilon"] or not values[place].any()
        action = int(random.integers(4)) if explores else int(values[place].argmax())
        after, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        target = float(reward) + 0.95 * values[after].max()
        values[place, action] += settings["lr"] * (target - values[place, action])
        place, over = after, terminated or truncated
    return total


class LogToMLflow(tune.Callback):
    """Makes an MLflow run of each trial when it ends; Tune calls it in this process."""

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
        with mlflow.start_run(run_name=f"trial {trial.trial_id}"):
            mlflow.log_params(trial.config)
            mlflow.log_metric("success", trial.last_result["success"])


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--samples", type=int, default=8)
    options = parser.parse_args()

    tuner = tune.Tuner(
        learn,
        param_space={"lr": tune.loguniform(0.01, 1.0), "epsilon": tune.uniform(0.05, 0.5)},
        tune_config=tune.TuneConfig(
            metric="success",
            mode="max",
            num_samples=options.samples,
            scheduler=ASHAScheduler(max_t=REPORTS, grace_period=2),
        ),
        run_config=tune.RunConfig(
            name="search",
            storage_path=os.environ["VOLLEY_RESULTS"],
            callbacks=[LogToMLflow()],
            verbose=1,
        ),
    )
    best = tuner.fit().get_best_result()
    assert best.metrics is not None
    print(f"best: {best.config} with success {best.metrics['success']:.2f}")


if __name__ == "__main__":
    main()
