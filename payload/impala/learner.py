"""What the learners of the fast path have in common: updates from rollout fragments."""

import logging
import threading
from abc import abstractmethod
from contextlib import suppress
from dataclasses import replace
from queue import Empty
from typing import Any, Protocol

import torch
from ray.rllib.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import (
    DIFF_NUM_GRAD_UPDATES_VS_SAMPLER_POLICY,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    WEIGHTS_SEQ_NO,
)

from payload.environments.atari import AtariSettings
from payload.impala.learner_errors import ThreadWatch
from payload.impala.module import STACKS, pixel_statistics
from payload.impala.rollout_fragment import RolloutFragment
from payload.impala.schedule import UpdateSettings, value_at
from payload.impala.train_batch import FIRST, ReplayBuffer

logger = logging.getLogger(__name__)

TOTAL_LOSS: str = Learner.TOTAL_LOSS_KEY
LEARNING_RATE = "default_optimizer_learning_rate"
GRADIENT_NORM = "gradients_default_optimizer_global_norm"
"""RLlib's names of the learning rate and of the gradients' global norm before clipping."""
UPDATE_SETTINGS = "update_settings"
"""Key of a train batch's UpdateSettings in the timesteps that accompany it."""
LOSS_STATE = "loss"
"""Key in a learner's state of what the loss depends on besides weights and settings."""


class Loss(Protocol):
    """The loss of a minibatch."""

    def backward(self) -> None:
        """Adds its gradient to the gradients of the module's parameters."""

    def metrics(self) -> dict[str, torch.Tensor]:
        """Returns its terms, with TOTAL_LOSS, by metric name; the tensors are on the device."""


