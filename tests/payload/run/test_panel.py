"""What a user sees during training: how far it is, plain lines in a pipe, a live panel."""

from __future__ import annotations

import io
import math
import re
from collections import deque
from collections.abc import Callable

import pytest

from payload.experiment.settings import Experiment, Stop
from payload.run.panel import Outlook, View, duration, outlook
from payload.run.progress import Progress
from payload.tracking.report import MEAN_OVER, Report

MakeReport = Callable[..., Report]


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal and keeps its output."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes variables that make a pipe look like a terminal, or a terminal like a pipe."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")


@pytest.fixture
def full() -> Progress:
    """Progress with as many episodes as a mean return needs."""
    return Progress(returns=deque([0.0] * MEAN_OVER, maxlen=MEAN_OVER), best_return=1.5)


def seen(progress: Progress, report: Report, **stop: float) -> Outlook | None:
    return outlook(Stop.model_validate(stop), report, progress)


# How far the run is


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ({"time_total_s": 40}, Outlook(0.25, 30, "25 % of time; ends in 30 s")),
        (
            {"num_env_steps_sampled_lifetime": 4000},
            Outlook(0.25, 30, "25 % of steps; ends in about 30 s"),
        ),
        ({"training_iteration": 5}, Outlook(0.2, 40, "20 % of iterations; ends in about 40 s")),
    ],
)
def test_a_limit_is_reached_at_the_speed_so_far(
    make_report: MakeReport, stop: dict[str, float], expected: Outlook
) -> None:
    assert seen(Progress(), make_report(), **stop) == expected


def test_a_goal_is_shown_with_the_return_and_the_latest_end(
    make_report: MakeReport, full: Progress
) -> None:
    full.first_return = -20.7
    found = seen(full, make_report(return_mean=3.04), episode_return_mean=18, time_total_s=3430)
    text = "return 3.0, goal 18 (61 %); ends in 57 min at the latest"
    assert found == Outlook((3.04 + 20.7) / 38.7, 3420, text)


@pytest.mark.parametrize(
    ("return_mean", "shown"),
    [
        (17.95, "return 17.9, goal 18 (99 %)"),
        (17.999, "return 17.9, goal 18 (99 %)"),
        (18.0, "return 18.0, goal 18 (100 %)"),
        (-21.0, "return -21.0, goal 18 (0 %)"),
    ],
)
def test_a_goal_is_reached_once_it_is_reached(
    make_report: MakeReport, full: Progress, return_mean: float, shown: str
) -> None:
    full.first_return = -20.0
    found = seen(full, make_report(return_mean=return_mean), episode_return_mean=18)
    assert found is not None
    assert found.text == shown
    assert math.isnan(found.latest_end_s)


def test_the_goal_of_an_evaluation_is_shown(make_report: MakeReport) -> None:
    progress = Progress(first_evaluation=0.0, last_evaluation=9.0)
    found = seen(progress, make_report(), evaluation_return_mean=18)
    assert found is not None
    assert found.text == "evaluation's return 9.0, goal 18 (50 %)"


def test_the_limit_that_is_reached_first_counts(make_report: MakeReport) -> None:
    found = seen(Progress(), make_report(), time_total_s=4000, training_iteration=5)
    assert found is not None
    assert found.text == "20 % of iterations; ends in about 40 s"


def test_steps_that_have_not_begun_have_no_end_in_sight(make_report: MakeReport) -> None:
    found = seen(Progress(), make_report(env_steps=0), num_env_steps_sampled_lifetime=4000)
    assert found is not None
    assert found.text == "0 % of steps; its end is not known yet"


def test_a_goal_is_not_measured_before_100_episodes(make_report: MakeReport) -> None:
    report = make_report(return_mean=0.0)
    assert seen(Progress(), report, episode_return_mean=18) is None
    found = seen(Progress(), report, episode_return_mean=18, time_total_s=40)
    assert found is not None
    assert found.text == "25 % of time; ends in 30 s at the latest"


def test_a_run_without_criteria_has_no_end(make_report: MakeReport, full: Progress) -> None:
    assert seen(full, make_report()) is None


@pytest.mark.parametrize(
    "stop", [{"time_total_s": 9}, {"num_env_steps_sampled_lifetime": 900}], ids=["time", "steps"]
)
def test_beyond_a_limit_no_time_is_left(make_report: MakeReport, stop: dict[str, float]) -> None:
    found = seen(Progress(), make_report(), **stop)
    assert found is not None
    assert (found.fraction, found.latest_end_s) == (1, 0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(29.2, "30 s"), (90, "90 s"), (91, "2 min"), (3420, "57 min"), (7500, "2 h 05 min")],
)
def test_a_time_to_come_is_rounded_up(seconds: float, words: str) -> None:
    assert duration(seconds) == words


