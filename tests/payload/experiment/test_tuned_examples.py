"""Files as RLlib's tuned examples and Azure ML's notebooks have them: read, or refused in a line.

Each file is written here with the keys that those files have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from payload.environments.atari import game_of
from payload.errors import UserError
from payload.experiment.convert import convert
from payload.experiment.read import read_experiment


@dataclass(frozen=True)
class Example:
    text: str
    """What stands below the experiment's name."""
    env: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    """Settings that it has as an experiment."""
    refused: tuple[str, ...] = ()
    """Beginnings of what its line says; empty if it is read."""
    search: tuple[str, ...] = ()


SAC_PENDULUM = """
  env: Pendulum-v1
  run: SAC
  stop: {episode_reward_mean: -150, timesteps_total: 1e4}
  config:
    seed: 42
    framework: tf
    horizon: 200
    soft_horizon: false
    q_model_config: {fcnet_activation: relu, fcnet_hiddens: [256, 256]}
    policy_model_config: {fcnet_activation: relu, fcnet_hiddens: [256, 256]}
    tau: 0.005
    target_entropy: auto
    no_done_at_end: true
    n_step: 1
    rollout_fragment_length: 1
    prioritized_replay: false
    train_batch_size: 256
    target_network_update_freq: 1
    min_sample_timesteps_per_iteration: 1000
    learning_starts: 256
    optimization: {actor_learning_rate: 3e-4, critic_learning_rate: 3e-4}
    num_workers: 0
    num_gpus: 0
    metrics_smoothing_episodes: 5
"""
EXAMPLES = {
    "pendulum-sac": Example(
        SAC_PENDULUM,
        env="Pendulum-v1",
        config={
            "env_config": {"max_episode_steps": 200},
            "fcnet_hiddens": [256, 256],
            "fcnet_activation": "relu",
            "target_entropy": None,
            "rollout_fragment_length": 1,
            "prioritized_replay_alpha": 0.0,
            "num_steps_sampled_before_learning_starts": 256,
            "actor_lr": 3e-4,
            "num_learners": 0,
        },
    ),
    "pendulum-sac-n-step": Example(
        SAC_PENDULUM.replace("n_step: 1", "n_step: 3"),
        refused=("config.rollout_fragment_length: 1 is less than n_step (3)",),
    ),
    "pendulum-ppo": Example(
        """
  env: Pendulum-v0
  run: PPO
  config:
    framework: tf
    train_batch_size: 512
    lambda: 0.1
    sgd_minibatch_size: 64
    rollout_fragment_length: 200
    model: {fcnet_hiddens: [256, 256]}
    observation_filter: MeanStdFilter
""",
        env="Pendulum-v1",
        config={
            "fcnet_hiddens": [256, 256],
            "lambda_": 0.1,
            "minibatch_size": 64,
            "observation_filter": "MeanStdFilter",
        },
    ),
    "pong-dqn": Example(
        """
  env: PongDeterministic-v4
  run: DQN
  stop: {episode_reward_mean: 20, time_total_s: 7200}
  config:
    num_gpus: 0
    lr: .0001
    replay_buffer_config:
      type: MultiAgentPrioritizedReplayBuffer
      capacity: 50000
      min_size_for_sampling: 10000
    rollout_fragment_length: 4
    exploration_config: {epsilon_timesteps: 200000, final_epsilon: .01}
    model: {grayscale: true, zero_mean: false, dim: 42}
""",
        env="PongDeterministic-v4",
        config={
            "replay_buffer_capacity": 50_000,
            "num_steps_sampled_before_learning_starts": 10_000,
            "prioritized_replay_alpha": 0.6,
            "rollout_fragment_length": 4,
            "epsilon": [(0, 1.0), (200_000, 0.01)],
            "image_size": 42,
        },
    ),
    "pong-rainbow": Example(
        """
  env: PongDeterministic-v4
  run: DQN
  config:
    num_atoms: 51
    noisy: true
    hiddens: [512]
    buffer_size: 50000
    parameter_noise: false
""",
        refused=("config.num_atoms: 51: ", "config.noisy: True: ", "config.hiddens: "),
    ),
    "cartpole-impala": Example(
        """
  env: CartPole-v0
  run: IMPALA
  stop: {episode_reward_mean: 150, timesteps_total: 500000}
  config:
    framework: {grid_search: [tf, torch]}
    vtrace_drop_last_ts: false
    _disable_execution_plan_api: {grid_search: [true, false]}
    seed: {grid_search: [512, 42, 144]}
""",
        env="CartPole-v0",
        config={"seed": 512},
    ),
    "cartpole-appo": Example(
        """
  env: CartPole-v1
  run: APPO
  config:
    num_envs_per_worker: 5
    num_workers: 1
    observation_filter: MeanStdFilter
    vtrace: false
    use_kl_loss: true
    kl_coeff: 0.5
    model: {fcnet_hiddens: [32], fcnet_activation: linear, vf_share_layers: true}
    enable_connectors: True
""",
        env="CartPole-v1",
        config={
            "fcnet_hiddens": [32],
            "fcnet_activation": "linear",
            "observation_filter": "MeanStdFilter",
            "vf_share_layers": True,
            "use_kl_loss": True,
            "kl_coeff": 0.5,
        },
    ),
    "cartpole-appo-separate-losses": Example(
        """
  env: CartPole-v1
  run: APPO
  config: {_separate_vf_optimizer: true, _lr_vf: 0.00075, num_gpus: 0}
""",
        refused=("config._separate_vf_optimizer: True: ", "config._lr_vf: it has no equivalent: "),
    ),
    "frozenlake-appo": Example(
        """
  env: FrozenLake-v1
  run: APPO
  stop: {sampler_results/episode_reward_mean: 0.99, timesteps_total: 1000000}
  config:
    env_config: {desc: [SFF, FFF, FFG], is_slippery: false}
    horizon: 20
    rollout_fragment_length: 10
    batch_mode: complete_episodes
    num_accs: 0
    num_workers: 2
""",
        env="FrozenLake-v1",
        config={
            "env_config": {
                "desc": ["SFF", "FFF", "FFG"],
                "is_slippery": False,
                "max_episode_steps": 20,
            }
        },
    ),
    "halfcheetah-ppo": Example(
        """
  env: HalfCheetah-v2
  run: PPO
  config:
    kl_coeff: 1.0
    num_sgd_iter: 32
    num_envs_per_worker: {grid_search: [16, 32]}
    batch_mode: truncate_episodes
""",
        env="HalfCheetah-v4",
        config={"num_epochs": 32},
        search=("num_envs_per_env_runner",),
    ),
    "pendulum-transformed-actions-ppo": Example(
        """
  env: ray.rllib.examples.envs.classes.transformed_action_space_env.TransformedActionPendulum
  run: PPO
  config:
    env_config: {config: {low: 300.0, high: 500.0}}
    normalize_actions: true
    clip_actions: true
""",
        refused=("env: ray.rllib.examples", "config.clip_actions: True: "),
    ),
    "pong-impala-vectorized": Example(
        """
  env: ALE/Pong-v5
  run: IMPALA
  config:
    env_config: {frameskip: 1, full_action_space: false, repeat_action_probability: 0.0}
    rollout_fragment_length: 50
    train_batch_size: 500
    framework: torch
    log_level: INFO
""",
        env="ALE/Pong-v5",
        config={"rollout_fragment_length": 50},
    ),
    "notebooks-cartpole-ppo": Example(
        """
  env: CartPole-v1
  run: PPO
  stop: {episode_reward_mean: 475, time_total_s: 300}
  checkpoint_config: {checkpoint_frequency: 2, checkpoint_at_end: true}
  local_dir: /tmp/results
  config: {lr: 0.0003, num_workers: 1, enable_connectors: true, render_env: true}
""",
        env="CartPole-v1",
        config={"num_env_runners": 1},
    ),
    "mspacman-sac": Example(
        """
  env: MsPacmanNoFrameskip-v4
  run: SAC
  config: {clip_rewards: 1.0, target_entropy: 1.755, no_done_at_end: False, tau: 1.0}
""",
        env="MsPacmanNoFrameskip-v4",
        config={"clip_rewards": True, "target_entropy": 1.755},
    ),
    "atari-ppo": Example(
        """
  env: {grid_search: [ALE/Breakout-v5, ALE/Qbert-v5]}
  run: PPO
  config: {kl_coeff: 0.5, use_gae: true, callbacks: null, multiagent: {}}
""",
        refused=("env: cannot be searched",),
    ),
    "td3": Example("{env: Pendulum-v1, run: TD3, config: {}}", refused=("run: 'TD3': ",)),
    "pong-appo-with-a-module": Example(
        """
  env: ALE/Pong-v5
  run: APPO
  config:
    enable_rl_module_and_learner: true
    model: {conv_activation: relu, post_fcnet_hiddens: []}
    num_learner_workers: 4
    num_gpus_per_learner_worker: 1
    num_gpus: 0
    exploration_config: {}
    explore: false
""",
        env="ALE/Pong-v5",
        config={"num_learners": 4, "num_gpus_per_learner": 1, "explore": False},
    ),
    "env-in-config": Example(
        "{run: PPO, config: {env: CartPole-v1}}", env="CartPole-v1", config={"seed": None}
    ),
}
READ = [name for name, example in EXAMPLES.items() if not example.refused]
REFUSED = [name for name, example in EXAMPLES.items() if example.refused]


