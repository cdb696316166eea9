"""`volley jupyter` starts JupyterLab on the head once, and leads to it through a tunnel."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.free_port import free_port
from tests.volley.conftest import Laptop, outputs_of
from tests.volley.far_head import FarHead, read, tunnel
from tests.volley.head import listens, program, until

pytestmark = pytest.mark.slow

SYSTEMCTL = """\
echo "$*" >> {root}/systemctl
case $1 in
  start)
    mkdir -p {root}/run/jupyter
    echo '{{"pid": 1, "port": {port}, "token": "'$$'"}}' > {root}/run/jupyter/jpserver-1.json;;
  stop) rm -rf {root}/run/jupyter;;
esac
"""
"""The unit, in the part that volley sees: a server with a new token."""
DOES_NOT_START = """\
echo "Job for jupyter.service failed because the control process exited with error code." >&2
echo 'See "systemctl status jupyter.service" for details.' >&2
exit 1
"""


class JupyterHead:
    """A head whose page is JupyterLab's."""

    def __init__(self, head: FarHead) -> None:
        self.head, self.port = head, head.port
        self.systemctl(SYSTEMCTL.format(root=head.root, port=head.port))

    def systemctl(self, script: str) -> None:
        program(self.head.folder / "programs/systemctl", script)

    @property
    def runtime(self) -> Path:
        return self.head.root / "run/jupyter"

    @property
    def calls(self) -> list[str]:
        file = self.head.root / "systemctl"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def head(far_head: FarHead) -> JupyterHead:
    return JupyterHead(far_head)


@pytest.fixture
def connected(laptop: Laptop, far_head: FarHead) -> Laptop:
    laptop.outputs(**outputs_of(far_head))
    return laptop


def address(output: str) -> str:
    (line,) = [line for line in output.splitlines() if line.startswith("JupyterLab  ")]
    return line.split()[-1]


def test_jupyterlab_starts_once_and_runs_until_it_is_stopped(
    connected: Laptop, head: JupyterHead
) -> None:
    first, second = free_port(), free_port()
    with tunnel(connected, "jupyter", "--port", str(first)) as (process, output):
        opened = address(output.text)
        assert opened.startswith(f"http://127.0.0.1:{first}/lab?token=")
        assert read(first) == b"a page of the head"
        said = connected.volley("jupyter", "--port", str(first), code=2)
        assert said == f"port {first} is in use. Next: volley jupyter --port {first + 1}"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    assert not listens(first)
    with tunnel(connected, "jupyter", "--port", str(second)) as (_, output):
        assert address(output.text) == opened.replace(str(first), str(second))
    assert head.calls == ["start jupyter.service"]
    assert connected.volley("jupyter", "--stop") == "JupyterLab has stopped.\n"
    assert not head.runtime.exists()


def test_a_lost_tunnel_is_opened_again_while_jupyterlab_runs(
    connected: Laptop, head: JupyterHead
) -> None:
    port = free_port()
    with tunnel(connected, "jupyter", "--port", str(port)) as (process, output):
        head.head.stop()
        head.head.start()
        until(lambda: "Connected again." in output.text)
        assert read(port) == b"a page of the head"
        # The head has slept, for example.
        head.head.stop()
        (head.runtime / "jpserver-1.json").unlink()
        head.head.start()
        assert process.wait(timeout=60) == 2
        last = output.text.splitlines()[-1]
    assert last == "volley: JupyterLab has ended on the head. Next: volley jupyter"
    assert head.calls == ["start jupyter.service"]


def test_a_start_that_fails_is_told(connected: Laptop, head: JupyterHead) -> None:
    head.systemctl(DOES_NOT_START)
    with connected.start("jupyter", "--port", str(free_port())) as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 2, out
    assert err == (
        "volley: JupyterLab did not start: Job for jupyter.service failed because the control "
        "process exited with error code. Next: volley logs --unit 'jupyter*'\n"
    )
