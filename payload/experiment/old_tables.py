"""What the keys of older RLlib versions, of Tune and of Azure ML's samples are called today.

A key is renamed, ignored because nothing is learned by it, allowed one value, or without successor.
docs/rllib_train.md shows these tables.
"""

from payload.experiment.settings import (
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    EVALUATION_RETURN_MEAN,
    NUM_EPISODES_LIFETIME,
)

RENAMED_CONFIG = {
    "num_workers": "num_env_runners",
    "num_rollout_workers": "num_env_runners",
    "num_envs_per_worker": "num_envs_per_env_runner",
    "num_cpus_per_worker": "num_cpus_per_env_runner",
    "num_learner_workers": "num_learners",
    "num_gpus_per_learner_worker": "num_gpus_per_learner",
    "sample_batch_size": "rollout_fragment_length",
    "train_batch_size": "train_batch_size_per_learner",
    "num_sgd_iter": "num_epochs",
    "sgd_minibatch_size": "minibatch_size",
    "mini_batch_size": "minibatch_size",
    "mini_batch_size_per_learner": "minibatch_size",
    "num_data_loader_buffers": "learner_queue_size",
    "num_multi_gpu_tower_stacks": "learner_queue_size",
    "num_multi_acc_tower_stacks": "learner_queue_size",
    "max_sample_requests_in_flight_per_worker": "max_requests_in_flight_per_env_runner",
    "lambda": "lambda_",
    "lr_schedule": "lr",
    "entropy_coeff_schedule": "entropy_coeff",
    "grad_norm_clipping": "grad_clip",
    "min_iter_time_s": "min_time_s_per_iteration",
    "min_time_s_per_reporting": "min_time_s_per_iteration",
    "learning_starts": "num_steps_sampled_before_learning_starts",
    "buffer_size": "replay_buffer_capacity",
    "evaluation_num_workers": "evaluation_num_env_runners",
    "evaluation_num_episodes": "evaluation_duration",
}
RENAMED_MODEL = {
    "dim": "image_size",
    "framestack": "frame_stack",
    "custom_model_config": "module_config",
}
RENAMED_IN = {
    "optimization": {
        "actor_learning_rate": "actor_lr",
        "critic_learning_rate": "critic_lr",
        "entropy_learning_rate": "alpha_lr",
    },
    "replay_buffer_config": {
        "capacity": "replay_buffer_capacity",
        "learning_starts": "num_steps_sampled_before_learning_starts",
        "min_size_for_sampling": "num_steps_sampled_before_learning_starts",
        "alpha": "prioritized_replay_alpha",
        "prioritized_replay_alpha": "prioritized_replay_alpha",
        "beta": "prioritized_replay_beta",
        "prioritized_replay_beta": "prioritized_replay_beta",
    },
}
"""Keys inside of a key of `config`."""
SAC_NETWORKS = ("Q_model", "q_model_config", "policy_model", "policy_model_config")
"""RLlib's SAC now has one shape for all of its networks."""
RENAMED_STOP = {
    "episode_reward_mean": EPISODE_RETURN_MEAN,
    "episode_return_mean": EPISODE_RETURN_MEAN,
    "sampler_results/episode_reward_mean": EPISODE_RETURN_MEAN,
    "env_runners/episode_reward_mean": EPISODE_RETURN_MEAN,
    "evaluation/episode_reward_mean": EVALUATION_RETURN_MEAN,
    "evaluation/sampler_results/episode_reward_mean": EVALUATION_RETURN_MEAN,
    "episode_len_mean": EPISODE_LEN_MEAN,
    "sampler_results/episode_len_mean": EPISODE_LEN_MEAN,
    "timesteps_total": "num_env_steps_sampled_lifetime",
    "agent_timesteps_total": "num_env_steps_sampled_lifetime",
    "num_env_steps_sampled": "num_env_steps_sampled_lifetime",
    "num_agent_steps_sampled": "num_env_steps_sampled_lifetime",
    "episodes_total": NUM_EPISODES_LIFETIME,
}
DURATION = "max_run_duration_seconds"
"""A key of Azure ML's ReinforcementLearningEstimator, beside run and env; now stop.time_total_s."""
RENAMED_NEEDS = {
    "conda_dependencies_file_path": "conda_dependencies_file",
    "pip_requirements_file_path": "pip_requirements_file",
}
"""Keys of Azure ML's older estimators, which experiments and scripts share."""
_MUJOCO = ("HalfCheetah", "Hopper", "Swimmer", "Walker2d")
_MUJOCO_V2 = (*_MUJOCO, "InvertedPendulum", "InvertedDoublePendulum", "Reacher")
RENAMED_ENVS = {
    "Pendulum-v0": "Pendulum-v1",
    **{f"{name}-v2": f"{name}-v4" for name in _MUJOCO_V2},
    **{f"{name}-v3": f"{name}-v4" for name in _MUJOCO},
}
"""Retired ids of tasks that are the same today."""

