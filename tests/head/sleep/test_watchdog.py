"""A head whose sleep check does not work deallocates itself, with the system's Python alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from infra.boot.cloud_config import STOP_BEFORE_EVICTION
from infra.config.cost import hourly
from infra.config.stack_settings import StackSettings
from infra.stack.head import watchdog_limits
from rehearsal.azure.metadata.managed_identity import NOT_READY
from rehearsal.azure.metadata.metadata_state import set_user_data
from tests.head.sleep.conftest import MakeHead
from tests.head.sleep.sleeping_head import HOUR, SleepingHead
from tests.infra.declared_stack import REQUIRED
from tests.python_310 import PYTHON
from tests.rehearsal.azure.resources.scale_set_cloud import SCALE_SET

pytestmark = pytest.mark.slow
STOP = f"systemctl stop {STOP_BEFORE_EVICTION['head']}"
START = f"systemctl start --no-block {STOP_BEFORE_EVICTION['head']}"


class Watchdog:
    """The watchdog of a head, with the limits of a stack."""

    def __init__(self, head: SleepingHead, state: Path) -> None:
        self.head, self._state = head, state
        self.folder = head.root / "run/volley"
        self.folder.mkdir(exist_ok=True)
        script = head.scripts / "watchdog.py"
        # The token is for the real endpoint.
        script.write_text(
            script.read_text().replace('f"{AZURE}{path}', f'f"{head.cloud.url}{{path}}')
        )
        self.set()
        for _ in NOT_READY:  # Ten minutes later it would be asked again.
            with suppress(HTTPError):
                url = f"{head.identity}/metadata/identity/oauth2/token?api-version=2018-02-01"
                request = Request(f"{url}&resource=r", headers={"Metadata": "true"})
                urlopen(request).close()

    def set(self, **settings: Any) -> None:
        """Sets the stack's settings, as `volley up` does."""
        stack = StackSettings.model_validate({**REQUIRED, **settings})
        set_user_data(self._state, "head", watchdog_limits(stack, "workers") or "")

    def up_for(self, hours: float) -> None:
        (self.folder / "started").write_text(str(time.monotonic() - hours * HOUR))

    def checked(self, hours_ago: float, so_far: float = 0, per_hour: float = 1) -> None:
        moment = time.monotonic() - hours_ago * HOUR
        state = {"checked": moment, "so_far": so_far, "per_hour": per_hour}
        (self.folder / "checked").write_text(json.dumps(state))

    def run(self, metadata: str = "") -> int:
        script = self.head.scripts / "watchdog.py"
        environment = {
            "PATH": f"{self.head.root}/bin:/usr/bin:/bin",
            "AZURE_CLIENT_ID": "head-client",
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": metadata or self.head.identity,
            "STOP_BEFORE_EVICTION": STOP_BEFORE_EVICTION["head"],
        }
        command = [str(PYTHON or sys.executable), "-S", "-B", str(script)]
        return subprocess.run(command, env=environment, timeout=60, check=False).returncode


@pytest.fixture
def watchdog(make_head: MakeHead, metadata: tuple[str, Path]) -> Watchdog:
    """A head with two workers, whose software has never come."""
    head = make_head(workers=2)
    shutil.rmtree(head.software)
    return Watchdog(head, metadata[1])


def is_off(watchdog: Watchdog) -> bool:
    assert watchdog.run() == 0
    if not watchdog.head.is_deallocated:
        assert watchdog.head.calls == []
        return False
    assert watchdog.head.cloud.capacity == 0
    assert watchdog.head.calls == [STOP]
    return True


def test_a_head_without_one_working_check_is_off_after_three_hours(watchdog: Watchdog) -> None:
    assert not is_off(watchdog)
    watchdog.up_for(2.9)
    assert not is_off(watchdog)
    watchdog.up_for(3.01)
    assert is_off(watchdog)


def test_the_time_counts_from_a_boot_without_a_network(watchdog: Watchdog) -> None:
    assert watchdog.run(metadata="http://127.0.0.1:9") != 0
    assert (watchdog.folder / "started").exists()


def test_a_head_whose_checks_work_no_longer_is_too(watchdog: Watchdog) -> None:
    watchdog.up_for(50)
    watchdog.checked(2.9)
    assert not is_off(watchdog)
    watchdog.checked(3.01)
    assert is_off(watchdog)


def test_a_head_that_shall_never_sleep_when_idle_stays(watchdog: Watchdog) -> None:
    watchdog.set(sleepAfterMinutes=0)
    watchdog.up_for(50)
    assert not is_off(watchdog)


def test_where_azures_rules_scale_nothing_is_watched(watchdog: Watchdog) -> None:
    watchdog.set(scaling="cpu")
    watchdog.up_for(50)
    assert not is_off(watchdog)