def written(folder: Path, name: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(f"{name}: {EXAMPLES[name].text}")
    return path


@pytest.mark.parametrize("name", READ)
def test_a_tuned_example_is_the_same_experiment_today(tmp_path: Path, name: str) -> None:
    example = EXAMPLES[name]
    experiment = read_experiment(written(tmp_path, name)).experiment
    settings = {key: getattr(experiment.config, key) for key in example.config}
    assert (experiment.env, settings) == (example.env, example.config)
    assert tuple(experiment.search) == example.search


@pytest.mark.parametrize("name", REFUSED)
def test_a_tuned_example_that_cannot_be_kept_is_told_in_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError) as error:
        read_experiment(written(tmp_path, name))
    line = str(error.value)
    assert len(line.splitlines()) == 1
    assert [begin for begin in EXAMPLES[name].refused if begin not in line] == []


@pytest.mark.parametrize("name", READ)
def test_a_converted_example_is_the_same_experiment(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    converted = convert(path)
    assert converted.left_out == []
    new = tmp_path / "new.yaml"
    new.write_text(converted.text)
    loaded = read_experiment(new)
    assert loaded.experiment == read_experiment(path).experiment
    assert loaded.experiment.search == read_experiment(path).experiment.search
    assert loaded.notes == []


def test_a_converted_file_says_what_it_lacks(tmp_path: Path) -> None:
    converted = convert(written(tmp_path, "pong-rainbow"))
    assert len(converted.left_out) == 3
    comments = [line for line in converted.text.splitlines() if line.startswith("# Left out: ")]
    assert comments == [f"# Left out: {line}" for line in converted.left_out]
    new = tmp_path / "new.yaml"
    new.write_text(converted.text)
    assert read_experiment(new).experiment.config.model_fields_set == {"replay_buffer_capacity"}


@pytest.mark.parametrize("name", ["td3", "atari-ppo", "pendulum-transformed-actions-ppo"])
def test_a_file_without_algorithm_or_environment_is_not_converted(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(UserError, match=r"cannot be converted: (run|env): "):
        convert(written(tmp_path, name))


def test_what_cannot_be_kept_names_the_command_that_writes_the_rest(tmp_path: Path) -> None:
    path = written(tmp_path, "pong-rainbow")
    with pytest.raises(UserError, match=f"convert {path} -o NEW.yaml"):
        read_experiment(path)


def test_a_file_that_cannot_be_converted_is_not_sent_to_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_experiment(written(tmp_path, "pendulum-transformed-actions-ppo"))
    assert "convert" not in str(error.value)


def test_a_key_that_changes_what_is_learned_is_never_only_noted(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text("{env: CartPole-v1, run: PPO, restore: /tmp/old, config: {soft_horizon: true}}")
    expected = r"^restore: it has no equivalent: .*config\.soft_horizon: True"
    with pytest.raises(UserError, match=expected):
        read_experiment(path)


def test_several_experiments_in_a_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text("{a: {env: CartPole-v1, run: PPO}, b: {env: CartPole-v1, run: DQN}}")
    with pytest.raises(UserError, match=r"has 2 experiments \(a, b\); give each its own file"):
        read_experiment(path)


def test_a_horizon_of_the_file_stays_beside_arguments_of_the_command_line() -> None:
    layers = {"config": {"horizon": 20}}, {"config": {"env_config": {"is_slippery": False}}}
    arguments = read_experiment(*layers).experiment.config.env_config
    assert arguments == {"is_slippery": False, "max_episode_steps": 20}


def test_the_seeds_of_a_grid_are_those_of_a_search(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, "cartpole-impala")).experiment
    assert experiment.num_seeds == 3


@pytest.mark.parametrize(
    ("arguments", "frame_skip", "frames"),
    [
        ({"frameskip": 1}, 4, 108_000),
        ({"frameskip": 4}, 4, 108_000),
        ({"frameskip": 2}, 2, 108_000),
        ({"frameskip": 1, "frame_skip": 2}, 2, 108_000),
        ({"frame_skip": 2}, 2, 108_000),
        ({"max_episode_steps": 100}, 4, 400),
        ({"max_num_frames_per_episode": 100}, 4, 100),
        ({"full_action_space": False, "obs_type": "rgb"}, 4, 108_000),
    ],
)
def test_a_game_is_what_gymnasiums_words_say(
    arguments: dict[str, Any], frame_skip: int, frames: int
) -> None:
    raw = {"env": "ALE/Pong-v5", "config": {"env_config": arguments}}
    game = game_of(read_experiment(raw).experiment)
    assert game is not None
    assert (game.frame_skip, game.max_episode_frames) == (frame_skip, frames)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"full_action_space": True}, "full_action_space: True: Atari games have False"),
        ({"frameskip": [2, 5]}, "frame_skip: [2, 5] is not of type int"),
        ({"frameskip": 2, "frame_skip": 2}, "frameskip: frame_skip is set too"),
        ({"max_episode_steps": "x"}, "max_episode_steps: 'x' is not of type int"),
    ],
)
def test_what_the_vector_environment_cannot_do_is_refused(
    arguments: dict[str, Any], said: str
) -> None:
    raw = {"env": "ALE/Pong-v5", "config": {"env_config": arguments}}
    with pytest.raises(UserError) as error:
        game_of(read_experiment(raw).experiment)
    assert str(error.value).startswith(f"config.env_config.{said}")
