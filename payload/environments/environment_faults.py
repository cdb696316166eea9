"""Handles environments that fail: it names the fault and makes the environment again.

RLlib's own env runner exits after a pause of `delay_between_env_runner_restarts_s`, and its driver
learns only that the process has ended.
"""

import faulthandler
import logging
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from payload.errors import raised

RENEW_AFTER_S = 1.0
"""Minimum time between two settings of the alarm: a step may take microseconds."""
NATIVE_GRACE_S = 30.0
"""Time that native code has, after the alarm, to return to Python."""

logger = logging.getLogger(__name__)


class EnvironmentFaultError(Exception):
    """An environment has hung, or has returned values that no network can learn from."""


class Recovering(SingleAgentEnvRunner):
    """An env runner that makes its environments again when a call fails.

    The call raises the error in the driver, which takes the env runner out of service until its
    next ping (FaultTolerantActorManager). An env runner that fails again before it has sampled
    anything waits for `delay_between_env_runner_restarts_s`.
    """

    env: Any
    fault: str | None = None
    """The last failure, in one line, until `take_fault` is called."""
    times_made = 0
    """How often `make_env` has begun."""
    _out_of_service = False
    _failed_before = False

    def apply(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(self, *args, **kwargs)
        except Exception as error:
            if not self._out_of_service:
                self._recover(error)
            raise

    def ping(self) -> str:
        self._out_of_service = False
        return str(super().ping())

    def sample(self, **kwargs: Any) -> Any:
        if self._out_of_service:
            # The driver sent this request before it knew of the failure, and drops the answer.
            raise EnvironmentFaultError("the env runner is out of service")
        sampled = super().sample(**kwargs)
        self._failed_before = False
        return sampled

    def take_fault(self) -> str | None:
        """Returns the last failure, once; None if this process has had none."""
        fault, self.fault = self.fault, None
        return fault

    def _recover(self, error: Exception) -> None:
        logger.exception("The environments are made again.")
        self._out_of_service = True
        cause = error.__cause__ or error
        self.fault = str(cause) if isinstance(cause, EnvironmentFaultError) else raised(error)
        if self._failed_before:
            time.sleep(self.config.delay_between_env_runner_restarts_s)
        self._failed_before = True
        try:
            self.make_env()
        except Exception:  # The next call of `sample` tries again.
            logger.exception("The environments cannot be made.")
            self.env = None


class StepTimeout:
    """Raises EnvironmentFaultError if an environment does not return.

    The alarm interrupts Python code, sleeps and system calls. If native code never returns, its
    process exits with its stack in the log, and Ray starts the process again.
    """

    def __init__(self, seconds: float, may_exit: bool) -> None:
        """
        Args:
            may_exit: Whether the process may exit; False in the driver.
        """
        self.seconds, self.may_exit = seconds, may_exit
        self._watching = False
        self._set_at = -math.inf

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watches the calls of an environment inside; each of them begins with `renew`.

        Only the main thread can be interrupted, so calls in other threads are not watched.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGALRM, self._on_alarm)
        self._watching = True
        try:
            yield
        finally:
            self._watching, self._set_at = False, -math.inf
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            faulthandler.cancel_dump_traceback_later()

    def renew(self) -> None:
        """Restarts the environment's time limit, if it is watched."""
        now = time.monotonic()
        if not self._watching or now - self._set_at < RENEW_AFTER_S:
            return
        self._set_at = now
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        if self.may_exit:
            faulthandler.dump_traceback_later(self.seconds + NATIVE_GRACE_S, exit=True)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        where = f" ({frame.f_code.co_filename}, line {frame.f_lineno})" if frame else ""
        raise EnvironmentFaultError(f"no answer for {self.seconds:g} s{where}")
