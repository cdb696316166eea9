"""What a run knows of the machine that it starts Ray on."""

from __future__ import annotations

import os

import pytest

from payload.run.ray_cluster import available_cpus


def test_every_cpu_is_available_where_a_process_has_no_share_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert available_cpus() == os.cpu_count()