_TORCH = "RLlib's new API stack supports only torch"
_NEW_STACK = "volley always uses RLlib's new API stack"
_OLD_STACK = "belongs to RLlib's old API stack"
_RESTARTS = "a lost env runner is always restarted"
_REPORTS = "min_time_s_per_iteration decides when an iteration ends"
_MEAN = "means are of the last 100 episodes"
IGNORED_CONFIG = {
    **dict.fromkeys(("framework", "use_pytorch", "eager", "eager_tracing"), _TORCH),
    **dict.fromkeys(("eager_max_retraces", "tf_session_args", "local_tf_session_args"), _TORCH),
    **dict.fromkeys(("enable_connectors", "_enable_learner_api"), _NEW_STACK),
    **dict.fromkeys(("_enable_rl_module_api", "enable_rl_module_and_learner"), _NEW_STACK),
    **dict.fromkeys(("_enable_new_api_stack", "enable_env_runner_and_connector_v2"), _NEW_STACK),
    **dict.fromkeys(("_disable_execution_plan_api", "_disable_preprocessor_api"), _OLD_STACK),
    **dict.fromkeys(("_disable_action_flattening", "_fake_gpus", "simple_optimizer"), _OLD_STACK),
    **dict.fromkeys(("_tf_policy_handles_more_than_one_loss", "sample_collector"), _OLD_STACK),
    **dict.fromkeys(("ignore_worker_failures", "recreate_failed_workers"), _RESTARTS),
    **dict.fromkeys(("ignore_env_runner_failures", "recreate_failed_env_runners"), _RESTARTS),
    **dict.fromkeys(("restart_failed_env_runners", "restart_failed_sub_environments"), _RESTARTS),
    **dict.fromkeys(("timesteps_per_iteration", "min_sample_timesteps_per_iteration"), _REPORTS),
    **dict.fromkeys(("min_sample_timesteps_per_reporting",), _REPORTS),
    **dict.fromkeys(("min_train_timesteps_per_iteration",), _REPORTS),
    **dict.fromkeys(("min_train_timesteps_per_reporting",), _REPORTS),
    **dict.fromkeys(("metrics_smoothing_episodes", "metrics_num_episodes_for_smoothing"), _MEAN),
    "batch_mode": "every algorithm samples a fixed number of steps, as with truncate_episodes",
    "compress_observations": "volley compresses the frames of Atari games, and nothing else",
    "preprocessor_pref": "Atari games have the usual preprocessing, other environments none",
    "no_done_at_end": "an episode that a time limit ends is truncated, not terminated",
    "evaluation_config": "evaluation plays the same environment with the most likely actions",
    "shuffle_sequences": "minibatches are always shuffled",
    "num_cpus_for_driver": "a driver outside Tune reserves no CPU",
    "num_cpus_for_local_worker": "a driver outside Tune reserves no CPU",
    "num_cpus_for_main_process": "a driver outside Tune reserves no CPU",
    "num_gpus_per_worker": "the env runners' network is too small to gain from a GPU",
    "num_gpus_per_env_runner": "the env runners' network is too small to gain from a GPU",
    "opt_type": "the optimizer is Adam",
    "decay": "belongs to RMSProp; the optimizer is Adam",
    "momentum": "belongs to RMSProp; the optimizer is Adam",
    "render_env": "volley evaluate --video shows an episode",
    "record_env": "volley evaluate --video shows an episode",
    "monitor": "volley evaluate --video shows an episode",
    "log_level": "RLlib's log goes to driver_log.txt in full",
    "log_sys_usage": "MLflow has the system metrics of every node",
}
IGNORED_BY_IMPALA = {
    "vtrace": "IMPALA and APPO always use V-trace",
    "vtrace_drop_last_ts": "V-trace uses every step",
    "sample_async": "env runners always sample asynchronously",
    "num_aggregation_workers": "fragments go to the learner directly",
    "minibatch_buffer_size": "num_epochs passes over a batch need no ring buffer",
    "learner_queue_timeout": "the learner waits for batches without a limit",
}
"""Other algorithms have no such settings."""
IGNORED_BY_PPO = {
    "rollout_fragment_length": "PPO divides its train batch among the env runners",
}
RMSPROP = frozenset({"opt_type", "decay", "momentum"})
"""Beside these, `epsilon` is RMSProp's too, as in RLlib's old IMPALA."""
IGNORED_MODEL = {
    "grayscale": "frames are always gray",
    "zero_mean": "the network scales pixels itself",
    "free_log_std": "the network computes the deviation of continuous actions",
}
IGNORED_IN = {
    "optimization": {},
    "replay_buffer_config": {
        "enable_replay_buffer_api": _OLD_STACK,
        "prioritized_replay_eps": "RLlib's buffer no longer adds anything to a priority",
        "storage_unit": "the buffer stores steps of episodes",
        "worker_side_prioritization": "the learner computes the priorities",
    },
}
_LINES = "--checkpoint-every S and --keep-checkpoints K"
_FOLDER = "--results DIR names the folder of results"
IGNORED_KEYS = {
    **dict.fromkeys(("checkpoint_config", "checkpoint_freq", "checkpoint_at_end"), _LINES),
    **dict.fromkeys(("keep_checkpoints_num", "checkpoint_score_attr"), _LINES),
    **dict.fromkeys(("local_dir", "storage_path", "upload_dir", "sync_config"), _FOLDER),
    **dict.fromkeys(("trial_resources", "resources_per_trial"), "num_env_runners determines them"),
    **dict.fromkeys(("max_failures", "reuse_actors"), _RESTARTS),
    **dict.fromkeys(("verbose", "log_to_file", "progress_reporter", "loggers"), "MLflow shows it"),
    **dict.fromkeys(("name", "trial_name_creator"), "a run is named after algorithm and game"),
    "export_formats": "RLlib reads the checkpoints",
}
"""Keys of Tune's experiments, beside `config`."""

