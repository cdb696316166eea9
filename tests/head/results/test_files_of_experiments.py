"""Saving what an experiment's code has written: it may write anything, also while it is saved."""

from __future__ import annotations

import os
import socket
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from head import run_files, saved_runs
from head.run_files import Prefix, opened
from head.saved_runs import SMALL
from tests.head.results.cluster import KEY, Cluster

PROGRESS = f"runs/{KEY}/runs/a/progress.csv"


def content(cluster: Cluster, name: str) -> bytes:
    blob: bytes = cluster.blobs.download_blob(name).readall()
    return blob


def uploaded(cluster: Cluster) -> list[int]:
    """Returns a list that gets the length of each body that is uploaded from now on."""
    lengths: list[int] = []

    def note(request: Any) -> None:
        if request.method == "PUT":
            lengths.append(int(request.headers.get("Content-Length", 0)))

    cluster.before_request = note
    return lengths


# Each file for itself


@pytest.mark.slow
def test_a_file_that_azure_refuses_keeps_no_other_from_being_saved(cluster: Cluster) -> None:
    from azure.core.exceptions import ResourceExistsError

    cluster.write_run("a/leased", "1")
    cluster.write_run("b/weights", "2")

    def refuse(request: Any) -> None:
        if request.url.endswith("/leased"):
            raise ResourceExistsError("There is currently a lease on the blob")

    cluster.before_request = refuse
    assert not cluster.save()
    assert cluster.saved_runs() == ["b/weights"]
    cluster.before_request = lambda _: None
    assert cluster.save()
    assert cluster.saved_runs() == ["a/leased", "b/weights"]


@pytest.mark.slow
def test_a_folder_that_becomes_a_link_leads_nowhere_else(cluster: Cluster, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "second").write_text("secret")
    output = cluster.write_run("a/output/first", "1").parent
    cluster.write_run("a/output/second", "2")

    def swap(request: Any) -> None:
        if request.url.endswith("/first") and not output.is_symlink():
            output.rename(output.with_name("aside"))
            output.symlink_to(secrets)

    cluster.before_request = swap
    cluster.save()
    assert content(cluster, f"runs/{KEY}/runs/a/output/second") == b"2"


@pytest.mark.slow
def test_links_are_saved_if_they_lead_to_a_name_beside_them(cluster: Cluster) -> None:
    folder = cluster.write_run("a/weights", "1").parent
    for name, target in {"best": "weights", "up": "..", "out": "/etc/shadow"}.items():
        (folder / name).symlink_to(target)
    assert cluster.save()
    assert cluster.saved_runs() == ["a/best", "a/weights"]


@pytest.mark.slow
def test_folders_without_end_keep_no_file_from_being_saved(cluster: Cluster) -> None:
    folder = cluster.write_run("a/weights", "1").parent
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    cluster.write_run("b/weights", "2")
    assert cluster.save()
    assert cluster.saved_runs() == ["a/weights", "b/weights"]
    subprocess.run(["rm", "-r", folder / "d"], check=True)  # Python's rmtree is recursive.


@pytest.mark.slow
def test_a_checkpoint_that_could_not_be_deleted_is_deleted_later(cluster: Cluster) -> None:
    from azure.core.exceptions import ResourceExistsError

    path = cluster.write_run("a/checkpoints/checkpoint_1/weights", "1")
    assert cluster.save()
    path.unlink()

    def refuse(request: Any) -> None:
        if request.method == "DELETE":
            raise ResourceExistsError("There is currently a lease on the blob")

    cluster.before_request = refuse
    assert not cluster.save()
    cluster.before_request = lambda _: None
    assert cluster.save()
    assert cluster.saved_runs() == []


@pytest.mark.parametrize("what", ["pipe", "socket", "link", "folder"])
def test_what_takes_the_place_of_a_file_is_not_read(tmp_path: Path, what: str) -> None:
    path = tmp_path / "file"
    (tmp_path / "secret").write_text("")
    server = socket.socket(socket.AF_UNIX)
    make: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(path),
        "socket": lambda: server.bind(str(path)),
        "link": lambda: path.symlink_to("secret"),
        "folder": path.mkdir,
    }
    make[what]()
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="file"), opened("file", folder):
            pass
    finally:
        os.close(folder)
        server.close()


# Large files, and files that change


