"""The `volley` command: its help, errors, imports and shell completion."""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tomllib

import pytest

import payload
from tests.documents import document
from tests.project import ROOT
from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead
from volley.arguments import parse, parser
from volley.cli import COMMANDS, main


def verbs(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = [a for a in of._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(found.choices)


def test_every_verb_and_option_is_documented() -> None:
    text = document("docs/operate.md")
    documented = set(re.findall(r"^\| `volley ([a-z-]+)", text, re.MULTILINE))
    assert documented == set(verbs(parser()))
    own = set(documented) - {"train", "tune", "evaluate", "export", "run", "bench"}
    options = {
        option
        for name, verb in verbs(parser()).items()
        if name in own
        for option in verb._option_string_actions
        if option.startswith("--") and option not in {"--help", "--results"}
    }
    assert [option for option in options if f"`{option}" not in text] == []


def test_without_a_command_the_help_shows_every_one_in_two_groups(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 0
    here, cluster = capsys.readouterr().out.split("on this machine:\n")[1].split("on the cluster:")
    names = {group: re.findall(r"^  ([a-z-]+) ", group, re.MULTILINE) for group in (here, cluster)}
    assert {"train", "tune", "evaluate", "ui", "bench", "new"} < set(names[here])
    assert {"up", "down", "status", "submit", "dashboard"} < set(names[cluster])
    assert sorted([*names[here], *names[cluster]]) == sorted(verbs(parser())) == sorted(COMMANDS)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"volley {payload.__version__}\n"


@pytest.mark.parametrize("verb", ["evaluate", "submit", "up"])
def test_usage_lines_have_the_commands_name(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([verb, "--help"])
    assert f"usage: volley {verb}" in capsys.readouterr().out


def test_the_options_of_up_are_pulumis() -> None:
    assert parse(["up", "--stack", "dev", "-y"]).pulumi == ["--stack", "dev", "-y"]


def test_a_laptop_without_ray_is_told_what_training_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["train"]) == 2
    assert capsys.readouterr().err == "volley: Ray is not installed. Next: make .venv/payload\n"


def test_a_laptop_without_onnx_is_told_what_export_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert main(["export", "--onnx", "policy.onnx"]) == 2
    said = "volley: onnxscript is not installed. Next: make .venv/onnx\n"
    assert capsys.readouterr().err == said


def test_an_unknown_verb_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statsu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("volley: 'statsu' is not a command (did you mean status?). Next: ")
    assert line.endswith("volley --help")


def test_the_start_of_an_experiment_is_told_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "pong"]) == 2
    assert capsys.readouterr().err.endswith("not an experiment. Next: volley resume pong\n")


def test_an_unknown_option_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--jsno"]) == 2
    assert "--jsno (did you mean --json?)" in capsys.readouterr().err


@pytest.mark.parametrize("lines", ["0", "-1", "x"])
def test_lines_that_are_not_a_number_are_reported(
    capsys: pytest.CaptureFixture[str], lines: str
) -> None:
    assert main(["logs", "pong", f"--lines={lines}"]) == 2
    said = f"volley: argument --lines: '{lines}' must be a whole number from 1 to 999999999\n"
    assert capsys.readouterr().err == said


@pytest.mark.slow
def test_asking_the_head_imports_nothing_heavy(connected: Laptop) -> None:
    code = (
        "import sys; from volley.cli import main; main(['status'])\n"
        "print({name.split('.')[0] for name in sys.modules} & "
        "{'azure', 'ray', 'torch', 'pulumi', 'pydantic', 'yaml', 'numpy', 'mlflow', 'infra'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=connected.folder,
        env=connected.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "set()", done.stdout


@pytest.mark.slow
def test_the_python_interface_imports_nothing_of_training() -> None:
    code = (
        "import sys, volley; before = set(sys.modules)\n"
        "print(sorted(name for name in before if name.startswith(('volley.', 'payload'))))\n"
        "volley.Cluster, volley.train, volley.Run, volley.UserError\n"
        "print({name.split('.')[0] for name in sys.modules} & "
        "{'azure', 'ray', 'torch', 'pulumi', 'numpy', 'pandas', 'matplotlib', 'mlflow', 'IPython'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "set()"]


@pytest.mark.slow
def test_ctrl_c_while_python_imports_is_one_line(laptop: Laptop) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "volley", "status"]
    with subprocess.Popen(
        command,
        cwd=laptop.folder,
        env=laptop.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        # volley.cli imports argparse first and other modules after it.
        while not (line := process.stderr.readline()).endswith(" argparse\n"):
            assert line
        process.send_signal(signal.SIGINT)
        said = [line for line in process.stderr if not line.startswith("import time:")]
    assert process.returncode == 130
    assert [line for line in said if line.strip()] == ["volley: interrupted\n"]


def test_the_command_is_the_module() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"volley": "volley.__main__:main"}


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(laptop: Laptop, shell: str) -> None:
    assert "volley" in laptop.volley("completion", shell)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "completed"),
    [("volley logs p", ["pong"]), ("volley train --res", ["--results", "--resume"])],
)
def test_bash_completes_options_and_the_experiments_of_the_last_status(
    connected: Laptop, head: LocalHead, line: str, completed: list[str]
) -> None:
    head.experiment("pong")
    connected.volley("status")
    done = subprocess.run(
        [sys.executable, "-m", "volley"],
        cwd=connected.folder,
        env={
            **connected.environment,
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(connected.folder / "completions"),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        },
        check=True,
    )
    assert done.returncode == 0
    assert sorted((connected.folder / "completions").read_text().split()) == completed


