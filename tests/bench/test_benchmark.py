"""The pure parts of the benchmark: figures, bars, tables, files, process trees."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console
from rich.table import Table

from bench.benchmark import bench, compare
from bench.intervals import Interval
from bench.limits import Limit, synthetic_fragment
from bench.parts import measure, measure_imports, parts
from bench.process import Child, MeasurementError, error_in, pss_bytes, total_pss_bytes
from bench.table import (
    Bar,
    Comparison,
    Figure,
    Measured,
    comparison_table,
    figure_table,
    number,
    over_rounds,
    write_json,
)
from bench.trainer import (
    SETTLE_S,
    Row,
    read_progress,
    rows_while_learning,
    settled,
    solved,
    span_s,
    steps_per_s,
)
from payload.environments.atari import AtariSettings
from payload.errors import UserError
from payload.run.run_folder import RunFolder
from tests.payload.command_line import wait_for
from tests.payload.conftest import FIRST_REPORT
from tests.payload.impala.stacks import stacks_of

PONG = Path(__file__).parents[2] / "experiments/pong.yaml"
ROLLUP = """\
55d7a5a3c000-7ffd2f5fe000 ---p 00000000 00:00 0                  [rollup]
Rss:               10240 kB
Pss:                2048 kB
Pss_Dirty:          1024 kB
"""


def text_of(table: Table, width: int = 160) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def row(env_steps: int, seconds: float, trained_per_s: float = 1.0, mean: float = 0.0) -> Row:
    return Row(env_steps, seconds, episodes=200, return_mean=mean, trained_per_s=trained_per_s)


def test_pss_is_read_in_bytes_and_not_mistaken_for_its_dirty_part() -> None:
    assert pss_bytes(ROLLUP) == 2048 * 1024
    assert pss_bytes("") == 0


def test_memory_of_a_tree_is_the_sum_over_the_processes_that_still_live(tmp_path: Path) -> None:
    for pid in (10, 11):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "smaps_rollup").write_text(ROLLUP)
    assert total_pss_bytes([10, 11, 12], proc=tmp_path) == 2 * 2048 * 1024


def test_rate_counts_from_the_first_learner_update_on() -> None:
    rows = [row(0, 5, trained_per_s=0), row(1_000, 10), row(5_000, 12), row(9_000, 14)]
    learning = rows_while_learning(rows)
    assert learning == rows[1:]
    assert span_s(learning) == 4
    assert steps_per_s(learning) == 2_000


def test_throughput_counts_from_when_the_run_has_settled() -> None:
    rows = [
        row(1_000, 10),
        row(2_000, 10 + SETTLE_S - 1),
        row(9_000, 10 + SETTLE_S),
        row(9_500, 60),
    ]
    assert settled(rows) == rows[2:]


def test_nothing_is_learned_before_the_first_update() -> None:
    assert rows_while_learning([row(0, 5, trained_per_s=0)]) == []
    assert span_s([]) == 0


def test_a_seed_is_solved_only_with_a_mean_of_all_its_episodes() -> None:
    lucky = Row(1_000, 5, episodes=3, return_mean=20.0, trained_per_s=1.0)
    unknown = Row(1_000, 5, episodes=0, return_mean=math.nan, trained_per_s=1.0)
    assert solved([unknown, lucky, row(2_000, 10, mean=17.9)], 18) is None
    assert solved([lucky, row(2_000, 10, mean=18.0)], 18) == row(2_000, 10, mean=18.0)


def test_progress_is_read_as_the_trainer_writes_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    before = replace(FIRST_REPORT, episodes=0)
    after = replace(
        FIRST_REPORT, env_steps=1024, time_total_s=10.2, return_mean=-20.5, trained_per_s=100.0
    )
    for report in (before, after):
        folder.append_progress(report)
    first, second = read_progress(folder.progress_file)
    assert math.isnan(first.return_mean)
    assert second == Row(1024, 10.2, 3, -20.5, 100.0)


def measured(**rounds: float | list[float]) -> dict[str, Measured]:
    figures = []
    for name, values in rounds.items():
        for turn, value in enumerate(values if isinstance(values, list) else [values], start=1):
            figures.append(Figure(name, value, "steps/s", name, turn))
    return over_rounds(figures)


def test_stock_counts_with_the_env_runners_that_serve_it_best() -> None:
    figures = measured(
        trainer_steps_per_s_2=5_000.0,
        stock_steps_per_s_1=400.0,
        stock_steps_per_s_2=500.0,
        emulator_steps_per_s=6_250.0,
        driver_cpu_us_per_1000_steps_1=100.0,
        driver_cpu_us_per_1000_steps_4=120.0,
    )
    compared = {comparison.name: comparison for comparison in compare(figures)}
    assert compared["trainer_over_stock"].value == pytest.approx(10.0)
    assert compared["trainer_over_stock"].met
    assert compared["trainer_over_emulator"].value == pytest.approx(0.8)
    assert compared["driver_cost_growth"].value == pytest.approx(1.2)
    assert not compared["driver_cost_growth"].met


def test_a_ratio_is_the_median_of_the_rounds_on_a_machine_that_drifts() -> None:
    # The ratio of the medians would be 0.75 (3,000 / 4,000).
    figures = measured(
        trainer_steps_per_s_2=[1_000.0, 3_000.0, 6_000.0],
        emulator_steps_per_s=[2_000.0, 6_000.0, 4_000.0],
    )
    (ratio,) = compare(figures)
    assert ratio.value == pytest.approx(0.5)
    assert (ratio.interval.low, ratio.interval.high) == (0.5, 1.5)


def test_a_round_with_a_failed_part_has_no_ratio() -> None:
    figures = measured(trainer_steps_per_s_2=[1_000.0, 3_000.0], emulator_steps_per_s=2_000.0)
    assert [comparison.value for comparison in compare(figures)] == [0.5]


@pytest.mark.parametrize(
    ("figure", "within", "beyond"),
    [
        ("startup_s", 11.0, 11.1),
        ("trainer_peak_memory_gb", 3.0, 3.1),
        ("fragment_bytes_per_step", 256.0, 257.0),
        ("callback_percent", 1.0, 1.1),
    ],
)
def test_a_part_is_held_against_its_bar(figure: str, within: float, beyond: float) -> None:
    met = [compare(measured(**{figure: value}))[0].met for value in (within, beyond)]
    assert met == [True, False]


def test_a_failed_part_leaves_only_its_own_comparisons_out() -> None:
    figures = measured(trainer_steps_per_s_1=3_000.0, emulator_steps_per_s=6_250.0)
    assert [comparison.name for comparison in compare(figures)] == ["trainer_over_emulator"]
    assert compare({}) == []


def test_measurements_that_are_compared_alternate() -> None:
    planned = parts(60, cores=2, rounds=3)
    names = [part.name for part in planned if part.round == 2]
    assert names[0] == "emulator"
    assert names[-1] == "trainer, 2 env runners"
    assert [part.name for part in planned][: 3 * len(names)] == 3 * names


def test_every_part_has_a_log_of_its_own() -> None:
    for cores in (1, 2, 6):
        planned = parts(60, cores, rounds=2)
        assert len({part.log_name for part in planned}) == len(planned)


def test_tables_show_figures_and_whether_a_bar_is_met() -> None:
    figures = measured(trainer=[3_456.7, 3_356.7, 3_556.7], memory=2.5)
    lines = text_of(figure_table(figures.values())).splitlines()
    assert any("trainer" in line and "3,457 (3,357 to 3,557)" in line for line in lines)
    assert any("memory" in line and "2.5 " in line for line in lines)
    met = Comparison("a", "trainer / stock", Interval.point(7.25), Bar(7, "at least"))
    missed = Comparison("b", "driver", Interval.point(1.3), Bar(1.1, "at most"))
    lines = text_of(comparison_table([met, missed])).splitlines()
    assert any("7.25" in line and "at least 7" in line and "met" in line for line in lines)
    assert any("1.3" in line and "at most 1.1" in line and "missed" in line for line in lines)


@pytest.mark.parametrize(
    ("value", "text"), [(12_345.6, "12,346"), (0.6049, "0.605"), (math.inf, "never")]
)
def test_numbers_are_shown_as_people_read_them(value: float, text: str) -> None:
    assert number(value) == text


def test_the_file_is_json_also_where_a_number_is_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    write_json(path, {"a": math.inf, "b": [math.nan, 1.5], "c": {"d": True}})
    assert json.loads(path.read_text()) == {"a": None, "b": [None, 1.5], "c": {"d": True}}
    assert list(tmp_path.iterdir()) == [path]


def test_a_system_that_cannot_be_measured_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)  # As on macOS.
    with pytest.raises(UserError, match="bench: needs Linux"):
        bench(1.0, 1, tmp_path)


def test_a_synthetic_fragment_has_the_shape_of_a_real_one() -> None:
    fragment = synthetic_fragment(8, 3, AtariSettings("pong"))
    assert len(fragment) == 24
    assert stacks_of(fragment).shape == (3, 9, 4, 42, 42)


def test_the_line_that_says_why_is_found_in_a_failed_childs_output() -> None:
    output = "Building ...\nFAILED: no space left\nNext:\nSee driver_log.txt\n"
    assert error_in(output) == "FAILED: no space left"
    assert error_in("Traceback:\n  File\nray.exceptions.RayError: gone\nbye\n").endswith("gone")
    assert error_in("something\n\n") == "something"
    assert error_in("") == "no output"


@pytest.mark.slow
def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise ValueError('too few cores')"]
    with (
        pytest.raises(MeasurementError, match="exit code 1: ValueError: too few cores"),
        Child(command, tmp_path / "log") as child,
    ):
        child.wait_for(lambda: False, timeout_s=60)


@pytest.mark.slow
def test_a_failed_import_has_no_time(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="exit code 1: ModuleNotFoundError: No module"):
        measure_imports(tmp_path / "log", "import no_such_package")


@pytest.mark.slow
def test_an_interrupted_measurement_leaves_no_process_behind(tmp_path: Path) -> None:
    # The grandchild outlives its parent, as Ray's daemons do.
    script = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "print(p.pid, flush=True); time.sleep(600)"
    )
    log = tmp_path / "log"

    def interrupted() -> None:
        with Child([sys.executable, "-c", script], log) as child:
            child.wait_for(lambda: log.read_text().strip(), timeout_s=60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not psutil.pid_exists(int(log.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_benchmark_that_is_ended_leaves_no_process_behind(
    tmp_path: Path, sent: signal.Signals
) -> None:
    log = tmp_path / "log"
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from bench.process import Child, unwind_on_signals\n"
        "unwind_on_signals()\n"
        f"with Child([sys.executable, '-c', {child!r}], Path(sys.argv[1])) as child:\n"
        "    child.wait(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(log)]) as benchmark:
        wait_for(lambda: log.exists() and log.read_text().strip())
        benchmark.send_signal(sent)
        assert benchmark.wait(60) == 128 + sent
    assert not psutil.pid_exists(int(log.read_text()))


@pytest.mark.slow
def test_a_benchmark_under_nohup_outlives_its_terminal() -> None:
    script = (
        "import signal\n"
        "from bench.process import unwind_on_signals\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "unwind_on_signals()\n"
        "signal.raise_signal(signal.SIGHUP)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.slow
def test_memory_is_measured_while_waiting(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with Child(command, tmp_path / "log", measure_memory=True) as child:
        child.wait_for(lambda: child.peak_memory_bytes > 1_000_000, timeout_s=60)


@pytest.mark.slow
def test_a_part_runs_in_a_process_of_its_own_and_writes_its_figures(tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    subprocess.run(
        [sys.executable, "-m", "bench.limits", str(outcome), '{"part": "fragment"}'],
        check=True,
        timeout=120,
    )
    # A Pong frame has 42 * 42 bytes; it is sent once, compressed.
    assert 12 < json.loads(outcome.read_text())["bytes_per_step"] < 256


@pytest.mark.slow
def test_a_part_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="exit code 1: KeyError: 'no such part'"):
        measure(Limit("no such part"), tmp_path / "log")