# In a pipe


@pytest.fixture
def pipe() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def view(pipe: io.StringIO) -> View:
    return View(pipe, Experiment(stop=Stop(time_total_s=40)))


@pytest.mark.parametrize(
    "words",
    [
        "0:10",
        "return -20.50 (best 1.50)",
        "steps 1,000 (100/s)",
        "env runners 2/3",
        "25 % of time; ends in 30 s",
    ],
)
def test_a_pipe_gets_a_line(
    view: View, pipe: io.StringIO, make_report: MakeReport, full: Progress, words: str
) -> None:
    view.update(make_report(return_mean=-20.5), full, total_env_runners=3)
    assert words in pipe.getvalue()


def test_a_return_not_yet_known_is_a_dash(
    view: View, pipe: io.StringIO, make_report: MakeReport
) -> None:
    view.update(make_report(), Progress(), total_env_runners=3)
    assert "return - (best -)" in pipe.getvalue()


def test_hours_are_shown_as_hours(view: View, pipe: io.StringIO, make_report: MakeReport) -> None:
    view.update(make_report(time_total_s=3725.0), Progress(), total_env_runners=3)
    assert pipe.getvalue().startswith("1:02:05  ")


def test_a_pipe_gets_one_line_for_many_quick_iterations(
    view: View, pipe: io.StringIO, make_report: MakeReport
) -> None:
    for _ in range(5):
        view.update(make_report(), Progress(), total_env_runners=3)
    assert pipe.getvalue().count("\n") == 1


def test_a_pipe_gets_no_colours(view: View, pipe: io.StringIO, make_report: MakeReport) -> None:
    view.wait_for("Starting env runners")
    view.update(make_report(), Progress(), total_env_runners=3)
    view.stop()
    assert "\x1b" not in pipe.getvalue()


def test_a_pipe_has_a_line_for_what_is_waited_for(view: View, pipe: io.StringIO) -> None:
    view.wait_for("Starting env runners")
    assert pipe.getvalue() == "Starting env runners ...\n"


def test_a_long_line_stays_one_line(view: View, pipe: io.StringIO) -> None:
    view.say("x" * 500)
    assert pipe.getvalue() == "x" * 500 + "\n"


def test_square_brackets_are_said_as_they_are(view: View, pipe: io.StringIO) -> None:
    view.say("[/old] [bold]path[/bold]")
    assert pipe.getvalue() == "[/old] [bold]path[/bold]\n"


# On a terminal


def shown(report: Report, progress: Progress, where: str = "run abc") -> str:
    """Returns what a terminal shows of a run that is stopped after one report."""
    terminal = Terminal()
    view = View(terminal, Experiment(stop=Stop(time_total_s=40)))
    view.where = where
    view.wait_for("Starting env runners")
    try:
        view.update(report, progress, total_env_runners=3)
    finally:
        view.stop()
    return terminal.getvalue()


def visible(output: str) -> str:
    """Returns the visible part of a terminal's output, without colours and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)


@pytest.mark.parametrize(
    "words",
    [
        "╭─ IMPALA on PongNoFrameskip-v4",
        "-20.50  (best 1.50, 3 episodes)",
        "1,000  (100/s sampled, 90/s trained)",
        "2 of 3 alive",
        "0:10  (iteration 1)",
        "25 % of time; ends in 30 s",
        "run abc",
    ],
)
def test_a_terminal_shows_a_panel(make_report: MakeReport, full: Progress, words: str) -> None:
    assert words in visible(shown(make_report(return_mean=-20.5), full))


def test_a_terminal_shows_what_is_waited_for_and_for_how_long() -> None:
    terminal = Terminal()
    view = View(terminal, Experiment())
    view.wait_for("Starting env runners")
    view.wait_for("Waiting for the first learner update")
    view.stop()
    assert "Waiting for the first learner update 0:00:00" in visible(terminal.getvalue())


def test_square_brackets_are_shown_as_they_are(make_report: MakeReport) -> None:
    where = "MLflow is unreachable (no [/api] at [bold])"
    assert where in visible(shown(make_report(), Progress(), where))


def test_the_cursor_is_back_after_the_panel(make_report: MakeReport) -> None:
    assert shown(make_report(), Progress()).rstrip().endswith("\x1b[?25h")
