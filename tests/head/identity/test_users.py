"""identity.service among a machine's real users: who may ask it, and what each of them may read.

All run the system's Python, as its unit does.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from head.identity.mlflow_token import ADDRESS, PATH, STORAGE
from infra.boot.cloud_config import FILES
from infra.boot.head_wheel import UNITS, head_files
from tests.machine_users import SYSTEM_PYTHON, MachineUsers, machine_users, why_not

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

INSTALL = Path(FILES).parent / "install_head.sh"
METADATA = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())
server = http.server.HTTPServer(("169.254.169.254", 80), Handler)
print(flush=True)
server.serve_forever()
"""
READ = """
import sys
from pathlib import Path
from head.paths import RUNS
from head.run_files import entries, opened
for path, folder in entries(RUNS, print):
    try:
        with opened(path.name, folder) as (file, _):
            print(path.relative_to(RUNS), file.read().decode())
    except OSError as error:
        print(path.relative_to(RUNS), error.strerror)
"""
TOKEN = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={} if sys.argv[2:] else {"Metadata": "true"})
try:
    print(urllib.request.urlopen(request, timeout=5).read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""


class Head:
    """The folders of a head with their owners, below a folder; identity.service runs."""

    def __init__(self, users: MachineUsers) -> None:
        self.users, self.root = users, users.folder / "head"
        self.home = self.root / "var/lib/volley"
        for name, content in head_files().items():
            path = self.root / "software" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for folder in ("etc/volley", "run", "opt/volley/venv/bin", "var/lib"):
            (self.root / folder).mkdir(parents=True)
        python = self.root / "opt/volley/venv/bin/python"
        python.symlink_to(SYSTEM_PYTHON)
        users.do("install", "--directory", "--mode=0750", "--owner=ray", "--group=ray", self.home)
        for line in re.findall("^install --directory .* /var/.*$", INSTALL.read_text(), re.M):
            users.do(*line.replace("/var", f"{self.root}/var").split())
        own = ("--mode=0750", "--owner=identity", "--group=ray")  # As RuntimeDirectory=.
        users.do("install", "--directory", *own, self.root / "run/volley-identity")
        self.environment = [
            "env",
            f"VOLLEY_ROOT={self.root}",
            f"PYTHONPATH={self.root}/software",
            "PYTHONDONTWRITEBYTECODE=1",
            "AZURE_CLIENT_ID=heads",
            "MLFLOW_CLIENT_ID=mlflows",
        ]

    def of_identity(self, *words: str) -> list[str]:
        """Returns a command as identity.service has it."""
        unit = (UNITS / "identity.service").read_text()
        (granted,) = re.findall("^AmbientCapabilities=(.*)$", unit, re.M)
        rights = ",".join(f"+{right.removeprefix('CAP_').lower()}" for right in granted.split())
        (mask,) = re.findall("^UMask=(.*)$", unit, re.M)
        own = ["sh", "-c", f'umask {mask}; exec "$@"', "sh", *self.environment, *words]
        return self.users.command("identity", *own, group="ray", rights=rights)

    def run(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.users.run(user, *self.environment, SYSTEM_PYTHON, *words)


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with machine_users() as users:
        users.do("ip", "address", "add", "169.254.169.254", "dev", "lo")
        users.do("nft", "--file", FILES / "common/etc/volley/metadata.nft")
        found = Head(users)
        metadata = users.command("root", SYSTEM_PYTHON, "-c", METADATA)
        service = found.of_identity(SYSTEM_PYTHON, "-m", "head.identity.server")
        with (
            subprocess.Popen(metadata, stdout=subprocess.PIPE) as answers,
            subprocess.Popen(service, cwd="/") as serves,
        ):
            assert answers.stdout is not None
            answers.stdout.readline()
            while not (found.root / "run/volley-identity/socket").exists():
                assert serves.poll() is None
                time.sleep(0.05)
            yield found
            serves.kill()
            answers.kill()


def test_ray_and_root_may_ask_it_and_nobody_else(head: Head) -> None:
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    where = f"{head.root}/run/volley-identity/socket"
    everybody = ("root", "ray", "mlflow", "1000")
    done = {user: head.run(user, "-c", connect, where) for user in everybody}
    assert [user for user, one in done.items() if one.returncode == 0] == ["root", "ray"]
    assert "PermissionError" in done["mlflow"].stderr


def test_an_experiment_can_change_neither_settings_nor_marks(head: Head) -> None:
    places = ("etc/volley/x", "var/lib/volley-identity/x", "var/lib/volley-mlflow/x", "software/x")
    for place in places:
        for user in ("ray", "mlflow") if "mlflow" not in place else ("ray",):
            done = head.run(user, "-c", f"open('{head.root}/{place}', 'w')")
            assert "PermissionError" in done.stderr, (user, place)
    done = head.run("ray", "-c", f"import os; os.listdir('{head.root}/var/lib/volley-mlflow')")
    assert "PermissionError" in done.stderr


def test_it_saves_private_files_and_follows_no_link(head: Head) -> None:
    secret = head.root / "etc/volley/secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    write = f"""
import os
os.umask(0o077)
os.makedirs("{head.home}/runs/key")
open("{head.home}/runs/key/weights", "w").write("learned")
os.symlink("{secret}", "{head.home}/runs/key/link")
os.symlink("{secret.parent}", "{head.home}/runs/folder")
"""
    assert head.run("ray", "-c", write).returncode == 0
    read = subprocess.run(
        head.of_identity(SYSTEM_PYTHON, "-c", READ), capture_output=True, text=True, check=True
    )
    assert "key/weights learned\n" in read.stdout
    assert "secret\n" not in read.stdout
    move = f"import os; os.rename('{head.home}/runs', '{head.home}/old'); "
    move += f"os.symlink('{secret.parent}', '{head.home}/runs')"
    assert head.run("ray", "-c", move).returncode == 0
    read = subprocess.run(
        head.of_identity(SYSTEM_PYTHON, "-c", READ), capture_output=True, text=True, check=True
    )
    assert read.stdout == ""


def test_what_it_writes_ray_may_read_and_take_the_lock(head: Head) -> None:
    mark = "from head.files import replace; from head.marks import MARKS; MARKS.mkdir();"
    mark += "(MARKS / 'key').write_text('mark')"
    subprocess.run(head.of_identity(SYSTEM_PYTHON, "-c", mark), check=True)
    look = "from head.disk import _saves_paused; from head.marks import MARKS\n"
    look += "with _saves_paused(): print((MARKS / 'key').read_text())"
    assert head.run("ray", "-c", look).stdout == "mark\n"


def test_mlflow_gets_tokens_of_its_own_identity_for_the_results_alone(head: Head) -> None:
    address = "http://{}:{}".format(*ADDRESS)
    url = f"{address}/metadata/{PATH}?client_id=heads&resource="
    answer = head.run("mlflow", "-c", TOKEN, f"{url}{STORAGE}").stdout
    assert "client_id=mlflows" in answer
    assert "heads" not in answer
    assert head.run("mlflow", "-c", TOKEN, f"{url}https://management.azure.com").stdout == "403\n"
    # As a request that MLflow's server was led to make.
    assert head.run("mlflow", "-c", TOKEN, f"{url}{STORAGE}", "bare").stdout == "404\n"
    instance = f"{address}/metadata/instance"
    assert head.run("mlflow", "-c", TOKEN, instance).stdout == "404\n"
    for user in ("ray", "root"):
        assert "Connection refused" in head.run(user, "-c", TOKEN, f"{url}{STORAGE}").stderr


def test_no_experiment_can_answer_in_its_place(head: Head) -> None:
    bind = "import socket; socket.create_server(('127.0.0.2', {}))"
    assert "PermissionError" in head.run("ray", "-c", bind.format(ADDRESS[1])).stderr
    replace = f"import os; os.rename('{head.root}/run/volley-identity', '{head.root}/run/other')"
    assert "PermissionError" in head.run("ray", "-c", replace).stderr
