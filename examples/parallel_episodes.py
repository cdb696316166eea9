"""Plays episodes in Ray tasks, on as many machines as the cluster makes for them.

volley run examples/parallel_episodes.py -- --tasks 4 --seconds 5
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import mlflow
import ray


class Scores:
    """Collects the returns of all tasks."""

    def __init__(self) -> None:
        self.returns: list[float] = []

    def add(self, episode_return: float) -> None:
        self.returns.append(episode_return)

    def all(self) -> list[float]:
        return self.returns


@ray.remote(num_cpus=1)
def play(seed: int, seconds: float, scores: Any) -> str:
    """Plays CartPole at random for some seconds; returns the address of its machine."""
    env = gymnasium.make("CartPole-v1")
    env.action_space.seed(seed)
    end, added = time.monotonic() + seconds, []
    while time.monotonic() < end:
        env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, over = total + float(reward), terminated or truncated
        added.append(scores.add.remote(total))
        time.sleep(0.1)
    ray.get(added)  # Only here: a task that waits gives its CPU to another one.
    return str(ray.util.get_node_ip_address())


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()

    ray.init()
    scores = ray.remote(num_cpus=0)(Scores).remote()
    # Ray's autoscaler makes workers for tasks that wait for a CPU.
    tasks = [play.remote(seed, options.seconds, scores) for seed in range(options.tasks)]
    machines = ray.get(tasks)
    returns = ray.get(scores.all.remote())
    answer = {
        "machines": {name: machines.count(name) for name in sorted(set(machines))},
        "episodes": len(returns),
        "mean_return": sum(returns) / len(returns),
    }
    with mlflow.start_run(run_name="parallel episodes"):
        mlflow.log_metrics({"machines": len(answer["machines"]), "episodes": len(returns)})
    Path(os.environ["VOLLEY_RESULTS"], "answer.json").write_text(json.dumps(answer))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