ONE_VALUE = {
    "normalize_actions": (True, "a policy's actions are always scaled to their bounds"),
    "clip_actions": (False, "a policy's actions are scaled to their bounds instead"),
    "soft_horizon": (False, "an environment is always reset after its last step"),
    "use_gae": (True, "PPO's advantages are always GAE's"),
    "use_critic": (True, "PPO always has a value function"),
    "noisy": (False, "RLlib's DQN no longer has a noisy network; epsilon explores"),
    "num_atoms": (1, "DQN is not distributional"),
    "grad_clip_by": ("global_norm", "grad_clip is a global norm"),
    "evaluation_duration_unit": ("episodes", "evaluation_duration counts episodes"),
    "parameter_noise": (False, "RLlib's DQN no longer has parameter noise; epsilon explores"),
    "_separate_vf_optimizer": (False, "one optimizer learns policy and values"),
}
"""Keys of `config` with the only value that has a meaning today, and the reason."""
MODEL_ONE_VALUE = {"conv_activation": ("relu", "the convolutions' activation is relu")}
WITHOUT_SUCCESSOR = {
    "adam_epsilon": "Adam's epsilon is torch's",
    "callbacks": "callbacks are not supported",
    "final_prioritized_replay_beta": "prioritized_replay_beta does not change",
    "prioritized_replay_beta_annealing_timesteps": "prioritized_replay_beta does not change",
    "prioritized_replay_eps": "RLlib's buffer no longer adds anything to a priority",
    "hiddens": "model.fcnet_hiddens are the layers of today's DQN",
    "input": "training needs an environment",
    "multiagent": "an experiment has one policy",
    "optimizer": "the optimizer is Adam",
    "output": "samples are not written",
    "v_max": "DQN is not distributional",
    "v_min": "DQN is not distributional",
    "_lr_vf": "one optimizer learns policy and values",
}
"""Keys of `config` that change what is learned, and why they have no equivalent."""
_LAYERS = (
    "fcnet_hiddens are all layers of a network for vectors, fcnet_hidden is the one after the "
    "convolutions of an Atari game with IMPALA, APPO and PQN"
)
MODEL_WITHOUT_SUCCESSOR = {
    "custom_model": "a network of your own is config.module: package:Class, a TorchRLModule",
    "lstm_use_prev_action": "the LSTM sees observations only",
    "lstm_use_prev_reward": "the LSTM sees observations only",
    "post_fcnet_activation": _LAYERS,
    "post_fcnet_hiddens": _LAYERS,
    "use_attention": "attention is not supported; use_lstm adds an LSTM",
}
KEYS_WITHOUT_SUCCESSOR = {
    "restore": "train --resume RUN continues a run of volley",
    "scheduler": "volley tune has ASHA",
}
"""The same, beside `config`."""
