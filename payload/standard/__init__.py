"""RLlib's own PPO, DQN and SAC, through the same experiment as IMPALA and APPO."""
