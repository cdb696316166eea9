"""A notification: tells a URL or a command that an experiment has ended.

The driver sends it on a laptop, the queue on a cluster: the link head/notification.py puts this
file into the head's package. It needs only the standard library.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

VARIABLE = "VOLLEY_NOTIFY"
"""Has what a file does not: a URL, and a command with one."""
BY_QUEUE = "VOLLEY_NOTIFIED_BY_QUEUE"
"""Set in the jobs of a cluster, whose queue knows every end."""
NAMED = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
URL = re.compile(r"(https?://)(?:[^\s/@]*@)?([^\s/?#'\"]+)[^\s'\"]*", re.IGNORECASE)
OTHER_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://\S*", re.IGNORECASE)
AZURES_AGENT = ipaddress.ip_address("168.63.129.16")
TRY_S = 5.0
COMMAND_S = 10.0
LAPTOPS_PAUSES_S = (1.0, 2.0)
"""Between tries of a URL, while somebody may be waiting for the terminal."""
QUEUES_PAUSES_S = (2.0, 10.0, 30.0, 60.0)
LIMIT_S = 20.0
"""For a laptop's tries together, and a name that is not resolved."""


class NotifyError(Exception):
    """A URL or a command that cannot be used. Its text is one line without the URL's path."""


@dataclass(frozen=True)
class Notification:
    """The JSON object that is sent, but for its `text`; None for what is not known."""

    name: str
    """Of the experiment on a cluster, of the run's folder on a laptop."""
    env: str | None
    algorithm: str | None
    state: str
    """FINISHED, FAILED or KILLED, as MLflow's."""
    reason: str
    time: str
    """Of the end: ISO 8601, UTC."""
    steps: int | None = None
    """Environment steps."""
    best_return: float | None = None
    """Best mean return of 100 episodes."""
    last_return: float | None = None
    run_id: str | None = None
    """Of the MLflow run."""
    cost: float | None = None
    """US dollars so far, as a cluster's head has divided them."""

    @property
    def text(self) -> str:
        """One line with the end; chats show the key `text`."""
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.name}: {self.state}{reason}"

    def without(self, secrets: Iterable[str]) -> Notification:
        """Returns it with *** in place of each secret."""
        reason = self.reason
        for secret in filter(None, secrets):
            reason = reason.replace(secret, "***")
        return replace(self, reason=reason)

    def to_json(self) -> bytes:
        return json.dumps({"text": self.text, **asdict(self)}).encode()

    def variables(self) -> dict[str, str]:
        """Returns the variables that a command gets besides the JSON on stdin."""
        names = ("name", "state", "reason", "run_id")
        return {f"VOLLEY_{name.upper()}": str(getattr(self, name) or "") for name in names}


