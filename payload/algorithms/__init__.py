"""Every AlgorithmConfig: volley's IMPALA and APPO, RLlib's PPO, DQN and SAC."""