@pytest.mark.slow
def test_a_large_file_is_not_read_whole(cluster: Cluster) -> None:
    with cluster.write_run("a/replay", "").open("wb") as file:
        file.truncate(SMALL + 1)
    cluster.write_run("b/weights", "2")
    lengths = uploaded(cluster)
    tracemalloc.start()
    assert cluster.save()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(lengths) > SMALL
    assert peak < SMALL
    assert lengths[0] == 1, "a large file is saved after the small ones"


def test_a_file_that_becomes_shorter_is_saved_by_the_next_save(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("123")
    with path.open("rb") as file, pytest.raises(OSError, match="file became shorter while it was"):
        Prefix(file, 4, path).read()


def test_a_file_that_takes_too_long_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("123")
    monkeypatch.setattr(run_files, "FILE_S", -1.0)
    with path.open("rb") as file, pytest.raises(TimeoutError, match="file is not saved within"):
        Prefix(file, 3, path).read(1)


@pytest.mark.slow
def test_a_save_ends_in_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.write_run("a/weights", "1")
    monkeypatch.setattr(saved_runs, "SAVE_S", -1.0)
    assert not cluster.save()
    assert "not saved within" in capfd.readouterr().err


# Logs


@pytest.mark.slow
def test_of_a_log_only_what_is_new_is_uploaded(cluster: Cluster) -> None:
    progress = cluster.write_run("a/progress.csv", "x" * 10_000)
    assert cluster.save()
    with progress.open("a") as file:
        file.write("y" * 100)
    lengths = uploaded(cluster)
    assert cluster.save()
    assert lengths == [100]
    assert content(cluster, PROGRESS) == b"x" * 10_000 + b"y" * 100


@pytest.mark.slow
@pytest.mark.parametrize("text", ["1\n3\n4\n", "1\n", ""])
def test_a_log_that_was_rewritten_is_uploaded_whole(cluster: Cluster, text: str) -> None:
    progress = cluster.write_run("a/progress.csv", "1\n2\n")
    assert cluster.save()
    progress.write_text(text)
    assert cluster.save()
    assert content(cluster, PROGRESS).decode() == text


@pytest.mark.slow
def test_a_log_that_grows_meanwhile_is_saved_up_to_a_point(cluster: Cluster) -> None:
    progress = cluster.write_run("a/progress.csv", "1\n")

    def grow(request: Any) -> None:
        if "comp=appendblock" in request.url:
            with progress.open("a") as file:
                file.write("2\n")

    cluster.before_request = grow
    assert cluster.save()
    assert content(cluster, PROGRESS) == b"1\n"
    cluster.before_request = lambda _: None
    assert cluster.save()
    assert content(cluster, PROGRESS) == b"1\n2\n"


@pytest.mark.slow
def test_a_lost_answer_appends_nothing_twice(cluster: Cluster) -> None:
    progress = cluster.write_run("a/progress.csv", "1\n")
    assert cluster.save()
    with progress.open("a") as file:
        file.write("2\n")
    cluster.lose_once("PUT", "progress.csv")
    assert not cluster.save()
    with progress.open("a") as file:
        file.write("3\n")
    lengths = uploaded(cluster)
    assert cluster.save()
    assert content(cluster, PROGRESS) == b"1\n2\n3\n"
    assert 6 not in lengths, "it is not uploaded whole"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gone", "of an earlier volley", "full", "with versions"])
def test_a_log_is_saved_whatever_its_blob_has_become(cluster: Cluster, kind: str) -> None:
    progress = cluster.write_run("a/progress.csv", "1\n")
    assert cluster.save()
    if kind in ("gone", "of an earlier volley"):
        cluster.blobs.delete_blob(PROGRESS)
    if kind == "of an earlier volley":
        cluster.blobs.upload_blob(PROGRESS, b"1\n")
    refusals = {
        # It has 50,000 blocks.
        "full": ["appendblock"],
        # Azure does not change the type of a blob that has some.
        "with versions": ["appendblock", "AppendBlob"],
    }.get(kind, [])

    def refuse(request: Any) -> None:
        from azure.core.exceptions import ResourceExistsError

        asked = request.url + request.headers.get("x-ms-blob-type", "")
        if refusals and refusals[0] in asked:
            refusals.pop(0)
            error = ResourceExistsError("conflict")
            error.status_code = 409
            raise error

    cluster.before_request = refuse
    with progress.open("a") as file:
        file.write("2\n")
    assert cluster.save()
    assert not refusals
    assert content(cluster, PROGRESS) == b"1\n2\n"