def end_time(seconds: float | None = None) -> str:
    """Returns a time, by default now, as a notification has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def variable_of(notify: str) -> str | None:
    """Returns NAME of `$NAME`, the variable that has the URL or the command."""
    match = NAMED.fullmatch(notify.strip())
    return (match["name"] or match["braced"]) if match else None


def in_files(notify: str) -> str:
    """Returns what files have in place of a URL, which may be a secret by itself."""
    return f"${VARIABLE}" if "://" in notify else notify


def masked(text: str) -> str:
    """Returns a text with *** in place of everything in its URLs but scheme and host."""
    return URL.sub(r"\1\2/***", text)


def target_of(notify: str, environment: Mapping[str, str]) -> str:
    """Returns the URL or the command.

    Raises:
        NotifyError: It is in a variable that is not set.
    """
    name = variable_of(notify)
    if name is None:
        return notify.strip()
    if not environment.get(name, "").strip():
        raise NotifyError(f"${name} is not set in the environment")
    return environment[name].strip()


def check(target: str, on_cluster: bool = False) -> None:
    """Raises NotifyError unless it is a command or the URL of a host that may be told."""
    if not target.strip():
        raise NotifyError("must be a URL (http, https), a command, or $NAME of a variable")
    if not is_url(target):
        if OTHER_SCHEME.fullmatch(target):
            scheme = target.partition(":")[0]
            raise NotifyError(f"{scheme}://***: must be an http or https URL, or a command")
        return
    try:
        parts = urllib.parse.urlsplit(target)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise NotifyError(f"{masked(target)}: is not a URL: {masked(str(error))}") from None
    if not host or re.search(r"[\s\x00-\x1f\x7f]", target):
        raise NotifyError(f"{masked(target)}: is not a URL: no host, or a space in it")
    if on_cluster:
        if host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost"):
            raise _refused(host)
        with suppress(socket.gaierror):  # A name: the cluster resolves it.
            _check_addresses(host, socket.AI_NUMERICHOST)


def is_url(target: str) -> bool:
    return target.lower().startswith(("http://", "https://"))


def deliver(
    target: str,
    notification: Notification,
    folder: Path,
    environment: Mapping[str, str],
    on_cluster: bool = False,
    pauses_s: Sequence[float] = LAPTOPS_PAUSES_S,
) -> str:
    """Sends it once; returns "", or why nobody has been told.

    A URL is tried again while no request has reached it, or if it answers that it fails now.
    A request that has arrived is not repeated, whatever the answer, nor is a command.

    Args:
        folder: The working directory of a command.
        environment: Of a command.
        on_cluster: Whether a machine's own services are refused as URL.
        pauses_s: Between the tries.
    """
    try:
        check(target, on_cluster)
        if is_url(target):
            return _post(target, notification.to_json(), on_cluster, pauses_s)
        return _run(target, notification, folder, environment)
    except NotifyError as error:
        return str(error)
    except OSError as error:  # No space for a command's output, no process left ...
        return masked(str(error))


def deliver_within(limit_s: float, *arguments: Any, **options: Any) -> str:
    """Does `deliver`, but returns after `limit_s` in any case: nothing limits a name's lookup."""
    problems = [f"no answer in {limit_s:.0f} s"]

    def work() -> None:
        problems.append(deliver(*arguments, **options))

    thread = threading.Thread(target=work, name="notify", daemon=True)
    thread.start()
    thread.join(limit_s)
    return problems[-1]


def _post(url: str, body: bytes, on_cluster: bool, pauses_s: Sequence[float]) -> str:
    problem, again = _try(url, body, on_cluster)
    for pause in pauses_s:
        if not again:
            break
        time.sleep(pause)
        problem, again = _try(url, body, on_cluster)
    return f"{masked(url)}: {masked(problem)}" if problem else ""


def _try(url: str, body: bytes, on_cluster: bool) -> tuple[str, bool]:
    """Returns why a POST has failed, "" if it has not, and whether another one may help."""
    parts = urllib.parse.urlsplit(url)
    assert parts.hostname, "check has looked"
    headers = {"Content-Type": "application/json", "User-Agent": "volley"}
    user, _, host = parts.netloc.rpartition("@")
    if user:
        login = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        headers["Authorization"] = f"Basic {login}"
    plain = parts._replace(netloc=host, fragment="").geturl()
    try:
        if on_cluster:
            _check_addresses(parts.hostname)
        request = urllib.request.Request(plain, body, headers)
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TRY_S):
            return "", False
    except urllib.error.HTTPError as error:
        with error:
            passes = error.code in (408, 429) or error.code >= 500
            return f"HTTP {error.code} {error.reason}", passes
    except (urllib.error.URLError, socket.gaierror) as error:  # Not connected, or not sent.
        return str(getattr(error, "reason", error)), True
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}; it may have arrived", False
    except ValueError as error:
        return f"is not a URL: {error}", False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: a redirected POST becomes a GET, or reaches another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _check_addresses(host: str, flags: int = 0) -> None:
    """Raises NotifyError if a host is this machine, or a service of Azure for its machines."""
    for *_, address in socket.getaddrinfo(host, None, flags=flags):
        ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
        ip = getattr(ip, "ipv4_mapped", None) or ip
        if ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip == AZURES_AGENT:
            raise _refused(host)


def _refused(host: str) -> NotifyError:
    return NotifyError(
        f"{host}: is a machine's own or Azure's metadata address, which a cluster does not notify"
    )


def _run(
    command: str, notification: Notification, folder: Path, environment: Mapping[str, str]
) -> str:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**environment, **notification.variables()},
            start_new_session=True,  # Ctrl-C at the terminal is not for it.
        )
        try:
            process.communicate(notification.to_json(), COMMAND_S)
        except subprocess.TimeoutExpired:
            return f"the command has not ended in {COMMAND_S:.0f} s"
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        if process.returncode == 0:
            return ""
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - 2000))
        last = output.read().decode(errors="replace").strip().rpartition("\n")[2]
    return masked(f"the command: exit code {process.returncode}" + (f": {last}" if last else ""))