class FragmentLearner(ThreadWatch, IMPALATorchLearner):
    """RLlib's IMPALA learner with volley's own update, for the loss of a subclass.

    `config.learner_config_dict` carries the settings that RLlib's IMPALAConfig lacks: num_epochs
    and minibatch_size (RLlib's names; RLlib's own iterator would cut rows of T + 1 slots apart),
    replay_proportion and replay_buffer_num_slots (names of RLlib's old API stack), and those of the
    loss.
    """

    @abstractmethod
    def loss_of(self, minibatch: dict[str, Any], outputs: dict[str, Any]) -> Loss:
        """Returns the loss of a minibatch.

        Args:
            minibatch: Columns [N, T + 1], see FragmentsToTrainBatch.
            outputs: The module's outputs, [N * (T + 1), ...], row by row.
        """

    def settings_used(self) -> dict[str, float]:
        """Returns the current values of settings that change during a run, by metric name."""
        return {"temperature": self._current.temperature}

    def build(self) -> None:
        super().build()
        self.update_settings = UpdateSettings(
            train_batch_size=self.config.train_batch_size_per_learner,
            minibatch_size=self.config.learner_config_dict["minibatch_size"],
            lr=self.config.lr,
        )
        """Settings for the train batches to come."""
        self._current = self.update_settings
        """Settings for the update in progress."""
        self._replay = ReplayBuffer(
            self.config.learner_config_dict["replay_buffer_num_slots"],
            self.config.learner_config_dict["replay_proportion"],
            self.config.seed,
        )
        self._skipped = torch.zeros((), device=self._device)
        """Gradient steps that this update has skipped."""
        self._norm = torch.zeros((), device=self._device)
        """The last gradient's global norm before clipping."""
        self._spare: list[RolloutFragment] = []
        self._updating = threading.Lock()
        if self.config.num_gpus_per_learner == 0:
            # More threads would compete with the env runners for the same cores.
            torch.set_num_threads(1)
        statistics = pixel_statistics(AtariSettings(**self.config.env_config))
        self.module[DEFAULT_MODULE_ID].unwrapped().set_pixel_statistics(*statistics)

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        parameters = self.get_parameters(self.module[module_id])
        self.register_optimizer(
            module_id=module_id,
            optimizer=Adam(parameters, eps=1e-5, fused=True),
            params=parameters,
            lr_or_lr_schedule=config.lr,
        )

    def update(
        self,
        training_data: TrainingData,
        *,
        timesteps: dict[str, Any] | None = None,
        return_state: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Returns the metrics, and the weights for the env runners after this update.

        RLlib requests weights only with the first update of a training step, and takes them before
        it waits for that update. They cost nothing more: its learner thread puts them into the
        object store after each update, or after every `broadcast_interval` ones. An update is
        skipped if its fragments were lost with the node of their env runner.

        Args:
            return_state: Has no effect.
        """
        training_data.solve_refs()
        if self.config.num_learners > 1:
            training_data.episodes = self._exact_share(training_data.episodes)
        if not training_data.episodes:
            return {}
        # RLlib's queue carries them beside the train batch.
        timesteps = {**(timesteps or {}), UPDATE_SETTINGS: self.update_settings}
        result = super().update(training_data=training_data, timesteps=timesteps, **kwargs)
        # The learner thread may already be at its next update, and take them back.
        with suppress(Empty):
            result["_rl_module_state_after_update"] = self._learner_state_queue.get_nowait()
        return result

    def _exact_share(self, fragments: list[RolloutFragment]) -> list[RolloutFragment]:
        """Replaces each lost fragment by an earlier one, and drops a fragment too many.

        Learners average every gradient step: one that makes fewer would stall them all. RLlib
        deals out one too many when the train batch has just become smaller.
        """
        size = self.config.num_envs_per_env_runner * self.config.get_rollout_fragment_length()
        share: int = self.update_settings.train_batch_size // size
        self._spare = fragments[-1:] or self._spare
        return (fragments + (share - len(fragments)) * self._spare)[:share]

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        super().before_gradient_based_update(timesteps=timesteps)
        self._current = timesteps.get(UPDATE_SETTINGS, self.update_settings)

    def _update(self, batch: dict[str, Any], **kwargs: Any) -> Any:
        """Makes num_epochs passes over new and replayed rows in minibatches of whole rows.

        The host synchronizes with a GPU once, at the end, for the metrics of the last minibatch.
        """
        self.module[DEFAULT_MODULE_ID].unwrapped().temperature.fill_(self._current.temperature)
        columns = self._replay.add(batch[DEFAULT_MODULE_ID])
        num_rows, size = len(columns[FIRST]), self._current.minibatch_size
        rows = num_rows if size is None else size // self.config.get_rollout_fragment_length()
        minibatches = [
            {name: column[start : start + rows] for name, column in columns.items()}
            for start in range(0, num_rows, rows)
        ]
        for minibatch in minibatches:
            minibatch[STACKS] = self.module[DEFAULT_MODULE_ID].unwrapped().stack(minibatch)
        steps = self.config.learner_config_dict["num_epochs"] * minibatches
        self._skipped = torch.zeros((), device=self._device)
        with self._updating:
            for minibatch in steps:
                loss = self._make_gradient_step(minibatch)
        lag = self._weights_seq_no - minibatch[WEIGHTS_SEQ_NO].float().mean()
        measured = {
            **loss.metrics(),
            DIFF_NUM_GRAD_UPDATES_VS_SAMPLER_POLICY: lag,
            GRADIENT_NORM: self._norm,
        }
        skipped, *values = torch.stack([self._skipped, *measured.values()]).tolist()
        if skipped:
            logger.warning(
                "Skipped %d of %d gradient steps: a gradient was not finite.", skipped, len(steps)
            )
        metrics = dict(zip(measured, values, strict=True)) | self.settings_used()
        total = metrics.pop(TOTAL_LOSS)
        self.metrics.log_dict(metrics, key=DEFAULT_MODULE_ID, window=1)
        return {}, {DEFAULT_MODULE_ID: total}, {}

    def _make_gradient_step(self, minibatch: dict[str, Any]) -> Loss:
        # RLlib's own step reads every policy lag and gradient norm on the host.
        outputs = self.module.forward_train({DEFAULT_MODULE_ID: minibatch})[DEFAULT_MODULE_ID]
        loss = self.loss_of(minibatch, outputs)
        for parameter in self._params.values():
            parameter.grad = None
        loss.backward()
        self.apply_gradients({key: parameter.grad for key, parameter in self._params.items()})
        return loss

    def apply_gradients(self, gradients_dict: dict[Any, torch.Tensor]) -> None:
        """Clips the gradients and makes the optimizer's step, unless one of them is not finite."""
        for key, gradient in gradients_dict.items():
            self._params[key].grad = gradient
        gradients = list(gradients_dict.values())
        norm = self._norm = torch.nn.utils.get_total_norm(gradients)
        if self.config.grad_clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self._params.values(), self.config.grad_clip, norm)
        optimizer = self.get_optimizer(DEFAULT_MODULE_ID)
        # As torch.amp.GradScaler does: the fused step itself checks this, on the device.
        optimizer.found_inf = 1.0 - norm.isfinite().float()
        self._skipped += optimizer.found_inf
        optimizer.step()

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Sets the learning rate of the next update; RLlib would take it from the config alone."""
        env_steps = timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0)
        lr = value_at(self._current.lr, env_steps) * self._current.lr_left
        optimizer = self.get_optimizer(DEFAULT_MODULE_ID)
        self._set_optimizer_lr(optimizer, lr=lr)
        self.metrics.log_value((DEFAULT_MODULE_ID, LEARNING_RATE), lr, window=1)

    def get_state(
        self, components: Any = None, *, not_components: Any = None, **kwargs: Any
    ) -> Any:
        """Returns RLlib's state with LOSS_STATE; a complete state is taken between updates.

        With several learners, the first one's state is saved, and all are restored from it.
        """
        if not self._check_component(LOSS_STATE, components, not_components):
            return super().get_state(components, not_components=not_components, **kwargs)
        with self._updating:
            state = super().get_state(components, not_components=not_components, **kwargs)
            return {
                **state,
                LOSS_STATE: self.loss_state(),
            }

    def loss_state(self) -> dict[str, Any]:
        """Returns what the loss depends on besides weights and settings."""
        return {"progress": self.update_settings.progress, "used": self.update_settings.used}

    def set_state(self, state: Any) -> None:
        super().set_state(state)
        if LOSS_STATE in state:
            self.set_loss_state(state[LOSS_STATE])
            self._replay.clear()

    def set_loss_state(self, state: dict[str, Any]) -> None:
        self.update_settings = replace(
            self.update_settings, progress=state["progress"], used=state["used"]
        )


class Adam(torch.optim.Adam):
    """torch's own methods without their wrappers for torch.compile, which volley does not use.

    The wrappers import torch._dynamo, which adds a second to a run's start.
    """

    add_param_group = torch.optim.Adam.add_param_group.__wrapped__
    state_dict = torch.optim.Adam.state_dict.__wrapped__
    load_state_dict = torch.optim.Adam.load_state_dict.__wrapped__
    zero_grad = torch.optim.Adam.zero_grad.__wrapped__
    # The first optimizer of a class wraps its `step` again: this is the one before that.
    step = torch.no_grad()(torch.optim.Adam.step.__wrapped__)