def test_nothing_of_the_laptop_travels_to_the_cluster() -> None:
    imports = imports_of_the_cluster()
    assert [line for line in imports if re.match(r"\s*(from|import) volley", line)] == []


def imports_of_the_cluster() -> list[str]:
    files = [
        path for folder in ("payload", "infra", "head") for path in (ROOT / folder).rglob("*.py")
    ]
    lines = [line for path in files for line in path.read_text().splitlines()]
    return [line for line in lines if re.match(r"\s*(from|import) ", line)]


def test_the_payload_imports_no_benchmark() -> None:
    text = "".join(path.read_text() for path in (ROOT / "payload").rglob("*.py"))
    assert re.findall(r"^\s*(?:from|import) bench.*", text, re.MULTILINE) == []


def test_the_laptop_imports_of_the_other_packages_what_it_may() -> None:
    allowed = {
        "bench.arguments",
        "bench.command",
        "head.archive",
        "head.below",
        "head.command.tensorboard",
        "head.database_snapshot",
        "head.files",
        "head.queue.record",
        "head.resource_manager",
        "head.saved_database",
        "head.saved_runs",
        "infra.__main__",
        "infra.project_files",
        "infra.up.deploy",
        "payload.archive",
        "payload.checkpoint_names",
        "payload.command_line",
        "payload.commands.arguments",
        "payload.commands.convert",
        "payload.commands.evaluate",
        "payload.commands.export",
        "payload.commands.plot",
        "payload.commands.run_script",
        "payload.commands.runs",
        "payload.commands.train",
        "payload.commands.tune",
        "payload.errors",
        "payload.experiment",
        "payload.experiment.bounded_yaml",
        "payload.experiment.file",
        "payload.experiment.old_tables",
        "payload.experiment.script",
        "payload.may_pass",
        "payload.notification",
        "payload.parcel",
        "payload.run.driver_lock",
        "payload.run.run_folder",
        "payload.run.run_status",
        "payload.run.undelivered",
        "payload.tracking.learning_curve",
        "payload.tracking.metrics",
        "payload.tracking.mlflow_experiment",
        "payload.tracking.mlflow_run",
    }
    text = "".join(path.read_text() for path in (ROOT / "volley").glob("*.py"))
    packages = "bench|head|infra|payload|rehearsal"
    assert set(re.findall(rf"from ((?:{packages})[\w.]*) import", text)) - allowed == set()
