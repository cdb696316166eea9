"""Notifies of an end on this machine; on a cluster its queue does: head/queue/notices.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from payload.errors import UserError
from payload.experiment.machine_needs import MachineNeeds
from payload.experiment.settings import Experiment
from payload.notification import (
    BY_QUEUE,
    LIMIT_S,
    VARIABLE,
    Notification,
    NotifyError,
    check,
    deliver_within,
    end_time,
    is_url,
    masked,
    target_of,
    variable_of,
)
from payload.run.run_status import RunStatus, State


def check_notify(needs: MachineNeeds) -> None:
    """Checks before a start that its end can be told.

    A run that is resumed has only the name of VARIABLE if a URL was given: a line says so.

    Raises:
        UserError: A variable is not set, or has no URL and no command.
    """
    if needs.notify is None or os.environ.get(BY_QUEUE):
        return
    name = variable_of(needs.notify)
    try:
        check(target_of(needs.notify, os.environ))
    except NotifyError as error:
        if name == VARIABLE and not os.environ.get(VARIABLE):
            print("Nobody will be notified: the URL is not saved. Next: add --notify", flush=True)
            return
        following = f". Next: export {name}=..." if name else ""
        raise UserError(f"notify: {error}{following}") from None


def notify(
    needs: MachineNeeds, status: RunStatus, state: State, reason: str, say: Callable[[str], None]
) -> None:
    """Sends the notification of a run's end, within seconds; prints who was notified, or why not.

    Args:
        status: The figures of the run.
    """
    if needs.notify is None or os.environ.get(BY_QUEUE):
        return
    experiment = needs if isinstance(needs, Experiment) else None
    ended = Notification(
        name=Path(status.run).name,
        env=experiment.env if experiment else None,
        algorithm=experiment.run if experiment else None,
        state=state,
        reason=reason,
        time=end_time(),
        steps=status.env_steps,
        best_return=status.best_return,
        last_return=status.episode_return,
        run_id=status.mlflow_run,
    ).without(os.environ.get(name, "") for name in needs.secrets)
    try:
        target = target_of(needs.notify, os.environ)
    except NotifyError as error:
        say(f"Nobody was notified: {error}")
        return
    folder = Path(needs.source_directory or Path.cwd())
    problem = deliver_within(LIMIT_S, target, ended, folder, dict(os.environ))
    told = masked(target) if is_url(target) else "by the command of notify"
    say(f"Nobody was notified: {problem}" if problem else f"Notified         {told}")
