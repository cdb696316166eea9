"""What a cluster says cannot control the laptop's terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.errors import UserError, printable
from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead
from volley.head import as_text

HOSTILE = "a\x1b]0;title\x07b\x1b[2J\x1b[31mred\x1b[0m\x9b5nc\x08d\u202ee\x1bcf\tg"
DANGEROUS = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202e]")


def on_a_terminal(laptop: Laptop, *words: str) -> str:
    """Returns what a command writes to its terminal, with the terminal's own line ends."""
    terminal, other = pty.openpty()
    process = laptop.start(*words, stdout=other, stderr=subprocess.STDOUT)
    os.close(other)
    written = b""
    try:
        while chunk := os.read(terminal, 2**16):
            written += chunk
    except OSError:  # The last process with the terminal has ended.
        pass
    process.wait()
    os.close(terminal)
    return written.decode().replace("\r\n", "\n")


@pytest.mark.slow
def test_logs_and_names_reach_a_terminal_without_what_controls_it(
    connected: Laptop, head: LocalHead
) -> None:
    folder = head.experiment("pong", "FAILED", reason=HOSTILE)
    (folder / "output.log").write_text(f"{HOSTILE}\r\n50%\r60%\n")
    said = on_a_terminal(connected, "logs", "pong")
    assert said == "ab\x1b[31mred\x1b[0m5ncdef\tg\n50%\n60%\n"
    # A pipe gets every byte.
    assert connected.volley("logs", "pong").startswith(HOSTILE[:20])
    status = on_a_terminal(connected, "status")
    assert "FAILED" in status
    assert not DANGEROUS.search(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", status))
    assert "title" not in status


@pytest.mark.slow
def test_a_refusal_of_the_head_reaches_a_terminal_without_them(
    connected: Laptop, head: LocalHead
) -> None:
    head.experiment("pong")
    said = on_a_terminal(connected, "logs", HOSTILE)
    assert "no experiment is called" in said
    assert not DANGEROUS.search(said)


def test_an_error_has_no_character_that_controls_a_terminal() -> None:
    assert str(UserError(f"--name {HOSTILE}: no")) == "--name abred5ncdef\tg: no"


letters = st.sampled_from([*"\x1b[]031;mJ?\x07\r\n\t\\ x", "\x9b", "\x9d", "\u202e", "ü"])


@given(st.text(letters, max_size=40), st.lists(st.integers(0, 80), max_size=6))
def test_text_in_any_pieces_is_as_harmless_as_in_one(text: str, cuts: list[int]) -> None:
    raw = text.encode()
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    chunks = [raw[a:b] for a, b in pairwise(places)]
    shown = "".join(as_text(chunks))
    assert not DANGEROUS.search(shown)
    assert not DANGEROUS.search(printable(text))
    assert "\x1b" not in printable(text)
