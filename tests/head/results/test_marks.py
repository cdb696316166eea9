"""What a real save has brought to Blob is known without it."""

from __future__ import annotations

import pytest

from tests.head.relocated import relocated
from tests.head.results.cluster import Cluster

pytestmark = pytest.mark.slow


def test_a_file_is_saved_until_it_changes(cluster: Cluster) -> None:
    is_saved = relocated("head.marks", cluster.home.parents[2]).is_saved
    weights = cluster.write_run("a/checkpoints/checkpoint_1/weights", "learned")
    progress = cluster.write_run("a/progress.csv", "1\n")
    best = weights.parents[1] / "best"
    best.symlink_to("checkpoint_1")
    paths = (weights, progress, best)
    assert not any(map(is_saved, paths))
    cluster.save()
    assert all(map(is_saved, paths))
    progress.write_text("1\n2\n")
    best.unlink()
    best.symlink_to("checkpoint_2")
    assert [is_saved(path) for path in paths] == [True, False, False]
    folder = cluster.write_run("a/output/data/x", "folder").parent
    cluster.save()
    (folder / "x").unlink()
    folder.rmdir()
    assert not is_saved(cluster.write_run("a/output/data", "file"))
