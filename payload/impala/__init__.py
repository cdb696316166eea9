"""The fast path: what differs from RLlib's own IMPALA, in the order in which data flows.

atari -> env_runner -> rollout_fragment -> frame_stack -> connector -> learner (vtrace, module)
"""