def test_the_hours_are_limited_from_the_first_minute(watchdog: Watchdog) -> None:
    watchdog.set(maxHours=1)
    watchdog.up_for(0.9)
    assert not is_off(watchdog)
    watchdog.up_for(1.01)
    assert is_off(watchdog)


def test_the_budget_is_limited_from_the_first_minute(watchdog: Watchdog) -> None:
    watchdog.set(budget=1)
    price = hourly(StackSettings.model_validate(REQUIRED))
    hours = 1 / (price.head + price.always)
    watchdog.up_for(hours - 0.05)
    assert not is_off(watchdog)
    watchdog.up_for(hours + 0.05)
    assert is_off(watchdog)


def test_what_was_spent_before_the_checks_failed_counts(watchdog: Watchdog) -> None:
    watchdog.set(budget=20)
    watchdog.up_for(30)
    watchdog.checked(1.5, so_far=18, per_hour=1.2)
    assert not is_off(watchdog)
    watchdog.checked(1.5, so_far=18, per_hour=1.4)
    assert is_off(watchdog)


def test_a_check_that_works_keeps_the_limits_itself(watchdog: Watchdog) -> None:
    watchdog.set(maxHours=1, budget=1)
    watchdog.up_for(10)
    watchdog.checked(0.9, so_far=5)
    assert not is_off(watchdog)


def test_a_limit_is_raised_in_place(watchdog: Watchdog) -> None:
    watchdog.set(maxHours=2, sleepAfterMinutes=0)
    watchdog.up_for(2.5)
    watchdog.set(maxHours=3, sleepAfterMinutes=0)
    assert not is_off(watchdog)


def test_an_azure_that_refuses_stops_nothing_and_is_asked_again(watchdog: Watchdog) -> None:
    watchdog.up_for(4)
    watchdog.head.fault(forbidden=1)
    assert watchdog.run() != 0
    assert watchdog.head.calls == []
    assert is_off(watchdog)


def test_a_head_is_off_too_where_up_has_failed_before_it_made_the_scale_set(
    watchdog: Watchdog,
) -> None:
    watchdog.head.cloud.azure.delete(SCALE_SET)
    watchdog.up_for(4)
    assert watchdog.run() == 0
    assert watchdog.head.is_deallocated


def test_a_head_that_azure_does_not_deallocate_works_on(watchdog: Watchdog) -> None:
    watchdog.up_for(4)
    watchdog.head.fault(deallocations_refused=1)
    assert watchdog.run() != 0
    assert watchdog.head.calls == [STOP, START]
    assert watchdog.run() == 0
    assert watchdog.head.is_deallocated


# What head.sleep tells it


@pytest.fixture
def told(make_head: MakeHead, metadata: tuple[str, Path]) -> Watchdog:
    """The watchdog of a head with its software."""
    return Watchdog(make_head(), metadata[1])


def seconds_since_check(watchdog: Watchdog) -> float | None:
    file = watchdog.folder / "checked"
    return time.monotonic() - json.loads(file.read_text())["checked"] if file.exists() else None


Break = Callable[[SleepingHead], object]


def test_a_check_that_works_tells_it(told: Watchdog) -> None:
    told.head.experiment("pong", "TRAINING")
    told.head.run()
    assert seconds_since_check(told) == pytest.approx(0, abs=30)
    state, cost = json.loads((told.folder / "checked").read_text()), told.head.read("cost.json")
    assert all(state[key] == cost[key] for key in ("so_far", "per_hour"))


def test_one_of_a_cluster_that_azure_scales_does_too(told: Watchdog) -> None:
    told.head.set(scaling="cpu")
    told.head.run()
    assert seconds_since_check(told) is not None


@pytest.mark.parametrize(
    "breaks",
    [
        lambda head: head.queue_sees(age_s=121),
        lambda head: head.settings.unlink(),
    ],
    ids=["cannot tell", "no settings"],
)
def test_a_check_that_cannot_tell_does_not(told: Watchdog, breaks: Break) -> None:
    breaks(told.head)
    told.head.run()
    assert seconds_since_check(told) is None


def test_a_check_that_fails_does_not(told: Watchdog) -> None:
    told.head.replace_module("cluster_settings.py", "raise RuntimeError")
    told.head.run(expected=1)
    assert seconds_since_check(told) is None


def test_a_head_that_fails_to_go_to_sleep_is_off_in_the_end(told: Watchdog) -> None:
    told.head.machine.write("unsaved", "")
    told.head.run_when_idle_for(31)
    assert "save" in told.head.sleep["problem"]
    told.checked(3.01)
    told.up_for(5)
    told.head.change("sleep.json", next_try=time.time() - 1)
    told.head.run()
    assert told.run() == 0
    assert told.head.is_deallocated
