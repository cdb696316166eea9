"""The fast path: IMPALA, APPO and PQN on Atari games, in the order of a rollout fragment's way.

1. `atari_env_runner.py` steps all copies of a game in one call, and infers all actions in one.
2. `rollout_fragment.py` defines what it sends: T steps of N games, each frame once.
3. `impala_algorithm.py`, in the driver, hands fragments on to the learners, as references.
4. `train_batch.py` makes the train batch of them, adds replayed rows and stacks the frames, all in
   the learner's process.
5. `learner.py` passes over the minibatches. Each gradient step gets logits and values from
   `module.py` and a loss from a subclass, clips the gradients and runs the optimizer.
   `policy_gradient_learners.py` has IMPALA's and APPO's with `policy_gradient_loss.py` and
   `vtrace.py`, `q_learner.py` has PQN's.
6. `schedule.py` computes what changes while the run progresses: learning rate, coefficients,
   temperature, sizes. The driver sets it after each iteration.
7. `state_server.py` provides env runners with the newest weights.

Off this path: `epsilon_greedy.py` (exploration), `learner_errors.py`
(errors that RLlib drops).
"""
