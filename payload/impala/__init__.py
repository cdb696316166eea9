"""IMPALA and APPO on Atari games, the fast path, in the order in which a rollout fragment goes.

1. `atari_env_runner.py` steps all copies of a game in one call, and infers all actions in one.
2. `rollout_fragment.py` is what it sends: T steps of N games, each frame once.
3. `impala_algorithm.py`, in the driver, hands fragments on to the learners, as references.
4. `train_batch.py` makes the train batch of them, adds replayed rows and stacks the frames, all in
   the learner's process.
5. `learner.py` passes over the minibatches. Each gradient step asks `module.py` for logits and
   values, `loss.py` for the loss, clips the gradients and makes the optimizer's step.
6. `schedule.py` is what the steps follow while the run progresses: learning rate, coefficients,
   temperature, sizes. The driver sets it after each iteration.
7. `state_server.py` is where env runners get the newest weights.

Beside this way: `epsilon_greedy.py` (exploration), `learner_errors.py`
(errors that RLlib drops).
"""
